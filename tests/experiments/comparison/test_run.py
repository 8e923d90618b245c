"""One comparison from end to end: the records in their order, the document and its figures."""

import gc
import json
import re
import statistics
from dataclasses import replace

import pytest
import torch

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.records import LayerState, Sampling
from kvviz.decoding.modes import MODES, Mode
from kvviz.experiments.comparison import run as module
from kvviz.experiments.comparison.equivalence import grouped
from kvviz.experiments.comparison.figures import figures, nearest_rank, tail, tail_said
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from tests.tiny_configs import TINY

pytestmark = pytest.mark.slow  # they decode with real models

WORK = dict(model="tiny-qwen3", prompt="Once upon a time", new_tokens=6, repeats=2, warmup=2)


def records(engine, **fields):
    work = ComparisonSpec(**{**WORK, **fields})
    return list(perform(work, engine.get(work), comparison_id="c"))


@pytest.fixture(scope="module")
def done(engine):
    return records(engine, modes=("uncached", "cached", "unpassed"))


@pytest.fixture(autouse=True)
def quick(done, monkeypatch):
    """Without what takes most of a tiny comparison, and the one above has: the allocator's account, collections."""
    monkeypatch.setattr(module, "account_memory", lambda *_: iter(()))
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


def document(done):
    return done[-1]["document"]


def test_the_order_of_the_records(done):
    kinds = [r["t"] for r in done]
    assert kinds[0] == "started" and kinds[-1] == "done"
    assert kinds[1:11] == ["predicted"] + ["proof"] * 6 + ["memory"] * 3
    passes = [(r["repeat"], r["mode"]) for r in done if r["t"] == "pass"]
    names = ["uncached", "cached", "unpassed"]
    assert passes == [(repeat, mode) for repeat in (-1, 0, 1) for mode in (names if repeat % 2 else reversed(names))], (
        "warm-up first, then modes in alternating order"
    )


def test_each_step_is_sent_once(done):
    sent = [(r["mode"], r["repeat"], r["from"] + k) for r in done if r["t"] == "times" for k in range(len(r["s"]))]
    assert len(sent) == len(set(sent)) == 3 * 3 * 6
    text = {name: "".join(r["modes"][name]["text"] for r in done if r["t"] == "proof") for name in ("cached",)}
    assert text["cached"] == next(run["text"] for run in document(done)["runs"] if run["mode"] == "cached")


def test_the_rates_and_what_they_say_of_the_middle_step_travel_with_the_document(done):
    doc = document(done)
    assert all(doc["rates"][name] > 0 for name in ("read", "flops", "launch"))
    uncached, cached, unpassed = (run["estimate"] for run in doc["runs"])
    assert cached["tokens"] == doc["prompt_tokens"] + 3 and uncached == unpassed
    assert cached["scan_s"] > uncached["scan_s"] == 0 and cached["computing_s"] < uncached["computing_s"]
    assert 0 < cached["starting_s"] <= uncached["starting_s"], "more memory is moved beside the starts without a cache"
    for run in doc["runs"]:
        parts = sum(seconds for name, seconds in run["estimate"].items() if name != "tokens")
        assert parts == pytest.approx(run["predicted_s"][3], rel=1e-5), "the estimate is the prediction, in parts"


def test_a_run_without_a_decode_step_has_no_estimate(engine):
    doc = document(records(engine, new_tokens=1, repeats=1, warmup=1))
    assert [run["estimate"] for run in doc["runs"]] == [None, None] and doc["rates"]


def test_the_document_keeps_the_contract(done):
    doc = document(done)
    assert {
        "id",
        "environment",
        "model",
        "weights",
        "prompt_tokens",
        "new_tokens",
        "batch",
        "warmup",
        "repeats",
    } <= set(doc)
    assert (doc["reference"], doc["identical"], doc["prompt_tokens"]) == ("uncached", True, 16)
    assert {"device", "device_name", "dtype", "attn_implementation", "threads", "torch", "platform"} <= set(
        doc["environment"]
    )
    for run in doc["runs"]:
        assert run["identical"] and run["first_divergence"] is None and run["max_abs_logit_diff"] < 1e-3
        assert len(run["token_ids"]) == len(run["step_s"]) == len(run["cache_bytes"]) == 6
        assert run["ttft_s"] == run["step_s"][0] and run["itl_s"] == statistics.median(run["step_s"][1:])
        assert run["tokens_per_s"] == pytest.approx(6 / run["total_s"])
        assert all(
            q1 <= mid <= q3 for q1, mid, q3 in zip(run["step_s_q1"], run["step_s"], run["step_s_q3"], strict=True)
        )
        assert run["repeatable"]
    json.dumps(doc, allow_nan=False)


