"""The soak reads a log: what its own faults explain is expected, and everything else is reported."""

import json

from bench.soak import kinds, per_hour, unexpected
from kvviz.experiments.registry import KINDS


def line(event, level="info", **fields):
    return json.dumps({"level": level, "process": "server", "event": event, **fields})


KILL, FULL = line("worker_ended", "warning", status=-9), line("store_failed", "warning", kind="OperationalError")
DAY = ["", "  You can now view your Streamlit app in your browser.", line("server_started"), line("work_ended", id="a")]


def test_an_ordinary_day_is_expected():
    assert unexpected(DAY, kills=0, full=0) == []


def test_a_fault_explains_one_line_each():
    assert unexpected([*DAY, KILL, FULL], kills=1, full=1) == []
    assert unexpected([KILL, KILL, FULL], kills=1, full=0) == [KILL, FULL]


def test_what_nobody_caused_is_reported():
    strange = ["Traceback (most recent call last):", line("uncaught", "error"), line("work_ended", "error", id="a")]
    assert unexpected([*DAY, *strange], kills=1, full=1) == strange


def test_each_kind_is_counted_by_how_it_ended():
    events = [{"event": "work_queued", "id": name, "kind": kind} for name, kind in (("a", "sweep"), ("b", "sweep"))]
    events += [
        {"event": "work_ended", "id": "a", "state": "done"},
        {"event": "work_ended", "id": "b", "state": "failed"},
    ]
    found = kinds(events)
    assert found["sweep"] == {"done": 1, "failed": 1} and found["roofline"] == {} and found.keys() == KINDS.keys()


def test_memory_grows_by_so_much_an_hour():
    flat = [(60.0 * minute, 5000) for minute in range(10)]
    growing = [(60.0 * minute, 5000 + 100 * minute) for minute in range(10)]
    assert per_hour(flat) == 0 and round(per_hour(growing)) == 6000 and per_hour(flat[:4]) is None
