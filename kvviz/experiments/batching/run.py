"""Run a trace of requests through one model under each policy, and hold their tokens against those decoded alone."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch

from kvviz.base.records import Sampling
from kvviz.caches.block_table import BLOCK
from kvviz.caches.ragged import has_to_be_padded
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import chooser, decode
from kvviz.device.clock import no_collection, synchroniser
from kvviz.device.disturbance import Watch
from kvviz.experiments.batching.batcher import SWAPPED, Request, refusal
from kvviz.experiments.batching.engine import Engine
from kvviz.experiments.batching.policies import THEIRS, policy_named
from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.batching.theirs import serve_theirs
from kvviz.experiments.batching.timeline import (
    Arrivals,
    Part,
    figures_of,
    scheduling_of,
    serve,
    together,
)
from kvviz.experiments.batching.words import sentences, title
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.kind import Bench, Record
from kvviz.models.text import Speller, book

UNKNOWN = ("preempted", "recomputed_tokens", "hit_tokens", "starved", *SWAPPED)  # what transformers does not tell
PROMPT_END = 48  # tokens of a prompt whose text is kept
WARM_UP = 2  # requests that are served once before the clock counts


def run(spec: BatchingSpec, bench: Bench) -> Iterator[Record]:
    """Serve the trace under each policy: records of its parts, and one for each, then the document.

    Raises Stopped if it has to stop.
    """
    loaded = bench.load(spec.work())
    arrivals = list(zip(spec.arrivals_s, requests_of(spec, loaded), strict=True))
    prompts = [_end_of(request.prompt, loaded) for _, request in arrivals]
    yield {**look(spec, loaded), "prompts": prompts}
    spell = Speller(loaded.codec)
    fit = [request for _, request in arrivals if not refusal(request, spec.blocks * BLOCK, loaded.spec.context)]
    known: dict[int, list[int]] = {}
    for request in fit[:: -(-len(fit) // spec.alone)] if fit and spec.alone else []:
        bench.check_stop()
        known[request.number] = _alone(loaded, request)
    checked, rows = len(known), []
    for name in spec.policies:
        server = partial(_serving, spec, loaded, name, spell, bench.check_stop)
        deque(server([(0.0, request) for request in fit[:WARM_UP]]), maxlen=0)
        watch, parts = Watch(), []
        with no_collection():
            for part in server(arrivals):
                parts.append(part)
                yield {"t": "part", "policy": name, **part}
        each, steps, memory = together(parts)
        done = [row for row in each if row["state"] == "done"]
        same = [known.setdefault(row["number"], row["token_ids"]) == row["token_ids"] for row in done]
        figures = {**figures_of(each), "identical": all(same) if same else None}
        figures |= dict.fromkeys(UNKNOWN) if name == THEIRS else scheduling_of(each, spec.places)
        pictures = {"stride": memory.stride, "pictures": memory.kept}
        about = {"policy": name, "title": title(name), "clean": watch.read().clean}
        rows.append({**about, **figures, "each": each, "steps": steps, **pictures})
        yield {"t": "way", "done": len(rows), "of": len(spec.policies), "title": title(name), "clean": about["clean"]}
    document: dict[str, Any] = {"spec": spec.to_dict(), "model": loaded.source.model, "rows": rows}
    document |= {"prompts": prompts, "checked": checked}
    document |= {"title": loaded.source.title, "weights": loaded.source.weights, "note": loaded.note}
    padded = set(spec.policies) != {THEIRS} and has_to_be_padded(loaded.model)
    document |= {"environment": asdict(loaded.environment), "sentences": sentences(rows, checked, padded=padded)}
    yield {"t": "done", "document": document}


def requests_of(spec: BatchingSpec, loaded: Loaded) -> list[Request]:
    """The requests: `shared` tokens that are equal, then those of a book, for each request from a place of its own."""
    text = loaded.codec.encode(book())
    common = list(islice(cycle(text), spec.shared))
    places = torch.randint(len(text), (len(spec.prompts),), generator=torch.Generator().manual_seed(spec.seed)).tolist()
    requests = []
    for number, (place, prompt, answer) in enumerate(zip(places, spec.prompts, spec.answers, strict=True)):
        own = islice(cycle(text), place, place + max(0, prompt - spec.shared))
        sampling = Sampling(temperature=spec.temperature, seed=spec.seed + number)
        requests.append(Request(number, (*common[:prompt], *own), answer, sampling))
    return requests


def _end_of(prompt: tuple[int, ...], loaded: Loaded) -> str:
    """The text of a prompt's last tokens."""
    return ("… " if len(prompt) > PROMPT_END else "") + loaded.codec.decode(prompt[-PROMPT_END:])


def _alone(loaded: Loaded, request: Request) -> list[int]:
    """The new tokens of a request that has the model for itself."""
    prompt = torch.tensor([request.prompt], device=loaded.device)
    choose = chooser(request.sampling)
    steps = decode(loaded.model, prompt, mode="cached", new_tokens=request.new_tokens, choose=choose)
    return [int(step.token_ids) for step in steps]


def _serving(
    spec: BatchingSpec, loaded: Loaded, name: str, spell: Speller, between: Callable[[], None], arrivals: Arrivals
) -> Iterator[Part]:
    """Serve requests once under a policy."""
    model, context = loaded.model, loaded.spec.context
    if name != THEIRS:
        engine = Engine(
            model,
            policy_named(name),
            spec.blocks,
            places=spec.places,
            budget=spec.budget,
            context=context,
            preemption=spec.preemption,
        )
        return serve(engine, arrivals, spell, sync=synchroniser(loaded.device), between=between)
    refused = {request.number: refusal(request, spec.blocks * BLOCK, context) for _, request in arrivals}
    sizes = {"blocks": spec.blocks, "places": spec.places, "budget": spec.budget}
    return serve_theirs(model, arrivals, spell, refused=refused, **sizes, between=between)
