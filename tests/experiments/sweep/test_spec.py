"""A sweep before and after it is measured: its grid, what it will take, the rows that its records fold into."""

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.base.errors import KvvizError
from kvviz.base.words import lasting
from kvviz.experiments.comparison.figures import figures
from kvviz.experiments.sweep.pace import Guess, Pace, guess, tokens_fed
from kvviz.experiments.sweep.plan import PATIENCE, estimate, groups, preset_spec, stands_in, visits, within
from kvviz.experiments.sweep.rows import document, rows
from kvviz.experiments.sweep.spec import (
    MOST_CELLS,
    PRESETS,
    SweepSpec,
    cell_name,
    cells,
    check_sweep,
    find_sources,
    same_work,
)
from kvviz.models.catalog.rows import models

FAST = {"rates": {"read": 2e12, "flops": 5e14, "launch": 5e-6}, "free_bytes": 130 * 2**30}
SLOW = {"rates": {"read": 2e10, "flops": 8e10, "launch": 2e-6}, "free_bytes": 12 * 2**30}
GRID = SweepSpec(models=("tiny-gpt2",), prompt_tokens=(4, 8), new_tokens=(3,), repeats=3)


def test_the_grid_is_every_combination_in_order():
    spec = SweepSpec(("tiny-gpt2", "tiny-llama"), prompt_tokens=(4, 8), new_tokens=(2, 3), batches=(1, 2))
    grid = cells(spec)
    assert [cell.index for cell in grid] == list(range(16))
    assert [(c.model, c.batch, c.prompt_tokens, c.new_tokens) for c in grid[:5]] == [
        ("tiny-gpt2", 1, 4, 2),
        ("tiny-gpt2", 1, 4, 3),
        ("tiny-gpt2", 1, 8, 2),
        ("tiny-gpt2", 1, 8, 3),
        ("tiny-gpt2", 2, 4, 2),
    ]
    assert cell_name(spec, grid[4]) == "tiny-gpt2, 4 + 2 tokens, batch 2"
    work = spec.work(grid[4])
    assert (work.prompt, work.filler) == (None, "random")
    own = replace(spec, prompt="The cat").work(grid[4])
    assert (own.prompt, own.prompt_tokens, own.filler) == ("The cat", 4, "text")
    assert (work.model, work.batch, work.prompt_tokens, work.new_tokens, work.warmup) == ("tiny-gpt2", 2, 4, 2, 1)


def test_a_spec_survives_json():
    spec = preset_spec("batch", models=("tiny-gpt2",), budget_s=60.0, seed=3)
    assert SweepSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_sweep_goes_ahead_where_some_model_can_do_all_its_modes():
    check_sweep(SweepSpec(("tiny-mistral", "tiny-gpt2"), modes=("cached", "scratch")))
    check_sweep(SweepSpec(("tiny-mistral",), modes=("cached",)))
    with pytest.raises(KvvizError, match="sliding window of 16"):
        check_sweep(SweepSpec(("tiny-mistral", "mamba-130m"), modes=("cached", "scratch")))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"models": ()}, "at least one"),
        ({"models": "gpt2"}, "list"),
        ({"models": ("",)}, "needs a model"),
        ({"models": (7,)}, "needs a model"),
        ({"modes": ()}, "modes of a sweep"),
        ({"modes": ("fast",)}, "uncached, cached, unpassed"),
        ({"modes": ("cached", "cached")}, "twice"),
        ({"prompt_tokens": (0,)}, "from 1 to"),
        ({"prompt_tokens": (8, 8)}, "twice"),
        ({"new_tokens": (1.5,)}, "from 1 to"),
        ({"new_tokens": (True,)}, "from 1 to"),
        ({"batches": (65,)}, "1 to 64"),
        ({"dtypes": ("int3",)}, "float32, bfloat16, float16"),
        ({"dtypes": ([],)}, "dtype is"),
        ({"repeats": 0}, "from 1 to"),
        ({"repeats": None}, "from 1 to"),
        ({"seed": -1}, "seed"),
        ({"budget_s": 0}, "budget"),
        ({"budget_s": float("nan")}, "budget"),
        ({"budget_s": float("inf")}, "budget"),
        ({"budget_s": "1"}, "budget"),
        ({"preset": "lab-99"}, "lab-01"),
        ({"weights": "mine"}, "bundled"),
        ({"device": 3}, "names"),
        ({"attn": "flash"}, "sdpa"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt_tokens": tuple(range(1, MOST_CELLS + 2))}, "at most 200"),
    ],
)
def test_what_does_not_fit_is_one_sentence(fields, says):
    with pytest.raises(KvvizError, match=says) as refused:
        SweepSpec(**{"models": ("tiny-gpt2",), **fields})
    assert len(str(refused.value)) < 400 and "\n" not in str(refused.value)


