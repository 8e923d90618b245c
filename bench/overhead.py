"""What measuring costs: the timed loop of a comparison against a bare loop, and where a whole comparison's time goes.

The bare loop is what a user would write: a cache, a forward, an argmax. Whole passes are timed by the wall clock, so
that everything between the steps counts too. Passes alternate; the ratio is one of medians.

`phases` tells where the time of the live page's opening comparison goes, with its records encoded as for a viewer, once
the process knows its model and paces: seconds of wall clock and of CPU by what they were spent on. `clocked` are the
steps of the first look and of the timed passes, as the clock read them; `beside` is the share of everything else. A
warm-up's steps are run and not kept, so they count as beside.

    python bench/overhead.py --json
    python bench/overhead.py --phases
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

if not __package__:
    import checkout  # noqa: F401

import torch

from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loading import Loaded
from kvviz.device.clock import keep_out, no_collection
from kvviz.device.environment import take_cores
from kvviz.device.memory import keep_freed_memory
from kvviz.experiments.comparison.comparison_run import Checked, ComparisonRun, TimedPasses, encode_prompt
from kvviz.experiments.comparison.run import perform, timed_pass
from kvviz.experiments.comparison.spec import ComparisonSpec, opening

MODELS = {"gpt2": (33, 15), "tiny-llama": (129, 41)}  # new tokens and passes of each kind
PHASED = ("mini-gpt2", "mini-qwen3")


def bare_pass(loaded: Loaded, prompt: torch.Tensor, new_tokens: int) -> None:
    """A cached decode with nothing around it."""
    from transformers import DynamicCache

    cache = DynamicCache(config=loaded.model.config)
    ids = new = prompt
    for _ in range(new_tokens):
        with torch.inference_mode():
            out = loaded.model(input_ids=new, past_key_values=cache, use_cache=True, logits_to_keep=1)
            new = out.logits[:, -1].argmax(dim=-1)[:, None]
            ids = torch.cat([ids, new], dim=1)


def instrumented_pass(work: ComparisonSpec, loaded: Loaded, prompt: torch.Tensor) -> None:
    """The same decode as a comparison times it, with its records encoded as for a viewer."""
    run = ComparisonRun(work, loaded, prompt)
    run.checked, run.passes = {"cached": Checked(tokens=[[0]] * work.new_tokens)}, {"cached": TimedPasses()}
    for record in timed_pass(run, "cached", 0):
        json.dumps(record)


# What a phase's time beside its clocked steps is spent on, by the record that it ends with.
PHASES = {
    "started": "paces",
    "predicted": "paces",
    "first_look": "reading in the first look",
    "proof": "equivalence check",
    "memory": "allocator's account",
    "pass": "between the passes",
    "clocked": "between the passes",
    "times": "between the steps",
    "done": "document",
}


def phases(models: LoadedModels, model: str, runs: int = 3) -> list[dict[str, Any]]:
    """Return each run's seconds (`wall_s`, `cpu_s`) of the opening comparison by phase, and the shares that count."""
    work = opening(model)
    splits = [
        _split(perform(work, models.get(work), comparison_id="overhead", watched=True))
        for _ in range(runs + 1)  # the first one measures the paces and warms up
    ]
    return splits[1:]


def _split(records: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    wall, cpu = defaultdict[str, float](float), defaultdict[str, float](float)
    warming, passes = True, 0
    last, last_cpu = begun, begun_cpu = time.perf_counter(), time.process_time()
    for record in records:
        now, now_cpu = time.perf_counter(), time.process_time()
        kind, clocked = record["t"], 0.0
        if kind == "first_look":
            clocked = sum(step["s"] for step in record["modes"].values())
        elif kind == "times" and not warming:
            clocked = sum(record["s"])
        phase = "warm-up" if warming and kind == "times" else PHASES[kind]
        if kind == "pass":
            warming = record["repeat"] < 0
        passes += kind == "clocked"
        wall["clocked"] += clocked
        wall[phase] += now - last - clocked
        # the clock reads wall time alone: a step's share of the CPU is its share of the wall
        busy = (now_cpu - last_cpu) * min(1.0, clocked / max(now - last, 1e-9))
        cpu["clocked"] += busy
        cpu[phase] += now_cpu - last_cpu - busy
        json.dumps(record)
        last, last_cpu = time.perf_counter(), time.process_time()
        wall["records encoded"] += last - now
        cpu["records encoded"] += last_cpu - now_cpu
    whole, whole_cpu = last - begun, last_cpu - begun_cpu
    return {
        "whole_s": whole,
        "whole_cpu_s": whole_cpu,
        "passes": passes,
        "beside": 1 - wall["clocked"] / whole,
        "beside_cpu": 1 - cpu["clocked"] / whole_cpu,
        "wall_s": dict(wall),
        "cpu_s": dict(cpu),
    }


def told(name: str, split: Mapping[str, Any]) -> str:
    """Write one model's split as lines: the shares of the wall clock and of the CPU."""
    head = (
        f"{name}: {split['whole_s']:.2f} s, {split['passes']} timed passes, {split['beside']:.1%} beside the clocked "
        f"steps ({split['beside_cpu']:.1%} of the CPU time)"
    )
    rows = [
        f"  {phase:26} {1e3 * took:7.1f} ms {took / split['whole_s']:6.1%}   CPU {split['cpu_s'][phase]:.3f} s"
        for phase, took in split["wall_s"].items()
    ]
    return "\n".join([head, *rows])


def seconds_of(work: Callable[[], None]) -> float:
    with no_collection():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


def measure(models: LoadedModels, model: str) -> dict[str, float]:
    """Medians of interleaved passes, their ratio, and as noise the ratio of even to odd bare passes."""
    new_tokens, passes = MODELS[model]
    work = ComparisonSpec(model=model, modes=("cached",), prompt="Once upon a time", new_tokens=new_tokens)
    loaded = models.get(work)
    prompt = encode_prompt(work, loaded)
    kinds = {
        "bare": lambda: bare_pass(loaded, prompt, new_tokens),
        "instrumented": lambda: instrumented_pass(work, loaded, prompt),
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(passes + 1):
        for name in list(kinds) if number % 2 else reversed(list(kinds)):
            spent = seconds_of(kinds[name])
            if number:  # the first round warms up
                times[name].append(spent)
    bare, instrumented = (statistics.median(times[name]) for name in ("bare", "instrumented"))
    noise = statistics.median(times["bare"][::2]) / statistics.median(times["bare"][1::2])
    return {
        "ratio": instrumented / bare,
        "bare_s": bare,
        "instrumented_s": instrumented,
        "new_tokens": new_tokens,
        "passes": passes,
        "bare_even_over_odd": noise,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--phases", nargs="?", const=",".join(PHASED), help="only where the time of these models' goes")
    asked = parser.parse_args()
    names = asked.models.split(",")
    take_cores()
    keep_out()
    keep_freed_memory()
    models = LoadedModels()
    where = {name: phases(models, name) for name in (asked.phases.split(",") if asked.phases else PHASED)}
    if asked.phases:
        for name, splits in where.items():
            print("\n".join(told(name, split) for split in splits))
        return
    per_model = {name: measure(models, name) for name in names}
    loaded = models.get(ComparisonSpec(model=names[0], prompt="x"))
    document = {
        "ratio": max(row["ratio"] for row in per_model.values()),
        "per_model": per_model,
        "phases": where,
        "environment": asdict(loaded.environment),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
