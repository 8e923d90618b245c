"""A run on every machine of a class: only two checked curves count, one a browser, and pages are sent what is new."""

import csv
import io
import json

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits, Settings
from kvviz.server.rooms import class_run as module
from kvviz.server.rooms.class_run import ClassRun
from kvviz.server.rooms.rooms import LONGEST_MESSAGE

WORK = {"model": "mini-gpt2", "prompt": "Once", "prompt_tokens": None, "new_tokens": 4, "repeats": 2}


def sent(run, slower=1.0, **changes):
    curves = {"uncached": [3.0, 4.0, 5.0, 6.0], "cached": [3.0, 2.0, 2.0, 2]}
    return {"t": "curves", "number": run.number, **{m: [v * slower for v in curves[m]] for m in curves}, **changes}


def test_the_order_is_what_the_engine_needs_and_nothing_of_the_messages_own():
    asked = ClassRun(WORK).asked["order"]
    assert asked["weights"].startswith("../models/mini-gpt2/model.safetensors?")
    assert [mode["name"] for mode in asked["modes"]] == ["uncached", "cached"]
    assert (asked["spec"]["prompt"], asked["spec"]["new_tokens"], asked["spec"]["device"]) == ("Once", 4, "browser")
    assert ClassRun({**WORK, "prompt": None, "prompt_tokens": 64}).asked["order"]["book"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "gpt2"}, "comes with kvviz"),
        ({"model": "/etc"}, "comes with kvviz"),
        ({"model": ["mini-gpt2"]}, "comes with kvviz"),
        ({"new_tokens": 10**6}, "from 2 to 512"),
        ({"repeats": True}, "from 1 to 20"),
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": 5}, "prompt is empty"),
        ({"prompt_tokens": 5}, "either a prompt text"),
        ({"prompt": None, "prompt_tokens": 1022}, "1024 positions"),
        ({"weights": "https://elsewhere"}, "has the fields"),
    ],
)
def test_what_no_class_can_run_is_refused(changes, said):
    with pytest.raises(KvvizError, match=said):
        ClassRun({**WORK, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cached": [1.0] * 1_000_000}, "has 4 steps, and this one has 1,000,000"),
        ({"cached": None}, "has 4 steps"),
        ({"uncached": [1, 2, 3, float("nan")]}, "plain number"),
        ({"uncached": [1, 2, 3, -1]}, "plain number"),
        ({"uncached": [1, 2, 3, 1e9]}, "plain number"),
        ({"uncached": [1, 2, 3, True]}, "plain number"),
        ({"uncached": [1, 2, 3, "4"]}, "plain number"),
        ({"number": "other"}, "earlier run"),
        ({"name": "me"}, "nothing else"),
    ],
)
def test_what_is_no_pair_of_curves_is_refused(changes, said):
    run = ClassRun(WORK)
    with pytest.raises(KvvizError, match=said):
        run.hear("a", sent(run, **changes))
    assert run.sent == 0


def test_a_browsers_first_curves_count_and_it_finds_itself_among_the_others():
    run = ClassRun(WORK)
    assert run.hear("a", sent(run)) and run.hear("b", sent(run, 2)) and not run.hear("a", sent(run, 3))
    whole, rest = (json.loads(run.text(known, "b")) for known in (0, 1))
    assert whole["rows"] == [{mode: sent(run, times)[mode] for mode in module.CURVES} for times in (1, 2)]
    assert rest == {**whole, "from": 1, "rows": whole["rows"][1:]} and whole["mine"] == 1
    assert json.loads(run.text(0, "nobody"))["mine"] is None


def test_a_class_sends_no_more_curves_than_the_server_takes_viewers(monkeypatch):
    monkeypatch.setattr(module, "settings", lambda: Settings(limits=Limits(viewers=1)))
    run = ClassRun(WORK)
    run.hear("a", sent(run))
    with pytest.raises(KvvizError, match="more browsers"):
        run.hear("b", sent(run))


def test_the_table_has_each_browsers_steps_and_no_names():
    run = ClassRun(WORK)
    for pupil, times in (("secret-one", 1), ("secret-two", 2)):
        run.hear(pupil, sent(run, times))
    run.hear("secret-three", sent(run, cached=[0, 1, 1, 1]))
    rows = list(csv.DictReader(io.StringIO(run.csv())))
    assert [(row["browser"], row["new_token"]) for row in rows] == [(b, t) for b in "123" for t in "1234"]
    assert {row["speedup"] for row in rows if row["new_token"] == "4"} == {"3", "6"}
    assert [row["speedup"] for row in rows if row["cached_ms"] == "0"] == [""], "no ratio to a step too short to tell"
    assert "secret" not in run.csv()


def test_the_longest_curves_fit_into_a_message():
    run = ClassRun({**WORK, "new_tokens": module.MOST_NEW_TOKENS})
    longest = dict.fromkeys(module.CURVES, [123.4] * module.MOST_NEW_TOKENS)  # four digits, as browsers send them
    assert len(json.dumps(sent(run, **longest), separators=(",", ":"))) < LONGEST_MESSAGE
