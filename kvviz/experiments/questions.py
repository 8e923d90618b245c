"""Questions for the reader to answer first (`questions.toml`), each with an answer and the measured evidence."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from kvviz.experiments import evidence
from kvviz.experiments.evidence import AtHand


@dataclass(frozen=True)
class Question:
    """A question, its pages, its answer, the evidence from figures, and what to run if there are no figures.

    `published` names the sweeps whose published tables belong to the answer.
    """

    id: str
    pages: tuple[str, ...]
    question: str
    text: str
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
    return tuple(question for question in QUESTIONS if page in question.pages)


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["questions"]
QUESTIONS = tuple(Question(**row) for row in _ROWS)
