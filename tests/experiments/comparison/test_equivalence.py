"""What outlives a step: a sample of the steps is traced, in a second decode."""

from pathlib import Path

import pytest
import torch

from kvviz.decoding.modes import MODES, Mode
from kvviz.decoding.requirements import FIRST_TRACED, TRACED, traced_steps
from kvviz.experiments.comparison.comparison_run import ComparisonRun, encode_prompt
from kvviz.experiments.comparison.equivalence import check_equivalence
from kvviz.experiments.comparison.spec import ComparisonSpec


def test_the_page_and_the_documents_name_the_traced_steps_that_there_are():
    root = Path(__file__).parents[3]
    assert f"const TRACED = {TRACED} " in (root / "kvviz/ui/assets/shared/state.js").read_text()
    assert f"of more than {TRACED} steps {TRACED} are" in (root / "docs/json.md").read_text()


@pytest.mark.parametrize("count", [1, TRACED, TRACED + 1, 192, 32_768])
def test_the_first_steps_are_traced_some_spread_and_the_last(count):
    traced = sorted(traced_steps(count))
    assert len(traced) == min(count, TRACED) and traced[-1] == count - 1
    assert traced[:FIRST_TRACED] == list(range(min(count, FIRST_TRACED)))
    gaps = [after - before for before, after in zip(traced[FIRST_TRACED:], traced[FIRST_TRACED + 1 :], strict=False)]
    assert not gaps or max(gaps) - min(gaps) <= 1


def leaking(model, capacity):
    """A step of `uncached`, of which 40 bytes stay for good."""
    left = []

    def forward(ids, new):
        logits = model(input_ids=ids, use_cache=False).logits[:, -1]
        left.append(logits.new_zeros(10))
        return logits, None

    return forward


def keeping(model, capacity):
    """The same in a mode that goes on from step to step."""
    forward = MODES["cached"].open(model, capacity)
    left = []

    def step(ids, new):
        logits, cache = forward(ids, new)
        left.append(logits.new_zeros(10))
        return logits, cache

    return step


@pytest.mark.slow
def test_what_outlives_a_traced_step_is_the_cache_and_what_leaks(engine, monkeypatch):
    monkeypatch.setitem(MODES, "leaking", Mode("leaking", "", "", leaking, caches=False))
    monkeypatch.setitem(MODES, "keeping", Mode("keeping", "", "", keeping))
    names = ("uncached", "cached", "paged", "leaking", "keeping")
    work = ComparisonSpec("tiny-qwen3", modes=names, prompt="Once upon a time", new_tokens=40)
    loaded = engine.get(work)
    run = ComparisonRun(work, loaded, encode_prompt(work, loaded))
    records = list(check_equivalence(run))
    assert [record["t"] for record in records] == ["first_look"] * 40 + ["proof"] * 40
    traced = sorted(traced_steps(40))
    for name in names:
        checked = run.checked[name]
        assert checked.outliving == [record["modes"][name]["outliving"] for record in records[40:]]
        assert [i for i, found in enumerate(checked.outliving) if found is not None] == traced
        held = [sum(row.allocated for row in rows) for rows in checked.layers]
        more = [checked.outliving[i] - held[i] for i in traced]
        leaks = {"leaking": [40] * len(traced), "keeping": [40 * (n + 1) for n in range(len(traced))]}
        assert more == leaks.get(name, [0] * len(traced)), name
    assert all(torch.equal(run.text(name, 40), run.text("uncached", 40)) for name in names)
