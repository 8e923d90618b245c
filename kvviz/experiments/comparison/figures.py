"""The figures of a comparison, computed from the seconds of its steps. Standard library only.

The fields' names are a contract with scripts; docs/json.md describes them.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import cast, get_type_hints

from kvviz.cost.predict import bias, off_by
from kvviz.device.clock import quartiles
from kvviz.experiments.comparison.records import Curves, Document, Done, Figures, Headline, PredictionFields, Record


def reference_mode(modes: Sequence[str]) -> str:
    """The mode that the others are compared with: uncached where it runs, else the first."""
    return "uncached" if "uncached" in modes else modes[0]


def figures(repeats: Sequence[Sequence[float]], batch: int = 1) -> Curves:
    """The figures of one mode from the seconds of every step of every repeat.

    step_s: median over repeats at each step (q1 and q3 beside it); ttft_s its first entry; itl_s the median and
    itl_mean_s the mean of the others; itl_p99_s the 99th percentile of all single decode steps; total_s the
    median over repeats of a pass's sum.
    """
    columns = [quartiles(column) for column in zip(*repeats, strict=True)]
    step_s = [middle for _, middle, _ in columns]
    singles = sorted(s for repeat in repeats for s in repeat[1:])
    total = statistics.median(sum(repeat) for repeat in repeats)
    return {
        "ttft_s": step_s[0],
        "itl_s": statistics.median(step_s[1:]) if step_s[1:] else None,
        "itl_mean_s": statistics.fmean(step_s[1:]) if step_s[1:] else None,
        "itl_p99_s": singles[min(len(singles) - 1, int(0.99 * len(singles)))] if singles else None,
        "tokens_per_s": len(step_s) * batch / total,
        "total_s": total,
        "step_s": step_s,
        "step_s_q1": [low for low, _, _ in columns],
        "step_s_q3": [high for _, _, high in columns],
    }


def speedups(runs: Sequence[tuple[str, int, float]]) -> list[float | None]:
    """How many times as fast as `uncached` each run is, from (mode, steps, seconds of the whole run).

    None without an uncached run, and for a run of another number of steps, which has done other work.
    """
    baseline = next((run for run in runs if run[0] == "uncached"), None)
    return [baseline[2] / s if baseline is not None and steps == baseline[1] else None for _, steps, s in runs]


def prediction_fields(predicted: Sequence[float] | None, measured: Sequence[float]) -> PredictionFields:
    """The predicted seconds of the steps that were made, and how far off they are."""
    if predicted is None:
        return {"predicted_s": None, "prediction_error": None, "prediction_bias": None}
    steps = list(predicted[: len(measured)])
    return {
        "predicted_s": steps,
        "prediction_error": off_by(steps, measured),
        "prediction_bias": bias(steps, measured),
    }


HEADLINE = tuple(get_type_hints(Headline))


def headline(document: Document) -> list[Headline]:
    """The figures of each run without the curves, which a screen already has."""
    return [cast(Headline, {name: run.get(name) for name in HEADLINE}) for run in document["runs"]]


def finished(records: Sequence[Mapping[str, object]]) -> tuple[Document, list[Record]]:
    """The document of a comparison that has ended, and its records as the dashboard keeps them."""
    document = cast(Document, records[-1]["document"])
    last: list[Record] = [figures_record(document), Done(t="done", message="")]
    return document, [*cast(Sequence[Record], records[:-1]), *last]


def figures_record(document: Document) -> Figures:
    """The record that shows every screen the figures of a comparison that has ended."""
    return {"t": "figures", "runs": headline(document)}
