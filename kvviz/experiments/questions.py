"""Questions for the reader (`questions.toml`), each with a checked answer, a whole one and the measured evidence."""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.experiments import evidence
from kvviz.experiments.evidence import NAMES, AtHand

ROUNDS = ("before", "after")  # the lesson
SHAPES = {"climb": "climbs", "flat": "stays flat", "fall": "falls"}  # of a line that is drawn


@dataclass(frozen=True)
class Check:
    """What can be told right or wrong: one of `choices`, a number of `unit`, or the shape of a line for each mode.

    An answer travels as a text: the place of a choice, a number, or the shapes with commas between them.
    """

    ask: str
    because: str
    right: str = ""
    choices: tuple[str, ...] = ()
    unit: str = ""
    strokes: Mapping[str, str] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The right answer."""
        return ",".join(self.strokes.values()) or self.right

    def read(self, text: str) -> str:
        """The answer in its one spelling. Raises KvvizError for what is no answer to this question."""
        if self.unit:
            with suppress(ValueError):
                if abs(number := float(text)) < 1e9:
                    return f"{number:g}"
        elif self.choices:
            if text in map(str, range(len(self.choices))):
                return text
        elif len(shapes := text.split(",")) == len(self.strokes) and set(shapes) <= SHAPES.keys():
            return text
        raise KvvizError("this is no answer to that question")

    def is_right(self, text: str) -> bool:
        """Whether this answer, as `read` returned it, is right."""
        return text == self.answer

    def shown(self, text: str) -> str:
        """An answer in words, for a reader."""
        if self.choices:
            return self.choices[int(text)]
        if self.strokes:
            drawn = zip(self.strokes, text.split(","), strict=True)
            return ", ".join(f"{NAMES[mode]} {SHAPES[shape]}" for mode, shape in drawn)
        return f"{text} {self.unit}"


@dataclass(frozen=True)
class Sight:
    """The page that shows it, the query that sets it up, and what to look at."""

    page: str
    words: str
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A question, its topic and pages, its short answer and the whole, its evidence, and what to run without figures.

    `published` names the sweeps whose published tables belong to the answer.
    """

    id: str
    topic: str
    pages: tuple[str, ...]
    question: str
    short: str
    text: str
    check: Check
    see: Sight
    shown: str = ""  # a function of the module `evidence`
    published: tuple[str, ...] = ()
    run: str = "To see it, press Run above: when all is measured, its own figures stand here."

    def answer(self, at_hand: AtHand) -> str:
        """Write the answer as Markdown: the general text, then the evidence measured here or how to get it."""
        if not self.shown:
            return "\n\n".join([self.text, *map(evidence.published, self.published)])
        return f"{self.text}\n\n{getattr(evidence, self.shown)(at_hand) or self.run}"


def on_page(page: str) -> tuple[Question, ...]:
    """List the questions of a page in order."""
    return tuple(question for question in QUESTIONS.values() if page in question.pages)


def _question(row: Mapping[str, Any]) -> Question:
    row = {**row, **{name: row[name].replace("{waits}", WAITS) for name in ("short", "text")}}
    check = {**row["check"], "choices": tuple(row["check"].get("choices", ()))}
    return Question(**{**row, "check": Check(**check), "see": Sight(**row["see"])})


_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WAITS: str = _TEXTS["waits"]  # why a small model's curve is flat on a big GPU, wherever it is said
QUESTIONS = {row["id"]: _question(row) for row in _TEXTS["questions"]}
