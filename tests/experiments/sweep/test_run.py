"""A sweep from end to end on tiny models: its order, its resumption, cells that fail, its budget."""

import gc
import json

import pytest
import torch

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.settings import Limits
from kvviz.decoding.modes import MODES, Mode
from kvviz.experiments.kind import Bench
from kvviz.experiments.sweep import run as sweeping
from kvviz.experiments.sweep.run import failure, run
from kvviz.experiments.sweep.spec import SweepSpec, cells

pytestmark = pytest.mark.slow  # they decode with real models

RATES = {"rates": {"read": 2e10, "flops": 8e10, "launch": 2e-6}}
WORK = dict(models=("tiny-gpt2",), prompt_tokens=(4, 8, 16), new_tokens=(3,), repeats=2)


def measured(engine, done=(), device=RATES, should_stop=lambda: False, **fields):
    spec, limits = SweepSpec(**{**WORK, **fields}), Limits()
    return list(run(spec, Bench("s", engine, limits, device=device, should_stop=should_stop, earlier=done)))


def order(records):
    """What was done, in short: 'p0' a proof, '0u' a pass."""
    short = {"cell_proof": lambda r: f"p{r['cell']}", "cell_pass": lambda r: f"{r['cell']}{r['mode'][0]}"}
    return [short[r["t"]](r) for r in records if r["t"] in short]


@pytest.fixture(scope="module")
def swept(engine):
    return measured(engine)


@pytest.fixture(autouse=True)
def quick(swept, monkeypatch):
    """Without what takes most of a tiny sweep, and the one above has: the allocator's account, collecting garbage."""
    monkeypatch.setattr(sweeping, "account_memory", lambda *_: iter(()))
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


def test_cells_and_modes_take_turns(swept):
    """A B C, then C B A; a cell's proof before its first pass; the modes of a cell alternate as well."""
    assert order(swept) == ["p0", "0u", "0c", "p1", "1u", "1c", "p2", "2u", "2c", "2c", "2u", "1c", "1u", "0c", "0u"]
    assert [r["round"] for r in swept if r["t"] == "cell_pass"] == [0] * 6 + [1] * 6
    assert swept[0]["t"] == "sweep_started" and swept[-1]["t"] == "done"


def test_it_begins_with_what_it_will_do_and_where(swept):
    started = swept[0]
    assert started["id"] == "s" and SweepSpec.from_dict(started["spec"]) == SweepSpec(**WORK)
    assert [cell["prompt_tokens"] for cell in started["cells"]] == [4, 8, 16]
    assert started["environment"]["device"] == "cpu" and started["environment"]["attn_implementation"] == "sdpa"
    assert started["plan"]["repeats"] == 2 and started["plan"]["seconds"] > 0


def test_every_record_is_json_and_progress_runs_to_its_end(swept):
    for record in swept:
        json.dumps(record, allow_nan=False)
    last = [r for r in swept if r["t"] == "progress"][-1]
    assert (last["done"], last["of"], last["left_s"]) == (12, 12, 0)


def test_the_proof_gives_identity_and_bytes(swept):
    for record in (r for r in swept if r["t"] == "cell_proof"):
        prompt = WORK["prompt_tokens"][record["cell"]]
        uncached, cached = record["modes"]["uncached"], record["modes"]["cached"]
        assert record["identical"] and record["delta"] < 1e-3
        assert uncached["tokens"] == cached["tokens"]
        assert (uncached["cache_bytes"], cached["cache_bytes"]) == (0, (prompt + 2) * 4 * 2 * 64 * 4)
        assert cached["peak_kind"] == "profiler" and cached["peak_bytes"] >= cached["cache_bytes"]
        assert record["weights_bytes"] == 281_984 * 4


def test_rows_have_consistent_ratios(swept):
    found = swept[-1]["document"]["rows"]
    assert len(found) == 6 and all(row["repeats"] == 2 and row["repeatable"] and row["identical"] for row in found)
    for before, after in zip(found[::2], found[1::2], strict=True):
        assert (before["mode"], after["mode"]) == ("uncached", "cached")
        assert after["speedup"] == before["total_s"] / after["total_s"] and before["speedup"] == 1
        assert after["tokens_per_s"] == pytest.approx(3 / after["total_s"])
    assert swept[-1]["document"]["failed"] == []


