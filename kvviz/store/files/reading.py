"""A comparison as one JSON file and back, every field checked on the way in. Standard library only.

`{"kvviz": "comparison", "version": 1, "document": {...}, "records": [...]}`; docs/json.md describes both halves.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvviz.base.checks import Unfit, parse
from kvviz.base.errors import KvvizError
from kvviz.device.clock import quartiles
from kvviz.experiments.comparison.report import figures, headline, held_against
from kvviz.store.files import recording, schema

VERSION = 1
LARGEST = 100_000_000  # bytes of a file that is read at all
MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Imported:
    """What a file held: a comparison's document (None for a watched run) and its records (empty where it has none)."""

    document: dict[str, Any] | None
    records: list[dict[str, Any]]

    @property
    def spec(self) -> dict[str, Any]:
        """The work, named as in `ComparisonSpec.to_dict`, as far as the file says."""
        said = self.records[0]["spec"] if self.records else {}
        if self.document is not None:
            return {**said, **_work_of(self.document)}
        first = self.records[0]
        modes = [mode["name"] for mode in first["modes"]]
        return {"model": first["model"]["id"], "weights": first["model"]["weights"], "modes": modes, **said}

    def renamed(self, comparison_id: str) -> "Imported":
        """The same under another id."""
        document = self.document
        if document is not None:
            runs = [{**run, "id": f"{comparison_id}-{run['mode']}"} for run in document["runs"]]
            document = {**document, "id": comparison_id, "runs": runs}
        first = [{**record, "id": comparison_id} for record in self.records[:1]]
        return Imported(document, first + self.records[1:])


def _work_of(document: Mapping[str, Any]) -> dict[str, Any]:
    names = ("model", "weights", "prompt", "new_tokens", "batch", "repeats", "warmup", "sampling")
    environment = document["environment"]
    return {
        **{name: document[name] for name in names},
        "modes": [run["mode"] for run in document["runs"]],
        "prompt_tokens": document["prompt_tokens"] if document["prompt"] is None else None,
        "dtype": environment["dtype"],
        "device": environment["device"],
        "attn": environment["attn_implementation"],
    }


