"""What a figure shows, in one sentence with its numbers: the title of a chart. Plain data in, Markdown out."""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from statistics import fmean, median
from typing import Any

from kvviz.base.words import brief, human, human_range, in_one_unit, millis, ratio, two_digits
from kvviz.charts.curves import Curve, at_the_end
from kvviz.charts.passes import Timed
from kvviz.charts.roofline import CLASSES, GAIN, Pass, longest, pieces, slow_start, waiting
from kvviz.cost.roofline import DECODE, PREFILL
from kvviz.experiments.cache_designs.words import KL_ROUNDING
from kvviz.experiments.roofline.words import at_longest, disturbed, divided
from kvviz.memory.explain import KIND_WORDS
from kvviz.memory.formula import LayerMemory, Memory
from kvviz.memory.levers import attention, counted, fraction, kept
from kvviz.memory.what_if import Idea, again, attending, with_kv_heads
from kvviz.models.spec import ModelSpec

Found = Mapping[str, Any]


def of_latency(runs: Sequence[Found]) -> str:
    """Say the median step's time with the fastest and the slowest design, and without a cache; '' without steps."""
    steps = {run["mode"]: median(run["step_s"][1:]) for run in runs if len(run["step_s"]) > 1}
    without = steps.pop("uncached", None)
    if not steps:
        return ""
    beside = f", without one {millis(without, 2)}" if without else ""
    least, most = (millis(pick(steps.values()), 2) for pick in (min, max))
    return f"With a cache the median step takes {least if least == most else f'{least} to {most}'}{beside}"


def of_curves(curves: Sequence[Curve], view: str = "step", baseline: int = 0) -> str:
    """Say what each run has at the right edge of the chart; of many runs, the least and the most."""
    whole = [curve.total_s for curve in curves]
    if view == "total":
        return _listed("The whole run takes", [(s, brief(s), c.name) for s, c in zip(whole, curves, strict=True)])
    if view == "cache":
        held = [(curve.cache_bytes[-1], curve.name) for curve in curves if curve.cache_bytes]
        return _listed("At the end the cache holds", [(size, human(size), name) for size, name in held])
    if view == "speedup":
        base = curves[baseline]
        ratios = [(whole[baseline] / s, c.name) for s, c in zip(whole, curves, strict=True) if c is not base]
        lead = f"Against {base.name}, the whole run goes"
        return _listed(lead, [(times, f"{ratio(times)} times as fast", name) for times, name in ratios])
    ends = [(at_the_end(curve.step_s), curve.name) for curve in curves]
    return _listed("At the end a token takes", [(s, millis(s, 2), name) for s, name in ends])


ALIKE = 1.1  # times: a smaller factor counts as no speed-up


def of_recording(curves: Sequence[Curve], place: str, about: str) -> str:
    """Say how many times as fast a whole text comes with the cache on a kind of device, and compiled if that ran.

    `about` stands before a number that is approximate.
    """
    whole = {curve.mode: curve.total_s for curve in curves}
    gain = whole["uncached"] / whole["cached"]
    compiled = f"{about}{whole['uncached'] / whole['compiled']:.2g}" if "compiled" in whole else ""
    if gain > ALIKE:
        more = f", {compiled} with compiling too" if compiled else ""
        return f"{place}: {about}{gain:.2g} times as fast with the cache{more}"
    more = f", compiling does ({compiled}×)" if compiled else ""
    return f"{place}: the cache hardly helps ({about}{ratio(gain)}×){more}"


def of_passes(base: Timed, others: Sequence[Timed]) -> str:
    """Say which run is faster than the baseline and by what factor; of up to two others, say it of both.

    '' for a run alone.
    """
    ranked = sorted((run for run in others if run.ratio), key=lambda run: -(run.ratio or 0))
    if not ranked:
        return ""
    told = [
        f"{run.name} {run.about}{ratio(run.ratio or 0)} times" for run in (ranked if len(ranked) < 3 else ranked[:1])
    ]
    told[0] = f"{ranked[0].name} is {ranked[0].about}{ratio(ranked[0].ratio or 0)} times as fast as {base.name}"
    said = ", ".join(told)
    return f"Too close to tell: {said}" if parted(base, ranked[0]) is False else said


