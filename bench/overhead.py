"""What measuring costs: the timed loop of a comparison against a bare loop, and where a whole comparison's time goes.

The bare loop is what a user would write: a cache, a forward, an argmax. Whole passes are timed by the wall clock, so
that everything between the steps counts too. Passes alternate; the ratio is one of medians.

`phases` are the seconds of a whole comparison by what they were spent on, second runs of a process, when its model and
paces are known: `clocked` are the timed steps, `beside` is the share of all others.

    python bench/overhead.py --json
    python bench/overhead.py --phases
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict

if not __package__:
    import checkout  # noqa: F401

import torch

from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loading import Loaded
from kvviz.device.clock import keep_libraries_out, no_collection
from kvviz.device.environment import take_cores
from kvviz.device.memory import keep_freed_memory
from kvviz.experiments.comparison.comparison_run import Checked, ComparisonRun, TimedPasses, encode_prompt
from kvviz.experiments.comparison.run import perform, timed_pass
from kvviz.experiments.comparison.spec import ComparisonSpec

MODELS = {"gpt2": (33, 15), "tiny-llama": (129, 41)}  # new tokens and passes of each kind


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


PHASES = {"started": "paces", "predicted": "paces", "first_look": "first look", "proof": "equivalence check"}


def phases(models: LoadedModels, model: str) -> dict[str, float]:
    """Seconds of a default comparison by phase: what came before a record was spent on it."""
    work, spent = ComparisonSpec(model=model, prompt="Once upon a time"), dict[str, float]()
    for _ in range(2):  # the first one measures the paces and warms up
        spent, warming = {"clocked": 0.0}, True
        begun = last = time.perf_counter()
        loaded = models.get(work)
        spent["model"] = time.perf_counter() - last
        for record in perform(work, loaded, comparison_id="overhead", watched=True):
            json.dumps(record)
            now, kind = time.perf_counter(), record["t"]
            if kind == "pass":
                warming = record["repeat"] < 0
            steps = sum(record["s"]) if kind == "times" and not warming else 0.0
            usual = "warm-up" if warming else "between the steps"
            phase = {"memory": "allocator's account", "done": "document"}.get(kind) or PHASES.get(kind, usual)
            spent["clocked"] += steps
            spent[phase] = spent.get(phase, 0.0) + now - last - steps
            last = now
        spent["whole"] = last - begun
    return {**spent, "beside": 1 - spent["clocked"] / spent["whole"]}


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
    parser.add_argument("--phases", action="store_true", help="only where the time of a default comparison goes")
    asked = parser.parse_args()
    names = asked.models.split(",")
    take_cores()
    keep_libraries_out()
    keep_freed_memory()
    models = LoadedModels()
    where = {name: phases(models, name) for name in ("mini-gpt2", "mini-qwen3")}
    if asked.phases:
        for name, spent in where.items():
            shares = ", ".join(
                f"{phase} {took / spent['whole']:.1%}"
                for phase, took in spent.items()
                if phase not in ("whole", "beside")
            )
            print(f"{name}: {spent['whole']:.2f} s, {spent['beside']:.1%} beside the clocked steps: {shares}")
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
