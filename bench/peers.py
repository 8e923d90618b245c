"""kvviz's modes against transformers' own `generate`, interleaved, on the same weights.

Whole runs are timed by the wall clock, prefill included; kvviz's runs also have its own clock around every step.
`generate` runs twice, with its default cache and with its StaticCache, neither compiled. `ratio_vs_generate` is a
mode's median time over that of the default: below 1, the mode takes less time. llama.cpp joins in where it is installed
(`llama_cpp_peer.py`).

    python bench/peers.py --json
    python bench/peers.py --models gpt2,qwen3-0.6b --modes cached,compiled --prompt-tokens 256 --threads 2
    python bench/peers.py --models qwen3-4b --dtype bfloat16   # for a GPU; kvviz picks the device
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

if not __package__:
    import checkout  # noqa: F401

import torch

from bench import llama_cpp_peer
from kvviz.cli.measure_here import alone, settle
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loading import Loaded
from kvviz.device.clock import no_collection, quartiles, synchroniser, timed
from kvviz.experiments.comparison.comparison_run import ComparisonRun, encode_prompt
from kvviz.experiments.comparison.spec import ComparisonSpec

Decode = Callable[[], tuple[list[int], list[float]]]  # the first sequence's new tokens, the seconds of each step


def generated(work: ComparisonSpec, loaded: Loaded, prompt: torch.Tensor, *, static: bool) -> Decode:
    """Decode greedily with transformers."""

    def call() -> tuple[list[int], list[float]]:
        out = loaded.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=work.new_tokens,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
            eos_token_id=-1,  # no token ends the text: kvviz decodes as many
            disable_compile=True,
            **({"cache_implementation": "static"} if static else {}),
        )
        return out[0, prompt.shape[1] :].tolist(), []

    return call


def decoded(work: ComparisonSpec, loaded: Loaded, prompt: torch.Tensor, mode: str) -> Decode:
    """Decode with kvviz under its clock."""

    def call() -> tuple[list[int], list[float]]:
        steps = list(timed(ComparisonRun(work, loaded, prompt).decode(mode), synchroniser(loaded.device)))
        tokens = torch.stack([step.step.token_ids for step in steps])[:, 0].tolist()  # at once, as of `generate`
        return tokens, [step.seconds for step in steps]

    return call


def spent(call: Decode, sync: Callable[[], None]) -> tuple[float, list[int], list[float]]:
    """(seconds of a whole run, its tokens, the seconds of its steps)."""
    with no_collection():
        sync()
        start = time.perf_counter()
        tokens, steps = call()
        sync()
        return time.perf_counter() - start, tokens, steps


def measure(models: LoadedModels, work: ComparisonSpec) -> list[dict[str, Any]]:
    """Measure transformers' two decodes and kvviz's modes on one model; a row for each."""
    loaded = models.get(work)
    prompt, sync = encode_prompt(work, loaded), synchroniser(loaded.device)
    calls = {"generate": generated(work, loaded, prompt, static=False)}
    calls["generate-static"] = generated(work, loaded, prompt, static=True)
    calls |= {mode: decoded(work, loaded, prompt, mode) for mode in work.modes}
    if work.batch == 1 and llama_cpp_peer.is_installed() and llama_cpp_peer.fits(loaded):
        with tempfile.TemporaryDirectory() as folder:  # the open file outlives its name
            llama_cpp_peer.write_gguf(loaded, path := Path(folder) / "weights.gguf")
            calls["llama.cpp"] = llama_cpp_peer.decoded(path, prompt, work.new_tokens)
    times: dict[str, list[float]] = {name: [] for name in calls}
    itl: dict[str, list[float]] = {name: [] for name in calls}
    tokens: dict[str, list[int]] = {}
    names = list(calls)
    for number in range(work.repeats + 1):
        for name in names if number % 2 else reversed(names):
            seconds, tokens[name], steps = spent(calls[name], sync)
            if number:  # the first round warms up
                times[name].append(seconds)
                itl[name] += steps[1:]
        names = names[1:] + names[:1]  # each follows another one in the next round
    usual = quartiles(times["generate"])[1]
    return [
        {
            "model": work.model,
            "mode": name,
            "prompt_tokens": prompt.shape[1],
            "new_tokens": work.new_tokens,
            "batch": work.batch,
            "ratio_vs_generate": quartiles(times[name])[1] / usual,
            **dict(zip(("total_s_q1", "total_s", "total_s_q3"), quartiles(times[name]), strict=True)),
            "tokens_per_s": work.new_tokens * work.batch / quartiles(times[name])[1],
            "itl_s": quartiles(itl[name])[1] if itl[name] else None,
            "same_tokens": tokens[name] == tokens["generate"],
            "rounds": work.repeats,
        }
        for name in calls
    ]


def document(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all models."""
    models, rows = LoadedModels(), []
    for model in options.models.split(","):
        work = ComparisonSpec(
            model=model,
            modes=tuple(options.modes.split(",")),
            prompt_tokens=options.prompt_tokens,
            new_tokens=options.new_tokens,
            batch=options.batch,
            dtype=options.dtype,
            repeats=options.rounds,
        )
        found = measure(models, work)
        rows += found
        if not options.json:  # as they come: the next model may take minutes
            show(found)
    loaded = models.get(work)
    return {"rows": rows, "environment": asdict(loaded.environment)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (else a table)")
    parser.add_argument("--models", default="mini-gpt2,mini-qwen3,gpt2")
    parser.add_argument("--modes", default="cached,scratch,compiled")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, help="processor threads; by default as many as kvviz takes")
    options = parser.parse_args()
    settle(options.threads)
    with alone("bench/peers.py"):
        found = document(options)
    if options.json:
        print(json.dumps(found))


def show(rows: list[dict[str, Any]]) -> None:
    """Print a model's rows."""
    for row in rows:
        spread = f"{row['total_s_q1']:.4g} to {row['total_s_q3']:.4g} s"
        step = f"{row['itl_s'] * 1e3:9.3f} ms a step" if row["itl_s"] else ""
        differs = "" if row["same_tokens"] else "  OTHER TOKENS"
        rate = f"{row['tokens_per_s']:10.1f} tokens/s {1 / row['ratio_vs_generate']:6.2f}x generate"
        print(f"{row['model']:12} {row['mode']:16} {rate} {spread:24} {step}{differs}", flush=True)


if __name__ == "__main__":
    main()