def to_json(records: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> str:
    """The whole comparison as JSON text: its document, and the records that a recording holds."""
    whole = {"kvviz": "comparison", "version": VERSION, "document": document, "records": recording.shown(records)}
    return json.dumps(whole, allow_nan=False)


def read(data: str | bytes) -> Imported:
    """Read `to_json`'s file, the JSON of `kvviz run`, or a recording. Raises KvvizError with one sentence."""
    file = parse(data, LARGEST, "comparison")
    if not isinstance(file, dict):
        raise KvvizError("this file is no comparison of kvviz: it holds no JSON object")
    if "kvviz" not in file and "runs" in file:
        return Imported(_document(file), [])
    if file.get("kvviz") not in ("comparison", "recording"):
        raise KvvizError('this file is no comparison of kvviz: it lacks {"kvviz": "comparison", …} and has no runs')
    if file.get("version") != VERSION:
        raise KvvizError(f"this file has another version than {VERSION}, the one that this kvviz reads")
    if not isinstance(file.get("records"), list):
        raise KvvizError("this file does not fit: records has to be a list")
    records = recording.checked(file["records"]) if file["records"] or file["kvviz"] == "recording" else []
    if file["kvviz"] == "recording":
        return Imported(document_of(records), records)
    return Imported(_agreeing(_document(file.get("document")), records), records)


def _document(value: Any) -> dict[str, Any]:
    try:
        return schema.document(value)
    except Unfit as unfit:
        raise KvvizError(f"this comparison does not fit: {unfit}") from unfit


# --- records and document tell of the same run -------------------------------------------------------------------


_AFTER = ("proof", "memory", "pass", "times", "figures", "done")  # records that tell of something done


@dataclass
class _Told:
    """What the records tell of one mode."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    repeats: dict[int, list[float]] = field(default_factory=dict)
    memory: dict[str, Any] | None = None


def _predicted(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The prediction among them. Raises Unfit for one that may have seen a step, and for a second one."""
    places = [place for place, record in enumerate(records) if record["t"] == "predicted"]
    first = next((place for place, record in enumerate(records) if record["t"] in _AFTER), len(records))
    if len(places) > 1 or any(place > first for place in places):
        raise Unfit("a prediction has to stand alone, before the first step")
    return records[places[0]] if places else None


def _told(records: Sequence[Mapping[str, Any]]) -> dict[str, _Told]:
    """What they tell of each mode. Raises Unfit where a step is missing or comes twice."""
    result = {mode["name"]: _Told() for mode in records[0]["modes"]}
    for record in records:
        if record["t"] == "proof":
            for mode, step in record["modes"].items():
                _follow(len(result[mode].steps), record["i"], "proof")
                result[mode].steps.append(step)
        elif record["t"] == "times" and record["repeat"] >= 0:
            seconds = result[record["mode"]].repeats.setdefault(record["repeat"], [])
            _follow(len(seconds), record["from"], "times")
            seconds += record["s"]
        elif record["t"] == "memory":
            names = ("formula", "tensors", "storages", "allocator", "reasons")
            result[record["mode"]].memory = {name: record[name] for name in names if name in record}
    return result


def _follow(expected: int, given: int, kind: str) -> None:
    if given != expected:
        raise Unfit(f"the steps of its {kind} records have to follow each other")


def _agreeing(document: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """The document, where the records tell of the same run."""
    if not records:
        return document
    try:
        told = _told(records)
        _hold(set(told) == {run["mode"] for run in document["runs"]}, "modes")
        for run in document["runs"]:
            _agree(run, told[run["mode"]], document["repeats"])
        _agree_on_prediction(document, _predicted(records))
        shown = (record["runs"] for record in records if record["t"] == "figures")
        _hold(all(_same_figures(runs, headline(document)) for runs in shown), "figures")
    except Unfit as unfit:
        raise KvvizError(f"this comparison does not fit: {unfit}") from unfit
    return document


def _agree_on_prediction(document: Mapping[str, Any], predicted: Mapping[str, Any] | None) -> None:
    """What the document says was predicted is what was sent before the first step."""
    _hold(document["paces"] == (predicted["paces"] if predicted else None), "paces")
    for run in document["runs"]:
        said = predicted["step_s"].get(run["mode"]) if predicted else None
        _hold(run["predicted_s"] == (said if said is None else said[: len(run["step_s"])]), "predictions")


def _same_figures(runs: list[dict[str, Any]], headlines: list[dict[str, Any]]) -> bool:
    pairs = zip(runs, headlines, strict=False)
    same = (ours[name] == value for run, ours in pairs for name, value in run.items())
    return len(runs) == len(headlines) and all(same)


def _agree(run: dict[str, Any], told: _Told, repeats: int) -> None:
    if told.steps:
        _hold([tuple(step["ids"]) for step in told.steps] == list(zip(*schema.rows_of(run), strict=True)), "token ids")
    if told.repeats:
        _hold(sorted(told.repeats) == list(range(repeats)), "repeats")
        _hold(all(len(seconds) == len(run["step_s"]) for seconds in told.repeats.values()), "steps")
        medians = (quartiles(column)[1] for column in zip(*told.repeats.values(), strict=True))
        near = (math.isclose(a, b, rel_tol=1e-6, abs_tol=2e-9) for a, b in zip(medians, run["step_s"], strict=True))
        _hold(all(near), "seconds")


def _hold(holds: bool, what: str) -> None:
    if not holds:
        raise Unfit(f"its records and its document have other {what}")


# --- a document from records alone -------------------------------------------------------------------------------


def document_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The document of a recording that came without one; None where its records do not say enough.

    They don't for a watched run, nor for the texts of a batch, of which they tell the first.
    """
    started, spec = records[0], records[0]["spec"]
    try:
        told = _told(records)
        predicted = _predicted(records)
        runs = [_run(mode, told[mode["name"]]) for mode in started["modes"]]
        for run in runs:
            run.update(held_against(predicted["step_s"].get(run["mode"]) if predicted else None, run["step_s"]))
        names = [run["mode"] for run in runs]
        document = {
            "id": started.get("id", "recording"),
            "environment": started["environment"],
            "paces": predicted["paces"] if predicted else None,
            "model": started["model"]["id"],
            "weights": started["model"]["weights"],
            "config_hash": started.get("config_hash"),
            "prompt": None if spec.get("prompt_tokens") else started["prompt"]["text"],
            "prompt_tokens": started["prompt"]["tokens"],
            **{name: spec[name] for name in ("new_tokens", "batch", "warmup", "repeats")},
            **({"sampling": spec["sampling"]} if "sampling" in spec else {}),
            "reference": "uncached" if "uncached" in names else next(iter(names), ""),
            "identical": all(run["identical"] for run in runs if run["exact"]),
            "runs": _with_speedups(runs),
        }
        return schema.document(document)
    except Unfit:
        return None


def _run(mode: Mapping[str, Any], told: _Told) -> dict[str, Any]:
    """One mode's run for a batch of 1."""
    _hold_complete(told)
    last = told.steps[-1]
    allocator = told.memory["allocator"] if told.memory else None
    return {
        "id": mode["name"],
        "mode": mode["name"],
        "exact": mode["exact"],
        "token_ids": [step["ids"][0] for step in told.steps],
        "text": "".join(step["text"] for step in told.steps),
        "identical": last["divergence"] is None,
        "first_divergence": last["divergence"],
        "divergence_margin": last.get("margin"),
        "max_abs_logit_diff": last["delta"],
        **figures(list(told.repeats.values())),
        "cache_class": None,
        "cache_bytes": [sum(len(group[0]) * group[7] for group in step["layers"]) for step in told.steps],
        "allocated_bytes": [sum(len(group[0]) * group[8] for group in step["layers"]) for step in told.steps],
        "outliving_bytes": [step["outliving"] for step in told.steps],
        "layers": sorted((row for group in last["layers"] for row in _rows(group)), key=lambda row: row["index"]),
        "memory": told.memory,
        "peak_bytes": allocator["peak"] if allocator else None,
        "peak_kind": allocator["kind"] if allocator else None,
    }


def _hold_complete(told: _Told) -> None:
    """Every step of one sequence is there, and timed in every repeat."""
    steps = len(told.steps)
    timed = bool(told.repeats) and all(len(s) == steps and sum(s) > 0 for s in told.repeats.values())
    alone = bool(steps) and all(len(step["ids"]) == 1 for step in told.steps)
    few = steps and sum(len(group[0]) for group in told.steps[-1]["layers"]) <= MOST_LAYERS
    if not (timed and alone and few):
        raise Unfit("the records are not those of a whole comparison")


def _rows(group: list[Any]) -> list[dict[str, Any]]:
    """The layers of a group in the same state; their format is not among what records tell, beyond the shapes."""
    indices, kind, key_shape, value_shape, dtype, seen, held, nbytes, allocated = group
    state = {"key_shape": key_shape, "value_shape": value_shape, "dtype": dtype, "seen": seen, "held": held}
    unknown = dict.fromkeys(("kv_heads", "key_dim", "value_dim", "window", "state_bytes"))
    size = {"nbytes": nbytes, "allocated": allocated}
    return [{"index": index, "kind": kind, **unknown, **state, **size} for index in indices]


def _with_speedups(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    baseline = next((run for run in runs if run["mode"] == "uncached"), None)
    for run in runs:
        alike = baseline is not None and len(baseline["step_s"]) == len(run["step_s"])
        run["speedup"] = baseline["total_s"] / run["total_s"] if alike else None
    return runs
