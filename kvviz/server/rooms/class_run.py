"""A run on every machine of a class: what the browsers are asked for, and the two curves that each of them sends."""

import csv
import io
import json
from collections.abc import Mapping

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole, new_id
from kvviz.base.settings import settings
from kvviz.experiments.comparison.in_browser import decoded_there, order_of
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.kind import Record
from kvviz.models.sources import bundled_folder

CURVES = ("uncached", "cached")  # a browser's two, in the order of the table's columns
ASKED_OF_A_CLASS = ("model", "prompt", "prompt_tokens", "new_tokens", "repeats")
LONGEST_STEP_MS = 600_000
MOST_NEW_TOKENS = 512
MOST_REPEATS = 20

Curves = dict[str, list[float]]  # by mode, the median milliseconds of each step


class ClassRun:
    """One run that the class is asked for. A pupil is a hash, so that no name of a browser is to be found in it."""

    def __init__(self, work: object) -> None:
        """Ask for this work: a model, a prompt or a number of prompt tokens, new tokens and repeats. Raises KvvizError.

        Every browser decodes greedily in float32, without and with its cache.
        """
        spec = read_work(work)
        self.number = new_id()
        self.steps = spec.new_tokens
        self.asked: Record = {"number": self.number, "order": order_of(spec)}
        self._place: dict[str, int] = {}  # of a pupil's curves in the rows
        self._rows: list[Curves] = []  # in the order in which they came
        self._texts: list[str] = []  # the rows as JSON, made once for all pages

    def hear(self, pupil: str, message: Mapping[str, object]) -> bool:
        """Take a pupil's curves, of whom the first count; returns whether they are new. Raises KvvizError."""
        if set(message) != {"t", "number", *CURVES}:
            raise KvvizError("a browser sends its two curves, uncached and cached, and nothing else")
        if message["number"] != self.number:
            raise KvvizError("these curves are of an earlier run; the class has been asked for another one")
        curves = {mode: read_curve(message[mode], self.steps) for mode in CURVES}
        if pupil in self._place:
            return False
        if self.sent >= settings().limits.viewers:
            raise KvvizError("more browsers have sent curves than this server takes")
        self._place[pupil] = len(self._rows)
        self._rows.append(curves)
        self._texts.append(json.dumps(curves, separators=(",", ":")))
        return True

    @property
    def sent(self) -> int:
        """How many browsers have sent their curves."""
        return len(self._rows)

    def text(self, known: int, pupil: str) -> str:
        """Return a page's message with the rows that it does not know yet; `mine` is the place of the pupil's own."""
        head = {"t": "curves", "number": self.number, "from": known, "mine": self._place.get(pupil)}
        return f'{json.dumps(head)[:-1]}, "rows": [{",".join(self._texts[known:])}]}}'

    def csv(self) -> str:
        """Return a row for each browser and new token: both steps in milliseconds, and their ratio."""
        text = io.StringIO()
        table = csv.writer(text)
        table.writerow(["browser", "new_token", *(f"{mode}_ms" for mode in CURVES), "speedup"])
        for number, pupil in enumerate(sorted(self._place), 1):  # by hash, so in no order that tells who
            row = self._rows[self._place[pupil]]
            for step, (uncached, cached) in enumerate(zip(*(row[mode] for mode in CURVES), strict=True), 1):
                table.writerow([number, step, uncached, cached, f"{uncached / cached:.4g}" if cached else ""])
        return text.getvalue()


def read_work(work: object) -> ComparisonSpec:
    """The comparison in a leader's message. Raises KvvizError for what no browser decodes."""
    if not isinstance(work, Mapping) or set(work) != set(ASKED_OF_A_CLASS):
        raise KvvizError(f"what a class is asked for has the fields {', '.join(ASKED_OF_A_CLASS)}")
    if not isinstance(work["model"], str) or bundled_folder(work["model"]) is None:
        raise KvvizError("a class decodes a model that comes with kvviz: take mini-gpt2 or mini-qwen3")
    check_whole("new_tokens", work["new_tokens"], 2, MOST_NEW_TOKENS)
    check_whole("repeats", work["repeats"], 1, MOST_REPEATS)
    filler = "random" if work["prompt_tokens"] is None else "book"
    return decoded_there(ComparisonSpec(**work, modes=CURVES, weights="bundled", dtype="float32", filler=filler))


def read_curve(curve: object, steps: int) -> list[float]:
    """The milliseconds of each step. Raises KvvizError for what is no curve of so many steps."""
    if not isinstance(curve, list) or len(curve) != steps:
        found = f"{len(curve):,}" if isinstance(curve, list) else "none"
        raise KvvizError(f"a curve of this run has {steps} steps, and this one has {found}")
    if not all(type(ms) in (int, float) and 0 <= ms <= LONGEST_STEP_MS for ms in curve):
        raise KvvizError(f"a step takes from 0 to {LONGEST_STEP_MS:,} milliseconds, each a plain number")
    return curve
