"""How near each mode's decode step comes to this device's ceilings.

A step has to read every weight once, and the cache if the mode keeps one (`kvviz.cost.flops`). `bandwidth_share` is the
rate of those bytes over the measured rate of a plain read; `compute_share` is the rate of the step's FLOPs over that of
the best matrix product; `roof_share` is the higher of the two: the share of the tighter ceiling. Seconds are those of
kvviz's own clock. A model that fits in the processor's caches (see `weight_bytes`) is not read from memory at all: its
share may exceed 1.

Memory is not always as fast, on a virtual machine least of all. So plain reads are taken before and after each pass, in
the same second: `read_shares` holds each pass against the faster of them, whether it read a buffer or the model's very
weights, `own_read_shares` against the weights alone. `read_share` and `own_read_share` are the medians over the passes.

The ceilings are measured before and after the decodes; the higher value of each counts.

    python bench/ceiling.py --json
    python bench/ceiling.py --json --quick
    python bench/ceiling.py --json --models gpt2 --modes cached,scratch,compiled --prompt-tokens 256 --threads 2
    python bench/ceiling.py --models gpt2 --modes cached,compiled --batch 1,4,16 --threads 2
    python bench/ceiling.py --models qwen3-4b --modes cached,compiled --dtype bfloat16   # on a GPU
"""

import argparse
import itertools
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
from kvviz.device.measure_ceilings import READ_AGAIN, READS, measure_ceilings, read_rates
from kvviz.experiments.comparison.comparison_run import ComparisonRun, encode_prompt
from kvviz.experiments.comparison.spec import ComparisonSpec

LARGE = 2**18  # numbers of a weight from which on reading it takes longer than starting to


def step_cost(shape: Shape, context: int, dtype: str, *, caches: bool, batch: int = 1) -> tuple[int, int]:
    """(bytes read, FLOPs) of a decode step of `batch` sequences that ends at a context of so many tokens."""
    forward = (cached_step if caches else prefill)(shape, context)
    held = cache_bytes_read(shape, context, batch, dtype) if caches else 0
    return weight_bytes_read(shape, forward, dtype) + held, batch * total_flops(shape, forward)


def read_rates_now(loaded: Loaded, buffer: torch.Tensor) -> tuple[float, float]:
    """B/s of the fastest plain read of (the buffer, all large weights); NaN for the weights if none is large."""
    weights = {weight.data_ptr(): weight.detach() for weight in loaded.model.parameters()}.values()
    large = [weight for weight in weights if weight.numel() >= LARGE]

    def read(kernel: Callable[[torch.Tensor], object]) -> None:
        for weight in large:
            kernel(weight)

    sync = synchroniser(loaded.device)
    any_rate = max(read_rates(buffer, sync, 0).values())
    if not large:
        return any_rate, math.nan
    took = min(fastest_call(partial(read, READS[name]), sync, 0) for name in ("sum", "largest"))
    return any_rate, sum(weight.nbytes for weight in large) / took


def measure(models: LoadedModels, work: ComparisonSpec) -> list[dict[str, Any]]:
    """Measure one model, its modes interleaved; the rows lack the shares of the ceilings."""
    loaded = models.get(work)
    prompt, sync, shape = encode_prompt(work, loaded), synchroniser(loaded.device), read_shape(loaded.source.config)
    times: dict[str, list[list[float]]] = {mode: [] for mode in work.modes}
    reads: dict[str, list[tuple[float, float]]] = {mode: [] for mode in work.modes}  # (best, of the own weights)
    buffer = torch.ones(READ_AGAIN if loaded.device == "cpu" else 4 * READ_AGAIN, device=loaded.device)
    for number, mode in interleaved(work.modes, work.warmup + work.repeats):
        with no_collection():
            before = read_rates_now(loaded, buffer)
            steps = timed(ComparisonRun(work, loaded, prompt).decode(mode), sync)
            seconds = [step.seconds for step in steps][1:]
            after = read_rates_now(loaded, buffer)
        if number >= work.warmup:
            times[mode].append(seconds)
            own = max(before[1], after[1])
            reads[mode].append((max(x for x in (*before, *after) if not math.isnan(x)), own))
    contexts = [prompt.shape[1] + i for i in range(1, work.new_tokens)]
    return [_row(work, shape, mode, contexts, times[mode], reads[mode]) for mode in work.modes]


