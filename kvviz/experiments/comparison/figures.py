"""Computes the figures of a comparison (docs/json.md) from the seconds of its steps. Standard library only."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, get_type_hints

from kvviz.cost.predict import bias, off_by
from kvviz.decoding.modes import MODES
from kvviz.device.clock import quartiles
from kvviz.experiments.comparison.records import Curves, Document, Done, Figures, Headline, PredictionFields, Record

FEWEST = 100  # values of which the 99th percentile is not simply the largest


def reference_mode(modes: Sequence[str]) -> str:
    """Return the mode that the others are compared with: uncached if it runs, else the first that is unaided."""
    return "uncached" if "uncached" in modes else next((m for m in modes if MODES[m].unaided), modes[0])


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return a percentile of ordered values, as one of them."""
    return ordered[-(-percent * len(ordered) // 100) - 1]


def tail(*counts: int) -> str:
    """Name what nearest_rank gives as the 99th percentile of so many values: of fewer than 100 it is the largest."""
    return " or ".join(sorted({"p99" if count >= FEWEST else "slowest" for count in counts})) or "p99"


def tail_said(*counts: int) -> str:
    """Explain p50 and what stands for p99, in Markdown, where each point of a chart is of so many requests."""
    most = {
        "p99": "*p99*: 99 of a hundred",
        "slowest": f"*slowest*: the longest wait, as p99 takes {FEWEST} requests",
        "p99 or slowest": f"*p99*: 99 of a hundred; an open mark is the slowest of fewer than {FEWEST} requests",
    }
    return f"*p50*: half of the requests wait this long or less; {most[tail(*counts)]}"


def percentiles(name: str, values: Iterable[float], percents: Sequence[int]) -> dict[str, float | None]:
    """Return percentiles of a figure as fields of a document, such as `ttft_s_p50`; None for each without a value."""
    ordered = sorted(values)
    return {f"{name}_p{percent}": nearest_rank(ordered, percent) if ordered else None for percent in percents}


def figures(repeats: Sequence[Sequence[float]], batch: int = 1) -> Curves:
    """Compute the figures of one mode from the seconds of every step of every repeat.

    step_s is the median over repeats at each step, between its quartiles q1 and q3; ttft_s is its first entry; itl_s is
    the median and itl_mean_s the mean of the other entries; itl_p99_s is the 99th percentile of all single decode
    steps; total_s is the median over repeats of a whole pass.
    """
    columns = [quartiles(column) for column in zip(*repeats, strict=True)]
    step_s = [middle for _, middle, _ in columns]
    singles = sorted(s for repeat in repeats for s in repeat[1:])
    total = statistics.median(sum(repeat) for repeat in repeats)
    return {
        "ttft_s": step_s[0],
        "itl_s": statistics.median(step_s[1:]) if step_s[1:] else None,
        "itl_mean_s": statistics.fmean(step_s[1:]) if step_s[1:] else None,
        "itl_p99_s": nearest_rank(singles, 99) if singles else None,
        "tokens_per_s": len(step_s) * batch / total,
        "total_s": total,
        "step_s": step_s,
        "step_s_q1": [low for low, _, _ in columns],
        "step_s_q3": [high for _, _, high in columns],
    }


def speedups(runs: Sequence[tuple[str, int, float]]) -> list[float | None]:
    """Compute each run's speed-up over `uncached`, from (mode, steps, seconds of the whole run).

    It is None if there is no uncached run, or if the run took a different number of steps and so did other work.
    """
    baseline = next((run for run in runs if run[0] == "uncached"), None)
    return [baseline[2] / s if baseline is not None and steps == baseline[1] else None for _, steps, s in runs]


def prediction_fields(predicted: Sequence[float] | None, measured: Sequence[float]) -> PredictionFields:
    """Return the predicted seconds of the steps that were measured, and their error and bias."""
    if predicted is None:
        return {"predicted_s": None, "prediction_error": None, "prediction_bias": None}
    steps = list(predicted[: len(measured)])
    return {"predicted_s": steps, "prediction_error": off_by(steps, measured), "prediction_bias": bias(steps, measured)}


def mark(run: Mapping[str, Any]) -> str:
    """Return "≈ " for a document's run whose passes were all disturbed by other work, else ""."""
    passes = run.get("passes")
    return "≈ " if passes and not passes["clean"] else ""


HEADLINE = tuple(get_type_hints(Headline))


def headline(document: Document) -> list[Headline]:
    """Return the figures of each run without the curves, which a screen already has."""
    return [cast(Headline, {name: run.get(name) for name in HEADLINE}) for run in document["runs"]]


def finished(records: Sequence[Mapping[str, object]]) -> tuple[Document, list[Record]]:
    """Return the document of a finished comparison, and its records in the form that the dashboard keeps."""
    document = cast(Document, records[-1]["document"])
    last: list[Record] = [figures_record(document), Done(t="done", message="")]
    return document, [*cast(Sequence[Record], records[:-1]), *last]


def figures_record(document: Document) -> Figures:
    """Build the record that sends the figures of a finished comparison to every screen."""
    return {"t": "figures", "runs": headline(document)}
