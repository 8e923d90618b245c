"""The bench against transformers' own generate: the same work for everybody, and a row each."""

import pytest

from bench.peers import measure
from kvviz.experiments.comparison.spec import ComparisonSpec


@pytest.mark.slow
@pytest.mark.long
def test_everybody_does_the_same_work(engine):
    modes = ("cached", "concat")
    work = ComparisonSpec(model="mini-qwen3", modes=modes, prompt_tokens=6, new_tokens=40, batch=2, repeats=2)
    rows = measure(engine, work)
    assert [row["mode"] for row in rows] == ["generate", "generate-static", *modes]
    assert all(row["same_tokens"] and (row["prompt_tokens"], row["new_tokens"]) == (6, 40) for row in rows)
    assert rows[0]["ratio_vs_generate"] == 1 and rows[0]["itl_s"] is None
    for row in rows:
        assert row["tokens_per_s"] == pytest.approx(80 / row["total_s"])
        assert row["ratio_vs_generate"] == pytest.approx(row["total_s"] / rows[0]["total_s"])
        assert row["total_s_q1"] <= row["total_s"] <= row["total_s_q3"]
    assert all(0 < row["itl_s"] < row["total_s"] / 10 for row in rows[2:])
