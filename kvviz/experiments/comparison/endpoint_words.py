"""What can be said of a server's lane beside modes that decode here: what is compared, and what is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.base.words import brief, human
from kvviz.decoding.endpoint.engines import title_of_engine
from kvviz.decoding.endpoint.kv_events import layouts

Run = Mapping[str, Any]  # a document's run
NEAR = 0.1  # of a share, within which two are the same
AS_SMALL = 0.1  # a share with one more digit


def lumped(run: Run) -> bool:
    """Whether a run's tokens come several at a time, so that a step's seconds are not those of one token."""
    return bool(run.get("steps")) or any(count > 1 for count in run.get("tokens_per_chunk") or ())


def served(run: Run, others: Sequence[Run]) -> str:
    """Say what a server's lane is and how its times are to be read, beside the `others` of the comparison."""
    engine = run["engine"]
    version = f" {engine['version']}" if engine["version"] else ""
    words = [
        f"{title_of_engine(engine['name'])}{version} decoded with its model {engine['model']}.",
        _times(run),
        _chunks(run),
        _counts(run),
        _text(run, others),
    ]
    return " ".join(filter(None, words))


def _times(run: Run) -> str:
    later = [
        f"then {brief(run['itl_mean_s'])} a token in the mean" if run.get("itl_mean_s") else "",
        f"{brief(run['itl_p99_s'])} in the slowest hundredth" if run.get("itl_p99_s") else "",
    ]
    figures = ", ".join([f"the first token after {brief(run['ttft_s'])}", *filter(None, later)])
    return f"Times are of arrival, with the network and the server's queue in them: {figures}."


def _chunks(run: Run) -> str:
    counts = run["tokens_per_chunk"]
    if not counts or not lumped(run):
        return "Each token came in a piece of its own."
    return (
        f"Its {sum(counts):,} tokens came in {len(counts):,} pieces, up to {max(counts)} at once: the first of a piece "
        "has the whole wait and the others none, so read the mean, not the median."
    )


def _counts(run: Run) -> str:
    """Say what the server counted, where that is not what the comparison's tokenizer counts."""
    counted, own = run["engine"]["completion_tokens"], len(run["step_s"])
    if counted is None:
        return "The server did not count its tokens: these are counted by the tokenizer of the model here."
    if counted == own:
        return ""
    return f"The server counted {counted:,} tokens where the tokenizer of the model here counts {own:,}."


def _text(run: Run, others: Sequence[Run]) -> str:
    """Say whether the texts agree; that they should is not known, since nobody here sees the server's weights."""
    if not others:
        return ""
    caution = "which weights it has, and in which precision, is not seen, so no agreement is asked for"
    place = run.get("first_divergence")
    if place is None:
        return f"Its text is the reference's; {caution}."
    return f"Its text is another from token {place + 1} on; {caution}."


def told_of_cache(run: Run) -> str:
    """Say what the server tells of its cache, in its metrics and its KV events."""
    events = run.get("kv_events")
    return " ".join([_told_by_metrics(run), *(told_by_events(events) if events else [])])


def _told_by_metrics(run: Run) -> str:
    words, metrics, cached = [], run["metrics"], run["engine"]["cached_tokens"]
    if cached:
        words.append(
            f"{cached:,} of the prompt's tokens came from its prefix cache, so its first token came sooner than of a "
            "new prompt."
        )
    if metrics is None:
        words.append("It tells nothing else of its cache." if cached else "It tells nothing of its cache.")
        return " ".join(words)
    before, after = metrics["before"], metrics["after"]
    asked = after.get("prefix_queries", 0) - before.get("prefix_queries", 0)
    if asked > 0:
        found = after.get("prefix_hits", 0) - before.get("prefix_hits", 0)
        words.append(
            f"By its metrics, {found / asked:.0%} of the tokens it looked up meanwhile were in its prefix cache."
        )
    elif "hit_rate" in after:
        words.append(f"By its metrics, its prefix cache's hit rate was {after['hit_rate']:.0%} after the last request.")
    used = in_use(metrics)
    if used and not any(share for _, share in used):
        words.append(f"None of its cache was in use at {_counted(len(used), 'look')} while it answered.")
    elif used:
        words.append(f"Up to {_share(max(share for _, share in used))} of its cache was in use while it answered.")
    elif "cache_usage" in after:
        words.append(f"{_share(after['cache_usage'])} of its cache was in use after the last request.")
    if metrics.get("calculated"):
        words += _held_against(metrics, used)
    if metrics.get("unknown"):
        words.append(f"Its metrics have more of its cache under names not known here: {', '.join(metrics['unknown'])}.")
    elif not after:
        words.append("It has metrics, but none under a name that is known here.")
    elif not words:
        words.append("Its metrics tell nothing of its cache.")
    return " ".join(words)


