"""Checks that the records and the document of a comparison agree, and rebuilds a document from records alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvviz.base.checks import Unfit
from kvviz.device.clock import quartiles
from kvviz.experiments.comparison.figures import figures, headline, prediction_fields, reference_mode
from kvviz.experiments.comparison.records import (
    MOST_LAYERS,
    CheckedStep,
    Document,
    Headline,
    Layer,
    LayerGroup,
    MemoryAccount,
    ModeFields,
    Predicted,
    Record,
    Run,
)
from kvviz.store.files import schema
from kvviz.store.files.recording import started_of

MEASURED = ("proof", "memory", "pass", "times", "figures", "done")  # a prediction has to come before any of these


@dataclass
class _ModeRecords:
    """What the records hold about one mode."""

    steps: list[CheckedStep] = field(default_factory=list)
    repeats: dict[int, list[float]] = field(default_factory=dict)
    memory: MemoryAccount | None = None


def _by_mode(records: Sequence[Record]) -> dict[str, _ModeRecords]:
    """Group the records by mode. Raises Unfit if a step is missing or comes twice."""
    result = {mode["name"]: _ModeRecords() for mode in started_of(records)["modes"]}
    for record in records:
        if record["t"] == "proof":
            for mode, step in record["modes"].items():
                _check_order(len(result[mode].steps), record["i"], "proof")
                result[mode].steps.append(step)
        elif record["t"] == "times" and record["repeat"] >= 0:
            seconds = result[record["mode"]].repeats.setdefault(record["repeat"], [])
            _check_order(len(seconds), record["from"], "times")
            seconds += record["s"]
        elif record["t"] == "memory":
            account: MemoryAccount = {
                "formula": record["formula"],
                "tensors": record["tensors"],
                "storages": record["storages"],
                "allocator": record["allocator"],
            }
            if "reasons" in record:
                account["reasons"] = record["reasons"]
            result[record["mode"]].memory = account
    return result


def _check_order(expected: int, given: int, kind: str) -> None:
    if given != expected:
        raise Unfit(f"the steps of its {kind} records have to follow each other")


def _prediction(records: Sequence[Record]) -> Predicted | None:
    """Return the prediction among the records. Raises Unfit if it comes after a measurement, or if there are two."""
    places = [place for place, record in enumerate(records) if record["t"] == "predicted"]
    first = next((place for place, record in enumerate(records) if record["t"] in MEASURED), len(records))
    if len(places) > 1 or any(place > first for place in places):
        raise Unfit("a prediction has to stand alone, before the first step")
    return next((record for record in records if record["t"] == "predicted"), None)


# --- records compared with a document -----------------------------------------------------------------------------


def check_agreement(document: Document, records: Sequence[Record]) -> None:
    """Raise Unfit if the records contradict the document."""
    modes, predicted = _by_mode(records), _prediction(records)
    _hold(set(modes) == {run["mode"] for run in document["runs"]}, "modes")
    _hold(document["paces"] == (predicted["paces"] if predicted else None), "paces")
    for run in document["runs"]:
        _check_run(run, modes[run["mode"]], document["repeats"])
        steps = predicted["step_s"].get(run["mode"]) if predicted else None
        _hold(run["predicted_s"] == (steps if steps is None else steps[: len(run["step_s"])]), "predictions")
    for record in records:
        if record["t"] == "figures":
            _hold(_same_figures(record["runs"], headline(document)), "figures")


def _check_run(run: Run, mode: _ModeRecords, repeats: int) -> None:
    if mode.steps:
        _hold([tuple(step["ids"]) for step in mode.steps] == list(zip(*schema.rows_of(run), strict=True)), "token ids")
    if mode.repeats:
        _hold(sorted(mode.repeats) == list(range(repeats)), "repeats")
        _hold(all(len(seconds) == len(run["step_s"]) for seconds in mode.repeats.values()), "steps")
        medians = (quartiles(column)[1] for column in zip(*mode.repeats.values(), strict=True))
        near = (math.isclose(a, b, rel_tol=1e-6, abs_tol=2e-9) for a, b in zip(medians, run["step_s"], strict=True))
        _hold(all(near), "seconds")


def _same_figures(runs: Sequence[Headline], headlines: Sequence[Headline]) -> bool:
    """Whether every figure in the records equals the document's."""
    same = (run.items() <= whole.items() for run, whole in zip(runs, headlines, strict=False))
    return len(runs) == len(headlines) and all(same)


