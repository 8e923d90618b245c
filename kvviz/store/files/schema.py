"""Checks a comparison's document: first each field's type (`records.Document`), then the fields against each other."""

import math
import statistics
from collections.abc import Sequence
from typing import cast

from kvviz.base.checks import Unfit
from kvviz.base.typed_checks import check_of
from kvviz.cost.predict import bias, off_by
from kvviz.experiments.comparison import records as form
from kvviz.experiments.comparison.figures import speedups
from kvviz.experiments.comparison.records import Document, Run

_DOCUMENT = check_of(form.Document)


def document(value: object) -> Document:
    """Check every field of a document and their consistency; drop unknown fields. Raises Unfit."""
    checked: Document = _DOCUMENT(value, "the document")
    runs = checked["runs"]
    modes = [run["mode"] for run in runs]
    _hold(bool(modes) and len(set(modes)) == len(modes), "runs have to be of one mode or more, each named once")
    _hold(checked["reference"] in modes, "reference has to be the mode of a run")
    for run in runs:
        _hold_lengths(run, checked["batch"], checked["new_tokens"])
        _hold_figures(run, checked["batch"])
        steps = run["predicted_s"] or []
        _hold_near(run["prediction_error"], off_by(steps, run["step_s"]), "prediction_error")
        _hold_near(run["prediction_bias"], bias(steps, run["step_s"]), "prediction_bias")
    _hold_identity(checked)
    for run, ratio in zip(runs, speedups_of(runs), strict=True):
        _hold_near(run["speedup"], ratio, "speedup")
    untold = all(run["estimate"] is None for run in runs)
    _hold(untold or checked["rates"] is not None, "an estimate has to come with the rates that it is made from")
    untold = all(run["predicted_s"] is None for run in runs)
    _hold(untold or checked["paces"] is not None, "a prediction has to come with the paces that it is made from")
    return checked


def speedups_of(runs: Sequence[Run]) -> list[float | None]:
    """Compute the speed-up of each run of a document."""
    return speedups([(run["mode"], len(run["step_s"]), run["total_s"]) for run in runs])


def rows_of(run: Run) -> list[list[int]]:
    """Return the chosen ids of a run, one row per sequence."""
    ids = run["token_ids"]
    nested = bool(ids) and isinstance(ids[0], list)
    return cast(list[list[int]], ids if nested else [ids])


def first_difference(rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> int | None:
    """Find the first step at which two sequences differ, or that only `rows` has; None if there is none."""
    steps, theirs = list(zip(*rows, strict=True)), list(zip(*others, strict=True))
    common = min(len(steps), len(theirs))
    different = next((i for i in range(common) if steps[i] != theirs[i]), None)
    return common if different is None and len(steps) > common else different


def _hold(holds: bool, sentence: str) -> None:
    if not holds:
        raise Unfit(sentence)


def _hold_lengths(run: Run, batch: int, most: int) -> None:
    """Raise Unfit unless every list has one entry per step, and every sequence has one list of ids and one text."""
    steps = len(run["step_s"])
    _hold(1 <= steps <= most, "step_s has to hold from 1 to new_tokens entries")
    lists: dict[str, Sequence[object] | None] = {
        "step_s_q1": run["step_s_q1"],
        "step_s_q3": run["step_s_q3"],
        "cache_bytes": run["cache_bytes"],
        "allocated_bytes": run["allocated_bytes"],
        "outliving_bytes": run["outliving_bytes"],
        "top_margin": run["top_margin"],
        "predicted_s": run["predicted_s"],
    }
    for name, values in lists.items():
        _hold(values is None or len(values) == steps, f"{name} has to hold as many entries as step_s")
    nested = bool(run["token_ids"]) and isinstance(run["token_ids"][0], list)
    _hold(nested == (batch > 1) == isinstance(run["text"], list), "token_ids and text have to be lists of the batch")
    rows = rows_of(run)
    _hold(len(rows) == batch and all(len(row) == steps for row in rows), "token_ids has to hold an id for each step")
    _hold(batch == 1 or len(run["text"]) == batch, "text has to hold a text for each sequence")


def _hold_figures(run: Run, batch: int) -> None:
    """Raise Unfit unless the figures follow from the steps."""
    steps = run["step_s"]
    bands = zip(run["step_s_q1"], steps, run["step_s_q3"], strict=True)
    _hold(all(low <= middle <= high for low, middle, high in bands), "step_s has to lie between its quartiles")
    _hold_near(run["ttft_s"], steps[0], "ttft_s")
    _hold_near(run["itl_s"], statistics.median(steps[1:]) if steps[1:] else None, "itl_s")
    _hold_near(run["itl_mean_s"], statistics.fmean(steps[1:]) if steps[1:] else None, "itl_mean_s")
    _hold_near(run["tokens_per_s"], len(steps) * batch / run["total_s"], "tokens_per_s")


def _hold_near(given: float | None, computed: float | None, name: str) -> None:
    if given is None or computed is None:
        near = given is computed
    else:
        near = math.isclose(given, computed, rel_tol=1e-6, abs_tol=1e-12)
    _hold(near, f"{name} has to follow from the run's other figures")


def _hold_identity(checked: Document) -> None:
    """Raise Unfit unless each run's first divergence is the one that its tokens show."""
    reference = next(run for run in checked["runs"] if run["mode"] == checked["reference"])
    for run in checked["runs"]:
        found = first_difference(rows_of(run), rows_of(reference))
        _hold(run["first_divergence"] == found, "first_divergence has to be where the token_ids differ")
        _hold(run["identical"] == (found is None), "identical has to say whether the token_ids do")
    same = all(run["identical"] for run in checked["runs"] if run["exact"])
    _hold(checked["identical"] == same, "identical has to say whether every exact mode's run is")
