"""Who shares a key: a square for each KV head that is kept, in the colour of what is kept, and no other colour."""

import pytest

from kvviz.charts.heads import heads_figure
from kvviz.charts.palette import FREE, KEPT
from kvviz.models.catalog.rows import models
from kvviz.models.spec import ModelSpec


@pytest.mark.parametrize(("name", "kept"), [("gpt2", 12), ("qwen3-4b", 8), ("falcon-7b", 1), ("deepseek-v3", 1)])
def test_squares_are_what_is_kept_and_query_heads_are_neutral(name, kept):
    spec = ModelSpec.from_config(models()[name].config, name=name)
    figure = heads_figure(spec.layers[0], spec.heads, "1 B", "9 B")
    dots = [trace.marker for trace in figure.data if trace.mode == "markers"]
    assert [dot.color for dot in dots if dot.symbol == "square"] == [KEPT] * kept
    assert {dot.color for dot in dots if dot.symbol != "square"} == {FREE}
    spared = [trace for trace in figure.data if trace.mode == "markers" and trace.marker.symbol == "square-open"]
    assert [len(trace.x) for trace in spared] == [spec.heads] * (kept < spec.heads), "what is not kept stands above"
    kinds = ["kept: latent<br>1 B" if name == "deepseek-v3" else "kept: K, V<br>1 B", "query heads"]
    assert list(figure.layout.yaxis.ticktext) == kinds + ["if each had K, V<br>9 B"] * (kept < spec.heads)
