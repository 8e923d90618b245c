"""One browser's runs against another browser."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.server.front_door import COOKIE
from kvviz.ui.folders import MAIN, PAGES

MINE, OTHER = "a" * 22, "b" * 22


@pytest.fixture
def works(scheduler_without_worker):
    """A comparison and a sweep of one browser."""
    work = ComparisonSpec(model="tiny-gpt2", prompt="x")
    return scheduler_without_worker.submit(work, MINE), scheduler_without_worker.submit(
        SweepSpec(models=("tiny-gpt2",)), owner=MINE
    )


@pytest.mark.parametrize("who", [OTHER, "", MINE[:-1], MINE + "a", "A" * 22, "' OR 1=1 --", "\0"])
def test_nobody_else_stops_a_run(scheduler_without_worker, works, who):
    for work_id in works:
        assert not scheduler_without_worker.may_stop(work_id, who)
        with pytest.raises(KvvizError, match="belongs to another browser"):
            scheduler_without_worker.stop(work_id, who)
        assert scheduler_without_worker.get(work_id).active


def test_its_owner_does(scheduler_without_worker, works):
    for work_id in works:
        assert scheduler_without_worker.may_stop(work_id, MINE)
        scheduler_without_worker.stop(work_id, MINE)
        assert scheduler_without_worker.get(work_id).state == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "field", "key", "number"), [("live", "comparison", "stop", 0), ("sweep", "sweep", "s_stop", 1)]
)
def test_the_page_of_another_browser_has_no_button_for_it(
    scheduler_without_worker, works, monkeypatch, page, field, key, number
):
    def visit(name):
        monkeypatch.setattr("kvviz.ui.shared.session.st.context", type("Context", (), {"cookies": {COOKIE: name}})())
        app = AppTest.from_file(str(MAIN), default_timeout=40).run()
        app.query_params[field] = works[number]
        app.switch_page(str(PAGES / f"{page}.py")).run()
        assert not app.exception
        return app

    assert not visit(MINE).button(key=key).disabled
    app = visit(OTHER)
    assert app.button(key=key).disabled


def test_what_the_feed_sends_names_no_browser(scheduler_without_worker, works):
    from kvviz.server.feed import encode, status_message

    work = scheduler_without_worker.get(works[0])
    said = encode(work, 0, 1) + status_message(scheduler_without_worker, work) + json.dumps(work.description())
    assert MINE not in said
