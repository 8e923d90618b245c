"""Measures cache designs on one prompt: their tokens, memory and time, and what the lossy ones lose."""

import math
from collections.abc import Iterator, Sequence

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import Picture
from kvviz.caches.designs import DESIGNS
from kvviz.caches.hf_layer import DesignCache, Layer
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context
from kvviz.decoding.modes import Mode, check_modes, mode_named
from kvviz.decoding.read_cache import layer_states
from kvviz.experiments.cache_designs.spec import TEXT_TOKENS, CachesSpec
from kvviz.experiments.cache_designs.words import PARTS, Quality
from kvviz.experiments.comparison.comparison_run import Checked, ComparisonRun, encode_prompt, look
from kvviz.experiments.comparison.equivalence import check_equivalence
from kvviz.experiments.comparison.report import comparison_document
from kvviz.experiments.comparison.run import timed_passes
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.limits import check_prompt
from kvviz.models.catalog.rows import heldout

FIGURES = ("seen", "held", "nbytes", "allocated", "copied", "gathered")  # of one layer, beside its picture
MOST_PICTURES = 96  # most steps at which a design's memory is drawn


def run(spec: CachesSpec, bench: Bench) -> Iterator[Record]:
    """Yield a record that names the device, the progress of each part, and the document.

    Raises KvvizError for a model that a design does not support or that has too few positions, and Stopped if the race
    was asked to stop.
    """
    work = spec.work()
    loaded = bench.load(work)
    check_prompt(len(loaded.codec.encode(spec.prompt)), bench.limits.prompt_tokens)
    check_modes(spec.modes, loaded.source.config, loaded.device)
    asked = encode_prompt(work, loaded)
    prompt = with_distinct_next_tokens(loaded, asked)
    check_context(loaded.spec.context, prompt.shape[1], work.new_tokens)
    yield look(spec, loaded)
    run = ComparisonRun(work, loaded, prompt, bench.should_stop)
    for checked in check_equivalence(run):
        if checked["t"] == "first_look":
            yield _part("proof", len(run.checked["cached"].tokens), work.new_tokens)
    accounts: dict[str, Record | None] = {}
    for name in spec.designs:
        accounts[name] = _memory_account(run, name) if name in DESIGNS else None
        yield _part("books", len(accounts), len(spec.designs))
    passes = 0
    for timed in timed_passes(run):
        if timed["t"] == "pass":
            yield _part("clock", passes, work.repeats * len(spec.modes))
            passes += 1
    text, ids = _text(loaded, asked, run.checked["cached"])
    quality: dict[str, Quality] = {}
    for record in compare_predictions(loaded, ids, [work.mode(name, ids.shape[1]) for name in spec.modes[1:]], bench):
        quality = record.get("found", quality)
        yield {name: value for name, value in record.items() if name != "found"}
    document = comparison_document("caches", run)
    runs = []
    for entry in document["runs"]:
        mode = run.mode(entry["mode"])
        described = {"title": mode.title, "summary": mode.summary, "slow": mode.account.slow}
        runs.append({**entry, **described, "books": accounts.get(mode.name), "quality": quality.get(mode.name)})
    about = {"spec": spec.to_dict(), "title": loaded.source.title, "params": loaded.params, "note": loaded.note}
    yield {"t": "done", "document": {**document, "runs": runs, **about, "text": text, "shared_tokens": asked.shape[1]}}


def _part(name: str, done: int, of: int) -> Record:
    return {"t": "part", "part": name, "words": PARTS[name], "done": done, "of": of}


def with_distinct_next_tokens(loaded: Loaded, prompt: torch.Tensor) -> torch.Tensor:
    """Append the i-th likeliest next token to row i, so that they diverge: (B, T) -> (B, T + 1). A row alone stays."""
    batch = prompt.shape[0]
    if batch == 1:
        return prompt
    with torch.inference_mode():
        forward = mode_named("uncached").open(loaded.model, prompt.shape[1])
        logits, _ = forward(prompt[:1], prompt[:1])  # (1, vocabulary)
    return torch.cat([prompt, logits[0].float().topk(batch).indices[:, None]], dim=1)


