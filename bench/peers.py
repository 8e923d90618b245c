"""kvviz's cached decode against transformers' own `generate(use_cache=True)`, on the same weights, interleaved.

Whole runs are timed on both sides, wall clock; kvviz's with its clock around every step. The ratio is that of the
medians: below 1 means that kvviz's loop takes less time.

    python bench/peers.py --json
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from kvviz.device import environment, set_threads
from kvviz.engine import Engine
from kvviz.measure import no_collection, pin, share_of_cores, synchroniser, timed
from kvviz.models import Loaded
from kvviz.perform import encode_prompt
from kvviz.proof import loop
from kvviz.records import ComparisonSpec

NEW_TOKENS = 64


def generated(loaded: Loaded, prompt: torch.Tensor) -> list[int]:
    """transformers' own greedy decode."""
    out = loaded.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )
    return out[0, prompt.shape[1] :].tolist()


def decoded(work: ComparisonSpec, loaded: Loaded, prompt: torch.Tensor, mode: str) -> tuple[list[int], list[float]]:
    """kvviz's decode under its clock: the tokens, and the seconds of each step."""
    steps = list(timed(loop(work, loaded, prompt, mode, NEW_TOKENS), synchroniser(loaded.device)))
    return [int(step.step.token_ids[0]) for step in steps], [step.seconds for step in steps]


def spent(call: Callable[[], Any], sync: Callable[[], None]) -> tuple[float, Any]:
    with no_collection():
        sync()
        start = time.perf_counter()
        result = call()
        sync()
        return time.perf_counter() - start, result


def measure(engine: Engine, model: str, mode: str, rounds: int) -> dict[str, Any]:
    """One row: kvviz's mode and generate, taking turns."""
    work = ComparisonSpec(model=model, modes=(mode,), prompt="Once upon a time", new_tokens=NEW_TOKENS)
    loaded = engine.get(work)
    prompt, sync = encode_prompt(work, loaded), synchroniser(loaded.device)
    calls = {"generate": lambda: generated(loaded, prompt), "kvviz": lambda: decoded(work, loaded, prompt, mode)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    itl: list[float] = []
    tokens: dict[str, list[int]] = {}
    for number in range(rounds + 1):
        for name in list(calls) if number % 2 else reversed(list(calls)):
            seconds, result = spent(calls[name], sync)
            tokens[name] = result if name == "generate" else result[0]
            if number:  # the first round warms up
                times[name].append(seconds)
                itl += result[1][1:] if name == "kvviz" else []
    ours, theirs = statistics.median(times["kvviz"]), statistics.median(times["generate"])
    return {
        "model": model,
        "mode": mode,
        "ratio_vs_generate": ours / theirs,
        "kvviz_s": ours,
        "generate_s": theirs,
        "itl_s": statistics.median(itl),
        "same_tokens": tokens["kvviz"] == tokens["generate"],
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--models", default="gpt2,tiny-llama,tiny-qwen3")
    parser.add_argument("--modes", default="cached")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    measuring, _ = share_of_cores()
    pin(measuring)
    set_threads(len(measuring) or 1)
    from transformers.utils import logging

    logging.set_verbosity_error()
    engine, models = Engine(), options.models.split(",")
    rows = [measure(engine, model, mode, options.rounds) for model in models for mode in options.modes.split(",")]
    loaded = engine.get(ComparisonSpec(model=models[0], prompt="x"))
    print(json.dumps({"rows": rows, "environment": asdict(environment(loaded.model, loaded.device, loaded.dtype))}))


if __name__ == "__main__":
    main()
