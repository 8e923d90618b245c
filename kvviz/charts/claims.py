"""What a figure shows, in one sentence with its numbers: the title of a chart. Plain data in, Markdown out."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from kvviz.base.words import human, millis
from kvviz.cost.roofline import PREFILL
from kvviz.experiments.cache_designs.words import KL_ROUNDING
from kvviz.experiments.serving.words import span
from kvviz.memory.formula import Memory

Found = Mapping[str, Any]


def of_latency(runs: Sequence[Found]) -> str:
    """The steps with a cache, the fastest design to the slowest, beside the last one without; '' if there is none."""
    cached = [median(run["step_s"][1:]) for run in runs if run["mode"] != "uncached" and len(run["step_s"]) > 1]
    without = [run["step_s"][-1] for run in runs if run["mode"] == "uncached"]
    if not cached:
        return ""
    beside = f"; without one, the last takes {millis(without[0])}" if without else ""
    return f"With a cache a step takes {span(cached)}{beside}"


def of_quality(runs: Sequence[Found]) -> str:
    """How many designs lose nothing, and which loses most."""
    kept = {run["title"]: fmean(run["quality"]["kl"]) for run in runs if run["quality"]}
    exact = sum(max(run["quality"]["kl"]) < KL_ROUNDING for run in runs if run["quality"])
    if not kept or exact == len(kept):
        return "No design loses anything on this text"
    worst = max(kept, key=kept.__getitem__)
    return f"{exact} of {len(kept)} lose nothing; {worst} loses most, {kept[worst]:.2g} nats a token"


def of_context(title: str, memory: Memory) -> str:
    """What one more token takes at the chosen context, and what is there whatever its length."""
    added, fixed = memory.per_token_bytes, memory.fixed_bytes
    grows = f"each further token adds {human(added)}" if added else "no further token adds anything"
    return f"{title}: {grows}" + (f", and {human(fixed)} stay the same at any length" if fixed else "")


def of_first_tokens(rows: Sequence[Found]) -> str:
    """The first token's wait, cold and warm, over the requests that found something in the cache."""
    hits = [row for row in rows if row["warm"]["found_tokens"]]
    if not hits:
        return "No request found anything in the cache"
    cold, warm = (median(row[name]["ttft_s"] for row in hits) for name in ("cold", "warm"))
    return f"With a cache hit the first token comes after {millis(warm)}, cold after {millis(cold)}"


def of_tokens(rows: Sequence[Found]) -> str:
    """How many prompt tokens were computed, of all."""
    found, computed = (sum(row["warm"][f"{part}_tokens"] for row in rows) for part in ("found", "computed"))
    return f"Of {found + computed:,} prompt tokens, {computed:,} were computed and {found:,} were in the cache"


def of_running(ways: Sequence[Found]) -> str:
    """How many sequences run at once while some wait, under the best policy and the worst; '' if nobody waited."""
    means = {way["title"]: way["mean_running_while_some_wait"] for way in ways}
    known = {title: mean for title, mean in means.items() if mean is not None}
    if len(known) < 2:
        return ""
    most, least = (pick(known, key=known.__getitem__) for pick in (max, min))
    return f"While some wait, {known[most]:.1f} run at once: {most}. Fewest, {known[least]:.1f}: {least}"


def of_profiles(profiles: Sequence[Found]) -> str:
    """What the prefill takes beside a decode step; '' if one of them was not profiled."""
    took = {profile["forward"]: profile["wall_s"] for profile in profiles}
    if not {PREFILL, "decode"} <= took.keys():
        return ""
    return f"Under the profiler the prefill takes {millis(took[PREFILL])}, a decode step {millis(took['decode'])}"


def of_batches(points: Sequence[Found]) -> str:
    """How many times the tokens of one sequence the largest batch decodes, at each context."""
    rates = {(p["tokens"], p["batch"]): p["tokens_per_s"] for p in points if p["phase"] != PREFILL}
    largest = max(batch for _, batch in rates)
    gains = [
        (tokens, rates[tokens, largest] / rates[tokens, 1])
        for tokens, batch in rates
        if batch == largest and (tokens, 1) in rates
    ]
    said = " and ".join(f"{gain:.2g} times at {tokens:,} tokens" for tokens, gain in sorted(gains))
    return f"{largest} sequences decode together as many tokens a second as one: {said}"