def parted(base: Timed, run: Timed) -> bool | None:
    """Whether two runs differ by more than noise; None if neither interval nor passes are on record.

    The interval of their ratio decides, or without one whether every pass of one is faster than all of the other's.
    """
    if run.interval:
        return run.interval[0] > 1 or run.interval[1] < 1
    if min(len(base.passes), len(run.passes)) < 2:
        return None
    return max(run.passes) < min(base.passes) or max(base.passes) < min(run.passes)


def of_trust(base: Timed, others: Sequence[Timed]) -> str:
    """Say whether the passes show that the fastest run and the baseline really differ; '' for a run alone."""
    run = max((each for each in others if each.ratio), key=lambda each: each.ratio or 0, default=None)
    if run is None:
        return ""
    fast, slow = (run, base) if (run.ratio or 0) > 1 else (base, run)
    if min(len(fast.passes), len(slow.passes)) < 2:
        return "Fewer than two passes are on record, so nobody can say how far they spread: measure both again"
    last, first = max(fast.passes), min(slow.passes)
    ends = f"the slowest pass of {fast.name} took {brief(last)}, the fastest of {slow.name} {brief(first)}"
    differ = parted(base, run)
    if last < first and differ:
        return f"More than noise: {ends}"
    if run.interval and last < first:
        low, high = run.interval
        return f"Too few passes to be sure: {ends}, but the interval, {low:.3g} to {high:.3g}, holds 1"
    if run.interval and differ:
        low, high = run.interval
        return f"Some passes overlap, yet the speed-up's whole interval, {low:.3g} to {high:.3g}, lies on one side of 1"
    return f"Within the noise: {ends}"


def _listed(lead: str, found: Sequence[tuple[float, str, str]]) -> str:
    """Say the lead, then (value, its words, whose), the largest first: all of up to three, the extremes of more."""
    ranked = sorted(found, key=lambda each: -each[0])
    shown = ranked if len(ranked) <= 3 else [ranked[0], ranked[-1]]
    parts = [f"{words} ({name})" for _, words, name in shown]
    return f"{lead} {', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}" if parts else ""


def of_quality(runs: Sequence[Found], dtype: str) -> str:
    """Say what share of the full cache, the first run's, the smallest lossy design saves, and the one that loses most.

    `dtype` is the full cache's.
    """
    kept = [run for run in runs if run["quality"]]
    lossy = [run for run in kept if max(run["quality"]["kl"]) >= KL_ROUNDING]
    if not lossy:
        return "No design loses anything on this text"
    worst = max(lossy, key=lambda run: fmean(run["quality"]["kl"]))
    least = min(lossy, key=lambda run: run["quality"]["nbytes"])
    saves, less = (1 - run["quality"]["nbytes"] / kept[0]["quality"]["nbytes"] for run in (least, worst))
    if less <= 0:
        return f"“{worst['title']}” loses most, and saves no memory on this text"
    if worst["quality"]["nbytes"] == least["quality"]["nbytes"]:
        return f"“{worst['title']}” saves {less:.0%} of a {dtype} cache and loses most"
    more = two_digits(fmean(worst["quality"]["kl"]) / fmean(least["quality"]["kl"]))
    smallest = f"“{least['title']}” saves {saves:.0%} of a {dtype} cache"
    other = f"“{worst['title']}” saves {less:.0%}"
    return f"{smallest}; {other}, and its predictions drift about {more} times as far on this text"


def of_mean(runs: Sequence[Found]) -> str:
    """Say over how many tokens the mean KL runs, and how many first ones lose nothing in any design."""
    firsts = [
        next((token for token, kl in enumerate(run["quality"]["kl"], 1) if kl >= KL_ROUNDING), None)
        for run in runs
        if run["quality"]
    ]
    found = [token for token in firsts if token is not None]
    tokens = max(len(run["quality"]["kl"]) for run in runs if run["quality"])
    free = min(found) - 1 if found else 0
    lose = f"{free:,} lose" if free > 1 else "loses"
    return f"a mean over all {tokens:,} tokens" + (f", of which the first {lose} nothing" if free else "")


