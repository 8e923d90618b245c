"""The formula of activations against the allocator of a real forward: a prefill, and a decode step after it.

A row has the bytes that the forward had alive at once beside weights and cache: the allocator's peak less what the
forward left behind, which is its cache. On CUDA it also prints what the driver takes for a process: the context, the
kernels and workspaces that a first forward loads, and a decode step captured as a graph.

    python -m bench.activations --json
    python -m bench.activations --device cuda --json
"""

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import accumulate
from typing import Any

if not __package__:
    import checkout  # noqa: F401

import torch
from transformers import DynamicCache

from kvviz.decoding.loading import Loaded, load
from kvviz.decoding.modes import last_positions_only, mode_named, positions
from kvviz.deployment.activations import activations, read_widths
from kvviz.device.allocator import kept_by
from kvviz.device.clock import no_collection
from kvviz.device.environment import environment_for, pick_device, set_threads
from kvviz.device.memory import is_out_of_memory
from kvviz.models.sources import find_source

Row = dict[str, Any]
MODELS = {"cpu": ("mini-gpt2", "mini-qwen3", "gpt2"), "cuda": ("gpt2", "qwen3-0.6b", "qwen3-4b")}
PROMPTS = {"cpu": (64, 256, 512), "cuda": (128, 512, 1000, 4096, 16384)}
DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("bfloat16", "float32")}
BATCHES = (1, 4)
MOST_ROWS = 16_384  # tokens of all sequences together


def forward(loaded: Loaded, ids: torch.Tensor, cache: DynamicCache, seen: int) -> None:
    """Feed tokens at their positions, with the head for the last one only, as kvviz's modes do."""
    model = loaded.model
    with torch.inference_mode():
        where = positions(model, seen, ids) if seen else {}
        model(input_ids=ids, past_key_values=cache, use_cache=True, **where, **last_positions_only(model))


def accounts(parts: Mapping[str, Callable[[], None]], device: str) -> dict[str, tuple[int, int]]:
    """For each part in turn: the peak of the bytes alive during it less those at its end, and what it left behind.

    The CPU's profiler does not see the release of what was allocated before it began, so one profile spans all parts.
    """
    if device != "cpu":
        found = {name: kept_by(act, device) for name, act in parts.items()}
        return {name: (account.peak - account.kept, account.kept) for name, account in found.items()}
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        for name, act in parts.items():
            with torch.autograd.profiler.record_function(f"part {name}"):
                act()
    events = sorted(profile.kineto_results.events(), key=lambda event: event.start_ns())
    spans = {name: next(event for event in events if event.name() == f"part {name}") for name in parts}
    memory = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    levels = list(zip((at for at, _ in memory), accumulate(nbytes for _, nbytes in memory), strict=True))
    found_here = {}
    for name, span in spans.items():
        before = next((level for at, level in reversed(levels) if at < span.start_ns()), 0)
        during = [before, *(level for at, level in levels if span.start_ns() <= at <= span.end_ns())]
        found_here[name] = (max(during) - during[-1], during[-1] - before)
    return found_here


def measured(loaded: Loaded, tokens: int, batch: int, attention: str) -> list[Row]:
    """The rows of one prompt: its prefill, and the second decode step after it.

    The first step is another matter where a layer has a window: it drops the whole prompt's keys and values.
    """
    device = loaded.device
    ids = torch.randint(0, loaded.spec.vocab_size or 2, (batch, tokens), device=device)
    cache = DynamicCache(config=loaded.model.config)
    parts = {
        "prefill": lambda: forward(loaded, ids, cache, 0),
        "first step": lambda: forward(loaded, ids[:, :1], cache, tokens),
        "step": lambda: forward(loaded, ids[:, :1], cache, tokens + 1),
    }
    with no_collection():
        found = accounts(parts, device)
    widths = read_widths(loaded.source.config or {})
    asked: dict[str, Any] = {"batch": batch, "dtype": loaded.dtype, "attention": attention}
    rows = []
    for name, new, held in (("prefill", tokens, 0), ("step", 1, tokens + 1)):
        ours, (theirs, kept) = activations(widths, new, held=held, **asked), found[name]
        rows.append(
            {
                "model": loaded.source.model,
                "dtype": loaded.dtype,
                "attention": attention,
                "batch": batch,
                "tokens": tokens,
                "forward": name,
                "measured_bytes": theirs,
                "formula_bytes": ours.nbytes,
                "ratio": ours.nbytes / theirs,
                "widest": ours.widest,
                "kept_bytes": kept,
            }
        )
    return rows


def walk(models: list[str], device: str, report: Callable[[Row], None]) -> Iterator[Row]:
    """Measure every model in each dtype and attention, with every prompt that it was made for and that fits."""
    kind = device.split(":")[0]
    for name in models:
        for dtype in DTYPES[kind]:
            for attention in ("sdpa", "eager"):
                yield from _walked(name, device, dtype, attention, report)
                gc.collect()
                if kind == "cuda":
                    torch.cuda.empty_cache()