@pytest.mark.parametrize("data", [None, [], {}, {"models": ["gpt2"], "colour": 1}, {"models": {"a": 1}}])
def test_what_is_no_spec_is_refused(data):
    with pytest.raises(KvvizError):
        SweepSpec.from_dict(data)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from(sorted(GRID.to_dict())), value=ANYTHING)
def test_whatever_a_field_holds_it_is_read_or_refused(name, value):
    try:
        SweepSpec.from_dict({**GRID.to_dict(), name: value})
    except KvvizError as error:
        assert str(error)


def test_an_unknown_model_is_named_before_anything_is_loaded():
    with pytest.raises(KvvizError, match="gpt2"):
        find_sources(SweepSpec(("gtp2",)))


# --- presets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_sweep_that_its_models_can_do(name):
    row = PRESETS[name]
    there = [model for model in row.models if model in models()]
    assert there and row.title and row.question.endswith(("?", "."))
    for model in there:
        spec = preset_spec(name, models=(model,))
        context = find_sources(spec)[model].spec.context
        assert max(spec.prompt_tokens) + max(spec.new_tokens) <= context
        assert spec.preset == name and estimate(spec, SLOW) > 0


@pytest.mark.parametrize("row", [row for row in PRESETS.values() if row.published], ids=lambda row: row.id)
def test_published_rows_have_the_keys_of_measured_ones(row):
    spec = preset_spec(row.id)
    measured = rows(sample(spec), spec)[0]
    own = row.source is None and "recorded with kvviz" in row.published.note
    assert own or row.source.startswith("https://")
    for printed in row.published.rows:
        assert set(printed) - {"operations"} <= set(measured)
        assert printed["mode"] in row.modes and printed["prompt_tokens"] in row.prompt_tokens


@pytest.mark.parametrize("name", ["gpu-launch", "gpu-climb"])
def test_what_was_recorded_on_a_gpu_is_what_its_file_has(name):
    file = json.loads((Path(__file__).parents[3] / f"docs/measurements/h100/sweep-{name}.json").read_text())
    preset = PRESETS[name]
    assert file["environment"]["device_name"].startswith("NVIDIA H100") and file["spec"]["models"][0] in preset.models
    for kept, row in zip(preset.published.rows, file["rows"], strict=True):
        assert all(value == row[key] or value == pytest.approx(row[key], rel=1e-3) for key, value in kept.items())


def test_published_ratios_are_those_of_their_own_times():
    printed = {(row["mode"], row["prompt_tokens"]): row for row in PRESETS["lab-01"].published.rows}
    for prompt in PRESETS["lab-01"].prompt_tokens:
        ratio = printed["uncached", prompt]["total_s"] / printed["cached", prompt]["total_s"]
        assert printed["cached", prompt]["speedup"] == pytest.approx(ratio, abs=0.06)


