"""A load sweep drawn: the offered rates beside their points, the reader's limit, where the queue grows."""

import math
from itertools import pairwise

from kvviz.charts.load import GROWS, ROOM, latency_figure, steps_figure
from kvviz.ui.shared.experiment import recording


def lines(figure):
    return {line.name: line for line in figure.data}


def test_each_rate_is_a_point_and_the_limit_a_line():
    found = recording("load")["document"]
    for name, limit_s in (("ttft", 5.0), ("itl", 0.0001)):
        figure = latency_figure(found, name, limit_s)
        drawn, rows = lines(figure), found["rows"]
        rates = {f"{row['rate']:.3g}/s": row for row in rows}
        told = [rates[text] for text in drawn["p99"].text if text]
        assert told and not any(row["unbounded"] for row in told), "the knee has its own label"
        knee = next((row for row in rows if row["unbounded"]), None)
        assert [label.text for label in figure.layout.annotations] == (
            [f"the knee,<br>{knee['rate']:.3g}/s"] if knee else []
        )
        gaps = [b["completed_per_s"] - a["completed_per_s"] for a, b in pairwise(told)]
        assert all(gap >= ROOM * max(row["completed_per_s"] for row in rows) for gap in gaps)
        assert list(drawn["p99"].x) == [row["completed_per_s"] for row in rows]
        assert all(low <= high for low, high in zip(drawn["p50"].y, drawn["p99"].y, strict=True))
        assert len(drawn[GROWS].x) == sum(row["unbounded"] for row in rows)
        low, high = figure.layout.yaxis.range
        assert list(figure.data[-1].y) == [1e3 * limit_s] * 2 and low < math.log10(1e3 * limit_s) < high


def test_a_sweep_without_a_prediction_or_a_rate_is_drawn_too():
    found = recording("load")["document"]
    bare = [{**row, "predicted": None, "unbounded": False} for row in found["rows"]]
    assert GROWS not in lines(latency_figure({"rows": bare}, "ttft", 0.1))
    assert len(latency_figure({"rows": []}, "ttft", 0.1).data)
    empty = {"steps": [], "predicted_steps": [], "free_up_to": None, "outweighs": None}
    assert not steps_figure(empty).layout.annotations


def test_the_crossover_is_drawn_where_it_lies_within_the_axis():
    found = recording("load")["document"]
    for batch, said in ((7, True), (10**6, False), (None, False)):
        words = [note.text for note in steps_figure({**found, "outweighs": {"batch": batch}}).layout.annotations]
        assert words[0] == f"free up to {found['free_up_to']}"
        assert ("caches outweigh<br>weights from 7" in words) is said
