"""YOCO with its caches is YOCO without; one cache is read by every layer of the upper half."""

import pytest
import torch

from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.yoco import Window
from kvviz.device.multiply_adds import MultiplyAdds
from kvviz.experiments.architectures.shared import tiny_yoco

IDS = torch.tensor([[79, 110, 99, 101, 32, 117, 112, 111, 110, 32, 97, 32, 116, 105, 109, 101]])


@pytest.fixture(scope="module")
def model():
    return tiny_yoco()


def test_a_token_sees_itself_and_the_window_before_it():
    assert Window(3)(2, 5).tolist() == [[False, True, True, True, False], [False, False, True, True, True]]


@torch.no_grad()
def test_step_by_step_the_logits_are_those_of_one_pass_and_those_of_a_prefill_that_leaves_early(model):
    whole = model(IDS, model.new_caches())
    caches = model.new_caches()
    made = [model(IDS[:, :5], caches), *(model(token, caches) for token in IDS[:, 5:].split(1, dim=1))]
    assert torch.allclose(torch.cat(made, dim=1), whole, atol=1e-4) and whole.std() > 0.5
    early = model.new_caches()
    with MultiplyAdds() as counter:
        assert torch.allclose(model(IDS, early, last=True), whole[:, -1:], atol=1e-4)
    with MultiplyAdds() as all_of_it:
        model(IDS, model.new_caches())
    assert counter.done < 0.65 * all_of_it.done
    for one, other in zip(caches, early, strict=True):
        assert torch.allclose(one.k, other.k, atol=1e-4) and torch.allclose(one.v, other.v, atol=1e-4)


@torch.no_grad()
def test_without_the_global_cache_no_token_further_back_than_the_windows_reaches_the_logits(model):
    """Two texts that differ in the first token alone: the windows of all layers together end before the last one."""
    other = IDS.clone()
    other[0, 0] += 1
    reach = len(model.self_decoder) * (model.mask.window - 1)
    long = torch.cat([IDS, IDS, IDS], dim=1)[:, : reach + 2]
    changed = torch.cat([other[:, :1], long[:, 1:]], dim=1)
    caches, others = model.new_caches(), model.new_caches()
    one, two = model(long, caches), model(changed, others)
    assert not torch.allclose(one[:, -1], two[:, -1], atol=1e-4), "read from the global cache"
    assert torch.equal(caches[-1].k[:, :, -1], others[-1].k[:, :, -1]), "but what the last token writes is the same"
    assert isinstance(caches[-1], LayerCache) and caches[-1].seen == reach + 2
