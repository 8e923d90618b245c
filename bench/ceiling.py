"""How near each mode's decode step comes to this device's ceilings.

A step has to read every weight once, and the cache if the mode keeps one (`kvviz.cost.flops`). `bandwidth_share` is the
rate of those bytes over the measured rate of a plain read; `compute_share` is the rate of the step's FLOPs over that of
the best matrix product; `roof_share` is the higher of the two: the share of the tighter ceiling. Seconds are those of
kvviz's own clock. A model that fits in the processor's caches (see `weight_bytes`) is not read from memory at all: its
share may exceed 1.

Memory is not everywhere as fast, on a virtual machine least of all. So `own_read_share` compares with a plain read of
the model's very weights, taken in turns with the decodes.

The ceilings are measured before and after the decodes; the higher value of each counts.

    python bench/ceiling.py --json
    python bench/ceiling.py --json --quick
    python bench/ceiling.py --json --models gpt2 --modes cached,scratch,compiled --prompt-tokens 256 --threads 2
    python bench/ceiling.py --models gpt2 --modes cached,compiled --batch 16 --threads 2
    python bench/ceiling.py --models qwen3-4b --modes cached,compiled --dtype bfloat16   # on a GPU
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

if not __package__:
    import checkout  # noqa: F401

import torch

from kvviz.cli.measure_here import alone, settle
from kvviz.cost.ceilings import Ceilings
from kvviz.cost.flops import cache_bytes_read, cached_step, prefill, total_flops, weight_bytes_read
from kvviz.cost.shape import Shape, read_shape
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loading import Loaded
from kvviz.decoding.modes import mode_named
from kvviz.device.clock import fastest_call, interleaved, no_collection, synchroniser, timed
from kvviz.device.environment import pick_device
from kvviz.device.measure_ceilings import READS, measure_ceilings
from kvviz.experiments.comparison.comparison_run import ComparisonRun, encode_prompt
from kvviz.experiments.comparison.spec import ComparisonSpec

LARGE = 2**18  # numbers of a weight from which on reading it takes longer than starting to


def step_cost(shape: Shape, context: int, dtype: str, *, caches: bool, batch: int = 1) -> tuple[int, int]:
    """(bytes read, FLOPs) of a decode step of `batch` sequences that ends at a context of so many tokens."""
    forward = (cached_step if caches else prefill)(shape, context)
    held = cache_bytes_read(shape, context, batch, dtype) if caches else 0
    return weight_bytes_read(shape, forward, dtype) + held, batch * total_flops(shape, forward)


def seconds_to_read(loaded: Loaded) -> float:
    """Seconds of the fastest plain read of all large weights, scaled up to all of them; NaN if none is large."""
    weights = list({weight.data_ptr(): weight.detach() for weight in loaded.model.parameters()}.values())
    large = [weight for weight in weights if weight.numel() >= LARGE]
    if not large:
        return math.nan

    def read(kernel: Callable[[torch.Tensor], object]) -> None:
        for weight in large:
            kernel(weight)

    sync = synchroniser(loaded.device)
    took = min(fastest_call(partial(read, READS[name]), sync, 0) for name in ("sum", "largest"))
    return took * sum(weight.nbytes for weight in weights) / sum(weight.nbytes for weight in large)


def measure(models: LoadedModels, work: ComparisonSpec) -> list[dict[str, Any]]:
    """Measure one model, its modes interleaved; the rows have no shares yet."""
    loaded = models.get(work)
    prompt, sync, shape = encode_prompt(work, loaded), synchroniser(loaded.device), read_shape(loaded.source.config)
    times: dict[str, list[list[float]]] = {mode: [] for mode in work.modes}
    reads: list[float] = []
    for number, mode in interleaved(work.modes, work.warmup + work.repeats):
        with no_collection():
            steps = timed(ComparisonRun(work, loaded, prompt).decode(mode), sync)
            seconds = [step.seconds for step in steps][1:]
        if number >= work.warmup:
            times[mode].append(seconds)
            reads.append(seconds_to_read(loaded))
    contexts = [prompt.shape[1] + i for i in range(1, work.new_tokens)]
    return [_row(work, shape, mode, contexts, times[mode], min(reads)) for mode in work.modes]


def _row(
    work: ComparisonSpec, shape: Shape, mode: str, contexts: list[int], passes: list[list[float]], read_s: float
) -> dict[str, Any]:
    middle = contexts[len(contexts) // 2]
    size, flops = step_cost(shape, middle, work.dtype, caches=bool(mode_named(mode).caches), batch=work.batch)
    weights = weight_bytes_read(shape, cached_step(shape, middle), work.dtype)
    itl = statistics.median(seconds for each in passes for seconds in each)
    return {
        "model": work.model,
        "mode": mode,
        "batch": work.batch,
        "context": middle,
        "weight_bytes": weights,
        "bytes_read_per_step": size,
        "flops_per_step": flops,
        "itl_s": itl,
        "own_read_share": None if math.isnan(read_s) else read_s * size / weights / itl,
    }


def with_shares(row: dict[str, Any], read_bandwidth: float, matrix_rate: float) -> dict[str, Any]:
    """A row with the share of each ceiling that its step reaches."""
    read = row["bytes_read_per_step"] / row["itl_s"] / read_bandwidth
    compute = row["flops_per_step"] / row["itl_s"] / matrix_rate
    return {**row, "bandwidth_share": read, "compute_share": compute, "roof_share": max(read, compute)}


def document(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the ceilings, and a row for each model and mode."""
    models, device, rows = LoadedModels(), pick_device(), []
    seconds = 1.5 if options.quick else 4.0
    before = measure_ceilings(device, seconds=seconds)
    for model in options.models.split(","):
        work = ComparisonSpec(
            model=model,
            modes=tuple(options.modes.split(",")),
            prompt_tokens=options.prompt_tokens,
            new_tokens=options.new_tokens,
            batch=options.batch,
            dtype=options.dtype,
            repeats=options.repeats,
        )
        rows += measure(models, work)
    after = measure_ceilings(device, seconds=seconds)
    loaded = models.get(work)
    read, rate = highest(before, after, options.dtype)
    return {
        "environment": asdict(loaded.environment),
        "read_bandwidth": read,
        "matrix_rate": rate,
        "ceilings": [before.to_dict(), after.to_dict()],
        "rows": [with_shares(row, read, rate) for row in rows],
    }


