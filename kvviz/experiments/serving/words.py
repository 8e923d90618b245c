"""What a look at many requests has shown, in sentences: each figure is the document's. Standard library only."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.base.words import human, millis
from kvviz.caches.block_table import BLOCK

Found = Mapping[str, Any]
LITTLE = 0.85  # of the time without: what is kept has hardly paid


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences have in common from their start."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def sharing_sentences(found: Found) -> list[str]:
    """Of a prompt that requests share: work, time, bytes, identity."""
    rows = found["requests"]
    cold, warm = (sum(row[name]["computed_tokens"] for row in rows) for name in ("cold", "warm"))
    later = rows[1:]
    times = {name: [row[name]["ttft_s"] for row in later] for name in ("cold", "warm")}
    return [
        f"**Work**: {len(rows)} prompts have {cold:,} tokens. Cold, the model computed all of them; warm, "
        f"{warm:,}: each block of the shared beginning once.",
        f"**Time**: from the second request on, the first token came after {span(times['cold'])} cold and "
        f"{span(times['warm'])} warm{_times(times)}.",
        f"**Memory**: {len(rows)} caches, each on its own, take {human(found['cold_bytes'])}; with what is shared "
        f"counted once, {human(at_once_bytes(rows))}. After the last, {human(found['kept_bytes'])} of blocks stay for "
        "whoever comes next.",
        identity(rows),
    ]


def at_once_bytes(rows: Sequence[Found]) -> int:
    """Bytes of all requests' caches at the same time, what a request found counted with whoever had it first."""
    return sum(row["warm"]["cache_bytes"] - row["warm"]["found_bytes"] for row in rows)


def span(seconds: Sequence[float]) -> str:
    """Seconds from the shortest to the longest."""
    low, high = millis(min(seconds)), millis(max(seconds))
    return low if low == high else f"{low} to {high}"


def _times(times: Mapping[str, Sequence[float]]) -> str:
    cold, warm = (sum(times[name]) for name in ("cold", "warm"))
    return f", together {cold / warm:.2g} times as long cold" if warm and cold > warm else ""


def little_saved(rows: Sequence[Found]) -> str | None:
    """What to say where tokens were spared and hardly any time was; None where time was."""
    found = [row for row in rows if row["warm"]["found_tokens"]]
    cold, warm = (sum(row[name]["ttft_s"] for row in found) for name in ("cold", "warm"))
    if not found or warm < LITTLE * cold:
        return None
    spared = sum(row["warm"]["found_tokens"] for row in found)
    return (
        f"{spared:,} tokens were spared here and hardly any time: with what was kept the first tokens took "
        f"{warm / cold:.0%} of the time without. So short a prefill of so small a model mostly starts operations and "
        "looks up blocks. Take a larger model or longer texts, or measure again when the device is less busy."
    )


def identity(rows: Sequence[Found]) -> str:
    """Whether cold and warm gave the same tokens, in every request and every repeat."""
    other = [str(number) for number, row in enumerate(rows, 1) if not row["identical"]]
    if not other:
        return "**Identical**: cold and warm, every request got the same tokens, in every repeat."
    return (
        f"**Not identical**: cold and warm gave different tokens in {', '.join(other)}. The order in which a sum is "
        "taken differs with the number of tokens in a forward, and a near tie can tip."
    )


def turn_sentence(row: Found, drop: int) -> str:
    """One prompt of a conversation: what was kept and why no more."""
    total, kept, alike = row["prompt_tokens"], row["warm"]["found_tokens"], row["alike_tokens"]
    done = f"{row['warm']['computed_tokens']:,} of {total:,} tokens were computed"
    if row["turn"] == "first":
        return f"Nothing is there yet: {done}."
    if row["turn"] == "trimmed":
        return (
            f"The first {drop:,} tokens are gone, so every token stands {drop:,} places earlier, behind another "
            f"beginning: its keys and values don't fit any more. {kept or 'No'} tokens are kept: {done}."
        )
    reason = {
        "second": f"All {alike:,} tokens of the first turn and its answer that are in the cache come again",
        "edited": f"The history is the same for {alike:,} tokens, up to the edit; what stands behind it depends on it",
    }[row["turn"]]
    blocks = kept // BLOCK
    full = {0: "they fill no block, so none is kept", 1: "the one full block of them is kept"}
    whole = full.get(blocks, f"the {blocks:,} full blocks of them are kept")
    return f"{reason}: {whole}, {kept:,} tokens; {done}."


def text(found: Found) -> str:
    """The documents of `kvviz serving` for a terminal, which knows no Markdown."""
    lines = list(found["fragmentation"]["sentences"])
    if "sharing" in found:
        lines += ["", *found["sharing"]["sentences"], ""]
        for row in found["conversation"]["requests"]:
            warm, cold = (millis(row[name]["ttft_s"]) for name in ("warm", "cold"))
            lines.append(f"{row['turn']}: {row['sentence']} First token {warm}, prefilled anew {cold}.")
        lines.append(identity(found["conversation"]["requests"]))
    return "\n".join(lines).replace("**", "")


def arrivals_sentences(found: Found) -> list[str]:
    """Of many sequences in one memory: how many fit, what is wasted, what it costs to let more in."""
    ways = {way["name"]: way for way in found["ways"]}
    reserved, growing, paged, prefix = (ways[name] for name in ("reserved", "growing", "paged", "prefix"))
    slots, longest = found["slots"], found["trace"]["longest"]
    if paged["mean_running_while_some_wait"] is None or reserved["mean_running_while_some_wait"] is None:
        waited = "in blocks nobody ever had to wait" if paged["mean_running_while_some_wait"] is None else ""
        fit = f"At most {reserved['most_running']} ran at once reserved, {paged['most_running']} in blocks" + (
            f"; {waited}." if waited else "."
        )
    else:
        fit = (
            f"While some waited, {reserved['mean_running_while_some_wait']:.1f} sequences ran on average where each "
            f"reserves {longest:,} slots, {paged['mean_running_while_some_wait']:.1f} in blocks."
        )
    return [
        fit,
        f"The last request ended at tick {reserved['ended_at_tick']:,} reserved, {growing['ended_at_tick']:,} grown, "
        f"{paged['ended_at_tick']:,} paged and {prefix['ended_at_tick']:,} with beginnings shared, in the same "
        f"{slots:,} slots.",
        f"Growing in one piece moved {growing['moved_tokens']:,} tokens to larger holes; blocks moved "
        f"{paged['moved_tokens']:,}.",
        f"Who lets more in may have to take it back: {paged['preempted']:,} preemptions in blocks, "
        f"{paged['recomputed_tokens']:,} tokens to compute again; reserved, {reserved['preempted']:,}.",
        f"Shared beginnings: {prefix['found_tokens']:,} tokens were found and not computed; "
        f"{prefix['evicted_blocks']:,} blocks that could still have been found were overwritten.",
    ]
