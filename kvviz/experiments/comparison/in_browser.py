"""A comparison that a browser's engine decodes: what it can do, and the order that it is given. No torch."""

import json
from dataclasses import replace

from kvviz.base.errors import KvvizError
from kvviz.base.hashing import config_hash
from kvviz.base.records import new_id
from kvviz.decoding.modes import MODES
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.kind import Record
from kvviz.models.sources import find_source
from kvviz.models.text import book

DEVICE = "browser"  # the device of such a comparison's environment
DECODED = ("uncached", "cached", "unpassed", "prealloc", "concat")  # the modes that the browser's engine has
FILES = {"config": "config.json", "tokenizer": "tokenizer.json", "weights": "model.safetensors"}


def decoded_there(work: ComparisonSpec) -> ComparisonSpec:
    """Return the work as the browser does it. Raises KvvizError, before anything starts, where its engine can't."""
    source = find_source(work.model, work.weights)
    if source.weights != "bundled":
        raise KvvizError("a browser decodes the models that come with kvviz: take mini-gpt2 or mini-qwen3")
    others = [MODES[name].title for name in work.modes if name not in DECODED]
    if others:
        known = ", ".join(f"“{MODES[name].title}”" for name in DECODED)
        raise KvvizError(f"a browser's engine has the modes {known}: leave “{others[0]}” out")
    if work.batch > 1 or work.dtype != "float32":
        raise KvvizError("a browser decodes one sequence in float32: take batch 1 and float32 or auto")
    if work.stop_at_eos or work.stop_text:
        raise KvvizError("a browser decodes all new tokens: leave the stop text empty and the end token alone")
    positions = source.spec.context if source.spec else None
    if positions and (work.prompt_tokens or 1) + work.new_tokens > positions:
        raise KvvizError(f"{source.title} has {positions} positions: take fewer prompt tokens or new tokens")
    return replace(work, device=DEVICE, weights=source.weights, precision=None)


def order_of(work: ComparisonSpec) -> Record:
    """Return what the engine needs: the files, their checksum, what the records say of the model.

    The files' addresses are relative to the script that decodes (ui/assets/live/browser_worker.js).
    """
    source = find_source(work.model, work.weights)
    assert source.folder is not None and source.spec is not None
    card = json.loads((source.folder / "card.json").read_text(encoding="utf-8"))
    checksum = card["weights"]["sha256"]
    modes = [MODES[name] for name in work.modes]
    about = {"id": source.model, "title": source.title, "weights": source.weights, "params": source.params}
    return {
        "id": new_id(),
        **{name: f"../models/{source.model}/{file}?{checksum[:12]}" for name, file in FILES.items()},
        "wasm": "../engine/kernels.wasm",
        "sha256": checksum,
        "spec": work.to_dict(),
        "book": "" if work.prompt is not None else book(),
        "config_hash": config_hash(source.config) if source.config else None,
        "model": {**about, "layers": len(source.spec.layers), "context": source.spec.context},
        "modes": [{"name": m.name, "title": m.title, "summary": m.summary, "exact": True} for m in modes],
    }
