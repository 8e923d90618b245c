"""Decodes the tiny model of a scene and records what its layers keep."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kvviz.decoding.loading import Loaded
from kvviz.experiments.architectures.delta import delta_walk
from kvviz.experiments.architectures.indexer import indexer_walk
from kvviz.experiments.architectures.latent import latent_walk
from kvviz.experiments.architectures.mamba import mamba_walk
from kvviz.experiments.architectures.shared import shared_walk
from kvviz.experiments.architectures.spec import ArchitectureSpec
from kvviz.experiments.architectures.ways import tiny_model
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.kind import Bench, Record

Walk = Callable[[Loaded, torch.Tensor, int], dict[str, Any]]  # of a model, a prompt (1, P) and a number of new tokens
WALKS: dict[str, Walk] = {
    "latent": latent_walk,
    "delta": delta_walk,
    "mamba": mamba_walk,
    "indexer": indexer_walk,
    "shared": shared_walk,
}


def run(spec: ArchitectureSpec, bench: Bench) -> Iterator[Record]:
    """Yield what is decoded and where, then everything that the scene draws."""
    loaded = tiny_model(spec.scene)
    prompt = torch.tensor([loaded.codec.encode(spec.prompt)])
    yield look(spec, loaded)
    with torch.no_grad():
        yield {"t": "architecture", "scene": spec.scene, **WALKS[spec.scene](loaded, prompt, spec.new_tokens)}
    yield {"t": "done", "document": {}}
