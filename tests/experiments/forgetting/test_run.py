"""What is said to be forgotten, against the caches and the model's own attention."""

import base64
import json

import numpy as np
import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.charts.forgetting import kl_at_budget
from kvviz.experiments.forgetting import spec as asked
from kvviz.experiments.forgetting.run import ABSENT, run
from kvviz.experiments.forgetting.spec import ForgettingSpec
from kvviz.experiments.forgetting.words import kl_of, text
from kvviz.models.catalog.rows import heldout

MODEL, TOKENS, BUDGET = "tiny-qwen3", 36, 12


@pytest.fixture(scope="module")
def found(bench):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked, "BUDGETS", ("100%",))
        records = list(run(ForgettingSpec(MODEL, ("sinks", "h2o", "snapkv"), str(BUDGET), TOKENS), bench()))
    json.dumps(records, allow_nan=False)
    assert [record["t"] for record in (records[0], records[-1])] == ["look", "done"]
    return records[-1]["document"]


def run_of(found, mode):
    return next(run for run in found["runs"] if run["mode"] == mode)


def gone_of(found, mode):
    one = run_of(found, mode)
    numbers = np.frombuffer(base64.b64decode(one["gone"]), dtype=np.int16)
    return torch.tensor(numbers.reshape(len(one["layers"]), one["heads"], TOKENS).astype(int))


def test_a_window_lets_go_of_each_token_when_it_has_moved_past_it(found):
    by_hand = [TOKENS if p < 4 else min(TOKENS, p + BUDGET - 4) for p in range(TOKENS)]
    assert (gone_of(found, "sinks") == torch.tensor(by_hand)).all()
    assert not run_of(found, "sinks")["scored"]


@pytest.mark.parametrize("mode", ["h2o", "snapkv"])
def test_a_head_keeps_as_many_tokens_as_the_design_says(found, mode):
    """SnapKV evicts half of so small a budget at once: 12 tokens are held, then 7, 8 and so on up to 12 again."""
    gone = gone_of(found, mode)
    for tokens in range(1, TOKENS + 1):
        held = tokens if tokens <= BUDGET else BUDGET if mode == "h2o" else 7 + (tokens - 13) % 6
        assert ((gone[:, :, :tokens] >= tokens).sum(-1) == held).all()


def test_with_room_for_all_tokens_nothing_is_lost(found):
    for one in found["runs"]:
        everything, within = one["budgets"]["100%"], one["budgets"][str(BUDGET)]
        assert max(everything["kl"]) < 1e-6 < max(within["kl"])
        assert everything["perplexity"] == pytest.approx(found["perplexity"], rel=1e-4)
        assert within["nbytes"] < everything["nbytes"] >= found["whole_bytes"]


def test_the_attention_that_is_lost_is_the_models_own(load, found):
    model = load(MODEL).model
    ids = torch.tensor([load(MODEL).codec.encode(heldout())[:TOKENS]])
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            weights = model(ids, output_attentions=True).attentions
    finally:
        model.set_attn_implementation("sdpa")
    for mode in ("sinks", "h2o"):
        gone, lost = gone_of(found, mode), run_of(found, mode)["lost"]
        for layer, of_layer in enumerate(weights):
            for step in range(TOKENS):
                of_head = of_layer[0, :, step].unflatten(0, (gone.shape[1], -1)).mean(1)
                share = (of_head * (gone[layer] <= step)).sum(-1).mean()
                assert lost[layer][step] == pytest.approx(share.item(), abs=2e-4)


def test_scores_are_noted_of_the_tokens_that_are_there(found):
    one, gone = run_of(found, "h2o"), gone_of(found, "h2o")
    history = np.frombuffer(base64.b64decode(one["history"]), dtype=np.uint8)
    history = history.reshape(len(one["moments"]), len(one["layers"]), TOKENS)
    for moment, of_layers in zip(one["moments"], history, strict=True):
        there = (gone > moment).any(1) & (torch.arange(TOKENS) <= moment)
        assert torch.equal(torch.tensor(of_layers != ABSENT), there)


def test_designs_are_drawn_by_what_they_lose_within_the_budget(found):
    points = kl_at_budget(found).data
    lost = {run["title"]: kl_of(run, found["budget"]) for run in found["runs"]}
    assert {point.name: point.x[0] for point in points} == pytest.approx(lost)
    assert points[-1].name == min(lost, key=lost.get), "the least stands on top"


def test_it_is_said_in_lines(found):
    said = text(found)
    assert "loses least with equally many tokens kept" in said and f"12 ({BUDGET} tokens): holds" in said


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"designs": ("int8",)}, "'int8' is no design that evicts"),
        ({"designs": ()}, "choose at least one"),
        ({"budget": "a lot"}, "number of tokens such as 128"),
        ({"tokens": 4}, "tokens is 4"),
    ],
)
def test_what_can_not_be_asked_for(fields, sentence):
    with pytest.raises(KvvizError, match=sentence):
        ForgettingSpec(MODEL, **fields)