def highest(before: Ceilings, after: Ceilings, dtype: str) -> tuple[float, float]:
    """The higher (read bandwidth, matrix rate) of two measurements."""
    both = (before, after)
    return max(c.read_bandwidth for c in both), max(c.matrix_rate[dtype] for c in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (else a table)")
    parser.add_argument("--models", default="tiny-llama,mini-qwen3,gpt2")
    parser.add_argument("--modes", default="uncached,cached,scratch,compiled")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, help="processor threads; by default as many as kvviz takes")
    parser.add_argument("--quick", action="store_true", help="one short pass of each, for a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.new_tokens, options.repeats = min(options.new_tokens, 6), 1
    settle(options.threads)
    with alone("bench/ceiling.py"):
        found = document(options)
    if options.json:
        print(json.dumps(found))
        return
    print(f"read {found['read_bandwidth'] / 1e9:.1f} GB/s, matrix products {found['matrix_rate'] / 1e9:.1f} GFLOP/s")
    for row in found["rows"]:
        shares = f"{row['bandwidth_share']:8.1%} of the read, {row['compute_share']:7.1%} of the matrix rate"
        if row["own_read_share"]:
            shares += f", {row['own_read_share']:.1%} of a plain read of its own weights"
        step = f"{row['bytes_read_per_step']:>13,} B {row['itl_s'] * 1e3:9.2f} ms"
        print(f"{row['model']:12} {row['mode']:10} {step} {shares}")


if __name__ == "__main__":
    main()
