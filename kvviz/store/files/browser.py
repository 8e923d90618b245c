"""Makes a comparison of the records that a reader's browser measured. The figures are computed here, like a run's own.

The records come from outside, so they are read as strictly as a file. No torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.base.checks import Unfit
from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.enough import speedup_interval
from kvviz.experiments.comparison.figures import figures, figures_record, reference_mode, speedups
from kvviz.experiments.comparison.in_browser import DEVICE
from kvviz.experiments.comparison.records import Record
from kvviz.experiments.comparison.verdict import shape_of
from kvviz.store.files import schema
from kvviz.store.files.reading import Imported, checked


def from_browser(records: object) -> Imported:
    """Return the comparison of these records. Raises KvvizError for any that do not fit or are not complete."""
    if not isinstance(records, list):
        raise KvvizError("the browser sent no list of records")
    known = checked(records)
    try:
        document = schema.document(_document(known))
        schema.check_agreement(document, known)
    except Unfit as unfit:
        raise KvvizError(f"what the browser measured does not fit: {unfit}") from unfit
    return Imported(document, [*known, figures_record(document), {"t": "done", "message": ""}])


def _document(records: Sequence[Record]) -> dict[str, Any]:
    started, modes = schema.started_of(records), schema.by_mode(records)
    spec, order = started["spec"], [mode["name"] for mode in started["modes"]]
    if started["environment"]["device"] != DEVICE or spec["batch"] != 1:
        raise Unfit("it has to be a browser's, of one sequence")
    for name in order:
        _check_whole(modes.get(name, schema.ModeRecords()))
    memory: dict[str, Mapping[str, Any]] = {r["mode"]: r for r in records if r["t"] == "memory"}
    prompt_tokens, reference = started["prompt"]["tokens"], reference_mode(order)
    tokens = {name: [step["ids"][0] for step in modes[name].steps] for name in order}
    runs: list[dict[str, Any]] = []
    for name in order:
        found, timed = modes[name], figures(modes[name].kept)
        pairs = zip(tokens[name], tokens[reference], strict=False)
        parted = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
        disturbed = sum(clean is False for clean in found.clean.values())
        enough = f"{len(found.repeats)} passes of each mode, as many as were asked for."
        runs.append(
            {
                "id": name,
                "mode": name,
                "exact": True,
                "token_ids": tokens[name],
                "text": "".join(step["text"] for step in found.steps),
                "identical": parted is None,
                "first_divergence": parted,
                "divergence_margin": found.steps[-1].get("margin"),
                "max_abs_logit_diff": found.steps[-1]["delta"],
                "peak_bytes": (memory.get(name, {}).get("allocator") or {}).get("peak"),
                "peak_kind": "heap" if name in memory else None,
                **timed,
                "cache_class": next((step["where"].split(" ")[0] for step in found.steps if "where" in step), None),
                **_bytes(found.steps),
                "layers": _layers(found.steps[-1]["layers"]),
                "memory": memory.get(name),
                "speedup": None,
                "speedup_interval": None,
                "passes": {"clean": len(found.repeats) - disturbed, "disturbed": disturbed, "stopped_because": enough},
                "shape": shape_of(prompt_tokens, {"mode": name, **timed}),
                "estimate": None,
            }
        )
    for run, ratio in zip(runs, speedups([(r["mode"], len(r["step_s"]), r["total_s"]) for r in runs]), strict=True):
        run["speedup"] = ratio
        if ratio is not None and run["mode"] != "uncached":
            base, own = ([sum(seconds) for seconds in modes[mode].kept] for mode in ("uncached", run["mode"]))
            run["speedup_interval"] = speedup_interval(base, own, spec["repeats"])
    return {
        "id": "browser",
        "environment": started["environment"],
        "config_hash": started.get("config_hash"),
        "model": started["model"]["id"],
        "weights": started["model"]["weights"],
        "prompt": spec.get("prompt"),
        "prompt_tokens": prompt_tokens,
        **{name: spec[name] for name in ("new_tokens", "batch", "warmup", "repeats", "sampling") if name in spec},
        "reference": reference,
        "identical": all(run["identical"] for run in runs),
        "runs": runs,
    }


def _check_whole(mode: schema.ModeRecords) -> None:
    """Raise Unfit unless the mode was checked and timed, step by step, with one sequence and one clock that moved."""
    if not mode.steps or not mode.repeats:
        raise Unfit("each mode has to be checked and timed")
    if any(len(seconds) != len(mode.steps) or not sum(seconds) for seconds in mode.repeats.values()):
        raise Unfit("each pass has to have as many steps as the check, and to take time")
    groups = (group for step in mode.steps for group in step["layers"])
    one = all(len(step["ids"]) == 1 for step in mode.steps)
    if not one or not all(len(group["key_shape"]) == len(group["value_shape"]) == 4 for group in groups):
        raise Unfit("each step has to choose one token, and each layer to have keys and values of four sizes")


def _bytes(steps: Sequence[Any]) -> dict[str, list[int] | None]:
    """Return the bytes of the cache after each step, and of all that outlived it."""
    sums = {
        field: [sum(len(group["indices"]) * group[field] for group in step["layers"]) for step in steps]
        for field in ("nbytes", "allocated")
    }
    outliving = [step["outliving"] for step in steps]
    return {"cache_bytes": sums["nbytes"], "allocated_bytes": sums["allocated"], "outliving_bytes": outliving}


def _layers(groups: Sequence[Any]) -> list[dict[str, Any]]:
    """Return one row for each layer; its shape (1, KV heads, tokens, head dim) tells its format."""
    rows = []
    for group in groups:
        _, kv_heads, _, key_dim = group["key_shape"]
        about = {"kv_heads": kv_heads, "key_dim": key_dim, "value_dim": group["value_shape"][-1], "window": None}
        state = {name: value for name, value in group.items() if name != "indices"}
        rows += [{"index": index, **about, **state, "state_bytes": 0} for index in group["indices"]]
    return sorted(rows, key=lambda row: row["index"])