def of_empty(rows: Sequence[Found]) -> str:
    """Say of which caches the largest share of the memory stays empty, over all steps."""
    kept = [row for row in rows if row["quality"] is not None]
    shares = {row["title"]: f"{row['empty_share']:.0%}" for row in kept}
    most = f"{max(row['empty_share'] for row in kept):.0%}"
    if most == "0%":
        return "No cache leaves memory empty"
    worst = [f"“{title}”" for title, share in shares.items() if share == most]
    return f"{' and '.join(worst)} leave{'s' * (len(worst) == 1)} the most empty: {most} of the memory, over all steps"


def of_same_room(rows: Sequence[Found]) -> str:
    """Say why a larger share is empty of one cache than of another that has as many bytes empty; '' if none is so."""
    kept = [row for row in rows if row["quality"] is not None and row["mean_wasted"]]
    for larger, other in permutations(kept, 2):
        empty = [[a - h for a, h in zip(r["allocated_bytes"], r["cache_bytes"], strict=True)] for r in (larger, other)]
        shares = [f"{row['empty_share']:.0%}" for row in (larger, other)]
        if empty[0] == empty[1] and shares[0] != shares[1] and larger["empty_share"] > other["empty_share"]:
            leaves = f"“{larger['title']}” leaves as many bytes empty as “{other['title']}” but holds fewer"
            return f"{leaves}, so its share is larger."
    return ""


def of_held(rows: Sequence[Found]) -> str:
    """Say which cache holds least at the end of the run, and which most."""
    kept = [row for row in rows if row["quality"] is not None]
    least, most = (pick(kept, key=lambda row: row["held"]) for pick in (min, max))
    if least["held"] == most["held"]:
        return f"At the end every cache holds {human(most['held'])}"
    return f"At the end “{least['title']}” holds {human(least['held'])}, “{most['title']}” {human(most['held'])}"


def of_written(designs: Sequence[Found]) -> str:
    """Say what the design that writes most writes at the last step, and the least; '' if fewer than two are counted."""
    counted = [row for row in designs if row["copied"] is not None]
    if len(counted) < 2:
        return ""
    most, least = (pick(counted, key=lambda row: row["copied"]) for pick in (max, min))
    if most["copied"] == least["copied"]:
        return f"For the last token every design writes {human(most['copied'])}"
    alike = [row for row in counted if row["copied"] == least["copied"]]
    others = f"“{least['title']}”" if len(alike) == 1 else f"{len(alike)} designs write"
    return f"For the last token “{most['title']}” writes {human(most['copied'])}, {others} {human(least['copied'])}"


def of_written_slots(written: Mapping[str, int]) -> str:
    """Say which designs write most tokens to add one, and how many write fewest; `written` has each design's count."""
    least, most = min(written.values()), max(written.values())
    if least == most:
        return f"To add one token, every design writes {least} token{'s' * (least != 1)}"
    worst = " and ".join(f"“{title}”" for title, count in written.items() if count == most)
    few, many = (sum(count == one for count in written.values()) for one in (least, most))
    others = f"{few} design{'s write' if few > 1 else ' writes'} {least}"
    return f"To add one token, {worst} write{'s' * (many == 1)} {most} tokens; {others}"


def of_cache(title: str, asked: ModelSpec, memory: Memory, config: Mapping[str, object]) -> str:
    """Say what makes a model's cache as large as it is: layers that no longer grow, or how its heads share a row."""
    spec = counted(asked, memory.view)
    now, later = again(asked, memory).layers, again(asked, memory, tokens=2 * memory.tokens).layers
    growing = sum(row.nbytes < other.nbytes for row, other in zip(now, later, strict=True))
    each = human(memory.per_token_bytes)
    if not growing:
        return f"No further token adds anything to the cache of {title}: it stays at {human(memory.total_bytes)}"
    if growing < len(now):
        return f"In {title}, {growing} of {len(now)} layers go on growing with the text, by {each} a token"
    kind, heads, row = attention(spec).partition("-")[0], spec.heads, kept(spec, config)
    if kind == "MHA":
        return f"With a KV head for each of its {heads} query heads, {title} keeps the whole cache: {each} a token"
    if kind == "MLA" and row and row.as_mha:
        return f"With one latent row instead of {heads} keys and values, {_part(row.numbers / row.as_mha, title)}"
    if kind in ("GQA", "MQA") and heads:
        own = sorted({layer.kv_heads for layer in attending(spec)})
        few = f"{own[0]} KV head{'s' * (own[0] != 1)}" if len(own) == 1 else f"{own[0]} to {own[-1]} KV heads"
        whole = again(with_kv_heads(spec), memory).total_bytes
        return f"With {few} instead of {heads}, {_part(sum(row.nbytes for row in now) / whole, title)}"
    return f"Each further token adds {each} to the cache of {title}"