def test_cache_bytes_follow_the_formula(done):
    runs = {run["mode"]: run for run in document(done)["runs"]}
    row = 4 * 2 * (32 + 32) * 4  # layers x KV heads x (K + V dims) x float32 bytes
    assert runs["cached"]["cache_bytes"] == [(16 + i) * row for i in range(6)]
    assert runs["cached"]["outliving_bytes"] == runs["cached"]["allocated_bytes"]
    for held_nothing in ("uncached", "unpassed"):
        assert runs[held_nothing]["cache_bytes"] == runs[held_nothing]["outliving_bytes"] == [0] * 6
        assert runs[held_nothing]["layers"] == [] and runs[held_nothing]["cache_class"] is None
    assert runs["cached"]["cache_class"] == "DynamicCache"
    layer = runs["cached"]["layers"][0]
    assert (layer["kind"], layer["kv_heads"], layer["key_dim"], layer["seen"], layer["held"]) == ("full", 2, 32, 21, 21)


def test_three_figures_for_the_memory_agree(engine, done, monkeypatch):
    """Formula, tensors and the allocator's own account (the profiler's on a CPU), which knows no cache by name."""
    monkeypatch.undo()
    for run in document(done)["runs"]:
        memory = run["memory"]
        assert memory["formula"] == memory["tensors"] == memory["storages"] == memory["allocator"]["kept"]
        assert run["peak_kind"] == "profiler"
        assert run["peak_bytes"] >= memory["allocator"]["kept"]
    window = document(records(engine, model="tiny-mistral", prompt=None, prompt_tokens=40))["runs"][1]["memory"]
    assert window["formula"] == window["tensors"] == 4 * 2 * 2 * 15 * 16 * 4
    assert window["storages"] == 4 * 2 * 2 * 16 * 16 * 4, "a window is a view of a longer storage"
    assert window["allocator"]["kept"] == window["storages"] + 4 * 8, "and each layer keeps its window as a tensor"


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "falcon_h1"])
def test_the_formula_written_out_makes_up_its_total_with_states_too(engine, done, monkeypatch, tmp_path, family):
    monkeypatch.undo()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY[family]))
    memory = document(records(engine, model=str(path), prompt=None, prompt_tokens=9, repeats=1))["runs"][1]["memory"]
    terms, total = memory["reasons"][0].replace(",", "").partition(": ")[2].split(" = ")
    assert eval(re.sub("[A-Za-z]", "", terms).replace("×", "*")) == int(total.removesuffix(" B")) == memory["tensors"]


def test_it_ends_at_the_stop_text_in_every_mode(engine):
    whole = document(records(engine, new_tokens=12))["runs"][0]
    stop = whole["text"][4:7]
    runs = document(records(engine, new_tokens=12, stop_text=stop))["runs"]
    for run in runs:
        assert run["text"] == runs[0]["text"]
        assert stop in run["text"]
        assert len(run["token_ids"]) == len(run["step_s"]) < 12
        assert run["token_ids"] == whole["token_ids"][: len(run["token_ids"])]


def test_it_ends_at_an_end_token_when_every_row_has(engine):
    whole = document(records(engine, new_tokens=12))["runs"][0]["token_ids"]
    work = ComparisonSpec(**{**WORK, "new_tokens": 12, "stop_at_eos": True})
    loaded = replace(engine.get(work), stop_ids=frozenset([whole[5]]))
    doc = list(perform(work, loaded, comparison_id="c"))[-1]["document"]
    assert doc["runs"][0]["token_ids"] == whole[: whole.index(whole[5]) + 1]


def test_batches_and_random_prompts(engine):
    doc = document(records(engine, prompt=None, prompt_tokens=9, batch=3, sampling=Sampling(1.0, seed=5)))
    for run in doc["runs"]:
        assert [len(row) for row in run["token_ids"]] == [6, 6, 6] and len(run["text"]) == 3
        assert run["tokens_per_s"] == pytest.approx(18 / run["total_s"])
    assert doc["identical"] and doc["runs"][1]["cache_bytes"][0] == 3 * 9 * 4 * 2 * 64 * 4


def off_from_the_third_step(model, capacity):
    def forward(ids, new):
        logits = model(input_ids=ids, use_cache=False).logits[:, -1]
        if ids.shape[1] >= 16 + 2:
            logits = logits.clone()
            logits[:, 7] = logits.max() + 1
        return logits, None

    return forward


