"""Runs an inspection of one decode: it dissects a layer, makes a mistake or runs the first steps."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.loading import Loaded
from kvviz.decoding.scratch.first_steps import GPTWithCache, attentions_agree, benchmark
from kvviz.decoding.scratch.load import from_transformers
from kvviz.decoding.scratch.pitfalls import PITFALLS
from kvviz.device.environment import environment_for, pick_device
from kvviz.experiments.comparison.comparison_run import encode_prompt, look
from kvviz.experiments.inside.anatomy import dissect
from kvviz.experiments.inside.mistakes import Mistakes
from kvviz.experiments.inside.mistiming import mistime
from kvviz.experiments.inside.spec import MOST_PROMPT, AnatomySpec, DecodeInspection, FirstStepsSpec, MistakeSpec
from kvviz.experiments.kind import Bench, Record

START = "Hello"  # the prompt of the untrained model


def anatomy(spec: AnatomySpec, bench: Bench) -> Iterator[Record]:
    """Yield the environment, then all numbers of one layer. Raises KvvizError if the model lacks the layer or head."""
    loaded = bench.load(spec.work())
    prompt, model = _prompt(spec, loaded), from_transformers(loaded.model)
    yield look(spec, loaded)
    yield dissect(model, loaded.codec, prompt, new_tokens=spec.new_tokens, layer=spec.layer, head=spec.head)
    yield {"t": "done", "document": {}}


def mistake(spec: MistakeSpec, bench: Bench) -> Iterator[Record]:
    """Yield the environment, then the effect of each mistake on a decode, or of the one of the clock that is asked for.

    A mistake of the clock is made on the default device. All others are made on the CPU: some read where nothing lies,
    which is an exception there, and on a GPU ends the process.
    """
    loaded = bench.load(spec.work() if spec.clock else replace(spec.work(), device="cpu"))
    prompt, model = _prompt(spec, loaded), from_transformers(loaded.model)
    yield look(spec, loaded)
    if spec.clock:
        yield mistime(spec.clock, spec, loaded)
    else:
        decodes = Mistakes(model, loaded.codec, prompt, new_tokens=spec.new_tokens)
        for pitfall in PITFALLS.values():
            if pitfall.shows != "clock":
                with torch.inference_mode(False):  # one of the mistakes records gradients
                    made = decodes.make(pitfall)
                yield made
                bench.check_stop()
    yield {"t": "done", "document": {}}


def first_steps(spec: FirstStepsSpec, bench: Bench) -> Iterator[Record]:
    """Yield the benchmark of the attention-only decoder and one text sampled from it."""
    device = pick_device()
    place = environment_for("", device, "float32")
    yield {"t": "look", "device": place.device_name, "threads": place.threads, "dtype": "float32"}
    torch.manual_seed(0)
    difference = attentions_agree(device=device)
    model = GPTWithCache(128, 128, 4, 4, 256).to(device)
    letters = {i: chr(i) for i in range(128)}
    prompt = torch.tensor([[ord(letter) for letter in START]], device=device)
    ids = model.generate_with_cache(prompt, 64, temperature=spec.temperature, itos=letters)
    yield {
        "t": "first-steps",
        "difference": difference,
        "benchmark": benchmark(device=device),
        "temperature": spec.temperature,
        "text": "".join(letters[i] if letters[i].isprintable() else "·" for i in ids),
        "written": len(ids) - len(START),
        "stopped": letters[ids[-1]] == ".",
    }
    yield {"t": "done", "document": {}}


def _prompt(spec: DecodeInspection, loaded: Loaded) -> torch.Tensor:
    """Encode the prompt as ids (1, P). Raises KvvizError if it has more than MOST_PROMPT tokens."""
    prompt = encode_prompt(spec.work(), loaded)
    if prompt.shape[1] > MOST_PROMPT:
        raise KvvizError(f"the prompt has {prompt.shape[1]:,} tokens; {spec.called} takes at most {MOST_PROMPT}")
    return prompt
