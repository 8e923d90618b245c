"""Every mode decodes on torch's meta device, as it would on a GPU: shapes without numbers.

There an operation on tensors of two devices raises, and so does everything that makes a GPU wait for its result: a
number read back, a shape that depends on a value. Values, timing, capture and the allocator are not tested by it.
"""

import random

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.decoding.loading import built, hf_config
from kvviz.decoding.loop import chooser, decode
from kvviz.decoding.modes import MODES
from kvviz.models.catalog.rows import model_row
from tests.conftest import TINY, can
from tests.draws import one_of_each

SAMPLINGS = {"greedy": Sampling(), "drawn": Sampling(0.8), "filtered": Sampling(0.8, top_k=5, top_p=0.9)}
READS_BACK = {
    "uncached": "transformers tests once a step whether several texts are packed into one row",
    "prefix": "it looks up the blocks of a shared prefix by their token ids, which the processor has to read",
    "kvzip": "it keeps the ids of the tokens, which the processor has to read, for its second reading",
    "offloaded": "it keeps keys and values in the processor's memory",
}
WORK = [(model, mode) for model in TINY for mode in MODES if can(mode, model)]


@pytest.fixture(scope="module")
def on_meta():
    """The tiny models without numbers, each built once."""
    made = {}
    for name in TINY:
        with torch.device("meta"):
            made[name] = built(hf_config(model_row(name).config)).eval()
    return made


def steps(model, mode, sampling):
    prompt = torch.zeros(2, 15, dtype=torch.long, device="meta")  # the steps go beyond the windows of 16 tokens
    return list(decode(model, prompt, mode=mode, new_tokens=3, choose=chooser(sampling)))


CHOSEN = [  # what draws a token sees the logits and no mode, so one mode of each model stands for all
    (model, mode, sampling)
    for model, mode in WORK
    if mode not in READS_BACK
    for sampling in (SAMPLINGS if mode == "cached" else ["filtered"])
]
MIXED = random.Random(1).sample(CHOSEN, len(CHOSEN))  # so that the modes meet different models


@pytest.mark.parametrize(("model", "mode", "sampling"), one_of_each(MIXED, lambda case: case[1:]))
def test_no_step_mixes_devices_or_waits_for_a_number(on_meta, model, mode, sampling):
    found = steps(on_meta[model], mode, SAMPLINGS[sampling])
    assert len(found) == 3
    assert {(step.token_ids.device.type, tuple(step.token_ids.shape)) for step in found} == {("meta", (2,))}
    assert len({tuple(step.logits.shape) for step in found}) == 1


@pytest.mark.parametrize("mode", READS_BACK)
def test_the_modes_that_read_back_are_caught_here(on_meta, mode):
    with pytest.raises((RuntimeError, NotImplementedError, KvvizError)):
        steps(on_meta["tiny-llama"], mode, Sampling())


def test_every_mode_is_covered():
    apart = {name for name, mode in MODES.items() if not mode.batches}  # each of their tokens is read here
    assert {mode for _, mode in WORK} | set(READS_BACK) == set(MODES) - apart
