"""Decodes the tiny model of a scene and records what its layers keep."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kvviz.decoding.loading import Loaded, load
from kvviz.experiments.architectures.latent import latent_walk
from kvviz.experiments.architectures.spec import TINY, ArchitectureSpec
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.kind import Bench, Record
from kvviz.models.sources import Source

Walk = Callable[[Loaded, torch.Tensor, int], dict[str, Any]]  # of a model, a prompt (1, P) and a number of new tokens
WALKS: dict[str, Walk] = {"latent": latent_walk}


def run(spec: ArchitectureSpec, bench: Bench) -> Iterator[Record]:
    """Yield what is decoded and where, then everything that the scene draws."""
    loaded = tiny_model(spec.scene)
    prompt = torch.tensor([loaded.codec.encode(spec.prompt)])
    yield look(spec, loaded)
    with torch.no_grad():
        yield {"t": "architecture", "scene": spec.scene, **WALKS[spec.scene](loaded, prompt, spec.new_tokens)}
    yield {"t": "done", "document": {}}


def tiny_model(scene: str) -> Loaded:
    """Build a scene's model with seeded random weights, in float32 on the processor: the other roundings are small."""
    row = TINY[scene]
    config = {**row["config"], "vocab_size": 128, **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))}
    source = Source(scene, row["title"], "random", config=config)
    return load(source, dtype="float32", device="cpu", attn="eager")
