"""Compares what a screen received with what the store kept: every step once, every figure equal."""

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
    """One screen's result: steps that were lost or doubled, whether anything differs from the store, and its pace."""

    lost: int
    doubled: int
    differs: bool
    updates_per_s: float
    longest_gap_s: float
    behind_s: tuple[float, ...]  # each message's delay, less that of the promptest
    bytes_per_token: float
    bytes_per_step: float


def expected_steps(document: dict[str, Any]) -> Counter:
    """All steps of a comparison, named as in `Book.steps`."""
    found: Counter = Counter()
    further = document["warmup"] - 1  # untimed passes after the equivalence check have negative repeats
    for run in document["runs"]:
        places = range(len(run["step_s"]))
        found.update(("proof", run["mode"], place) for place in places)
        for repeat in range(-further, run["passes"]["clean"] + run["passes"]["disturbed"]):
            found.update(("times", run["mode"], repeat, place) for place in places)
    return found


def judge(book: Book, document: dict[str, Any], texts: Sequence[str]) -> Verdict:
    """Compare one screen with the store, whose records are `texts`."""
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
    """Whether a screen's steps give the document's figures; their seconds are rounded to nine digits."""
    measured = book.seconds()
    for run in document["runs"]:
        if run["mode"] not in measured:
            return False
        mine = figures(measured[run["mode"]], document["batch"])
        if not all(math.isclose(mine[name], run[name], rel_tol=1e-5) for name in FIGURES):
            return False
    return True


def share(values: Sequence[float], part: float) -> float:
    """The quantile at `part` (0 to 1); 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
