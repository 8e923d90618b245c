"""Carrying out a look at many requests: one memory, a prompt that they share, a conversation. Yields records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kvviz.base.errors import KvvizError, Stopped
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context
from kvviz.device.clock import synchroniser
from kvviz.device.environment import environment
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.limits import check_prompt
from kvviz.experiments.serving.arrivals import WAYS, compare_ways
from kvviz.experiments.serving.prefix_sharing import serve
from kvviz.experiments.serving.spec import LONGEST, ArrivalsSpec, SharingSpec, TalkSpec
from kvviz.experiments.serving.words import arrivals_sentences, common, sharing_sentences, turn_sentence
from kvviz.models.text import Codec

Stop = Callable[[], bool]
TURNS = ("first", "second", "edited", "trimmed")


def arrivals(spec: ArrivalsSpec, bench: Bench) -> Iterator[Record]:
    """The trace through each way of giving out memory: a record a way, then the document."""
    yield {"t": "look", "spec": spec.to_dict()}
    found: dict[str, Any] = {}
    for number, way in enumerate(WAYS, 1):
        if bench.should_stop():
            raise Stopped
        one = compare_ways(spec.trace(), slots=spec.slots, ways=(way,))
        found = {**one, "ways": [*found.get("ways", ()), *map(_in_columns, one["ways"])]}
        yield {"t": "way", "done": number, "of": len(WAYS), "title": way.title}
    document = {"spec": spec.to_dict(), **found}
    yield {"t": "done", "document": {**document, "sentences": arrivals_sentences(document)}}


def _in_columns(way: dict[str, Any]) -> dict[str, Any]:
    """A list a quantity in place of a row a tick: a third of the letters."""
    rows = way["ticks"]
    return {**way, "ticks": {name: [row[name] for row in rows] for name in rows[0]}}


def sharing(spec: SharingSpec, bench: Bench) -> Iterator[Record]:
    """Requests behind one system prompt, cold and warm: where it was done, then the document.

    Raises KvvizError for prompts that are too long or a model that can't share blocks, Stopped when told to.
    """
    loaded = bench.load(spec.work())
    yield _about(spec, loaded)
    prompts = [loaded.codec.encode(text) for text in spec.texts]
    _check_lengths(prompts, loaded, spec.new_tokens, bench)
    found = _served(spec, loaded, prompts, bench.should_stop, warm_up=True)
    alike = min(common(prompts[0], ids) for ids in prompts[1:])
    for row, ask in zip(found["requests"], spec.asks, strict=True):
        row |= {"ask": ask, "answer": loaded.codec.decode(row["warm"]["token_ids"])}
    document = {**_document(spec, loaded), **found, "alike_tokens": alike}
    yield {"t": "done", "document": {**document, "sentences": sharing_sentences(document)}}


def conversation(spec: TalkSpec, bench: Bench) -> Iterator[Record]:
    """Turns of a conversation, each cold and warm: where it was done, then the document with each prompt's tokens.

    Raises as `sharing` does.
    """
    loaded = bench.load(spec.work())
    yield _about(spec, loaded)
    codec = loaded.codec
    first, edited = codec.encode(spec.first), codec.encode(spec.edited)
    _check_lengths([first, edited], loaded, spec.new_tokens, bench)
    answer = _answer(first, spec, loaded)
    after = [*answer, *_without_start(codec, f" {spec.second.strip()}")]
    second = [*first, *after]
    if spec.drop >= len(second):
        raise KvvizError(f"the history has {len(second):,} tokens; {spec.drop:,} can't be cut off at its front")
    prompts = [first, second, [*edited, *after], second[spec.drop :]]
    _check_lengths(prompts, loaded, spec.new_tokens, bench)
    found = _served(spec, loaded, prompts, bench.should_stop, warm_up=False)  # the first answer has woken it up
    held: list[Sequence[int]] = []
    for turn, ids, row in zip(TURNS, prompts, found["requests"], strict=True):
        alike = min(len(ids) - 1, max((common(ids, other) for other in held), default=0))
        row |= {"turn": turn, "alike_tokens": alike, "pieces": [codec.decode([token]) for token in ids]}
        row |= {"answer": codec.decode(row["warm"]["token_ids"]), "sentence": turn_sentence(row, spec.drop)}
        held.append([*ids, *row["warm"]["token_ids"][:-1]])  # the last token was chosen, never fed
    yield {"t": "done", "document": {**_document(spec, loaded), **found}}


def _about(spec: SharingSpec | TalkSpec, loaded: Loaded) -> dict[str, Any]:
    env = environment(loaded.model, loaded.device, loaded.dtype)
    about = {"title": loaded.source.title, "weights": loaded.source.weights, "note": loaded.codec.note}
    return {"t": "look", "spec": spec.to_dict(), **about, "device": env.device_name, "dtype": env.dtype}


def _document(spec: SharingSpec | TalkSpec, loaded: Loaded) -> dict[str, Any]:
    about = {name: value for name, value in _about(spec, loaded).items() if name != "t"}
    env = environment(loaded.model, loaded.device, loaded.dtype)
    return {"model": loaded.source.model, **about, "environment": asdict(env)}


def _check_lengths(prompts: Sequence[Sequence[int]], loaded: Loaded, new_tokens: int, bench: Bench) -> None:
    longest = max(map(len, prompts))
    if longest + new_tokens > LONGEST:
        raise KvvizError(
            f"the longest prompt has {longest:,} tokens, with its answer {longest + new_tokens:,}; here it is at most "
            f"{LONGEST}: write less"
        )
    check_prompt(longest, bench.limits.prompt_tokens)
    check_context(loaded.spec.context, longest, new_tokens)


def _answer(first: list[int], spec: TalkSpec, loaded: Loaded) -> list[int]:
    """What the model says to the first turn; it also wakes the model up."""
    served = serve(loaded.model, [first], new_tokens=spec.new_tokens, repeats=1)
    return served["requests"][0]["cold"]["token_ids"]


def _without_start(codec: Codec, text: str) -> list[int]:
    """The tokens of a text that goes on: without those that the tokenizer puts before every text."""
    start = common(codec.encode("a"), codec.encode("b"))
    return codec.encode(text)[start:]


def _served(
    spec: SharingSpec | TalkSpec, loaded: Loaded, prompts: Sequence[Sequence[int]], should_stop: Stop, *, warm_up: bool
) -> dict[str, Any]:
    """The prompts cold and warm; `warm_up` makes an untimed round first."""

    def between() -> None:
        if should_stop():
            raise Stopped

    if warm_up:
        serve(loaded.model, prompts, new_tokens=1, repeats=1, between=between)
    sync = synchroniser(loaded.device)
    return serve(loaded.model, prompts, new_tokens=spec.new_tokens, repeats=spec.repeats, sync=sync, between=between)