def _memory_account(run: ComparisonRun, mode: str) -> Record:
    """Decode untimed; return the bytes written at each step over all layers, and pictures of one layer's memory.

    `copied` counts bytes written into the cache, `gathered` those written only for attention to read.
    """
    copied, gathered, pictures = list[int](), list[int](), list[Picture]()
    steps = set(pictured(run.work.new_tokens))
    for step in run.decode(mode):
        run.check_stop()
        every = step.cache.layers if isinstance(step.cache, DesignCache) else []
        layers = {index: layer.own for index, layer in enumerate(every) if isinstance(layer, Layer)}
        copied.append(sum(cache.copied for cache in layers.values()))
        gathered.append(sum(cache.gathered for cache in layers.values()))
        drawn = next((index for index, cache in layers.items() if cache.window is None), next(iter(layers)))
        if step.index in steps:
            one = layers[drawn]
            figures = {name: getattr(one, name) for name in FIGURES}
            pictures.append({"step": step.index, **figures, **one.picture()})
    account = {"copied": copied, "gathered": gathered, "pictures": pictures}
    return {**account, "layer": drawn, "layers": len(layers)}


def pictured(steps: int) -> list[int]:
    """Return the steps at which memory is drawn: all, or MOST_PICTURES evenly spaced ones with the first and last."""
    if steps <= MOST_PICTURES:
        return list(range(steps))
    return sorted({round(i * (steps - 1) / (MOST_PICTURES - 1)) for i in range(MOST_PICTURES)})


def _text(loaded: Loaded, prompt: torch.Tensor, checked: Checked) -> tuple[Record, torch.Tensor]:
    """Return the text to measure quality on, described and as ids (1, T): the held-out story, or if the tokenizer can't
    encode it, the prompt with the model's own continuation.
    """
    source, limit = "heldout", min(TEXT_TOKENS, loaded.spec.context or TEXT_TOKENS)
    try:
        ids = loaded.codec.encode(heldout())
    except KvvizError:
        source, ids = "own", [*prompt[0].tolist(), *(row[0] for row in checked.tokens)]
    ids = ids[:limit]
    described = {"source": source, "tokens": len(ids), "text": loaded.codec.decode(ids)}
    return described, torch.tensor([ids], device=prompt.device)


def compare_predictions(loaded: Loaded, ids: torch.Tensor, modes: Sequence[Mode], bench: Bench) -> Iterator[Record]:
    """Feed the same text, ids (1, T), token by token to each mode. The first mode is the reference.

    Yields progress; the last record's `found` has a Quality for each mode. Raises KvvizError if logits are not finite.
    """
    forwards = {mode.name: mode.open(loaded.model, ids.shape[1]) for mode in modes}
    kl: dict[str, list[float]] = {name: [] for name in forwards}
    surprise = dict.fromkeys(forwards, 0.0)
    caches: dict[str, object] = {}
    for i in range(ids.shape[1]):
        bench.check_stop()
        reference = None
        for name, forward in forwards.items():
            with torch.inference_mode():
                logits, caches[name] = forward(ids[:, : i + 1], ids[:, i : i + 1])
            logs = logits[0].cpu().double().log_softmax(-1)
            if not torch.isfinite(logs).all():
                raise KvvizError(f"the logits after token {i + 1} of the text are not finite; take float32 or bfloat16")
            reference = logs if reference is None else reference
            kl[name].append(max(0.0, (reference.exp() * (reference - logs)).sum().item()))
            if i + 1 < ids.shape[1]:
                surprise[name] -= logs[ids[0, i + 1]].item()
        yield _part("text", i + 1, ids.shape[1])
    found: dict[str, Quality] = {
        name: {
            "kl": kl[name],
            "perplexity": math.exp(surprise[name] / max(1, ids.shape[1] - 1)),
            "nbytes": sum(row.nbytes for row in layer_states(caches[name])),
        }
        for name in forwards
    }
    yield {**_part("text", ids.shape[1], ids.shape[1]), "found": found}