def _part(factor: float, title: str) -> str:
    """Say that a model keeps a part of a cache: a quarter, 1/71."""
    part = fraction(factor)
    return f"{title} keeps {_SHARES.get(part, part)} of the cache"


_SHARES = {"1/2": "half", "1/3": "a third", "1/4": "a quarter", "1/5": "a fifth", "1/6": "a sixth", "1/8": "an eighth"}


def of_plan(fits: bool | None, needed: tuple[int, int], budget: int) -> str:
    """Say whether a deployment fits, with the bytes that a card needs, at least and at most, and may use."""
    least, most = map(human, needed)
    span = most if least == most else f"{least} to {most}"
    words = {True: "It fits", None: "It may fit: what driver and engine take decides", False: "It does not fit"}
    return f"{words[fits]}: a card needs {span} of the {human(budget)} that may be used"


def of_sequences(fit: int, cache: int, activations: tuple[int, int], together: bool) -> str:
    """Say how many sequences fit and what each brings: the bytes of the cache of all that fit, and those of activations
    with one sequence and with all. `together`: the prompts of all are computed at once. '' if none fits.
    """
    if not fit:
        return ""
    one, every = activations
    each, more = in_one_unit([round(cache / fit), round(every / fit)])
    if fit == 1:
        return f"One sequence fits: it brings a cache of {each}, and takes {more} of activations"
    brings = f"{fit:,} sequences fit{' if all prompts are computed at once' * together}: each brings a cache of {each}"
    if together:
        return f"{brings}, and {more} of activations"
    if every == one:
        return f"{brings}; the activations stay at {human(one)}, because one prompt is computed at a time"
    return f"{brings}; the activations grow to {human(every)}, because a decode step takes all of them at once"


def of_layers(memory: Memory) -> str:
    """Say how much each layer keeps where all keep alike, else how many keep every token, a window or a state."""
    rows, sizes, groups = memory.layers, {row.nbytes for row in memory.layers}, dict[str, list[int]]()
    for row in rows:
        groups.setdefault(_keeps(row), []).append(row.nbytes)
    (what, taken), *others = sorted(groups.items(), key=lambda item: (not item[0].startswith(_EVERY), -sum(item[1])))
    if len(sizes) == 1 or not others:
        many, each = (f"All {len(rows):,} layers keep", " each") if len(rows) > 1 else ("The one layer keeps", "")
        alike = "the same" if len(sizes) == 1 < len(rows) else what
        more = "" if others or what in (alike, _EVERY) else f", {what}"
        return f"{many} {alike}: {human_range(min(sizes), max(sizes))}{each}{more}"
    share = f"{two_digits(100 * sum(taken) / memory.total_bytes)}% of the bytes"
    first = f"{_of(len(taken), what, f' of {len(rows):,} layers')} and take{'s' * (len(taken) == 1)} {share}"
    return "; ".join([first, *(_of(len(each), name) for name, each in others)])


def _of(count: int, what: str, those: str = "") -> str:
    return f"{count:,}{those} keep{'s' * (count == 1)} {what}"


_EVERY = "every token"


def _keeps(row: LayerMemory) -> str:
    """What a layer keeps, in words."""
    if not row.nbytes:
        return "nothing of their own"
    if row.kind == "cross":
        return f"the encoder's {row.held:,} tokens"
    if row.kind in ("compressed", "hidden"):
        return KIND_WORDS[row.kind]
    if not row.held:
        return "a state that never grows"
    return f"at most {row.window:,} tokens" if row.window else f"{_EVERY}{' and a state' * (row.kind == 'hybrid')}"


