"""What the tests of the pages share, beside `open_page`."""

import json

import pytest

from kvviz.experiments.questions import QUESTIONS
from kvviz.server import persister as keeping
from kvviz.store.db.store import Store


@pytest.fixture
def store(tmp_path):
    """What is kept goes into a store of this test's own."""
    store = Store(tmp_path / "runs.sqlite")
    keeping.use(store)
    yield store
    keeping.use(None)
    store.close()


def charts(app):
    """The figures of the page's charts, as plotly.js gets them."""
    given = (part.proto for part in app.get("bidi_component") if part.proto.component_name == "kvviz_chart")
    return [json.loads(json.loads(chart.json)["figure"]) for chart in given]


def said(app):
    """The page's words."""
    return " ".join(words.value for words in [*app.markdown, *app.caption])


def answer_all(app):
    """Answer every question rightly, open those of the page, and draw it again."""
    answers = {name: question.check.answer for name, question in QUESTIONS.items()}
    app.session_state["answers"] = {"before": answers, "after": {}}
    return open_all(app)


def open_all(app):
    """Open every question of the page, and draw it again."""
    for name in QUESTIONS:
        app.session_state[f"think_{name}"] = True
    return app.run()


def answered(app, key, records):
    """Press the button of this key, let the worker answer with `records(spec)`, and draw again; the work."""
    app.button(key=f"{key}_measure").click().run()
    work = app.scheduler.jobs()[-1]
    for record in records(work.spec):
        app.scheduler.record(work.id, record)
    app.run()
    assert not app.exception
    return work
