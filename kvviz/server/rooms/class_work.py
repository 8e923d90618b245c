"""What a class has drawn and answered in its room: kept by pupil, shown and handed on without names."""

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvviz.base.errors import KvvizError
from kvviz.base.records import is_whole
from kvviz.base.settings import settings
from kvviz.decoding.modes import MODES
from kvviz.experiments.questions import QUESTIONS, ROUNDS, Check

HEIGHTS = 65  # of a drawn line, from the first new token to the last; kvviz/ui/assets/live/shapes.js draws so many
DRAWINGS = "drawings"  # what can be revealed, beside the answers to a question in a round
MOST_LINES = 4  # of a drawing

Drawing = dict[str, list[int | None]]  # by mode, in hundredths of the highest; None where nothing was drawn


@dataclass(eq=False)
class ClassWork:
    """The work of one room. A pupil is a hash, so that neither order nor name of a browser is to be found in it."""

    answers: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)  # (question, round): answer
    drawings: dict[str, Drawing] = field(default_factory=dict)
    revealed: set[str] = field(default_factory=set)

    def hear(self, browser: str, message: Mapping[str, object]) -> None:
        """Take an answer or a drawing. Raises KvvizError for what is neither.

        The first answer to a question in a round counts; a new drawing replaces the old one.
        """
        pupil = pupil_of(browser)
        if len({*self.answers, *self.drawings} | {pupil}) > settings().limits.viewers:
            raise KvvizError("more students have answered here than this server takes")
        if message.get("t") == "drawing":
            self.drawings[pupil] = read_drawing(message.get("strokes"))
        else:
            place, answer = read_answer(message)
            self.answers.setdefault(pupil, {}).setdefault(place, answer)

    def reveal(self, what: object, shown: object) -> None:
        """Show the class its drawings or its answers to a question in a round, or hide them again."""
        known = {DRAWINGS, *(f"{question} {part}" for question in QUESTIONS for part in ROUNDS)}
        if not isinstance(what, str) or what not in known or not isinstance(shown, bool):
            raise KvvizError("what is revealed is the drawings, or a question in a round")
        (self.revealed.add if shown else self.revealed.discard)(what)

    def seen(self, *, leads: bool) -> dict[str, object]:
        """What a page of the room may show: everything to the teacher, to the others what was revealed."""
        shown = {DRAWINGS, *self.tally()} if leads else self.revealed
        tally = {what: rows for what, rows in self.tally().items() if what in shown}
        drawings = list(self.drawings.values()) if DRAWINGS in shown else []
        return {"answers": tally, "drawings": drawings, "revealed": sorted(self.revealed)}

    def tally(self) -> dict[str, list[tuple[str, int, bool]]]:
        """By question and round: each answer in words, how many gave it, and whether it is right."""
        counts: dict[tuple[str, str], Counter[str]] = {}
        for pupil in self.answers.values():
            for place, answer in pupil.items():
                counts.setdefault(place, Counter())[answer] += 1
        return {f"{name} {part}": _rows(name, found) for (name, part), found in counts.items()}

    def csv(self) -> str:
        """A row for each pupil and question: the answer before and after, and whether it was right."""
        text = io.StringIO()
        table = csv.writer(text)
        table.writerow(["student", "question", *(f"{part}{more}" for part in ROUNDS for more in ("", "_right"))])
        for number, pupil in enumerate(sorted(self.answers), 1):  # by hash, so in no order that tells who
            given = self.answers[pupil]
            for name, question in QUESTIONS.items():
                cells = [_cells(question.check, given.get((name, part))) for part in ROUNDS]
                if any(any(cell) for cell in cells):
                    table.writerow([number, name, *cells[0], *cells[1]])
        return text.getvalue()


def pupil_of(browser: str) -> str:
    """The hash by which a browser's work is kept."""
    return hashlib.sha256(f"pupil {browser}".encode()).hexdigest()


def _rows(name: str, counts: Counter[str]) -> list[tuple[str, int, bool]]:
    check = QUESTIONS[name].check
    every = [*map(str, range(len(check.choices)))] or sorted(counts, key=lambda answer: -counts[answer])
    return [(check.shown(answer), counts[answer], check.is_right(answer)) for answer in every]


def _cells(check: Check, answer: str | None) -> tuple[str, str]:
    return ("", "") if answer is None else (check.shown(answer), str(check.is_right(answer)).lower())


def read_answer(message: Mapping[str, object]) -> tuple[tuple[str, str], str]:
    """The question and the round of an answer, and the answer. Raises KvvizError for any other message."""
    name, part, answer = (message.get(field) for field in ("question", "round", "answer"))
    if not isinstance(name, str) or name not in QUESTIONS or part not in ROUNDS or not isinstance(answer, str):
        raise KvvizError("an answer names its question and its round")
    return (name, str(part)), QUESTIONS[name].check.read(answer[:100])


def read_drawing(strokes: object) -> Drawing:
    """The lines of a drawing, by mode. Raises KvvizError for any other message."""
    if not isinstance(strokes, Mapping) or not strokes or len(strokes) > MOST_LINES or strokes.keys() - MODES.keys():
        raise KvvizError("a drawing has a line for each of a few modes")
    return {mode: _read_line(line) for mode, line in strokes.items()}


def _read_line(line: object) -> list[int | None]:
    if not isinstance(line, list) or len(line) != HEIGHTS:
        raise KvvizError(f"a line has {HEIGHTS} heights")
    if not all(height is None or is_whole(height, 0, 100) for height in line):
        raise KvvizError("a height is a whole number from 0 to 100, or null")
    return line