def of_ideas(found: Sequence[Idea]) -> str:
    """Say what share of the bytes the best other heads or windows would keep, and the best other precisions."""
    trained, stored = (
        [idea for idea in found if idea.of_dtype == of_dtype and idea.factor < 1] for of_dtype in (False, True)
    )
    least, fewest = (min(each, key=lambda idea: idea.factor, default=None) for each in (trained, stored))
    if least is None and fewest is None:
        return "None of these would make the cache smaller"
    parts = []
    if least:
        name = least.name if least.name[:2].isupper() else least.name[0].lower() + least.name[1:]
        parts.append((f"trained with {name}", least.factor))
    if fewest:
        *some, last = (idea.name for idea in stored if idea.factor == fewest.factor)
        names = f"{', '.join(some)} or {last}" if some else last
        parts.append((f"with its cache in {names}", fewest.factor))
    (words, factor), *more = parts
    said = f"{words[0].upper()}{words[1:]}, the model would keep {_share(factor)} of the bytes"
    return "; ".join([said, *(f"{words}, {_share(factor)}" for words, factor in more)])


def _share(factor: float) -> str:
    """A share as a word for a fraction that has one, else as a percentage."""
    return _SHARES.get(fraction(factor)) or f"{two_digits(100 * factor)}%"


def of_shared_prompt(rows: Sequence[Found]) -> str:
    """Say the median TTFT of the requests with a cache hit, warm and cold."""
    hits = [row for row in rows if row["warm"]["found_tokens"]]
    if not hits:
        return "No request found anything in the cache"
    cold, warm = (millis(median(row[name]["ttft_s"] for row in hits), 2) for name in ("cold", "warm"))
    whose = f", the median of {len(hits)} requests" if len(hits) > 1 else ""
    return f"With the shared prompt in the cache, the first token comes after {warm}{whose}; without it, after {cold}"


def of_turns(rows: Sequence[Found]) -> str:
    """Say the wait for the second turn's first token, with the history kept and without."""
    second = next(row for row in rows if row["turn"] == "second")
    warm, cold = (millis(second[name]["ttft_s"], 2) for name in ("warm", "cold"))
    return f"With the history kept, the second turn's first token comes after {warm}; without it, after {cold}"


def of_evictions(rows: Sequence[Found]) -> str:
    """Say how many tokens all requests compute again under each order of eviction."""
    lru, hits = (row["recomputed_tokens"] for row in rows)
    if lru == hits:
        again = f"{lru:,} tokens" if lru else "nothing"
        return f"The {len(rows[0]['requests'])} requests compute {again} again under either order"
    oldest = f"{lru:,} tokens are computed again if the least recently used block is evicted first"
    return f"{oldest}, {hits:,} if it is the one with the fewest hits"


def of_moment(ways: Sequence[Found], tick: int) -> str:
    """Say how many sequences run at a tick in the same memory, reserved for the longest and in blocks."""
    running = {way["name"]: way["ticks"]["running"] for way in ways}
    reserved, paged = (row[tick - 1] if tick <= len(row) else 0 for row in (running["reserved"], running["paged"]))
    return f"At time step {tick:,}, {reserved} sequences run if each reserves room for the longest, {paged} in blocks"


def of_waste(ways: Sequence[Found]) -> str:
    """Say how much of the memory is taken and empty on average, reserved for the longest and in blocks."""
    shares = {way["name"]: way["internal_share_while_some_wait"] for way in ways}
    reserved, paged = shares["reserved"], shares["paged"]
    if reserved is None or paged is None:
        return "How much of the memory is taken and empty"
    return f"On average, {reserved:.0%} of the memory is taken and empty if it is reserved, {paged:.0%} in blocks"


def of_roofline(found: Found) -> str:
    """Say what takes most of the longest decode step and prefill, reading, arithmetic or launches, as the bars do."""
    step, *calls, whole = waiting(found)
    part, _ = _largest_part(step)
    compiled = _share_of(part, calls[0]) if calls else 0.0
    said = _takes("a decode step", step, compiled)
    return f"{said[0].upper()}{said[1:]}; {_takes('a prefill', whole)}"


SEEN = 0.02  # of a step: slower reading that is worth a word
MOSTLY = 0.505  # of a step's time, from which on it rounds to more than half
_PARTS = {"memory": "reading", "compute": "arithmetic", "launch": "starting operations"}


