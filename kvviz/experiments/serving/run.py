"""Run a serving experiment: many requests in one memory, a prompt that they share, one conversation or two."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import BLOCK
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context
from kvviz.device.clock import synchroniser
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.limits import check_prompt
from kvviz.experiments.serving.arrivals import compare_policies
from kvviz.experiments.serving.conversations import VISITOR, serve_in_turn
from kvviz.experiments.serving.policies import POLICIES
from kvviz.experiments.serving.prefix_sharing import Prompts, engine_for_one, serve
from kvviz.experiments.serving.spec import LONGEST, ArrivalsSpec, PrefixesSpec, SharingSpec, TalkSpec
from kvviz.experiments.serving.words import (
    ORDERS,
    arrivals_sentences,
    common,
    prefixes_sentences,
    sharing_sentences,
    turn_sentence,
)

TURNS = ("first", "second", "edited", "trimmed")
TOTALS = ("hit_tokens", "computed_tokens", "recomputed_tokens", "evicted_blocks")


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


def prefixes(spec: PrefixesSpec, bench: Bench) -> Iterator[Record]:
    """Serve two conversations under each order of eviction: a record for each, then the document.

    It raises the same as `sharing`.
    """
    loaded = bench.load(spec.work())
    yield look(spec, loaded)
    codec = loaded.codec
    start = common(codec.encode("a"), codec.encode("b"))  # tokens that the tokenizer puts before every text
    system = codec.encode(spec.system.strip())
    texts = [(who, ask.strip()) for who, ask in spec.asked]
    asked = [(who, codec.encode(ask) if who == VISITOR else codec.encode(f" {ask}")[start:]) for who, ask in texts]
    needed, longest = _blocks(system, asked, spec.new_tokens)
    _check_lengths([range(BLOCK * longest - spec.new_tokens)], loaded, spec.new_tokens, bench)
    blocks, rows = max(longest, needed * spec.percent // 100), list[dict[str, Any]]()
    for evict, title in ORDERS.items():
        engine = engine_for_one(loaded.model, blocks, evict=evict)
        served = serve_in_turn(engine, system, asked, spec.new_tokens, codec, bench.check_stop)
        requests = [{"ask": ask, **row} for (_, ask), row in zip(texts, served, strict=True)]
        totals = {name: sum(row[name] for row in requests) for name in TOTALS}
        rows.append({"evict": evict, "title": title, **totals, "requests": requests})
        yield {"t": "way", "done": len(rows), "of": len(ORDERS), "title": title}
    answers = [[request["token_ids"] for request in row["requests"]] for row in rows]
    more = {"rows": rows, "sentences": prefixes_sentences(rows), "identical": answers[1:] == answers[:-1]}
    sizes = {"block": BLOCK, "blocks": blocks, "needed_blocks": needed}
    yield {"t": "done", "document": {**_document(spec, loaded), **sizes, **more}}


def _blocks(system: Sequence[int], asked: Iterable[tuple[str, Sequence[int]]], new_tokens: int) -> tuple[int, int]:
    """The blocks that all conversations take together, and those of the longest one."""
    tokens = {"A": len(system), "B": len(system), VISITOR: 0}
    for who, ids in asked:
        tokens[who] += len(ids) + new_tokens
    each = [-(-length // BLOCK) for length in tokens.values()]
    return sum(each) - len(system) // BLOCK, max(each)


def _document(spec: SharingSpec | TalkSpec | PrefixesSpec, loaded: Loaded) -> Record:
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
