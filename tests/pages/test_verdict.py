"""The verdict on its pages, as Streamlit runs them: the formulas typeset, the sentences, nothing before a run's end."""

import pytest

from kvviz.experiments.comparison.figures import HEADLINE
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.ui.shared.verdict import _lines

STEPS, PROMPT = 40, 9


@pytest.fixture
def visit(open_page, scheduler_without_worker, store):
    open_page.scheduler, open_page.store = scheduler_without_worker, store
    return open_page


def document(model="tiny-gpt2", gain=3.0, estimates=True):
    """Curves that can be read off: 2 ms + 1 µs T with the cache, 3 ms + 100 µs T + 200 ns T² without."""
    parts = {"tokens": 29, "weights_s": 1e-3, "computing_s": 1e-4, "starting_s": 8e-4, "scan_s": 1e-5}
    curves = {"uncached": (3e-3, 1e-4, 2e-7), "cached": (2e-3, 1e-6, 0)}
    runs = []
    for mode, (start, slope, square) in curves.items():
        contexts = range(PROMPT, PROMPT + STEPS)
        steps = [start + slope * t + square * t * t + 1e-8 * (-1) ** t for t in contexts]
        more = {"step_s_q1": steps, "step_s_q3": steps, "cache_bytes": [0] * STEPS, "speedup": gain}
        figures = {"itl_s": steps[20], "ttft_s": steps[0], "total_s": sum(steps), "tokens_per_s": STEPS / sum(steps)}
        run = {**dict.fromkeys(HEADLINE), "mode": mode, "step_s": steps, **more, **figures}
        runs.append({**run, "estimate": parts} if estimates else run)
    return {"model": model, "prompt_tokens": PROMPT, "new_tokens": STEPS, "batch": 1, "runs": runs}


def said(app):
    return "\n".join(part.value for part in (*app.markdown, *app.info, *app.caption))


def formulas(app):
    return [part.value for part in app.latex if "(T)" in part.value]


@pytest.mark.slow
def test_the_live_page_has_a_verdict_when_the_run_is_over(visit):
    own = visit.scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))
    app = visit("live", comparison=own)
    assert not formulas(app) and "By prediction" not in said(app)
    visit.scheduler.record(own, {"t": "done", "document": document()})
    app.run()
    uncached, cached = formulas(app)
    assert r"No cache}}(T) = (" in uncached and r"\text{token}^2}\,T^2" in uncached
    assert r"KV cache}}(T) = (2.0000" in cached and r"\text{ms} + (1.000" in cached
    assert "KV cache, mostly reading the weights (1 ms of 1.81 ms; measured" in said(app)
    assert "The cache pays from the first step measured, at 10 tokens." in said(app)
    assert "weights; each further token of context adds 1 µs; flat, less than 10% over 38 tokens" in said(app)
    assert "each further token of context adds 112 µs on average, later ones more." in said(app), "100 + 0.2 (10 + 48)"


@pytest.mark.slow
def test_where_the_cache_brings_nothing_the_page_says_what_to_change(visit):
    own = visit.scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))
    found = document(gain=1.08)
    found["runs"][0]["step_s"] = found["runs"][1]["step_s"]
    visit.scheduler.record(own, {"t": "done", "document": found})
    app = visit("live", comparison=own)
    assert any("1.1 times as fast" in info.value and "longer prompt" in info.value for info in app.info)


def keep(store, work_id, **changes):
    store.begin(work_id, {"model": "tiny-gpt2", "prompt": "x"})
    store.finish(work_id, "done", document(**changes))
    return [f"{work_id}-{mode}" for mode in ("uncached", "cached")]


@pytest.mark.slow
def test_the_compare_page_judges_the_picked_runs_of_one_comparison(visit):
    one, other = keep(visit.store, "one"), keep(visit.store, "other", estimates=False)
    app = visit("compare", runs=",".join([*one, other[1]]))
    assert len(formulas(app)) == 2
    assert "of 2 of the 3 picked runs" in said(app)
    app = visit("compare", runs=",".join(other))
    assert len(formulas(app)) == 2 and "What bounds this run is unknown" in said(app), "kept before there were rates"
    app = visit("compare", runs=one[1])
    assert len(formulas(app)) == 1 and "The cache pays" not in said(app)


def test_what_a_server_says_of_itself_is_text():
    evil = {
        "modes": [],
        "crossover": None,
        "speculation": [],
        "endpoint_cache": [],
        "endpoint": ["vLLM <b>x</b> with ![m](http://evil.example)"],
    }
    (line,) = _lines(evil)
    assert line.startswith("**Endpoint**: vLLM") and "](" not in line.replace("\\](", "") and "\\<b" in line