def _largest_part(row: Pass) -> tuple[str, float]:
    """The largest part of a pass, and its share in the pass's bar."""
    part = max((each for each in _PARTS if each in row.spent), key=row.spent.__getitem__)
    return part, pieces(row.seconds, row.spent).get(part, row.spent[part] / row.seconds)


def _takes(who: str, row: Pass, compiled: float = 0.0) -> str:
    """Say what takes most of a pass; `compiled`: the share that it has once the pass is compiled, if that is most."""
    part, share = _largest_part(row)
    if share > MOSTLY and part != "launch":
        return f"{who} is mostly {_PARTS[part]}"
    most = "up to " if part == "launch" else ""  # known as an upper bound only
    later = f", {compiled:.0%} once it is compiled" if compiled > MOSTLY else ""
    return f"{_PARTS[part]} takes {most}{share:.0%} of {who}{later}"


def _share_of(part: str, row: Pass) -> float:
    return row.spent.get(part, 0.0) / row.seconds


def of_bounds(found: Found) -> str:
    """Say which of reading and arithmetic bounds a decode step, and what changes once it is compiled; '' if launches
    take more of it, or something else used the device.
    """
    step, *calls, _ = waiting(found)
    part, share = _largest_part(step)
    if part == "launch" or any(map(disturbed, found["profiles"])):
        return ""
    bound = {"memory": "memory-bound", "compute": "compute-bound"}[part]
    compiled = _share_of(part, calls[0]) if calls else 0.0
    if compiled > MOSTLY:
        slower = (
            ": PyTorch's products read the weights more slowly, and"
            if step.spent.get("slower", 0.0) >= SEEN * step.seconds
            else ", because"
        )
        longer = f"{ratio(step.seconds / calls[0].seconds)} times as long{slower} launch and the rest take longer"
        left = f"; not compiled, it takes {longer}" if share < compiled else ""
        return f"**Once it is compiled, a decode step is {bound} on this device**{left}."
    if share > MOSTLY:
        return f"**{_PARTS[part].capitalize()} is a decode step's largest part: the step is {bound} on this device.**"
    return "**So neither reading nor arithmetic bounds this decode step.**"


def of_compiling(found: Found) -> str:
    """Name what a decode step no longer does once it is compiled, and whether that explains all of the time saved.

    '' without a compiled step, and where something else used the device.
    """
    (_, seconds, step, _), *calls, _ = waiting(found)
    if not calls or calls[0].seconds >= seconds or any(map(disturbed, found["profiles"])):
        return ""
    call = calls[0].seconds
    saved, reading = seconds - call, step.get("memory", 0.0) + step["slower"]
    parts = {
        "launches (at most {})": min(saved, step["launch"]),
        "copying the cache ({})": step["copying"],
        f"slower reading (at least {{}} of {millis(step['slower'], 2)})": min(step["slower"], reading - call),
    }
    told = {words: s for words, s in parts.items() if s >= 0.01 * seconds}
    listed = ", ".join(words.format(millis(s, 2)) for words, s in told.items())
    left = saved - sum(told.values())
    unknown = f"; about {millis(left, 1)} are not explained" if left >= 0.05 * saved else ""
    return f"**Compiling saves {millis(saved, 2)}**{': ' if told else ''}{listed}{unknown}."


def of_two(found: Found) -> str:
    """Say it where two sequences decode hardly more tokens a second than one; '' where they do."""
    if (took := slow_start(found["points"])) is None:
        return ""
    most = longest(found["points"], DECODE)["tokens"]
    longer = ratio(took[2] / took[1])
    said = f"At a context of {most:,} tokens, from one to two sequences a step takes {longer} times as long"
    if 4 in took and 2 * took[2] / took[4] > GAIN:
        later = [took[2 * few] / took[few] for few in took if few > 1 and 2 * few in took]
        least, greatest = ratio(min(later)), ratio(max(later))
        more = least if least == greatest else f"{least} to {greatest}"
        said += f", with each doubling after that only {more} times: all share the reading of the weights"
    return f"{said}."


