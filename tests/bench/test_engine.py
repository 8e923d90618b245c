"""The bench of the engine: both servers do the same work, and the model is left as it was."""

import pytest

from bench import engine as bench_engine
from bench.engine import forwards_of, line_of, measure
from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.spec import ComparisonSpec

WORK = ComparisonSpec("tiny-qwen3", prompt="x")


@pytest.mark.slow
def test_both_serve_the_same_tokens(engine, load):
    row = measure(engine, WORK, requests=5, rounds=1)
    assert row["same_tokens"] and row["same_requests"] == 5 and row["requests"] == 5 and row["new_tokens"] >= 5
    assert row["overhead"] > 1 and row["vs_plain_batch"] > 0
    assert row["ratio_vs_transformers"] == row["transformers_seconds"] / row["seconds"]
    assert "the same tokens in 5" in line_of(row)
    model = load("tiny-qwen3").model
    with forwards_of(model):
        assert model._forward_hooks
    assert not model._forward_hooks and not model._forward_pre_hooks


@pytest.mark.slow
def test_the_engine_is_measured_where_transformers_own_batching_fails(engine, monkeypatch):
    def fails(*args, **more):
        raise KvvizError("no kernel for this card")

    monkeypatch.setattr(bench_engine, "serve_theirs", fails)
    row = measure(engine, WORK, requests=2, rounds=2)
    assert row["seconds"] > 0 and row["overhead"] > 1
    assert row["transformers_seconds"] is row["ratio_vs_transformers"] is row["same_tokens"] is None
    assert line_of(row).endswith("transformers' own fails: KvvizError: no kernel for this card")