# --- going on ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [1, 2, 3, 9])
def test_an_interrupted_sweep_goes_on_where_it_was(engine, swept, until):
    earlier = [r for r in swept if r["t"] != "progress"][:until]
    rest = measured(engine, done=earlier)
    assert sorted(order(earlier) + order(rest)) == sorted(order(swept)), "nothing twice, nothing left out"
    assert rest[0]["found"] == len([r for r in earlier if r["t"] == "cell_pass"])
    assert len(rest[-1]["document"]["rows"]) == 6
    assert all(row["repeats"] == 2 and row["repeatable"] for row in rest[-1]["document"]["rows"])


def test_a_finished_sweep_is_not_repeated(engine, swept):
    again = measured(engine, done=swept)
    assert order(again) == [] and again[-1]["document"]["rows"] == swept[-1]["document"]["rows"]


def test_more_repeats_are_added(engine, swept):
    more = measured(engine, done=swept, repeats=3)
    assert order(more) == ["0u", "0c", "1u", "1c", "2u", "2c"]
    assert {row["repeats"] for row in more[-1]["document"]["rows"]} == {3}


def test_other_work_is_not_mixed_in(engine, swept):
    with pytest.raises(KvvizError, match="other work"):
        measured(engine, done=swept, seed=1)


def test_another_place_is_not_mixed_in(engine, swept):
    started = {**swept[0], "environment": {**swept[0]["environment"], "device_name": "another"}}
    with pytest.raises(KvvizError, match="another"):
        measured(engine, done=[started, *swept[1:]])


def test_a_pass_without_its_proof_is_measured_again(engine, swept):
    torn = [r for r in swept if r["t"] != "cell_proof" or r["cell"] != 1]
    assert order(measured(engine, done=torn)) == ["p1", "1u", "1c", "1c", "1u"]


# --- what goes wrong ---------------------------------------------------------------------------------------------


def test_a_cell_beyond_the_context_does_not_end_it(engine):
    records = measured(engine, prompt_tokens=(4, 1023, 8))
    (failed,) = [r for r in records if r["t"] == "cell_failed"]
    assert failed["cell"] == 1 and "1,024 positions" in failed["message"]
    assert order(records) == ["p0", "0u", "0c", "p2", "2u", "2c", "2c", "2u", "0c", "0u"]
    assert [row["prompt_tokens"] for row in records[-1]["document"]["rows"]] == [4, 4, 8, 8]
    assert records[-1]["document"]["failed"][0]["name"] == "1,023 + 3 tokens"


def broken(error, after):
    """A mode that works for so many forwards, and then fails."""
    calls = []

    def opened(model, capacity):
        def forward(ids, new):
            calls.append(1)
            if len(calls) > after:
                raise error
            return model(input_ids=ids, use_cache=False).logits[:, -1], None

        return forward

    return Mode("broken", "", "", opened, caches=False, fills=False)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.OutOfMemoryError("no"), "ran out of memory during"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "ran out of memory during"),
        (ValueError("a shape\nand more"), "could not be run (ValueError: a shape)"),
    ],
)
def test_a_model_that_fails_is_noted_and_the_others_go_on(engine, monkeypatch, error, says):
    monkeypatch.setitem(MODES, "broken", broken(error, 11))
    records = measured(engine, modes=("uncached", "broken"), prompt_tokens=(4, 8), repeats=1)
    messages = [r["message"] for r in records if r["t"] == "cell_failed"]
    assert len(messages) == 1 and says in messages[0] and "\n" not in messages[0]
    assert records[-1]["t"] == "done" and {row["cell"] for row in records[-1]["document"]["rows"]} == {0}


def test_a_cell_that_does_not_fit_is_refused_with_its_figures(engine):
    records = measured(engine, models=("llama-3.1-405b", "tiny-gpt2"), prompt_tokens=(4,), repeats=1)
    (failed,) = [r for r in records if r["t"] == "cell_failed"]
    assert "TiB" in failed["message"] and order(records) == ["p1", "1u", "1c"]


