"""Who shares a key: a square for each KV head that is kept, in the colour of what is kept, and no other colour."""

import pytest

from kvviz.charts.heads import heads_figure
from kvviz.charts.palette import FREE, KEPT
from kvviz.models.catalog.rows import models
from kvviz.models.spec import ModelSpec


@pytest.mark.parametrize(("name", "kept"), [("gpt2", 12), ("qwen3-4b", 8), ("falcon-7b", 1), ("deepseek-v3", 1)])
def test_squares_are_what_is_kept_and_query_heads_are_neutral(name, kept):
    spec = ModelSpec.from_config(models()[name].config, name=name)
    dots = [trace.marker for trace in heads_figure(spec.layers[0], spec.heads).data if trace.mode == "markers"]
    assert [dot.color for dot in dots if dot.symbol == "square"] == [KEPT] * kept
    assert {dot.color for dot in dots if dot.symbol == "circle"} == {FREE}
