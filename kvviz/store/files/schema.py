"""Checks a comparison: each field's type (`records.Document`), its fields against each other, and its records."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kvviz.base.checks import Unfit, check_of
from kvviz.cost.predict import bias, off_by
from kvviz.device.clock import quartiles
from kvviz.device.disturbance import undisturbed
from kvviz.experiments.comparison import records as form
from kvviz.experiments.comparison.figures import headline, speedups
from kvviz.experiments.comparison.records import CheckedStep, Document, Predicted, Record, Run, Started
from kvviz.experiments.comparison.verdict import shape_of

LISTS = ("step_s_q1", "step_s_q3", "cache_bytes", "allocated_bytes", "outliving_bytes", "top_margin", "predicted_s")

_DOCUMENT = check_of(form.Document)


def _hold(holds: bool, sentence: str) -> None:
    if not holds:
        raise Unfit(sentence)


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
        shape = shape_of(checked["prompt_tokens"], run)
        _hold(run["shape"] in (None, shape), "shape has to follow from step_s")
    _hold_identity(checked)
    ratios = speedups([(run["mode"], len(run["step_s"]), run["total_s"]) for run in runs])
    for run, ratio in zip(runs, ratios, strict=True):
        _hold_near(run["speedup"], ratio, "speedup")
    untold = all(run["estimate"] is None for run in runs)
    _hold(untold or checked["rates"] is not None, "an estimate has to come with the rates that it is made from")
    untold = all(run["predicted_s"] is None for run in runs)
    _hold(untold or checked["paces"] is not None, "a prediction has to come with the paces that it is made from")
    return checked


def rows_of(run: Run) -> list[list[int]]:
    """Return the chosen ids of a run, one row per sequence."""
    ids = run["token_ids"]
    nested = bool(ids) and isinstance(ids[0], list)
    return cast(list[list[int]], ids if nested else [ids])


def _hold_lengths(run: Run, batch: int, most: int) -> None:
    """Raise Unfit unless every list has one entry per step, and every sequence has one list of ids and one text."""
    steps = len(run["step_s"])
    _hold(1 <= steps <= most, "step_s has to hold from 1 to new_tokens entries")
    for name in LISTS:
        values = cast(dict[str, Any], run)[name]
        _hold(values is None or len(values) == steps, f"{name} has to hold as many entries as step_s")
    nested = bool(run["token_ids"]) and isinstance(run["token_ids"][0], list)
    _hold(nested == (batch > 1) == isinstance(run["text"], list), "token_ids and text have to be lists of the batch")
    rows = rows_of(run)
    _hold(len(rows) == batch and all(len(row) == steps for row in rows), "token_ids has to hold an id for each step")
    _hold(batch == 1 or len(run["text"]) == batch, "text has to hold a text for each sequence")


def _hold_figures(run: Run, batch: int) -> None:
    """Raise Unfit unless the figures follow from the steps."""
    steps, predicted = run["step_s"], run["predicted_s"] or []
    bands = zip(run["step_s_q1"], steps, run["step_s_q3"], strict=True)
    _hold(all(low <= middle <= high for low, middle, high in bands), "step_s has to lie between its quartiles")
    _hold_near(run["ttft_s"], steps[0], "ttft_s")
    _hold_near(run["itl_s"], statistics.median(steps[1:]) if steps[1:] else None, "itl_s")
    _hold_near(run["itl_mean_s"], statistics.fmean(steps[1:]) if steps[1:] else None, "itl_mean_s")
    _hold_near(run["tokens_per_s"], len(steps) * batch / run["total_s"], "tokens_per_s")
    _hold_near(run["prediction_error"], off_by(predicted, steps), "prediction_error")
    _hold_near(run["prediction_bias"], bias(predicted, steps), "prediction_bias")


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
        found = _first_difference(rows_of(run), rows_of(reference))
        _hold(run["first_divergence"] == found, "first_divergence has to be where the token_ids differ")
        _hold(run["identical"] == (found is None), "identical has to say whether the token_ids do")
    same = all(run["identical"] for run in checked["runs"] if run["exact"])
    _hold(checked["identical"] == same, "identical has to say whether every exact mode's run is")


def _first_difference(rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> int | None:
    """Find the first step at which two runs differ, or that only `rows` has; None if they agree."""
    steps, theirs = list(zip(*rows, strict=True)), list(zip(*others, strict=True))
    return next((i for i, ids in enumerate(steps) if i >= len(theirs) or ids != theirs[i]), None)


@dataclass
class ModeRecords:
    """What the records hold about one mode: the steps of its proof, and the seconds of each timed pass.

    `clean` says of each pass whether it was undisturbed; None for one of which nobody could tell.
    """

    steps: list[CheckedStep] = field(default_factory=list)
    repeats: dict[int, list[float]] = field(default_factory=dict)
    clean: dict[int, bool | None] = field(default_factory=dict)

    @property
    def kept(self) -> list[list[float]]:
        """The passes that figures are made from."""
        return undisturbed(list(self.repeats.values()), map(self.clean.get, self.repeats))


def by_mode(records: Sequence[Record]) -> dict[str, ModeRecords]:
    """Group the records by mode, warm-ups left out. Raises Unfit if a step is missing or comes twice."""
    result: dict[str, ModeRecords] = {}
    for record in records:
        if record["t"] == "proof":
            for mode, step in record["modes"].items():
                steps = result.setdefault(mode, ModeRecords()).steps
                _hold(len(steps) == record["i"], "the steps of its proof records have to follow each other")
                steps.append(step)
        elif record["t"] == "times" and record["repeat"] >= 0:
            seconds = result.setdefault(record["mode"], ModeRecords()).repeats.setdefault(record["repeat"], [])
            _hold(len(seconds) == record["from"], "the steps of its times records have to follow each other")
            seconds += record["s"]
        elif record["t"] == "clocked":
            result.setdefault(record["mode"], ModeRecords()).clean[record["repeat"]] = record["clean"]
    return result


def started_of(records: Sequence[Record]) -> Started:
    """Return the first record; `reading.checked` guarantees that its type is 'started'."""
    first = records[0]
    assert first["t"] == "started"
    return first


def check_agreement(document: Document, records: Sequence[Record]) -> None:
    """Raise Unfit if the records contradict the document."""
    modes, predicted = by_mode(records), _prediction(records)
    named = {mode["name"] for mode in started_of(records)["modes"]}
    _agree(named == {run["mode"] for run in document["runs"]}, "modes")
    _agree(document["paces"] == (predicted["paces"] if predicted else None), "paces")
    for run in document["runs"]:
        _check_run(run, modes.get(run["mode"], ModeRecords()), document["repeats"])
        steps = predicted["step_s"].get(run["mode"]) if predicted else None
        _agree(run["predicted_s"] == (steps if steps is None else steps[: len(run["step_s"])]), "predictions")
    for record in records:
        if record["t"] == "figures":
            told = zip(record["runs"], headline(document), strict=False)
            same = all(run.items() <= whole.items() for run, whole in told)
            _agree(same and len(record["runs"]) == len(document["runs"]), "figures")


def _prediction(records: Sequence[Record]) -> Predicted | None:
    """Return the prediction among the records. Raises Unfit if it comes after a timed pass or twice."""
    found, timed = None, False
    for record in records:
        if record["t"] == "predicted":
            _hold(found is None and not timed, "a prediction has to stand alone, before the first timed pass")
            found = record
        timed = timed or record["t"] not in ("started", "predicted", "first_look", "proof")
    return found


def _check_run(run: Run, mode: ModeRecords, repeats: int) -> None:
    if mode.steps:
        _agree([tuple(step["ids"]) for step in mode.steps] == list(zip(*rows_of(run), strict=True)), "token ids")
    if mode.repeats:
        counts = run["passes"] or {"clean": repeats, "disturbed": 0}
        timed = counts["clean"] + counts["disturbed"]
        disturbed = sum(clean is False for clean in mode.clean.values())
        _agree(sorted(mode.repeats) == list(range(timed)) and timed >= repeats, "repeats")
        _agree(disturbed == counts["disturbed"], "disturbed passes")
        _agree(all(len(seconds) == len(run["step_s"]) for seconds in mode.repeats.values()), "steps")
        medians = (quartiles(column)[1] for column in zip(*mode.kept, strict=True))
        near = (math.isclose(a, b, rel_tol=1e-6, abs_tol=2e-9) for a, b in zip(medians, run["step_s"], strict=True))
        _agree(all(near), "seconds")


def _agree(same: bool, what: str) -> None:
    _hold(same, f"its records and its document have other {what}")