def told_by_events(told: Run) -> list[str]:
    """Say what an engine's KV events told of its blocks, and what is missing in that."""
    if not told["batches"]:
        return ["It published no KV events while kvviz listened.", *_missing(told)]
    form = layouts().get(told["form"])
    known = f", in the form of vLLM {form}" if form else ""
    each = ", ".join(f"{what} {count:,}" for what, count in told["events"].items() if count)
    said = f"It published {_counted(told['batches'], 'batch', 'batches')} of KV events{known} ({each or 'empty'})."
    return [said, lying(told), *_missing(told)]


def _counted(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def lying(told: Run) -> str:
    """Say how many blocks lie in the cache by the events so far, and where."""
    media = ", ".join(f"{one['blocks']:,} in {one['medium']}" for one in told["media"] if one["medium"])
    of = f" of {' or '.join(map(str, told['block_tokens']))} tokens" if told["block_tokens"] else ""
    where = f" ({media})" if media else ""
    again = f"; second copies of some of them: {told['copies']:,}" if told.get("copies") else ""
    gone = f"; removed so far: {told['removed']:,}" if told["removed"] else ""
    found = f"{_counted(told['blocks'], 'block')}{of}{where}, {told['tokens']:,} tokens in all"
    return f"In its cache: {found}{again}{gone}."


def _missing(told: Run) -> list[str]:
    """Say what the map of blocks lacks, and how that is known."""
    number, orphans, lost = told["first_sequence"], told["without_parent"], told["lost_at_s"]
    missed, replayed = (_counted(told[name], "batch", "batches") for name in ("missed", "replayed"))
    sentences = {
        f"Missed, by the sequence numbers: {missed}, so the map may be wrong.": told["missed"],
        f"From the replay socket: {replayed}.": told["replayed"],
        "The replay socket did not answer.": told["replays"] is False,
        f"The first batch had the number {number}: what was stored before it is not known.": number,
        f"Blocks that continue one that was not told of: {orphans:,}.": orphans,
        "The sequence numbers began anew: the engine was started again, with an empty cache.": told["restarts"],
        f"Blocks removed that had not been told of: {told['never_stored']:,}.": told["never_stored"],
        f"Blocks beyond those that kvviz keeps, not counted: {told['untracked']:,}.": told["untracked"],
        f"Messages that were no KV events: {told['unreadable']:,}.": told["unreadable"],
        f"Not known here, and left out: {', '.join(told['unknown'])}.": told["unknown"],
        f"The publisher closed the connection {lost or 0:.3g} s after kvviz began to listen.": lost is not None,
    }
    return [sentence for sentence, so in sentences.items() if so]


def in_use(metrics: Run) -> list[tuple[float, float]]:
    """Return the share of its cache that a server had in use at each look, with the look's second."""
    looks = metrics.get("polled") or []
    return [(look["at_s"], look["figures"]["cache_usage"]) for look in looks if "cache_usage" in look["figures"]]


def _held_against(metrics: Run, used: Sequence[tuple[float, float]]) -> list[str]:
    """Hold the capacity that a server states, and what was in use of it, against the calculator."""
    found, after = metrics["calculated"], metrics["after"]
    slots = f" ({after['slots']:.0f} slots of {after['slot_tokens']:,.0f})" if "slots" in after else ""
    words = [
        f"It states room for {found['capacity_tokens']:,} tokens{slots}: by the calculator "
        f"{human(found['capacity_bytes'])} of this model's cache in {found['dtype']} (view {found['view']})."
    ]
    if not used or not found["capacity_bytes"]:
        return words
    share, most = found["sequence_bytes"] / found["capacity_bytes"], max(share for _, share in used)
    least = after.get("block_tokens", 1) / found["capacity_tokens"]  # what the figure can be off by: a block
    said = f"Its {found['tokens']:,} tokens are {_share(share)} of that by the calculator"
    if abs(most - share) <= max(least, NEAR * share):
        return [*words, f"{said}, and so much was in use: they agree."]
    running = max((look["figures"].get("running", 0) for look in metrics["polled"]), default=0)
    why = "it has another model, precision or layout, or counts blocks that it keeps for others"
    if running > 1:
        why = f"{running:.0f} requests were running"
    elif most < share:
        looks = _counted(len(used), "look")
        why = f"of {looks} none may have come at the end, or it counts no blocks that it found in its cache"
    return [*words, f"{said}, which is not what was in use: {why}."]


def _share(share: float) -> str:
    return f"{share:.2%}" if share < AS_SMALL else f"{share:.1%}"
