"""Run a serving experiment: many requests in one memory, a prompt that they share, or a conversation."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context
from kvviz.device.clock import synchroniser
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.limits import check_prompt
from kvviz.experiments.serving.arrivals import compare_policies
from kvviz.experiments.serving.policies import POLICIES
from kvviz.experiments.serving.prefix_sharing import Prompts, serve
from kvviz.experiments.serving.spec import LONGEST, ArrivalsSpec, SharingSpec, TalkSpec
from kvviz.experiments.serving.words import arrivals_sentences, common, sharing_sentences, turn_sentence

TURNS = ("first", "second", "edited", "trimmed")


def arrivals(spec: ArrivalsSpec, bench: Bench) -> Iterator[Record]:
    """Run the trace under each policy: a record for each, then the document."""
    yield {"t": "look", "spec": spec.to_dict()}
    ways: list[Record] = []
    for policy in POLICIES:
        bench.check_stop()
        result = compare_policies(spec, (policy,))
        ways += result["ways"]
        yield {"t": "way", "done": len(ways), "of": len(POLICIES), "title": policy.title}
    result["ways"] = ways
    yield {"t": "done", "document": {"spec": spec.to_dict(), **result, "sentences": arrivals_sentences(result)}}


def sharing(spec: SharingSpec, bench: Bench) -> Iterator[Record]:
    """Serve requests with the same system prompt, cold and warm: a record of where, then the document.

    Raises KvvizError for prompts that are too long or a model that can't share blocks, Stopped if it has to stop.
    """
    loaded = bench.load(spec.work())
    yield look(spec, loaded)
    prompts = [loaded.codec.encode(text) for text in spec.texts]
    _check_lengths(prompts, loaded, spec.new_tokens, bench)
    serve(loaded.model, prompts, new_tokens=1, repeats=1, between=bench.check_stop)  # to warm up
    result = _served(spec, loaded, prompts, bench)
    alike = min(common(prompts[0], ids) for ids in prompts[1:])
    for row, ask in zip(result["requests"], spec.asks, strict=True):
        row["ask"], row["answer"] = ask, loaded.codec.decode(row["warm"]["token_ids"])
    more = {"alike_tokens": alike, "sentences": sharing_sentences(result)}
    yield {"t": "done", "document": {**_document(spec, loaded), **result, **more}}


def conversation(spec: TalkSpec, bench: Bench) -> Iterator[Record]:
    """Serve the turns of a conversation, cold and warm, as `sharing` does; it raises the same."""
    loaded = bench.load(spec.work())
    yield look(spec, loaded)
    codec = loaded.codec
    first, edited = codec.encode(spec.first), codec.encode(spec.edited)
    _check_lengths([first, edited], loaded, spec.new_tokens, bench)
    warm_up = serve(loaded.model, [first], new_tokens=spec.new_tokens, repeats=1)
    start = common(codec.encode("a"), codec.encode("b"))  # tokens that the tokenizer puts before every text
    after = [*warm_up["requests"][0]["cold"]["token_ids"], *codec.encode(f" {spec.second.strip()}")[start:]]
    second = [*first, *after]
    if spec.drop >= len(second):
        raise KvvizError(f"the history has {len(second):,} tokens; {spec.drop:,} can't be cut off at its front")
    prompts = [first, second, [*edited, *after], second[spec.drop :]]
    _check_lengths(prompts, loaded, spec.new_tokens, bench)
    result = _served(spec, loaded, prompts, bench)
    held: list[Sequence[int]] = []
    for turn, ids, row in zip(TURNS, prompts, result["requests"], strict=True):
        alike = min(len(ids) - 1, max((common(ids, other) for other in held), default=0))
        row["turn"], row["alike_tokens"], row["pieces"] = turn, alike, [codec.decode([token]) for token in ids]
        row["answer"], row["sentence"] = codec.decode(row["warm"]["token_ids"]), turn_sentence(row, spec.drop)
        held.append([*ids, *row["warm"]["token_ids"][:-1]])  # the last token was chosen, never fed
    yield {"t": "done", "document": {**_document(spec, loaded), **result}}


def _document(spec: SharingSpec | TalkSpec, loaded: Loaded) -> Record:
    about = {name: value for name, value in look(spec, loaded).items() if name != "t"}
    env = loaded.environment
    return {"model": loaded.source.model, **about, "environment": asdict(env)}


def _check_lengths(prompts: Prompts, loaded: Loaded, new_tokens: int, bench: Bench) -> None:
    longest = max(map(len, prompts))
    if longest + new_tokens > LONGEST:
        raise KvvizError(
            f"the longest prompt has {longest:,} tokens, with its answer {longest + new_tokens:,}; here it is at most "
            f"{LONGEST}: write less"
        )
    check_prompt(longest, bench.limits.prompt_tokens)
    check_context(loaded.spec.context, longest, new_tokens)


def _served(spec: SharingSpec | TalkSpec, loaded: Loaded, prompts: Prompts, bench: Bench) -> dict[str, Any]:
    sizes = {"new_tokens": spec.new_tokens, "repeats": spec.repeats}
    return serve(loaded.model, prompts, **sizes, sync=synchroniser(loaded.device), between=bench.check_stop)
