"""A look carried out: one layer of a decode dissected, or a mistake made beside the right loop. Yields records."""

from collections.abc import Iterator
from typing import Any

import torch

from kvviz.anatomy import dissect
from kvviz.breaking import break_it
from kvviz.device import environment
from kvviz.errors import KvvizError
from kvviz.looks import MOST_PROMPT, LookSpec
from kvviz.mistiming import mistime
from kvviz.models import Loaded
from kvviz.perform import encode_prompt
from kvviz.scratch.load import from_transformers
from kvviz.scratch.pitfalls import pitfall_named


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