def test_a_preset_takes_a_model_that_the_device_can_do():
    assert preset_spec("engines-qwen3", FAST).models == ("qwen3-4b",)
    assert preset_spec("engines-qwen3", SLOW).models != ("qwen3-4b",), "too large for its memory, and too slow"
    assert preset_spec("engines-gpt2", FAST).models == ("gpt2",)
    slowly = preset_spec("engines-gpt2", SLOW)
    assert slowly == preset_spec("engines-gpt2", SLOW, models=("gpt2",), repeats=None)
    assert slowly.models == ("gpt2",) and slowly.budget_s == PATIENCE < estimate(slowly, SLOW), "with fewer passes"
    assert within(slowly, PATIENCE, SLOW).repeats < 3 and preset_spec("lab-01", SLOW).budget_s is None
    assert preset_spec("engines-gpt2", SLOW, budget_s=60.0).budget_s == 60
    assert stands_in(preset_spec("engines-qwen3", SLOW), SLOW).startswith("The experiment names Qwen3-4B. This device")
    assert stands_in(preset_spec("engines-gpt2", SLOW, models=("mini-gpt2",)), SLOW) == "", "chosen, not fallen back on"
    assert preset_spec("lab-01", new_tokens=(2,)).new_tokens == (2,)
    card = {**FAST, "device": "cuda", "capability": "9.0"}
    assert preset_spec("engines-qwen3", card).dtypes == ("bfloat16",), "as the published table"
    assert preset_spec("engines-gpt2", card).dtypes == preset_spec("engines-qwen3", FAST).dtypes == ("float32",)
    with pytest.raises(KvvizError, match="lab-01"):
        preset_spec("lab-1")


@pytest.mark.parametrize("name", [name for name, row in PRESETS.items() if row.gpu])
def test_what_only_a_gpu_shows_is_refused_elsewhere_in_a_sentence(name):
    card = {**FAST, "device": "cuda", "device_name": "a card"}
    assert preset_spec(name, card).models == PRESETS[name].models[:1]
    assert preset_spec(name, {**card, "capability": "9.0"}).dtypes == PRESETS[name].dtypes
    with pytest.raises(KvvizError, match="shows what only a GPU does, and kvviz computes on a processor here"):
        preset_spec(name, {**FAST, "device": "cpu", "device_name": "a processor"})
    with pytest.raises(KvvizError, match=r"needs .* and a card has 200.0 MiB free"):
        preset_spec(name, {**card, "free_bytes": 200 * 2**20})


# --- what it will take -------------------------------------------------------------------------------------------


def test_an_estimate_needs_rates_and_a_known_model(tmp_path):
    assert estimate(GRID, None) is None and estimate(GRID, {"device_name": "x"}) is None
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}')
    unknown = SweepSpec((str(path),))
    assert estimate(unknown, SLOW) is None
    cut = within(unknown, 1, SLOW)
    assert (cut.repeats, cut.left_out, cut.seconds) == (3, (), None)


def test_an_estimate_grows_with_everything_that_takes_time():
    least = estimate(GRID, SLOW)
    more = (
        {"repeats": 4},
        {"new_tokens": (30,)},
        {"prompt_tokens": (4, 800)},
        {"batches": (32,)},
        {"models": ("gpt2",)},
        {"modes": ("uncached", "cached", "unpassed")},
    )
    for fields in more:
        assert estimate(replace(GRID, **fields), SLOW) > least


def test_a_budget_takes_repeats_first_then_the_dearest_cells():
    spec = preset_spec("lab-01", models=("gpt2",))
    whole = within(spec, None, SLOW)
    assert (whole.repeats, whole.left_out) == (3, ()) and whole.seconds == pytest.approx(estimate(spec, SLOW))
    two = within(spec, 0.9 * whole.seconds, SLOW)
    assert (two.repeats, two.left_out) == (2, ()) and two.seconds <= 0.9 * whole.seconds
    assert "2 of 3 repeats" in two.words
    one = within(spec, 0.3 * whole.seconds, SLOW)
    assert one.repeats == 1 and one.left_out == (3,) and "without 512 + 64 tokens" in one.words
    none = within(spec, 0.001, SLOW)
    assert none.repeats == 1 and none.left_out == (1, 2, 3), "the cheapest cell stays"
    assert "still more than" in none.words


def test_what_is_done_costs_nothing():
    every = {(cell.index, mode, n) for cell in cells(GRID) for mode in GRID.modes for n in range(3)}
    assert within(GRID, None, SLOW, every).seconds == 0
    half = {key for key in every if key[0] == 0}
    assert 0 < within(GRID, None, SLOW, half).seconds < within(GRID, None, SLOW).seconds
    assert within(GRID, within(GRID, None, SLOW, half).seconds, SLOW, half).repeats == 3


