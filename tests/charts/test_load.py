"""A load sweep drawn: what is offered and completed at each rate, the reader's limit, where the queue grows."""

import math

from kvviz.base.words import millis
from kvviz.charts.load import latency_figure, steps_figure, throughput_figure, waits_figure
from kvviz.experiments.load.figures import goodput
from kvviz.ui.shared.experiment import recording


def lines(figure):
    return {line.name: line for line in figure.data}


def notes(figure):
    return [note.text for note in figure.layout.annotations]


def test_each_rate_is_a_point_and_the_limit_a_line():
    found = recording("load")["document"]
    rates = [row["rate"] for row in found["rows"]]
    growing = [row["rate"] for row in found["rows"] if row["unbounded"]]
    for name, limit_s in (("ttft", 5.0), ("itl", 0.0001)):
        figure = latency_figure(found, name, limit_s)
        drawn = lines(figure)
        assert list(drawn["p99"].x) == rates and ("predicted" in drawn) is (name == "ttft")
        assert {*drawn, "your limit"} == set(notes(figure))
        assert all(low <= high for low, high in zip(drawn["p50"].y, drawn["p99"].y, strict=True))
        level, undecided, grows = (shape for shape in figure.layout.shapes if shape.type == "rect")
        assert level.x1 == undecided.x0 and undecided.x1 == grows.x0 == growing[0]
        low, high = figure.layout.yaxis.range
        (limit,) = (shape for shape in figure.layout.shapes if shape.type == "line")
        assert limit.y0 == 1e3 * limit_s and low < math.log10(limit.y0) < high


def test_what_is_completed_is_drawn_beside_what_is_offered_and_what_keeps_to_the_limits():
    found = recording("load")["document"]
    drawn = lines(throughput_figure(found, 0.1, 0.01))
    assert drawn["offered"].x == drawn["offered"].y == drawn["completed"].x
    assert list(drawn["completed"].y) == [row["completed_per_s"] for row in found["rows"]]
    assert list(drawn["goodput"].y) == [goodput(row, 0.1, 0.01) for row in found["rows"]]
    said = notes(throughput_figure(found, 0.1, 0.01))
    assert {f"<b>{max(drawn[name].y):.3g}</b>" for name in ("completed", "goodput")} < set(said)
    assert {"keeps up", "knee", "queue<br>grows"} < set(said)


def test_the_highest_rate_stands_below_its_line_and_above_it_only_where_goodput_is_highest_too():
    found = recording("load")["document"]
    words = f"<b>{max(row['completed_per_s'] for row in found['rows']):.3g}</b>"
    for limits, anchor in (((), "top"), ((0.1, 0.01), "top"), ((5.0, 0.2), "bottom")):
        note = next(note for note in throughput_figure(found, *limits).layout.annotations if note.text == words)
        assert note.yanchor == anchor


def test_the_wait_is_drawn_over_the_same_zones_as_the_throughput():
    found = recording("load")["document"]
    waits, throughput = waits_figure(found), throughput_figure(found)
    assert "predicted" not in lines(throughput)
    assert waits.layout.shapes == throughput.layout.shapes and waits.layout.xaxis.range == throughput.layout.xaxis.range
    beside = [(figure.layout.margin.l, figure.layout.margin.r) for figure in (waits, throughput)]
    assert beside[0] == beside[1], "a rate stands at one place in both"
    assert not any(line.cliponaxis for figure in (waits, throughput) for line in figure.data)
    half, most = waits.data
    assert list(most.x) == [row["rate"] for row in found["rows"]]
    assert all(low <= high for low, high in zip(half.y, most.y, strict=True))
    assert f"<b>{millis(most.y[-1] / 1e3)}</b>" in notes(waits)


def test_a_sweep_without_a_prediction_or_a_rate_is_drawn_too():
    found = recording("load")["document"]
    bare = {"rows": [{**row, "predicted": None, "unbounded": False, "within": 0, "per_s": 0} for row in found["rows"]]}
    for figure in (latency_figure(bare, "ttft", 0.1), throughput_figure(bare, 0.1, 0.1)):
        assert not {"predicted", "undecided", "queue grows"} & set(notes(figure))
    for figure in (latency_figure({"rows": []}, "ttft", 0.1), throughput_figure({"rows": []}, 0.1, 0.1)):
        assert len(figure.data)
    assert not notes(waits_figure({"rows": []}))
    empty = {"steps": [], "predicted_steps": [], "free_up_to": None, "outweighs": None}
    assert not steps_figure(empty).layout.annotations


def test_the_crossover_is_drawn_where_it_lies_within_the_axis():
    found = recording("load")["document"]
    for batch, said in ((7, True), (10**6, False), (None, False)):
        words = notes(steps_figure({**found, "outweighs": {"batch": batch}}))
        assert f"free up to {found['free_up_to']}" in words
        assert ("caches outweigh<br>weights from 7" in words) is said


def test_a_p99_of_fewer_than_a_hundred_requests_is_the_slowest_an_open_mark():
    rows = recording("load")["document"]["rows"][:2]
    few = [{**rows[0], "waits": rows[0]["waits"][:99]}, {**rows[1], "waits": rows[1]["waits"][:100]}]
    for figure in (waits_figure({"rows": few}), latency_figure({"rows": few}, "ttft", 0.1)):
        assert list(lines(figure)["p99"].marker.symbol) == ["circle-open", "circle"]
    assert "slowest" in lines(waits_figure({"rows": few[:1]}))
