"""What a class has drawn and answered: whose it is nobody sees, the first answer counts, and nothing else is taken."""

import csv
import io
import re

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits, Settings
from kvviz.experiments.questions import QUESTIONS, ROUNDS
from kvviz.server.rooms import class_work as module
from kvviz.server.rooms.class_work import DRAWINGS, HEIGHTS, ClassWork
from kvviz.ui.folders import ASSETS


def answer(question, said, part="before"):
    return {"t": "answer", "question": question, "round": part, "answer": said}


def drawing(height=50, mode="uncached"):
    return {"t": "drawing", "strokes": {mode: [None, *[height] * (HEIGHTS - 1)]}}


def test_the_first_answer_of_a_round_counts_and_a_drawing_is_replaced():
    work = ClassWork()
    for said in ("99", "100"):
        work.hear("a", answer("square", said))
    work.hear("a", answer("square", "100.0", "after"))
    work.hear("b", answer("square", "100"))
    for height in (10, 90):
        work.hear("a", drawing(height))
    found = work.seen(leads=True)
    assert sorted(found["answers"]["square before"]) == [("100 pairs", 1, True), ("99 pairs", 1, False)]
    assert found["answers"]["square after"] == [("100 pairs", 1, True)]
    assert [lines["uncached"][-1] for lines in found["drawings"]] == [90]


def test_every_choice_has_its_row_whether_anybody_took_it_or_not():
    work = ClassWork()
    check = QUESTIONS["metrics"].check
    work.hear("a", answer("metrics", "0"))
    rows = work.tally()["metrics before"]
    assert [words for words, _, _ in rows] == list(check.choices)
    assert [count for _, count, _ in rows] == [1, 0, 0, 0]
    assert [right for _, _, right in rows].index(True) == int(check.answer)


def test_the_class_sees_what_is_revealed_and_no_more():
    work = ClassWork()
    work.hear("a", answer("square", "100"))
    work.hear("a", answer("total", "7"))
    work.hear("a", drawing())
    assert work.seen(leads=False) == {"answers": {}, "drawings": [], "revealed": []}
    work.reveal("square before", True)
    work.reveal(DRAWINGS, True)
    assert list(work.seen(leads=False)["answers"]) == ["square before"]
    assert len(work.seen(leads=False)["drawings"]) == 1
    work.reveal(DRAWINGS, False)
    assert work.seen(leads=False)["drawings"] == []


@pytest.mark.parametrize(
    "message",
    [
        answer("nothing", "1"),
        answer("square", "many"),
        answer("square", "1e99"),
        answer("square", "nan"),
        answer("metrics", "9"),
        answer("metrics", "-1"),
        answer("parting", "climb"),
        answer("parting", "climb,up"),
        answer("square", 100),
        answer("square", "100", "tomorrow"),
        answer(["square"], "100"),
        {"t": "drawing"},
        {"t": "drawing", "strokes": {}},
        {"t": "drawing", "strokes": {"nobody": [1] * HEIGHTS}},
        {"t": "drawing", "strokes": {"cached": [1] * (HEIGHTS - 1)}},
        {"t": "drawing", "strokes": {"cached": [101] * HEIGHTS}},
        {"t": "drawing", "strokes": {"cached": [0.5] * HEIGHTS}},
        {"t": "drawing", "strokes": {"cached": "climb"}},
    ],
)
def test_what_is_neither_answer_nor_drawing_is_refused(message):
    work = ClassWork()
    with pytest.raises(KvvizError):
        work.hear("a", message)
    assert work.seen(leads=True)["answers"] == {} and not work.drawings


@pytest.mark.parametrize(("what", "shown"), [("all", True), (None, True), (["drawings"], True), ("drawings", 1)])
def test_what_can_not_be_revealed_is_refused(what, shown):
    with pytest.raises(KvvizError):
        ClassWork().reveal(what, shown)


def test_a_room_takes_no_more_pupils_than_the_server_takes_viewers(monkeypatch):
    monkeypatch.setattr(module, "settings", lambda: Settings(limits=Limits(viewers=2)))
    work = ClassWork()
    for pupil in "ab":
        work.hear(pupil, answer("square", "100"))
    with pytest.raises(KvvizError, match="more students"):
        work.hear("c", drawing())
    work.hear("b", drawing())


def test_the_table_has_both_rounds_and_no_names():
    work = ClassWork()
    for pupil, before in (("secret-one", "5"), ("secret-two", "100")):
        work.hear(pupil, answer("square", before))
        work.hear(pupil, answer("square", "100", "after"))
    work.hear("secret-two", answer("why-not-q", "0", "after"))
    rows = list(csv.DictReader(io.StringIO(work.csv())))
    assert list(rows[0]) == ["student", "question", *(f"{part}{more}" for part in ROUNDS for more in ("", "_right"))]
    squares = [row for row in rows if row["question"] == "square"]
    assert sorted((row["before_right"], row["after_right"]) for row in squares) == [("false", "true"), ("true", "true")]
    (only_after,) = [row for row in rows if row["question"] == "why-not-q"]
    assert (only_after["before"], only_after["after"], only_after["after_right"]) == ("", "all of them", "false")
    assert "secret" not in work.csv() and not re.search(r"[0-9a-f]{16}", work.csv())


def test_a_line_has_as_many_heights_here_as_in_the_browser():
    assert f"COLUMNS = {HEIGHTS}" in (ASSETS / "live" / "shapes.js").read_text(encoding="utf-8")
