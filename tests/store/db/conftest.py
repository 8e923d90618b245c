"""A store in a folder of its own, and what goes into it: one real comparison, or made-up ones of any length."""

import json

import pytest

from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.store.db.store import Store

WORK = ComparisonSpec(model="tiny-qwen3", prompt="Once upon a time", new_tokens=6, repeats=3, warmup=2)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "kvviz.sqlite")
    yield store
    store.close()


@pytest.fixture(scope="session")
def measured(engine):
    """`measured(spec)`: the records of a real comparison as JSON texts, as the worker sends them, and its document."""
    from kvviz.experiments.comparison.run import perform

    def measure(work):
        *records, done = perform(work, engine.get(work), comparison_id="real")
        return [json.dumps(record, separators=(",", ":")) for record in records], json.loads(
            json.dumps(done["document"])
        )

    return measure


@pytest.fixture(scope="session")
def real(measured):
    """One of them: spec, records, document."""
    return WORK, *measured(WORK)


def made_up(steps=4, repeats=2, modes=("uncached", "cached")):
    """Records and document of a comparison of any length; its figures stand for nothing."""
    texts = []
    for repeat in range(repeats):
        for mode in modes:
            seconds = [1e-3 * (step + 1) + 1e-6 * repeat for step in range(steps)]
            texts.append(json.dumps({"t": "times", "mode": mode, "repeat": repeat, "from": 0, "s": seconds}))
    document = {"id": "x", "model": "gpt2", "prompt_tokens": 8, "new_tokens": steps, "batch": 1}
    return texts, {**document, "runs": [made_up_run(mode, steps) for mode in modes]}


def made_up_run(mode, steps):
    curve = [1e-3 * (step + 1) for step in range(steps)]
    figures = dict.fromkeys(("itl_s", "ttft_s", "total_s", "tokens_per_s", "speedup"), 0.5)
    return {
        "id": f"x-{mode}",
        "mode": mode,
        "text": "word " * steps,
        "token_ids": list(range(steps)),
        **figures,
        "step_s": curve,
        "step_s_q1": curve,
        "step_s_q3": curve,
        "cache_bytes": [512 * step for step in range(steps)],
        "allocated_bytes": [1024 * step for step in range(steps)],
        "layers": [{"index": 0, "kind": "full", "nbytes": 512 * steps}],
    }


def keep(store, work_id, spec=WORK, records=(), document=None, state="done", **fields):
    """A whole life in the store."""
    store.begin(work_id, spec if isinstance(spec, dict) else spec.to_dict(), **fields)
    store.append(work_id, records)
    store.finish(work_id, state, document)
