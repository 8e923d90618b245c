"""Builds the document of a finished comparison. Scripts rely on its fields; docs/json.md describes them."""

import statistics
from dataclasses import asdict
from functools import partial
from typing import cast

from kvviz.base.hashing import config_hash
from kvviz.base.records import LayerState
from kvviz.cost.flops import estimated
from kvviz.cost.predict import Paces, foretold, step_of
from kvviz.cost.step_estimate import Model
from kvviz.decoding.loading import Loaded
from kvviz.decoding.modes import Mode, mode_named
from kvviz.experiments.comparison.comparison_run import Checked, ComparisonRun
from kvviz.experiments.comparison.enough import interval_of
from kvviz.experiments.comparison.equivalence import plain
from kvviz.experiments.comparison.figures import figures, prediction_fields, reference_mode, speedups
from kvviz.experiments.comparison.records import Document, HeldBytes, Layer, Predicted, Run
from kvviz.experiments.comparison.verdict import shape_of


def comparison_document(
    comparison_id: str,
    run: ComparisonRun,
    measured: tuple[Paces, int] | None = None,
    predicted: Predicted | None = None,
) -> Document:
    """Return the whole comparison as JSON values; times are in seconds, sizes in bytes.

    `measured` are the device's paces and the operations of a step (`paces_of`); `predicted` is the prediction sent
    before the timed passes.
    """
    work, source = run.work, run.loaded.source
    runs = [_run(f"{comparison_id}-{mode}", run, mode, measured, predicted) for mode in work.modes]
    for entry, ratio in zip(runs, speedups([(r["mode"], len(r["step_s"]), r["total_s"]) for r in runs]), strict=True):
        entry["speedup"] = ratio
        if ratio is not None and entry["mode"] != "uncached":
            base, own = run.passes["uncached"], run.passes[entry["mode"]]
            entry["speedup_interval"] = interval_of(base, own, work.repeats)
    return {
        "id": comparison_id,
        "environment": {**asdict(run.loaded.environment), "busy": _busy(run)},
        "rates": asdict(measured[0].rates) if measured else None,
        "paces": predicted["paces"] if predicted else None,
        "model": source.model,
        "weights": source.weights,
        "config_hash": config_hash(source.config) if source.config else None,
        "prompt": work.prompt,
        "prompt_tokens": run.prompt_tokens,
        "new_tokens": work.new_tokens,
        "batch": work.batch,
        "warmup": work.warmup,
        "repeats": work.repeats,
        "sampling": asdict(work.sampling),
        "reference": reference_mode(work.modes),
        "identical": all(entry["identical"] for entry in runs if entry["exact"]),
        "runs": runs,
    }


def _run(
    run_id: str, run: ComparisonRun, mode: str, measured: tuple[Paces, int] | None, predicted: Predicted | None
) -> Run:
    """Build one mode's entry. Its speed-up needs the other entries and is filled in later."""
    checked, passes = run.checked[mode], run.passes[mode]
    flat = run.work.batch == 1
    rows = list(zip(*checked.tokens, strict=True))  # one row per sequence of the batch
    texts = [run.loaded.codec.decode(row) for row in rows]
    timed = figures(passes.kept, run.work.batch)
    served = run.served(mode)
    disturbed = sum(found.clean is False for found in passes.disturbances)
    steps, known = timed["step_s"], mode_named(mode)
    return {
        "id": run_id,
        "mode": mode,
        "exact": known.exactly(run.work.sampling.temperature),
        "token_ids": list(rows[0]) if flat else [list(row) for row in rows],
        "text": texts[0] if flat else texts,
        **run.observed(mode),
        **run.speculation(mode),
        **served,
        "top_margin": checked.top_margins or None,
        "repeatable": passes.repeatable,
        **timed,
        "cache_class": checked.cache_class,
        **_bytes(known, checked),
        "layers": [_layer(run.loaded, row) for row in checked.layers[-1]],
        "memory": run.memory.get(mode),
        "speedup": None,
        "passes": {
            "clean": len(passes.repeats) - disturbed,
            "disturbed": disturbed,
            "stopped_because": run.stopped_because,
        },
        "speedup_interval": None,
        "shape": shape_of(run.prompt_tokens, {"mode": mode, **timed, **served}),
        "estimate": _estimate(run, mode, len(steps), measured, predicted),
        **prediction_fields(predicted["step_s"].get(mode) if predicted else None, steps),
    }


def _bytes(mode: Mode, checked: Checked) -> HeldBytes:
    """Return the bytes of the cache after each step; None each for what is not observed, such as a server's."""
    if mode.elsewhere:
        return {"cache_bytes": None, "allocated_bytes": None, "outliving_bytes": None}
    return {
        "cache_bytes": [sum(row.nbytes for row in states) for states in checked.layers],
        "allocated_bytes": [sum(row.allocated for row in states) for states in checked.layers],
        "outliving_bytes": checked.outliving or None,
    }


def _busy(run: ComparisonRun) -> float | None:
    """Return how many cores other processes kept busy during the timed passes, on average; None if nobody can tell."""
    found = [one.others for passes in run.passes.values() for one in passes.disturbances if one.others is not None]
    return round(statistics.fmean(found), 2) if found else None


def _estimate(
    run: ComparisonRun, mode: str, steps: int, measured: tuple[Paces, int] | None, predicted: Predicted | None
) -> dict[str, float] | None:
    """Return the parts of the middle decode step: those of its prediction, or in a mode without one an estimate.

    None without decode steps or paces, and for a mode whose steps are not alike because it speculates.
    """
    known = mode_named(mode)
    if steps < 2 or measured is None or known.speculates or known.elsewhere:
        return None
    loaded, (paces, operations) = run.loaded, measured
    shape, size = estimated(loaded.source.config), (run.prompt_tokens + steps // 2, run.work.batch)
    if shape is not None and predicted and mode in predicted["step_s"]:
        return asdict(foretold(shape, step_of(shape, known.work, *size), paces, operations))
    model = Model(loaded.spec, loaded.params, shape)
    calls = known.calls_of(run.work.batch, loaded.device, loaded.dtype)
    step = partial(model.step, *size, loaded.dtype, caches=bool(known.caches), calls=calls)
    estimate = step(rates=paces.rates)
    if estimate:  # what it reads may all lie in the processor's own cache
        estimate = step(rates=paces.near((estimate.weights_s + estimate.scan_s) * paces.rates.read))
    return asdict(estimate) if estimate else None


def _layer(loaded: Loaded, state: LayerState) -> Layer:
    """Merge a layer's format and its state into one row; the format of a family that kvviz can't read is None."""
    specs, unread = loaded.spec.layers, dict.fromkeys(("kv_heads", "key_dim", "value_dim", "window"))
    device = loaded.spread.layers[state.index] if loaded.spread and specs else None
    known = {**(vars(specs[state.index]) if specs else unread), **vars(state), "device": device or None}
    return cast(Layer, {name: plain(known[name]) for name in Layer.__annotations__})
