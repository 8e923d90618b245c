"""Folds a sweep's records into rows, and the rows into its document. Standard library only."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from kvviz.device.clock import quartiles
from kvviz.device.disturbance import outrun, undisturbed
from kvviz.experiments.comparison.figures import figures, reference_mode, speedups
from kvviz.experiments.kind import Record
from kvviz.experiments.sweep.spec import Cell, SweepSpec, cell_name, cells

HEADLINE = ("ttft_s", "itl_s", "itl_mean_s", "itl_p99_s", "tokens_per_s", "total_s")
OBSERVED = (
    *("identical", "first_divergence", "max_abs_logit_diff"),
    *("cache_bytes", "allocated_bytes", "peak_bytes", "peak_kind"),
)


def rows(records: Iterable[Record], spec: SweepSpec) -> list[dict[str, Any]]:
    """Fold the records so far into one row for each cell and mode that has a pass; docs/json.md lists the fields."""
    passes: dict[tuple[int, str], dict[int, Record]] = {}  # (cell, mode) -> round -> record
    proofs: dict[int, Record] = {}
    for record in records:
        if record["t"] == "cell_pass":
            passes.setdefault((record["cell"], record["mode"]), {})[record["round"]] = record
        elif record["t"] == "cell_proof":
            proofs[record["cell"]] = record
    result = []
    for cell in cells(spec):
        mine = {mode: passes[cell.index, mode] for mode in spec.modes if (cell.index, mode) in passes}
        each = [_row(cell, mode, found, proofs.get(cell.index, {})) for mode, found in mine.items()]
        ratios = speedups([(row["mode"], row["new_tokens"], row["total_s"]) for row in each])
        result += [{**row, "speedup": ratio} for row, ratio in zip(each, ratios, strict=True)]
    return result


def _row(cell: Cell, mode: str, found: Mapping[int, Record], proof: Record) -> dict[str, Any]:
    seen = proof.get("modes", {}).get(mode, {})  # in the equivalence check
    peak, weights = seen.get("peak_bytes"), proof.get("weights_bytes")
    seconds, told = [record["s"] for record in found.values()], [record.get("clean") for record in found.values()]
    clean = [False if slow else one for one, slow in zip(told, outrun(list(map(sum, seconds)), told), strict=True)]
    repeats = undisturbed(seconds, clean)
    measured = figures(repeats, cell.batch)
    decode_s = measured["step_s"][1:]
    low, _, high = quartiles(decode_s) if decode_s else (None, None, None)
    work = {name: value for name, value in asdict(cell).items() if name != "index"}
    return {
        "cell": cell.index,
        **work,
        "mode": mode,
        **{name: value for name, value in measured.items() if name in HEADLINE},
        "itl_s_q1": low,
        "itl_s_q3": high,
        "total_mean_s": statistics.fmean(map(sum, repeats)),
        "total_s_least": min(map(sum, repeats)),
        "total_s_most": max(map(sum, repeats)),
        "repeats": len(found),
        "disturbed": sum(one is False for one in clean),
        "repeatable": all(record["same"] for record in found.values()),
        **{name: seen.get(name) for name in OBSERVED},
        "weights_bytes": weights,
        "peak_with_weights_bytes": None if peak is None or weights is None else peak + weights,
    }


def document(records: Iterable[Record], spec: SweepSpec) -> dict[str, Any]:
    """Build the sweep's document from JSON values: environment, spec, rows and failed cells."""
    records = list(records)
    started: Record = next((one for one in reversed(records) if one["t"] == "sweep_started"), {})
    failed = {record["cell"]: record["message"] for record in records if record["t"] == "cell_failed"}
    return {
        "id": started.get("id"),
        "environment": started.get("environment"),
        "rates": started.get("rates"),
        "spec": spec.to_dict(),
        "reference": reference_mode(spec.modes),
        "rows": rows(records, spec),
        "failed": [
            {"cell": cell.index, "name": cell_name(spec, cell), "message": failed[cell.index]}
            for cell in cells(spec)
            if cell.index in failed
        ],
    }
