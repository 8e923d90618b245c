"""What a serving experiment has shown, in sentences: each figure is the document's. Standard library only."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvviz.base.words import human, millis
from kvviz.caches.block_table import BLOCK, Eviction
from kvviz.experiments.serving.policies import POLICIES

ORDERS: dict[Eviction, str] = {"lru": "Least recently used first", "hits": "Fewest hits first"}
HARDLY_FASTER = 0.85  # of the time without a cache
Rows = Sequence[Mapping[str, Any]]  # requests of a document (docs/json.md)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences have in common from their start."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def sharing_sentences(result: Mapping[str, Any]) -> list[str]:
    """What a shared prompt has shown: work, time, bytes, and whether the tokens are identical."""
    rows = result["requests"]
    cold, warm = (sum(row[name]["computed_tokens"] for row in rows) for name in ("cold", "warm"))
    cold_s, warm_s = ([row[name]["ttft_s"] for row in rows[1:]] for name in ("cold", "warm"))
    times = f", together {sum(cold_s) / sum(warm_s):.2g} times as long cold" if sum(cold_s) > sum(warm_s) > 0 else ""
    return [
        f"**Work**: {len(rows)} prompts have {cold:,} tokens. Cold, the model computed all of them; warm, "
        f"{warm:,}: each block of the shared prefix once.",
        f"**Time**: from the second request on, the first token came after {span(cold_s)} cold and "
        f"{span(warm_s)} warm{times}.",
        f"**Memory**: {len(rows)} caches, each on its own, take {human(result['cold_bytes'])}; with shared blocks "
        f"counted once, {human(at_once_bytes(rows))}. After the last, {human(result['kept_bytes'])} of blocks stay for "
        "the next request.",
        identity(rows),
    ]


def at_once_bytes(rows: Rows) -> int:
    """Bytes of all requests' caches together; a shared block counts once, with the request that wrote it."""
    return sum(row["warm"]["cache_bytes"] - row["warm"]["found_bytes"] for row in rows)


def span(seconds: Sequence[float]) -> str:
    """Seconds from the shortest to the longest."""
    low, high = millis(min(seconds)), millis(max(seconds))
    return low if low == high else f"{low} to {high}"


def little_saved(rows: Rows) -> str | None:
    """Why cache hits saved hardly any time; None if they did save time, or if there were none."""
    hits = [row for row in rows if row["warm"]["found_tokens"]]
    cold, warm = sum(row["cold"]["ttft_s"] for row in hits), sum(row["warm"]["ttft_s"] for row in hits)
    if not hits or warm < HARDLY_FASTER * cold:
        return None
    spared = sum(row["warm"]["found_tokens"] for row in hits)
    return (
        f"{spared:,} tokens were cache hits and hardly any time was saved: the first tokens took {warm / cold:.0%} of "
        "the time without the cache. So short a prefill of so small a model can be mostly launch overhead and table "
        "look-ups. Take a larger model or longer texts, or measure again when the device is less busy."
    )


def identity(rows: Rows) -> str:
    """Say whether cold and warm gave the same tokens, in every request and every repeat."""
    other = [str(number) for number, row in enumerate(rows, 1) if not row["identical"]]
    if not other:
        return "**Identical**: cold and warm, every request got the same tokens, in every repeat."
    return (
        f"**Not identical**: cold and warm gave different tokens in {', '.join(other)}. The order of the "
        "additions depends on the number of tokens in a forward, and rounding can tip a near tie."
    )


def prefixes_sentences(rows: Rows) -> list[str]:
    """What two conversations in a small memory have shown: under each order of eviction, what went and what it cost."""
    said = []
    for row in rows:
        whose = {"AB": "of the prefix that both share", "A": "of conversation A", "B": "of conversation B"}
        whose["V"] = "of the visitor"
        gone = [f"{blocks:,} {whose[name]}" for name, blocks in evicted_of(row).items()]
        blocks = (
            f"{row['evicted_blocks']:,} blocks were evicted, {' and '.join(gone)}"
            if gone
            else "nothing had to be evicted"
        )
        said.append(
            f"**{row['title']}**: {blocks}. Of the prompts' tokens {row['hit_tokens']:,} were cache hits, "
            f"{row['computed_tokens']:,} were computed; {row['recomputed_tokens']:,} of these had been there before."
        )
    return said


def evicted_of(row: Mapping[str, Any]) -> dict[str, int]:
    """Count the blocks that went, by the conversations that had them: "AB", "A", "B"."""
    counts = Counter[str]()
    for request in row["requests"]:
        for run in runs_of(request["tree"]):
            whose = "".join(sorted({row["requests"][number]["who"] for number in run["requests"]}))
            counts[whose] += run["states"].count("evicted")
    return {name: counts[name] for name in ("AB", "A", "B", "V") if counts[name]}