def test_durations_for_people():
    assert [lasting(s) for s in (0.42, 12.3, 100, 1200, 8000)] == ["0.4 s", "12 s", "1.7 min", "20 min", "2.2 h"]


# --- order and pace ----------------------------------------------------------------------------------------------


def test_rounds_visit_every_cell_in_turning_order():
    order = [(number, cell.prompt_tokens) for number, cell in visits(cells(GRID), 3)]
    assert order == [(0, 4), (0, 8), (1, 8), (1, 4), (2, 4), (2, 8)]


def test_models_that_do_not_fit_together_are_measured_after_one_another():
    spec = SweepSpec(("tiny-gpt2", "tiny-llama", "tiny-qwen3"), prompt_tokens=(4,), new_tokens=(2,))
    sources = find_sources(spec)
    together = groups(spec, sources, 10**9)
    assert [[cell.model for cell in group] for group in together] == [list(spec.models)]
    two = 4 * (sources["tiny-gpt2"].params + sources["tiny-llama"].params) + 50_000
    assert [len(group) for group in groups(spec, sources, two)] == [2, 1]
    assert [len(group) for group in groups(spec, sources, 0)] == [1, 1, 1]


def test_the_pace_is_set_right_by_what_was_measured():
    found = guess(GRID, SLOW)
    pace = Pace(found)
    todo = dict.fromkeys(found.passes, 3)
    before = pace.left(todo, [0, 1])
    assert before == pytest.approx(estimate(GRID, SLOW))
    pace.passed((0, "uncached"), 10 * found.passes[0, "uncached"])
    assert pace.one((1, "cached")) == pytest.approx(10 * found.passes[1, "cached"])
    pace.passed((1, "cached"), 7.0)
    assert pace.one((1, "cached")) == 7.0
    pace.proven(0, 3 * found.proofs[0])
    assert pace.proof(1) == pytest.approx(3 * found.proofs[1])


def test_without_an_estimate_the_first_pass_tells():
    pace = Pace(tokens_fed(GRID))
    assert pace.left({(0, "uncached"): 1}, []) is None
    assert tokens_fed(GRID).passes == {(0, "uncached"): 15, (0, "cached"): 6, (1, "uncached"): 27, (1, "cached"): 10}
    pace.passed((0, "uncached"), 1.5)
    assert pace.one((1, "uncached")) == pytest.approx(2.7)
    assert pace.proof(0) == pytest.approx(1.5 + 0.6)


def test_nothing_left_takes_nothing():
    assert Pace(Guess({(0, "cached"): 1.0}, {0: 1.0})).left({(0, "cached"): 0}, []) == 0


# --- rows --------------------------------------------------------------------------------------------------------


def proof(spec, cell, **fields):
    seen = {
        "identical": True,
        "first_divergence": None,
        "divergence_margin": None,
        "max_abs_logit_diff": 1e-6,
        "cache_bytes": 512,
        "allocated_bytes": 512,
        "peak_bytes": 2048,
        "peak_kind": "profiler",
        "tokens": "abc",
    }
    modes = {mode: {**seen, **fields} for mode in spec.modes}
    return {"t": "cell_proof", "cell": cell, "identical": True, "delta": 1e-6, "weights_bytes": 1000, "modes": modes}


def timed(cell, mode, number, s, same=True):
    return {"t": "cell_pass", "cell": cell, "mode": mode, "round": number, "s": s, "same": same, "clean": None}


def sample(spec, repeats=2):
    """Records of a whole sweep whose cached passes take a third of the others."""
    records = []
    for cell in cells(spec):
        records.append(proof(spec, cell.index))
        for number in range(repeats):
            for k, mode in enumerate(spec.modes):
                s = [(3.0 if k == 0 else 1.0) * (1 + number)] * cell.new_tokens
                records.append(timed(cell.index, mode, number, s))
    return records


