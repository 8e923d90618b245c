"""The room in the frame: on every page, asked to join by a link, and going where the leader has gone."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.server.rooms.rooms import Place
from kvviz.ui.folders import MAIN
from kvviz.ui.frame import room as rooms
from kvviz.ui.frame.room import place_of


def told(app):
    """What the room's component is told."""
    return next(json.loads(c.proto.json) for c in app.get("bidi_component") if '"join"' in c.proto.json)


def fresh(**query):
    app = AppTest.from_file(str(MAIN), default_timeout=20)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


@pytest.fixture
def gone(monkeypatch):
    """`gone["to"]` is where the room's leader has gone since the last run."""
    where = {"to": None}
    real = rooms._component

    def component(**fields):
        real(**fields)
        return type("Said", (), {"go": where.pop("to", None)})()

    monkeypatch.setattr(rooms, "_component", component)
    return where


def test_a_link_asks_to_join_once_and_leaves_the_address(scheduler_without_worker):
    app = fresh(room="K7M-4QX")
    assert not app.exception
    assert told(app)["join"] == {"code": "K7M-4QX", "number": 1}
    assert "room" not in app.query_params
    app.run()
    assert told(app)["join"]["number"] == 1
    app.query_params["room"] = "C" * 1000
    app.run()
    assert told(app)["join"] == {"code": "C" * 40, "number": 2}


@pytest.mark.slow
def test_the_page_goes_where_the_leader_went(scheduler_without_worker, gone):
    app = fresh()
    gone["to"] = {"page": "memory", "query": {"models": "gpt2", "tokens": "77"}}
    app.run()
    assert not app.exception
    assert app.title[0].value == "How much memory the KV cache takes"
    assert app.number_input(key="m_tokens").value == 77
    gone["to"] = {"page": "memory", "query": {"models": "gpt2", "tokens": "99"}}
    app.run()
    assert app.number_input(key="m_tokens").value == 99
    gone["to"] = {"page": "live", "query": {"comparison": "abc"}}
    app.run()
    assert app.title[0].value == "Watch the KV cache work"
    assert app.query_params["comparison"] in ("abc", ["abc"])
    gone["to"] = {"page": "nowhere", "query": {}}
    app.run()
    assert not app.exception
    assert app.title[0].value == "Watch the KV cache work"


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        [],
        "live",
        7,
        {"page": "live", "query": {"a": 1}},
        {"page": "live", "query": {"room": "K7M4QX"}},
        {"page": "../x"},
        {"query": {}},
        [1],
    ],
)
def test_what_says_no_place_is_passed_over(said):
    assert place_of(said) is None


def test_what_says_a_place_is_read():
    assert place_of({"page": "sweep", "query": {"sweep": "abc"}}) == Place("sweep", {"sweep": "abc"})
