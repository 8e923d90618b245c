"""Holds what a screen was told against what the store kept: every step once, every figure the same."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.screens import Book
from kvviz.experiments.comparison.figures import figures

FIGURES = ("ttft_s", "itl_s", "itl_p99_s", "total_s", "tokens_per_s")


@dataclass(frozen=True)
class Verdict:
    """Of one screen: steps that never came, steps that came twice, whether anything is not as the store has it."""

    lost: int
    doubled: int
    differs: bool
    updates_per_s: float
    longest_gap_s: float
    behind_s: tuple[float, ...]  # of each message: by how much later it came than the promptest one
    bytes_per_token: float
    bytes_per_step: float


def expected_steps(document: dict[str, Any]) -> Counter:
    """Every step that a comparison has, as `Book.steps` names them."""
    found: Counter = Counter()
    further = document["warmup"] - 1  # untimed passes after the proof; their repeats are below zero
    for run in document["runs"]:
        places = range(len(run["step_s"]))
        found.update(("proof", run["mode"], place) for place in places)
        for repeat in range(-further, document["repeats"]):
            found.update(("times", run["mode"], repeat, place) for place in places)
    return found


def judge(book: Book, document: dict[str, Any], texts: Sequence[str]) -> Verdict:
    """One screen against the store: `texts` are the records as they were kept."""
    due, seen = expected_steps(document), book.steps()
    delays = [now - made for now, made in book.arrivals]
    gaps = [later - now for (now, _), (later, _) in pairwise(book.arrivals)]
    return Verdict(
        lost=(due - seen).total(),
        doubled=(seen - due).total(),
        differs=book.records != [json.loads(text) for text in texts] or not same_figures(book, document),
        updates_per_s=len(gaps) / sum(gaps) if gaps else 0.0,
        longest_gap_s=max(gaps, default=0.0),
        behind_s=tuple(delay - min(delays) for delay in delays),
        bytes_per_token=book.nbytes / sum(len(run["step_s"]) for run in document["runs"]),
        bytes_per_step=book.nbytes / due.total(),
    )


def same_figures(book: Book, document: dict[str, Any]) -> bool:
    """Whether the steps on a screen give the document's figures; times travel rounded to a billionth of a second."""
    measured = book.seconds()
    for run in document["runs"]:
        if run["mode"] not in measured:
            return False
        mine = figures(measured[run["mode"]], document["batch"])
        if not all(math.isclose(mine[name], run[name], rel_tol=1e-5) for name in FIGURES):
            return False
    return True


def share(values: Sequence[float], part: float) -> float:
    """The value that this part of the values does not exceed; 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
