"""Carrying out a look inside: a layer dissected, a mistake made beside the right loop, first steps. Yields records."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.loading import Loaded
from kvviz.decoding.scratch.first_steps import GPTWithCache, attentions_agree, benchmark
from kvviz.decoding.scratch.load import from_transformers
from kvviz.decoding.scratch.pitfalls import pitfall_named
from kvviz.device.environment import environment, environment_for
from kvviz.device.pick import pick_device
from kvviz.experiments.comparison.comparison_run import encode_prompt
from kvviz.experiments.inside.anatomy import dissect
from kvviz.experiments.inside.mistakes import break_it
from kvviz.experiments.inside.mistiming import mistime
from kvviz.experiments.inside.spec import MOST_PROMPT, LookSpec
from kvviz.experiments.kind import Bench, Record

START = "Hello"  # what the untrained model writes on from
TEMPERATURE = 1.0


def run(spec: LookSpec, bench: Bench) -> Iterator[Record]:
    """The records of a look at a layer or a mistake, its model loaded first."""
    yield from look(spec, bench.load(spec.work()))


def first_steps(spec: LookSpec, bench: Bench) -> Iterator[Record]:
    """Records of the decoder of attention alone: the chapter's benchmark, and one text that it draws."""
    device = pick_device()
    threads = environment_for("", device, "float32")
    yield {"t": "look", "device": threads.device_name, "threads": threads.threads, "dtype": "float32"}
    torch.manual_seed(0)
    ways = attentions_agree(device=device)
    model = GPTWithCache(128, 128, 4, 4, 256).to(device)
    letters = {i: chr(i) for i in range(128)}
    prompt = torch.tensor([[ord(letter) for letter in START]], device=device)
    ids = model.generate_with_cache(prompt, 64, temperature=TEMPERATURE, itos=letters)
    measured = benchmark(device=device)
    yield {
        "t": "first-steps",
        "difference": ways,
        "benchmark": {**asdict(measured), "speedup": measured.speedup},
        "temperature": TEMPERATURE,
        "text": "".join(letters[i] if letters[i].isprintable() else "·" for i in ids),
        "written": len(ids) - len(START),
        "stopped": letters[ids[-1]] == ".",
    }
    yield {"t": "done", "document": {}}


def look(spec: LookSpec, loaded: Loaded) -> Iterator[dict[str, Any]]:
    """Records of a look: where it was done, then all of it at once. Raises KvvizError where it can't be done."""
    prompt = encode_prompt(spec.work(), loaded)
    if prompt.shape[1] > MOST_PROMPT:
        raise KvvizError(f"the prompt has {prompt.shape[1]:,} tokens; a look inside takes at most {MOST_PROMPT}")
    model = from_transformers(loaded.model)
    env = environment(loaded.model, loaded.device, loaded.dtype)
    yield {
        "t": "look",
        "spec": spec.to_dict(),
        "title": loaded.source.title,
        "weights": loaded.source.weights,
        "note": loaded.codec.note,
        "device": env.device_name,
        "dtype": env.dtype,
    }
    prompt = prompt.to(loaded.device)
    if spec.kind == "anatomy":
        yield dissect(model, loaded.codec, prompt, new_tokens=spec.new_tokens, layer=spec.layer, head=spec.head)
    elif pitfall_named(spec.mistake).shows == "clock":
        yield mistime(spec, loaded)
    else:
        with torch.inference_mode(False):
            yield break_it(model, loaded.codec, prompt, new_tokens=spec.new_tokens, mistake=pitfall_named(spec.mistake))
    yield {"t": "done", "document": {}}