def _row(
    work: ComparisonSpec,
    shape: Shape,
    mode: str,
    contexts: list[int],
    passes: list[list[float]],
    reads: list[tuple[float, float]],
) -> dict[str, Any]:
    middle = contexts[len(contexts) // 2]
    size, flops = step_cost(shape, middle, work.dtype, caches=bool(mode_named(mode).caches), batch=work.batch)
    rates = [size / statistics.median(each) for each in passes]
    shares = [rate / best for rate, (best, _) in zip(rates, reads, strict=True)]
    own = [rate / own for rate, (_, own) in zip(rates, reads, strict=True) if not math.isnan(own)]
    return {
        "model": work.model,
        "mode": mode,
        "batch": work.batch,
        "context": middle,
        "weight_bytes": weight_bytes_read(shape, cached_step(shape, middle), work.dtype),
        "bytes_read_per_step": size,
        "flops_per_step": flops,
        "itl_s": statistics.median(seconds for each in passes for seconds in each),
        "read_share": statistics.median(shares),
        "read_shares": shares,
        "own_read_share": statistics.median(own) if own else None,
        "own_read_shares": own,
    }


def with_shares(row: dict[str, Any], read_bandwidth: float, matrix_rate: float) -> dict[str, Any]:
    """A row with the share of each ceiling that its step reaches."""
    read = row["bytes_read_per_step"] / row["itl_s"] / read_bandwidth
    compute = row["flops_per_step"] / row["itl_s"] / matrix_rate
    return {**row, "bandwidth_share": read, "compute_share": compute, "roof_share": max(read, compute)}


def document(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the ceilings, and a row for each model and mode."""
    models, device, rows = LoadedModels(), pick_device(), []
    before = measure_ceilings(device, seconds=options.seconds)
    for model, batch in itertools.product(options.models.split(","), map(int, options.batch.split(","))):
        work = ComparisonSpec(
            model=model,
            modes=tuple(options.modes.split(",")),
            prompt_tokens=options.prompt_tokens,
            new_tokens=options.new_tokens,
            batch=batch,
            dtype=options.dtype,
            repeats=options.repeats,
        )
        rows += measure(models, work)
    after = measure_ceilings(device, seconds=options.seconds)
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


def spread(shares: list[float]) -> str:
    """Write the median and the range of some shares."""
    return f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (else a table)")
    parser.add_argument("--models", default="tiny-llama,mini-qwen3,gpt2")
    parser.add_argument("--modes", default="uncached,cached,scratch,compiled")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--batch", default="1", help="sequences at once, several numbers with commas between")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each of the two measurements of the ceilings")
    parser.add_argument("--threads", type=int, help="processor threads; by default as many as kvviz takes")
    parser.add_argument("--quick", action="store_true", help="one short pass of each, for a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.new_tokens, options.repeats, options.seconds = min(options.new_tokens, 6), 1, 1.5
    settle(options.threads)
    with alone("bench/ceiling.py"):
        found = document(options)
    if options.json:
        print(json.dumps(found))
        return
    print(f"read {found['read_bandwidth'] / 1e9:.1f} GB/s, matrix products {found['matrix_rate'] / 1e9:.1f} GFLOP/s")
    for row in found["rows"]:
        shares = f"{row['bandwidth_share']:8.1%} of the read, {row['compute_share']:7.1%} of the matrix rate"
        shares += f"; beside each pass {spread(row['read_shares'])} of the read"
        if row["own_read_shares"]:
            shares += f", {spread(row['own_read_shares'])} of a plain read of its own weights"
        step = f"{row['bytes_read_per_step']:>13,} B {row['itl_s'] * 1e3:9.2f} ms"
        print(f"{row['model']:12} {row['mode']:10} {row['batch']:3} {step} {shares}")


if __name__ == "__main__":
    main()
