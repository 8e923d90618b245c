"""The bench of the engine: both servers do the same work, and the model is left as it was."""

import pytest

from bench.engine import forwards_of, measure


@pytest.mark.slow
def test_both_serve_the_same_tokens(engine, load):
    row = measure(engine, "tiny-qwen3", requests=5, rounds=1)
    assert row["same_tokens"] and row["requests"] == 5 and row["new_tokens"] >= 5
    assert row["overhead"] > 1 and row["vs_plain_batch"] > 0
    assert row["ratio_vs_transformers"] == row["transformers_seconds"] / row["seconds"]
    model = load("tiny-qwen3").model
    with forwards_of(model):
        assert model._forward_hooks
    assert not model._forward_hooks and not model._forward_pre_hooks