def of_second(found: Found) -> str:
    """Say what makes a step of two sequences longer than one of one, where they gain little; '' where they gain."""
    if slow_start(found["points"]) is None:
        return ""
    one, two = divided(found, 1), divided(found, 2)
    if not one or not two:
        return "Why the second sequence costs so much was not measured."
    grown = {part: two[part] - one[part] for part in two}
    part = max(grown, key=grown.__getitem__)
    same = ", though both steps read the same weights; the cause was not measured" if part == "weights" else ""
    added, by = (millis(s, 2) for s in (sum(grown.values()), grown[part]))
    return f"Of the {added} that a second sequence adds, {by} are {_WORK[part]}{same}."


def of_shared(found: Found) -> str:
    """Say how much longer a step of the largest batch takes than one of a single sequence."""
    one, *_, p = at_longest(found["points"])
    return (
        f"**All sequences share the reading of the weights**: at a context of {p['tokens']:,} tokens, a step of "
        f"{p['batch']} takes {ratio(p['s'] / one['s'])} times as long as one of a single sequence, and writes "
        f"{p['batch']} tokens."
    )


MOST = 3  # parts of a step that are told


def of_most(found: Found) -> str:
    """Say what share of the roof the largest batch reaches, and what takes most of its step; '' without its profile."""
    p = at_longest(found["points"])[-1]
    if p["batch"] == 1 or not (spent := divided(found, p["batch"])):
        return ""
    ranked = sorted(spent, key=spent.__getitem__, reverse=True)[:MOST]
    *some, last = (f"{_WORK[part]} ({millis(spent[part], 2)})" for part in ranked)
    return (
        f"{p['batch']} sequences reach {p['roof_share']:.0%} of the roof at {p['tokens']:,} tokens: of "
        f"{millis(p['s'])} a step, most goes to {', '.join(some)} and {last}."
    )


_WORK = {  # what a profiled class is, in words
    **{name: title.removesuffix(" …") for name, (title, _) in CLASSES.items()},
    "cache": "copying the caches",
    "gaps": "time between operations",
}


def of_profiles(profiles: Sequence[Found]) -> str:
    """Say how long a step and the prefill take without the profiler, and what one compiled call leaves of the step.

    '' if one of them was not profiled, or something else used the device meanwhile.
    """
    took = {profile["forward"]: profile["unprofiled_s"] for profile in profiles}
    if not {PREFILL, DECODE} <= took.keys() or any(map(disturbed, profiles)):
        return ""
    step, call = took[DECODE], took.get("compiled step", math.inf)
    if call < step:
        return f"A decode step takes {millis(step)}, the same step as one compiled call {millis(call)}"
    return f"A decode step takes {millis(step)}, the prefill {millis(took[PREFILL])}"


def of_shares(profiles: Sequence[Found]) -> str:
    """Say on what a decode step and the prefill spend most time, and how much the profiler slows the step."""
    each = {profile["forward"]: profile for profile in profiles}
    if not {PREFILL, DECODE} <= each.keys():
        return ""
    step, whole = (_largest(each[name]["classes"]) for name in (DECODE, PREFILL))
    slower = each[DECODE]["wall_s"] / each[DECODE]["unprofiled_s"]
    return (
        f"Under the profiler, which makes the decode step {slower:.2g} times as long, its largest part is {step}; "
        f"of the prefill, {whole}"
    )


def _largest(classes: Mapping[str, float]) -> str:
    name = max(classes, key=classes.__getitem__)
    share = f"{classes[name] / sum(classes.values()):.0%}"
    if name == "gaps":  # the profiler's own work lies there too
        return f"time between operations (at most {share})"
    return f"{CLASSES[name][0].removesuffix(' …')} ({share})"


def of_batches(points: Sequence[Found]) -> str:
    """Say how many times the tokens of one sequence the largest batch decodes, at each context."""
    rates = {(p["tokens"], p["batch"]): p["tokens_per_s"] for p in points if p["phase"] != PREFILL}
    largest = max(batch for _, batch in rates)
    gains = [
        (tokens, rates[tokens, largest] / rates[tokens, 1])
        for tokens, batch in rates
        if batch == largest and (tokens, 1) in rates
    ]
    (first, gain), *others = sorted(gains)
    at = "".join(f", and {gain:.2g} times at {tokens:,}" for tokens, gain in others)
    return (
        f"{largest} sequences together decode {gain:.2g} times as many tokens a second as one, at a context of "
        f"{first:,} tokens{at}"
    )
