"""Figures of a load sweep: goodput, waits, where the queue is decided, where decoding stops being free.

Standard library only.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from statistics import median
from typing import Any, NamedTuple

from kvviz.device.clock import quartiles
from kvviz.experiments.batching.timeline import Row, Steps
from kvviz.experiments.comparison.figures import nearest_rank
from kvviz.experiments.load.rates import BEHIND

FREE = 1.25  # a step takes at most so many times as long as one of a single sequence: its other tokens are free
EARLY = 2.0  # times: the p99 of a level queue has grown so far, although nothing piles up
FEW = 3  # steps with so many sequences, at least: one alone may be a spike
Point = Mapping[str, Any]  # a rate of a document (docs/json.md)


def waits(rows: Iterable[Row]) -> list[tuple[float, float | None]]:
    """Of each request that was served: its TTFT, and the mean time between its tokens, None for a single token."""
    found: list[tuple[float, float | None]] = []
    for row in rows:
        if row["state"] == "done":
            times, gaps = row["token_s"], len(row["token_s"]) - 1
            between = round((times[-1] - times[0]) / gaps, 6) if gaps else None
            found.append((round(times[0] - row["arrival_s"], 6), between))
    return found


def goodput(point: Point, ttft_s: float, itl_s: float) -> float:
    """Requests a second whose first token came within `ttft_s`, and whose others took at most `itl_s` on average."""
    good = sum(first <= ttft_s and (gap is None or gap <= itl_s) for first, gap in point["waits"])
    return good / point["seconds"]


def wait_s(point: Point, name: str, percent: int) -> float | None:
    """A percentile over a rate's requests: of their TTFTs ("ttft"), or of their mean ITLs ("itl")."""
    found = sorted(each for pair in point["waits"] if (each := pair[name == "itl"]) is not None)
    return nearest_rank(found, percent) if found else None


def counts(points: Iterable[Point], name: str = "ttft") -> list[int]:
    """Count, for each rate, the requests whose waits a percentile is taken from."""
    return [sum(pair[name == "itl"] is not None for pair in point["waits"]) for point in points]


class Knee(NamedTuple):
    """The rate up to which no queue grows, the lowest at which one does, and the rates where that is undecided."""

    level: float | None
    growing: float | None
    undecided: tuple[float, float] | None


def decided(points: Sequence[Point]) -> Knee:
    """Read the knee off the growth of the queue at each rate, in order.

    It is undecided where the 95% interval has room for a queue that grows and for one that does not.
    """
    rates = [point["rate"] for point in points]
    growing = next((point["rate"] for point in points if point["unbounded"]), None)
    still = takewhile(lambda point: point["per_s"] + point["within"] <= BEHIND * point["rate"], points)
    level = max((point["rate"] for point in still), default=None)
    begins, ends = level or min(rates, default=0), growing or max(rates, default=0)
    return Knee(level, growing, (begins, ends) if begins < ends else None)


def early(points: Sequence[Point]) -> tuple[Point, Point] | None:
    """The lowest rate, and the first whose queue stays level although its p99 is EARLY times as long; None if none."""
    most = decided(points).level or 0
    level = [(point, wait) for point in points if point["rate"] <= most and (wait := wait_s(point, "ttft", 99))]
    return next(((level[0][0], point) for point, wait in level if wait >= EARLY * level[0][1]), None)


def mean_context(prompts: Sequence[int], answers: Sequence[int]) -> int:
    """Return the mean context of all decode steps, in tokens; 2 if no request has a decode step."""
    steps = sum(answer - 1 for answer in answers)
    seen = sum((answer - 1) * (prompt + answer / 2) for prompt, answer in zip(prompts, answers, strict=True))
    return max(2, round(seen / steps)) if steps else 2


def by_running(passes: Iterable[Steps]) -> list[dict[str, float]]:
    """Median and quartiles of the pure decode steps, in which each sequence computes one token, by their sequences."""
    found = defaultdict[int, list[float]](list)
    for steps in passes:
        for began, ended, running, computed in zip(
            *(steps[name] for name in ("began_s", "ended_s", "running", "computed")), strict=True
        ):
            if running == computed:
                found[int(running)].append(ended - began)
    rows = []
    for running in sorted(found):
        if len(found[running]) >= FEW:
            low, middle, high = quartiles(found[running])
            rows.append({"running": running, "steps": len(found[running]), "s": middle, "s_q1": low, "s_q3": high})
    return rows


def free_up_to(rows: Sequence[Mapping[str, float]]) -> int | None:
    """The most sequences whose step, and that of all fewer ones, takes at most FREE times as long as the smallest."""
    free = None
    for row in rows:
        if row["s"] > FREE * rows[0]["s"]:
            break
        free = int(row["running"])
    return free


def missed(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Median of (predicted - measured) / measured; below 0, it took longer. None without a pair."""
    errors = [(predicted - actual) / actual for predicted, actual in pairs if predicted is not None and actual]
    return median(errors) if errors else None