def _hold(holds: bool, what: str) -> None:
    if not holds:
        raise Unfit(f"its records and its document have other {what}")


# --- a document from records alone --------------------------------------------------------------------------------


def document_of(records: Sequence[Record]) -> Document | None:
    """Rebuild the document of a recording; return None if its records do not hold enough.

    The records of a watched run lack the comparison, and those of a batch hold only the text of its first sequence.
    """
    started, spec = started_of(records), started_of(records)["spec"]
    try:
        modes, predicted = _by_mode(records), _prediction(records)
        runs = [_run(mode, modes[mode["name"]], predicted) for mode in started["modes"]]
        for run, ratio in zip(runs, schema.speedups_of(runs), strict=True):
            run["speedup"] = ratio
        whole = {
            "id": started.get("id", "recording"),
            "environment": started["environment"],
            "paces": predicted["paces"] if predicted else None,
            "model": started["model"]["id"],
            "weights": started["model"]["weights"],
            "config_hash": started.get("config_hash"),
            "prompt": None if spec.get("prompt_tokens") else started["prompt"]["text"],
            "prompt_tokens": started["prompt"]["tokens"],
            "new_tokens": spec["new_tokens"],
            "batch": spec["batch"],
            "warmup": spec["warmup"],
            "repeats": spec["repeats"],
            **({"sampling": spec["sampling"]} if "sampling" in spec else {}),
            "reference": reference_mode([run["mode"] for run in runs] or [""]),
            "identical": all(run["identical"] for run in runs if run["exact"]),
            "runs": runs,
        }
        return schema.document(whole)
    except Unfit:
        return None


def _run(mode: ModeFields, found: _ModeRecords, predicted: Predicted | None) -> Run:
    """Rebuild one mode's run for a batch of 1. Its speed-up needs the other runs and is filled in later."""
    _check_complete(found)
    last = found.steps[-1]
    allocator = found.memory["allocator"] if found.memory else None
    timed = figures(list(found.repeats.values()))
    return {
        "id": mode["name"],
        "mode": mode["name"],
        "exact": mode["exact"],
        "token_ids": [step["ids"][0] for step in found.steps],
        "text": "".join(step["text"] for step in found.steps),
        "identical": last["divergence"] is None,
        "first_divergence": last["divergence"],
        "divergence_margin": last.get("margin"),
        "top_margin": None,
        "max_abs_logit_diff": last["delta"],
        "repeatable": True,
        **timed,
        "cache_class": None,
        "cache_bytes": [sum(len(g["indices"]) * g["nbytes"] for g in step["layers"]) for step in found.steps],
        "allocated_bytes": [sum(len(g["indices"]) * g["allocated"] for g in step["layers"]) for step in found.steps],
        "outliving_bytes": [step["outliving"] or 0 for step in found.steps],
        "layers": sorted((row for g in last["layers"] for row in _layers(g)), key=lambda row: row["index"]),
        "memory": found.memory,
        "peak_bytes": allocator["peak"] if allocator else None,
        "peak_kind": allocator["kind"] if allocator else None,
        "speedup": None,
        "estimate": None,
        **prediction_fields(predicted["step_s"].get(mode["name"]) if predicted else None, timed["step_s"]),
    }


def _check_complete(found: _ModeRecords) -> None:
    """Raise Unfit unless there is one sequence whose every step was compared and timed in every repeat."""
    steps = len(found.steps)
    timed = bool(found.repeats) and all(len(s) == steps and sum(s) > 0 for s in found.repeats.values())
    alone = all(len(step["ids"]) == 1 for step in found.steps)
    observed = all(step["outliving"] is not None for step in found.steps)
    few = steps > 0 and sum(len(group["indices"]) for group in found.steps[-1]["layers"]) <= MOST_LAYERS
    if not (timed and alone and observed and few):
        raise Unfit("the records are not those of a whole comparison")


def _layers(group: LayerGroup) -> list[Layer]:
    """Expand a group into its layers. Records hold no more of a layer's format than its shapes."""
    return [
        {
            "index": index,
            "kind": group["kind"],
            "kv_heads": None,
            "key_dim": None,
            "value_dim": None,
            "window": None,
            "seen": group["seen"],
            "held": group["held"],
            "key_shape": group["key_shape"],
            "value_shape": group["value_shape"],
            "dtype": group["dtype"],
            "state_bytes": None,
            "nbytes": group["nbytes"],
            "allocated": group["allocated"],
        }
        for index in group["indices"]
    ]