def turns_of(requests: Rows) -> list[tuple[str, str]]:
    """Return of each request whose it is, and its name: "A’s turn 2", "the visitor"."""
    who = [one["who"] for one in requests]
    names = ("the visitor" if one == "V" else f"{one}’s turn {who[: i + 1].count(one)}" for i, one in enumerate(who))
    return list(zip(who, names, strict=True))


def runs_of(tree: Rows) -> Iterator[Mapping[str, Any]]:
    """All runs of a document's tree."""
    for run in tree:
        yield run
        yield from runs_of(run["children"])


def turn_sentence(row: Mapping[str, Any], drop: int) -> str:
    """Say of one prompt of a conversation how much was a cache hit, and why no more was."""
    total, kept, alike = row["prompt_tokens"], row["warm"]["found_tokens"], row["alike_tokens"]
    done = f"{row['warm']['computed_tokens']:,} of {total:,} tokens were computed"
    if row["turn"] == "first":
        return f"Nothing is there yet: {done}."
    if row["turn"] == "trimmed":
        return (
            f"The first {drop:,} tokens are gone, so every token moves {drop:,} positions and has a different prefix: "
            f"its old keys and values are wrong. {kept or 'No'} tokens are cache hits: {done}."
        )
    reason = {
        "second": f"All {alike:,} tokens of the first turn and its answer that are in the cache come again",
        "edited": f"The history is the same for {alike:,} tokens, up to the edit; everything after it depends on it",
    }[row["turn"]]
    blocks = kept // BLOCK
    full = {0: "they fill no block, so none is kept", 1: "the one full block of them is kept"}
    whole = full.get(blocks, f"the {blocks:,} full blocks of them are kept")
    return f"{reason}: {whole}, {kept:,} tokens; {done}."


def text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The documents of `kvviz serving` for a terminal, without Markdown."""
    lines = list(found["fragmentation"]["sentences"])
    if "sharing" in found:
        lines += ["", *found["sharing"]["sentences"], "", *found["prefixes"]["sentences"], ""]
        for row in found["conversation"]["requests"]:
            warm, cold = (millis(row[name]["ttft_s"]) for name in ("warm", "cold"))
            lines.append(f"{row['turn']}: {row['sentence']} First token {warm}, prefilled anew {cold}.")
        lines.append(identity(found["conversation"]["requests"]))
    return "\n".join(lines).replace("**", "")


def arrivals_sentences(result: Mapping[str, Any]) -> list[str]:
    """What many sequences in one memory have shown: how many fit, what is wasted, what admitting more costs."""
    ways = {way["name"]: way for way in result["ways"]}
    reserved, growing, paged, prefix, batched = (ways[policy.name] for policy in POLICIES)
    in_regions, in_blocks = (way["mean_running_while_some_wait"] for way in (reserved, paged))
    if in_regions is None or in_blocks is None:
        fit = f"At most {reserved['most_running']} ran at once reserved, {paged['most_running']} in blocks"
        fit += "." if in_blocks is not None else "; in blocks nobody ever had to wait."
    else:
        fit = (
            f"While some waited, {in_regions:.1f} sequences ran on average where each reserves "
            f"{result['trace']['longest']:,} slots, {in_blocks:.1f} in blocks."
        )
    return [
        fit,
        f"The last request ended at time step {reserved['ended_at_tick']:,} reserved, {growing['ended_at_tick']:,} "
        f"grown, {paged['ended_at_tick']:,} paged and {prefix['ended_at_tick']:,} with prefixes shared, in the same "
        f"{result['slots']:,} slots.",
        f"Continuous batching: where a request may join after any step, all were done at time step "
        f"{reserved['ended_at_tick']:,}; in static batches, each waiting for its longest, at time step "
        f"{batched['ended_at_tick']:,}, in the same memory given out the same way.",
        f"Growing in one piece moved {growing['moved_tokens']:,} tokens to larger holes; blocks moved "
        f"{paged['moved_tokens']:,}.",
        f"Admitting more can mean preempting them later: {paged['preempted']:,} preemptions in blocks, "
        f"{paged['recomputed_tokens']:,} tokens to compute again; reserved, {reserved['preempted']:,}.",
        f"Shared prefixes: {prefix['found_tokens']:,} tokens were cache hits and not computed; "
        f"{prefix['evicted_blocks']:,} cached blocks were evicted.",
    ]
