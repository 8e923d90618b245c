"""What a finished comparison says: the figures of each run, from its steps. Standard library only.

The document's fields are a contract with scripts; docs/json.md describes them.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvviz.base.hashing import config_hash
from kvviz.base.records import Environment, LayerState
from kvviz.cost.flops import Rates, estimated
from kvviz.cost.predict import bias, off_by
from kvviz.cost.step_estimate import Model, estimate_step
from kvviz.decoding.modes import mode_named
from kvviz.device.clock import quartiles
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.spec import LayerSpec

if TYPE_CHECKING:
    from kvviz.decoding.loading import Loaded
    from kvviz.experiments.comparison.equivalence import ModeTrace


def reference_mode(modes: Sequence[str]) -> str:
    """The mode that the others are held against: uncached where it runs, else the first."""
    return "uncached" if "uncached" in modes else modes[0]


def comparison_document(
    comparison_id: str,
    work: ComparisonSpec,
    loaded: "Loaded",
    environment: Environment,
    prompt_tokens: int,
    traces: dict[str, "ModeTrace"],
    rates: Rates | None = None,
    predicted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole comparison as JSON values; times in seconds, sizes in bytes.

    `rates`: of its device, at its dtype; `predicted`: the prediction as it was sent before the first step.
    """
    runs = [_run(f"{comparison_id}-{name}", name, work, loaded, traces[name]) for name in work.modes]
    baseline = next((run for run in runs if run["mode"] == "uncached"), None)
    for run in runs:  # a ratio only of like work: a mode that ended at another token has done less or more
        alike = baseline is not None and len(baseline["step_s"]) == len(run["step_s"])
        run["speedup"] = baseline["total_s"] / run["total_s"] if alike else None
        run["estimate"] = _estimate(run, work, loaded, prompt_tokens, rates)
        run.update(held_against(predicted["step_s"].get(run["mode"]) if predicted else None, run["step_s"]))
    return {
        "id": comparison_id,
        "environment": asdict(environment),
        "rates": asdict(rates) if rates else None,
        "paces": predicted["paces"] if predicted else None,
        "model": loaded.source.model,
        "weights": loaded.source.weights,
        "config_hash": config_hash(loaded.source.config) if loaded.source.config else None,
        "prompt": work.prompt,
        "prompt_tokens": prompt_tokens,
        "new_tokens": work.new_tokens,
        "batch": work.batch,
        "warmup": work.warmup,
        "repeats": work.repeats,
        "sampling": asdict(work.sampling),
        "reference": reference_mode(work.modes),
        "identical": all(run["identical"] for run in runs if run["exact"]),
        "runs": runs,
    }


def held_against(predicted: Sequence[float] | None, measured: Sequence[float]) -> dict[str, Any]:
    """A run's fields of its prediction: seconds of the steps that were made, and how far off they are."""
    if predicted is None:
        return {"predicted_s": None, "prediction_error": None, "prediction_bias": None}
    said = list(predicted[: len(measured)])
    return {
        "predicted_s": said,
        "prediction_error": off_by(said, measured),
        "prediction_bias": bias(said, measured),
    }


def _run(run_id: str, name: str, work: ComparisonSpec, loaded: "Loaded", trace: "ModeTrace") -> dict[str, Any]:
    flat = work.batch == 1
    rows = list(zip(*trace.tokens, strict=True))  # one row per sequence of the batch
    allocator = trace.memory["allocator"] if trace.memory else None
    texts = [loaded.codec.decode(row) for row in rows]
    return {
        "id": run_id,
        "mode": name,
        "exact": mode_named(name).exact,
        "token_ids": list(rows[0]) if flat else [list(row) for row in rows],
        "text": texts[0] if flat else texts,
        "identical": trace.divergence is None,
        "first_divergence": trace.divergence,
        "divergence_margin": trace.margin,
        "top_margin": trace.top_margins or None,
        "max_abs_logit_diff": trace.max_delta,
        "repeatable": trace.repeatable,
        **figures(trace.repeats, work.batch),
        "cache_class": trace.cache_class,
        "cache_bytes": [sum(row.nbytes for row in states) for states in trace.layers],
        "allocated_bytes": [sum(row.allocated for row in states) for states in trace.layers],
        "outliving_bytes": trace.outliving,
        "layers": [layer_row(loaded.spec.layers[row.index], row) for row in trace.layers[-1]],
        "memory": trace.memory,
        "peak_bytes": allocator["peak"] if allocator else None,
        "peak_kind": allocator["kind"] if allocator else None,
    }


def _estimate(
    run: dict[str, Any], work: ComparisonSpec, loaded: "Loaded", prompt_tokens: int, rates: Rates | None
) -> dict[str, Any] | None:
    """What the cost model says of the run's middle decode step; None where it decoded none."""
    steps = len(run["step_s"])
    if steps < 2:
        return None
    model = Model(loaded.spec, loaded.params, estimated(loaded.source.config))
    caches = mode_named(run["mode"]).caches
    return estimate_step(model, prompt_tokens + steps // 2, work.batch, loaded.dtype, rates, caches=caches)


def figures(repeats: Sequence[Sequence[float]], batch: int = 1) -> dict[str, Any]:
    """Headline figures of one mode from the seconds of every step of every repeat.

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


def layer_row(spec: LayerSpec, state: LayerState) -> dict[str, Any]:
    """A layer's format and its state in one row."""
    return {
        "index": state.index,
        "kind": state.kind,
        "kv_heads": spec.kv_heads,
        "key_dim": spec.key_dim,
        "value_dim": spec.value_dim,
        "window": spec.window,
        "seen": state.seen,
        "held": state.held,
        "key_shape": list(state.key_shape),
        "value_shape": list(state.value_shape),
        "dtype": state.dtype,
        "state_bytes": state.state_bytes,
        "nbytes": state.nbytes,
        "allocated": state.allocated,
    }


HEADLINE = (
    "mode",
    "identical",
    "first_divergence",
    "max_abs_logit_diff",
    "ttft_s",
    "itl_s",
    "itl_p99_s",
    "tokens_per_s",
    "total_s",
    "speedup",
    "peak_bytes",
    "repeatable",
)


def headline(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The figures of each run that a screen shows, without the curves, which it already has."""
    return [{name: run[name] for name in HEADLINE} for run in document["runs"]]