def _walked(name: str, device: str, dtype: str, attention: str, report: Callable[[Row], None]) -> Iterator[Row]:
    try:
        loaded = load(find_source(name, "random"), dtype=dtype, device=device, attn=attention)
        measured(loaded, 16, 1, attention)  # loads kernels and workspaces
    except Exception as error:
        yield {"model": name, "dtype": dtype, "attention": attention, "error": f"{type(error).__name__}: {error}"[:300]}
        return
    longest = loaded.spec.context or max(PROMPTS[device.split(":")[0]])
    for tokens in PROMPTS[device.split(":")[0]]:
        for batch in BATCHES:
            if tokens + 2 > longest or tokens * batch > MOST_ROWS:
                continue
            try:
                for row in measured(loaded, tokens, batch, attention):
                    report(row)
                    yield row
            except Exception as error:
                why = "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {error}"[:300]
                about = {"model": name, "dtype": dtype, "attention": attention, "batch": batch, "tokens": tokens}
                yield {**about, "error": why}
                gc.collect()
                if loaded.device != "cpu":
                    torch.cuda.empty_cache()


def card_used() -> int | None:
    """Bytes of the card that are in use, as nvidia-smi prints them; None where it can't be asked."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        return int(found.split()[0]) * 2**20
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def beside_torch(device: str) -> int:
    """Bytes in use on the card that torch's allocator has not reserved: contexts, kernels, captured graphs."""
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


def overhead(device: str) -> Row:
    """What a process takes on a card beside tensors, from its first tensor to a captured decode step.

    `card_used_before` is what others had in use. `context`: after the first tensor, less those. `after_forward`: what a
    prefill and a step in bfloat16 add by loading kernels; `workspace_bytes`: what they leave in torch's allocator.
    """
    before = card_used()
    torch.zeros(1, device=device)
    found: Row = {"card_used_before": before, "context_and_others": beside_torch(device)}
    found["context"] = None if before is None else found["context_and_others"] - before
    loaded = load(find_source("qwen3-0.6b", "random"), dtype="bfloat16", device=device, attn="sdpa")
    torch.cuda.synchronize(device)
    held = torch.cuda.memory_allocated(device)
    found["with_weights"] = beside_torch(device)
    measured(loaded, 512, 1, "sdpa")
    gc.collect()
    found["after_forward"] = beside_torch(device)
    found["workspace_bytes"] = torch.cuda.memory_allocated(device) - held
    found["reserved_above_allocated"] = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    try:
        found["graph"] = captured_graph(loaded, device)
    except Exception as error:
        found["graph"] = {"error": f"{type(error).__name__}: {error}"[:300]}
    return found


def captured_graph(loaded: Loaded, device: str) -> Row:
    """Bytes of the mode `compiled`'s decode step, which is a captured graph on CUDA, over a buffer of 512 tokens."""
    torch.cuda.empty_cache()
    counts = {
        "beside_torch": lambda: beside_torch(device),
        "reserved": lambda: torch.cuda.memory_reserved(device),
        "allocated": lambda: torch.cuda.memory_allocated(device),
    }
    before = {name: count() for name, count in counts.items()}
    ids = torch.randint(0, 1000, (1, 16), device=device)
    with torch.inference_mode():
        step = mode_named("compiled").open(loaded.model, 512)
        if prepare := getattr(step, "prepare", None):
            prepare(1)
        step(ids, ids)
        for _ in range(3):
            new = ids[:, -1:]
            ids = torch.cat([ids, new], dim=1)
            step(ids, new)
    grown = {name: count() - before[name] for name, count in counts.items()}
    layers = loaded.spec.layers
    cache = sum(layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in layers) * 512 * 2
    return {**grown, "cache_bytes": cache, "tokens": 512}


def line(row: Row) -> str:
    if "error" in row:
        return f"{row['model']:12} {row['dtype']:9} {row['attention']:6} {row['error']}"
    about = f"{row['model']:12} {row['dtype']:9} {row['attention']:6} {row['batch']} x {row['tokens']:6,}"
    found = f"{row['forward']:8}{row['measured_bytes']:>15,} B, formula {row['formula_bytes']:>15,} B"
    return f"{about} {found}, ratio {row['ratio']:.3f}, {row['widest']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or a card by number such as cuda:1")
    parser.add_argument("--models", default="", metavar="MODEL[,MODEL]", help="catalog ids, with random weights")
    parser.add_argument("--json", action="store_true", help="print one JSON document; the rows go to standard error")
    options = parser.parse_args()
    device = pick_device(options.device)
    stream = sys.stderr if options.json else sys.stdout
    set_threads(1)
    document: Row = {"overhead": overhead(device) if device.startswith("cuda") else None}
    names = options.models.split(",") if options.models else list(MODELS[device.split(":")[0]])
    document["rows"] = list(walk(names, device, lambda row: print(line(row), file=stream, flush=True)))
    ratios = [row["ratio"] for row in document["rows"] if row.get("forward") == "prefill"]
    document["prefill_ratio_least_most"] = [min(ratios), max(ratios)] if ratios else None
    document["environment"] = asdict(environment_for("sdpa and eager", device, "of each row"))
    if options.json:
        print(json.dumps(document))
    else:
        print(f"prefill, least and most of formula over measured: {document['prefill_ratio_least_most']}")
        print(f"overhead: {document['overhead']}")


if __name__ == "__main__":
    main()