def test_a_pass_that_chooses_other_tokens_is_told(engine, monkeypatch):
    """Which token this mode chooses depends on how often it has been called: the proof can't be repeated."""
    calls = []

    def opened(model, capacity):
        def forward(ids, new):
            calls.append(1)
            logits = torch.zeros(ids.shape[0], 256)
            logits[:, len(calls) % 256] = 1
            return logits, None

        return forward

    monkeypatch.setitem(MODES, "unsteady", Mode("unsteady", "", "", opened, exact=False, caches=False, fills=False))
    records = measured(engine, modes=("uncached", "unsteady"), prompt_tokens=(4,), repeats=1)
    assert {r["mode"]: r["same"] for r in records if r["t"] == "cell_pass"} == {"uncached": True, "unsteady": False}
    row = records[-1]["document"]["rows"][1]
    assert not row["repeatable"] and not row["identical"]


def test_stop_ends_it_within_a_step(engine):
    calls = []

    def should_stop():
        calls.append(1)
        return len(calls) > 30

    with pytest.raises(Stopped):
        measured(engine, new_tokens=(200,), should_stop=should_stop)
    assert len(calls) == 31


def test_bad_work_is_refused_before_it_starts(engine):
    with pytest.raises(KvvizError, match="catalog id"):
        measured(engine, models=("gtp2",))
    with pytest.raises(KvvizError, match="not on this machine"):
        list(run(SweepSpec(**WORK, device="cuda:99"), Bench("s", engine, Limits())))


def test_the_sentence_of_an_error():
    assert failure(KvvizError("say so"), "cpu") == "say so"
    assert failure(RuntimeError(), "cpu") == "the model could not be run (RuntimeError)"


# --- models and budgets ------------------------------------------------------------------------------------------


def test_models_take_turns_where_they_fit_together(engine, monkeypatch):
    work = dict(models=("tiny-gpt2", "tiny-llama"), prompt_tokens=(4,), repeats=2)
    assert order(measured(engine, **work)) == ["p0", "0u", "0c", "p1", "1u", "1c", "1c", "1u", "0c", "0u"]
    monkeypatch.setattr(sweeping, "device_memory", lambda device: (0, 0))
    alone = measured(engine, **work)
    assert order(alone) == ["p0", "0u", "0c", "0c", "0u", "p1", "1u", "1c", "1c", "1u"]


def test_a_budget_leaves_the_dearest_cells_out(engine):
    slow = {"rates": {"read": 2e10, "flops": 1e7, "launch": 2e-6}}
    records = measured(engine, device=slow, prompt_tokens=(4, 512), budget_s=20.0)
    (failed,) = [r for r in records if r["t"] == "cell_failed"]
    assert failed["cell"] == 1 and "budget of 20 s" in failed["message"]
    assert "without" in records[0]["plan"]["words"] and set(order(records)) == {"p0", "0u", "0c"}


def test_an_estimate_that_was_too_low_does_not_break_the_budget(engine, monkeypatch):
    """The clock runs faster than the estimate thought: after the first cell nothing more is begun."""
    clock = iter(range(0, 10**6, 10))
    monkeypatch.setattr(sweeping.time, "monotonic", lambda: float(next(clock)))
    records = measured(engine, budget_s=25.0)
    assert order(records) == ["p0", "0u", "0c"], "something has to be measured"
    messages = [r["message"] for r in records if r["t"] == "cell_failed"]
    assert len(messages) == 2 and all("budget of 25 s was used up" in message for message in messages)
    assert records[-1]["document"]["rows"][0]["repeats"] == 1


def test_batches_and_precisions(engine):
    records = measured(engine, prompt_tokens=(4,), batches=(1, 3), dtypes=("float32", "bfloat16"), repeats=1)
    found = records[-1]["document"]["rows"]
    assert [(row["dtype"], row["batch"]) for row in found[::2]] == [
        ("float32", 1),
        ("float32", 3),
        ("bfloat16", 1),
        ("bfloat16", 3),
    ]
    for row in found:
        assert row["tokens_per_s"] == pytest.approx(3 * row["batch"] / row["total_s"])
    assert found[1]["cache_bytes"] * 3 == found[3]["cache_bytes"] == found[7]["cache_bytes"] * 2


def test_a_model_whose_size_only_loading_tells(engine, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}')
    records = measured(engine, models=(str(path),), prompt_tokens=(4,), repeats=1)
    assert records[0]["plan"]["seconds"] is None and order(records) == ["p0", "0u", "0c"]


def test_nothing_of_it_stays_on_the_model(engine, load):
    model = load("tiny-gpt2").model
    before = set(vars(model))
    measured(engine, prompt_tokens=(4,), repeats=1)
    assert set(vars(model)) == before and len(cells(SweepSpec(**WORK))) == 3
