"""The engine against the sum of its forwards, and against transformers' own continuous batching.

`overhead` is the time of a step over that of the model's forward in it, in the median over the decode steps of 8
sequences that run together: what the engine adds. `vs_plain_batch` is such a step over one of a cached decode of the
same 8 sequences, which are equally long there: what blocks and different lengths cost. `ratio_vs_transformers` is the
engine's tokens/s over transformers', on a trace whose requests all come at once; the two take turns.

On a GPU a forward's seconds count from a device that has nothing left to do to the same, as those of a step do.

    python bench/engine.py --json
    python bench/engine.py --device cuda --requests 200
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from operator import eq
from typing import Any

if not __package__:
    import checkout  # noqa: F401

import torch

from kvviz.base.errors import in_a_line
from kvviz.base.records import DTYPES
from kvviz.caches.block_table import BLOCK
from kvviz.cli.measure_here import alone, settle
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import decode
from kvviz.device.clock import Sync, no_collection, synchroniser, timed
from kvviz.experiments.batching.batcher import Request
from kvviz.experiments.batching.engine import Engine, Step
from kvviz.experiments.batching.policies import policy_named
from kvviz.experiments.batching.theirs import serve_theirs
from kvviz.experiments.batching.timeline import Arrivals, figures_of, serve, together
from kvviz.experiments.batching.trace import draw_trace
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.text import Speller

MODELS = {"mini-qwen3": 200, "gpt2": 16}  # requests of the trace
PLACES, PROMPT, NEW, SLOTS, LONGEST = 8, 64, 64, 4096, 256


@contextmanager
def forwards_of(model: torch.nn.Module, sync: Sync = lambda: None) -> Iterator[list[float]]:
    """The seconds of each forward of a model, as they come; the device is synchronised before and after."""
    seconds: list[float] = []

    def now() -> float:
        sync()
        return time.perf_counter()

    before = model.register_forward_pre_hook(lambda *args: seconds.append(-now()))
    after = model.register_forward_hook(lambda *args: seconds.append(now() + seconds.pop()))
    try:
        yield seconds
    finally:
        before.remove()
        after.remove()


def engine_of(loaded: Loaded, policy: str = "continuous") -> Engine:
    return Engine(loaded.model, policy_named(policy), SLOTS // BLOCK, places=PLACES)


def overheads(loaded: Loaded) -> dict[str, float]:
    """Decode steps of 8 sequences: the engine's over its forwards, and over those of a plain batch."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(loaded.spec.vocab_size or 0, (PLACES, PROMPT), generator=generator).to(loaded.device)
    engine, sync = engine_of(loaded), synchroniser(loaded.device)

    def steps() -> Iterator[Step]:
        while engine.busy:
            yield engine.step()

    for number, row in enumerate(prompts.tolist()):
        engine.submit(Request(number, tuple(row), NEW))
    with no_collection(), forwards_of(engine.model, sync) as forwards:
        whole = [step.seconds for step in timed(steps(), sync)]
    with no_collection():
        plain = [step.seconds for step in timed(decode(loaded.model, prompts, mode="cached", new_tokens=NEW), sync)]
    ratios = [step / forward for step, forward in zip(whole[1:], forwards[1:], strict=True)]
    overhead = statistics.median(ratios)
    return {"overhead": overhead, "vs_plain_batch": statistics.median(whole[1:]) / statistics.median(plain[1:])}


def trace_of(loaded: Loaded, requests: int) -> Arrivals:
    """Requests that all come at once."""
    trace, generator = draw_trace(requests, 1.0, LONGEST, seed=0), torch.Generator().manual_seed(1)
    vocabulary = loaded.spec.vocab_size or 0
    drawn = [torch.randint(vocabulary, (tokens,), generator=generator).tolist() for tokens in trace.prompts]
    pairs = zip(drawn, trace.answers, strict=True)
    return [(0.0, Request(number, tuple(prompt), answer)) for number, (prompt, answer) in enumerate(pairs)]


def measure(models: LoadedModels, work: ComparisonSpec, requests: int, rounds: int) -> dict[str, Any]:
    """Measure one model; seconds are medians over the rounds."""
    loaded = models.get(work)
    arrivals, spell = trace_of(loaded, requests), Speller(loaded.codec)
    ways = {
        "engine": lambda: serve(engine_of(loaded), arrivals, spell),
        "transformers": lambda: serve_theirs(
            loaded.model, arrivals, spell, blocks=SLOTS // BLOCK, places=PLACES, budget=LONGEST
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    tokens: dict[str, list[list[int]]] = {}
    pairs = [overheads(loaded) for _ in range(rounds + 1)][1:]  # the first round warms up
    why = ""
    for number in range(rounds):
        for name in list(ways) if number % 2 else reversed(list(ways)):
            if why and name == "transformers":
                continue
            try:
                with no_collection():
                    rows, _, _ = together(ways[name]())
            except Exception as error:
                if name == "engine":
                    raise
                why = in_a_line(error)
                continue
            tokens[name] = [row["token_ids"] for row in rows]
            seconds[name].append(figures_of(rows)["seconds"])
    ours = statistics.median(seconds["engine"])
    theirs = None if why else statistics.median(seconds["transformers"])
    alike = None if why else sum(map(eq, tokens["engine"], tokens["transformers"]))
    return {
        "model": work.model,
        "device": loaded.device,
        **{name: statistics.median(pair[name] for pair in pairs) for name in pairs[0]},
        "requests": requests,
        "new_tokens": sum(map(len, tokens["engine"])),
        "seconds": ours,
        "transformers_seconds": theirs,
        "ratio_vs_transformers": theirs and theirs / ours,
        "same_tokens": None if alike is None else alike == requests,
        "same_requests": alike,
        "transformers_failed": why,
        "rounds": rounds,
    }


def line_of(row: dict[str, Any]) -> str:
    """A row in words."""
    costs = f"{row['overhead']:.3f} of its forwards, {row['vs_plain_batch']:.2f} of a plain batch"
    rate = f"{row['requests']} requests in {row['seconds']:.1f} s, {row['new_tokens'] / row['seconds']:,.0f} tokens/s"
    peer = f"transformers' own fails: {row['transformers_failed']}"
    if row["ratio_vs_transformers"]:
        peer = f"{row['ratio_vs_transformers']:.2f}x transformers, the same tokens in {row['same_requests']}"
    return f"{row['model']:12} {costs}; {rate}, {peer}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (else a table)")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps; by default the fastest that works")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--requests", type=int, help="requests of the trace; by default as many as suit the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="processor threads; by default as many as kvviz takes")
    options = parser.parse_args()
    settle(options.threads)
    models, names = LoadedModels(), options.models.split(",")
    works = [ComparisonSpec(name, prompt="x", device=options.device, dtype=options.dtype) for name in names]
    with alone("bench/engine.py"):
        rows = [measure(models, work, options.requests or MODELS.get(work.model, 16), options.rounds) for work in works]
    if options.json:
        print(json.dumps({"rows": rows, "environment": asdict(models.get(works[0]).environment)}))
        return
    for row in rows:
        print(line_of(row))


if __name__ == "__main__":
    main()
