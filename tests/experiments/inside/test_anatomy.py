"""What is shown of a layer is what it computes: shares of the values add up to its outputs, rows to the cache."""

import math

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.load import from_transformers
from kvviz.experiments.inside.anatomy import dissect
from kvviz.models.text import ByteCodec

PROMPT, NEW = 7, 4
TOTAL = PROMPT + NEW - 1


@pytest.fixture(scope="module", params=["tiny-gpt2", "tiny-llama", "tiny-qwen3"])
def shown(request, load):
    loaded = load(request.param)
    prompt = torch.arange(3, 3 + PROMPT)[None] * 11 % 200
    return dissect(from_transformers(loaded.model), ByteCodec(512), prompt, new_tokens=NEW, layer=1, head=0)


@pytest.mark.slow
def test_there_is_a_row_for_each_token_that_was_read(shown):
    assert len(shown["tokens"]) == TOTAL
    for name, heads in (("q", "heads"), ("k", "kv_heads"), ("v", "kv_heads"), ("mixed", "heads")):
        assert len(shown[name]) == len(shown[heads])
        assert {len(rows) for rows in shown[name]} == {TOTAL}
        assert {len(row) for rows in shown[name] for row in rows} == {shown["design"]["head_dim"]}


def test_scores_are_the_products_and_weights_their_softmax(shown):
    design = shown["design"]
    group = design["heads"] // design["kv_heads"]
    for place, head in enumerate(shown["heads"]):
        q, k = torch.tensor(shown["q"][place]), torch.tensor(shown["k"][head // group])
        v, mixed = torch.tensor(shown["v"][head // group]), torch.tensor(shown["mixed"][place])
        for row in range(TOTAL):
            scores, weights = (torch.tensor(shown[name][place][row]) for name in ("scores", "weights"))
            assert scores.shape == weights.shape == (row + 1,)
            expected = k[: row + 1] @ q[row] / math.sqrt(design["head_dim"])
            assert torch.allclose(scores, expected, rtol=5e-3, atol=5e-3)
            assert torch.allclose(weights, scores.softmax(-1), rtol=1e-2, atol=1e-3)
            assert torch.allclose(mixed[row], weights @ v[: row + 1], rtol=2e-2, atol=5e-3)


def test_steps_read_the_prompt_and_then_a_token_each(shown):
    steps = shown["steps"]
    assert [step["read"] for step in steps] == [PROMPT] + [1] * (NEW - 1)
    assert [step["total"] for step in steps] == list(range(PROMPT, TOTAL + 1))
    assert [step["shapes"]["turn"]["q"][2] for step in steps] == [PROMPT] + [1] * (NEW - 1)
    assert [step["shapes"]["append"]["keys"][2] for step in steps] == list(range(PROMPT, TOTAL + 1))
    assert [step["again"]["shapes"]["turn"]["q"][2] for step in steps] == list(range(PROMPT, TOTAL + 1))
    assert list(steps[0]["shapes"]) == [stage.name for stage in listing().stages]


def test_what_is_computed_again_is_what_was_kept(shown):
    for step in shown["steps"]:
        assert step["again"]["difference"] < 1e-4
        assert step["again"]["logits_difference"] < 1e-3


def test_without_the_cache_every_step_does_more(shown):
    first, *later = shown["steps"]
    assert first["multiply_adds"] == first["again"]["multiply_adds"]
    assert all(step["again"]["multiply_adds"] > 3 * step["multiply_adds"] for step in later)
    again = [step["again"]["multiply_adds"] for step in shown["steps"]]
    assert again == sorted(again)


def test_the_next_token_is_the_likeliest(shown):
    for step, row in zip(shown["steps"], shown["tokens"][PROMPT:], strict=False):
        assert step["next"][0][0] == row
        shares = [share for _, share in step["next"]]
        assert shares == sorted(shares, reverse=True)


@pytest.mark.slow
def test_multiply_adds_are_torchs_own_count(load):
    from torch.utils.flop_counter import FlopCounterMode

    from kvviz.device.multiply_adds import MultiplyAdds

    model = from_transformers(load("tiny-qwen3").model)
    ids = torch.arange(9)[None]
    with torch.no_grad(), FlopCounterMode(display=False) as theirs:
        model(ids)
    with torch.no_grad(), MultiplyAdds() as ours:
        model(ids)
    assert ours.done == theirs.get_total_flops() // 2 > 0


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "head"), [(99, 0), (0, 99)])
def test_a_layer_or_head_that_is_not_there_is_named(load, layer, head):
    model = from_transformers(load("tiny-gpt2").model)
    with pytest.raises(KvvizError, match=f"no layer {layer}, head {head}"):
        dissect(model, ByteCodec(512), torch.arange(4)[None], new_tokens=2, layer=layer, head=head)


@pytest.mark.slow
def test_a_large_layer_sends_one_group_of_heads(load, monkeypatch):
    monkeypatch.setattr("kvviz.experiments.inside.anatomy.MOST_NUMBERS", 10)
    model = from_transformers(load("tiny-qwen3").model)
    group = model.design.heads // model.design.kv_heads
    found = dissect(model, ByteCodec(512), torch.arange(4)[None], new_tokens=2, layer=0, head=group)
    assert found["heads"] == list(range(group, 2 * group))
    assert found["kv_heads"] == [1]
    assert len(found["q"]) == group