def elsewhere(spec, records=None, /, **changes):
    """The journal of a sweep as a file's bytes."""
    place = dict.fromkeys(
        ("device", "torch", "python", "platform", "dtype", "attn_implementation", "transformers"), "x"
    )
    environment = {**place, "device_name": "a card", "threads": 1, "cores": 1}
    rates = {"read": 2e10, "flops": 8e10, "launch": 2e-6}
    started = {"t": "sweep_started", "spec": spec.to_dict(), "environment": environment, "rates": rates}
    lines = [{**started, "plan": {"repeats": 2}, **changes}, *(sample(spec) if records is None else records)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_rows_keep_the_contract_and_their_ratios():
    found = rows(sample(GRID), GRID)
    assert [(row["prompt_tokens"], row["mode"]) for row in found] == [
        (4, "uncached"),
        (4, "cached"),
        (8, "uncached"),
        (8, "cached"),
    ]
    assert {
        "model", "mode", "prompt_tokens", "new_tokens", "batch", "dtype", "ttft_s", "itl_s", "itl_s_q1", "itl_s_q3",
        "itl_mean_s", "tokens_per_s", "total_s", "peak_bytes", "peak_kind", "cache_bytes", "speedup",
    } <= set(found[0])  # fmt: skip
    for before, row in zip(found[::2], found[1::2], strict=True):
        assert before["speedup"] == 1.0
        assert row["speedup"] == before["total_s"] / row["total_s"] == pytest.approx(3)
        assert row["peak_with_weights_bytes"] == row["peak_bytes"] + row["weights_bytes"] == 3048
    json.dumps(found, allow_nan=False)


def test_a_row_has_the_figures_of_a_run():
    passes = [[5.0, 1.0, 1.0], [7.0, 3.0, 1.0], [6.0, 2.0, 4.0]]
    records = [proof(GRID, 0), *(timed(0, "cached", n, s) for n, s in enumerate(passes))]
    (row,) = rows(records, GRID)
    same = figures(passes)
    for name in ("ttft_s", "itl_s", "itl_mean_s", "itl_p99_s", "tokens_per_s", "total_s"):
        assert row[name] == same[name]
    assert row["itl_s_q1"] <= row["itl_s"] <= row["itl_s_q3"]
    assert row["total_mean_s"] == statistics.fmean(map(sum, passes)) and row["repeats"] == 3
    assert (row["total_s_least"], row["total_s_most"]) == (min(map(sum, passes)), max(map(sum, passes)))
    assert row["speedup"] is None, "nothing to compare with"


def test_rows_so_far_hold_what_there_is():
    records = sample(GRID)
    assert rows([], GRID) == [] and rows(records[:1], GRID) == [], "a proof alone has no times"
    assert [(row["mode"], row["repeats"]) for row in rows(records[:4], GRID)] == [("uncached", 2), ("cached", 1)]


def test_one_new_token_has_no_decode_step():
    spec = SweepSpec(("tiny-gpt2",), prompt_tokens=(4,), new_tokens=(1,))
    row = rows(sample(spec), spec)[0]
    assert row["itl_s"] is row["itl_s_q1"] is row["itl_s_q3"] is None and row["ttft_s"] == row["total_s"]


def test_a_pass_with_other_tokens_is_told():
    records = [proof(GRID, 0), timed(0, "cached", 0, [1.0] * 3), timed(0, "cached", 1, [1.0] * 3, same=False)]
    assert rows(records, GRID)[0]["repeatable"] is False


def test_the_document_names_the_cells_that_failed():
    failed = {"t": "cell_failed", "cell": 1, "message": "too long"}
    done = document([*sample(GRID), failed], GRID)
    assert done["failed"] == [{"cell": 1, "name": "8 + 3 tokens", "message": "too long"}]
    assert done["spec"] == GRID.to_dict() and len(done["rows"]) == 4


def test_more_repeats_and_another_budget_are_the_same_work():
    other = replace(GRID, repeats=9, budget_s=5.0)
    assert same_work(GRID, other) and not same_work(GRID, replace(GRID, seed=1))