@pytest.mark.parametrize(
    ("traits", "says"),
    [
        ({"caches": False}, r"its token 3 is another, and its logits are .* off, more than float32 rounds"),
        ({}, "keeps nothing of this model's prompt"),
    ],
)
def test_an_exact_mode_with_wrong_tokens_or_an_empty_cache_has_no_figures(engine, monkeypatch, traits, says):
    monkeypatch.setitem(MODES, "wrong", Mode("wrong", "", "", off_from_the_third_step, **traits))
    with pytest.raises(KvvizError, match=says):
        records(engine, modes=("uncached", "wrong"))


def test_a_divergence_is_found_with_its_margin(engine, monkeypatch):
    """A lossy mode that is off from its third step on: the first different token and the margin are reported."""
    monkeypatch.setitem(MODES, "wrong", Mode("wrong", "", "", off_from_the_third_step, exact=False, caches=False))
    doc = document(records(engine, modes=("uncached", "wrong")))
    right, wrong = doc["runs"]
    assert doc["identical"] and right["identical"] and not wrong["identical"]
    assert wrong["first_divergence"] == 2 and wrong["divergence_margin"] > 0 and wrong["max_abs_logit_diff"] >= 1


def test_without_uncached_the_first_mode_is_the_reference(engine):
    doc = document(records(engine, modes=("cached", "unpassed")))
    assert doc["reference"] == "cached" and doc["identical"]
    assert [run["speedup"] for run in doc["runs"]] == [None, None]


def test_stop_ends_it_within_a_step(engine):
    work = ComparisonSpec(**{**WORK, "new_tokens": 200})
    calls = []

    def should_stop():
        calls.append(1)
        return len(calls) > 20

    with pytest.raises(Stopped):
        list(perform(work, engine.get(work), comparison_id="c", should_stop=should_stop))
    assert len(calls) == 21


def test_what_does_not_fit_is_refused(engine):
    with pytest.raises(KvvizError, match="1,024 positions"):
        records(engine, model="tiny-gpt2", new_tokens=1020)
    with pytest.raises(KvvizError, match=r"needs 1\.\d\d TiB .* has \d"):
        records(engine, model="llama-3.1-405b", new_tokens=8)


def test_logits_that_overflow_are_named(engine, monkeypatch):
    def opened(model, capacity):
        return lambda ids, new: (torch.full((1, 256), float("nan")), None)

    monkeypatch.setitem(MODES, "broken", Mode("broken", "", "", opened, caches=False, fills=False))
    with pytest.raises(KvvizError, match="not finite"):
        records(engine, modes=("uncached", "broken"))


def test_like_layers_share_an_entry():
    rows = tuple(LayerState(i, "full", (1, 2, 5, 8), (1, 2, 5, 8), "float32", 5, 5, 640, 640) for i in range(80))
    state = {"key_shape": [1, 2, 5, 8], "value_shape": [1, 2, 5, 8], "dtype": "float32", "seen": 5, "held": 5}
    assert grouped(rows) == [{"indices": list(range(80)), "kind": "full", **state, "nbytes": 640, "allocated": 640}]


def test_figures_from_given_seconds():
    result = figures([[5.0, 1.0, 1.0], [7.0, 3.0, 1.0], [6.0, 2.0, 4.0]], batch=2)
    assert (result["ttft_s"], result["itl_s"], result["itl_mean_s"], result["total_s"]) == (6.0, 1.5, 1.5, 11.0)
    assert result["step_s"] == [6.0, 2.0, 1.0] and result["step_s_q1"] == [5.5, 1.5, 1.0]
    assert result["tokens_per_s"] == 6 / 11.0 and result["itl_p99_s"] == 4.0
    assert figures([[1.0, *map(float, range(1, 101))]])["itl_p99_s"] == 99.0, "the nearest rank of a hundred"


def test_one_new_token_has_no_decode_step():
    result = figures([[5.0]])
    assert result["itl_s"] is None and result["itl_p99_s"] is None and result["tokens_per_s"] == 0.2


def test_a_99th_percentile_that_is_the_largest_value_is_called_the_slowest():
    for count in (1, 60, 99, 100, 101, 480):
        largest = nearest_rank(range(count), 99) == count - 1
        assert tail(count) == ("slowest" if largest else "p99")
    assert tail(60, 120) == "p99 or slowest" and tail(3, 24) == "slowest" and tail(160, 160) == "p99"
    for counts, words in (
        ((160, 160), "; *p99*: 99 of a hundred"),
        ((3, 24), "; *slowest*: the longest wait, as p99 takes 100 requests"),
        ((60, 480), "; *p99*: 99 of a hundred; an open mark is the slowest of fewer than 100 requests"),
    ):
        assert tail_said(*counts) == f"*p50*: half of the requests wait this long or less{words}"
