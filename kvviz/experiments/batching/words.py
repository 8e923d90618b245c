"""What a serving run has shown, in sentences and as a table: each figure is the document's. Standard library only."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from kvviz.base.words import aligned_millis, human, millis
from kvviz.experiments.batching.policies import POLICIES, THEIRS
from kvviz.experiments.batching.timeline import parted_returns, returned_alone, returns
from kvviz.experiments.comparison.figures import tail

Row = Mapping[str, Any]  # a policy of a document (docs/json.md)
FAIR = 1.1  # times: what no rule touches may take so much longer under one than under the other
SEVERAL = 10  # steps whose median says enough; of fewer, the ends are told
ONCE = " (one run each)"  # each policy is measured once


def title(name: str) -> str:
    """A policy's name on every page."""
    return "transformers' own continuous batching" if name == THEIRS else POLICIES[name].title


def mark(row: Row) -> str:
    """Return "≈ " for a policy whose requests were served beside other work, else ""."""
    return "≈ " if row["clean"] is False else ""


def sentences(rows: Sequence[Row], checked: int, *, padded: bool = False) -> list[str]:
    """What the policies have shown on one trace: throughput, waits, preemptions, whether the tokens are identical.

    `padded`: the model takes sequences of different lengths only as a padded batch.
    """
    timed = [row for row in rows if row["tokens_per_s"]]
    said = _compared(timed) if timed[1:] else []
    for row in rows:
        if row["preempted"]:
            count = f"{row['preempted']:,} preemption{'s' if row['preempted'] > 1 else ''}"
            again = f"{row['recomputed_tokens']:,} tokens were computed again"
            said.append(
                f"**{row['title']}**: {count}, because the blocks ran out; {_swapped(row)}{again}.{_resumed(row)}"
            )
        if row["starved"]:
            said.append(
                f"**{row['title']}** starves: {row['starved']:,} of {row['requests']:,} requests saw more later "
                "ones go first than run at once."
            )
    if padded:
        said.append(
            "**Padded**: this family computes attention in a way of its own, so in a step only sequences with equally "
            "many new tokens share a forward pass; a prompt's chunk reads the weights once more."
        )
    return [*said, _identity(rows, checked), *_refusals(rows)]


def _resumed(row: Row) -> str:
    """Say how soon preempted requests wrote their next token after their return; "" if none returned."""
    found = [at - back for back, at in returns(row["each"])]
    if not found:
        return ""
    return f" From its return, a request wrote on after {mark(row)}{millis(median(found))}, in the median step."


def preemption_claim(rows: Sequence[Row]) -> str:
    """Say how long it takes from a preempted request's return to its next token, computed again and copied back."""
    compared = zip(rows, compared_returns(rows), strict=True)
    found = {row["policy"]: seconds for row, (seconds, _) in compared}
    rules = "continuous", "swap"
    if not all(map(found.get, rules)):
        return "Nobody was preempted: the memory is large enough for all"
    if not fair(rows):
        return "No comparison: the machine was disturbed while one of the rules was measured"
    marks = {row["policy"]: mark(row) for row in rows}
    if all(len(found[rule]) >= SEVERAL for rule in rules):
        again, back = (f"{marks[rule]}{aligned_millis(median(found[rule]), 2)}" for rule in rules)
        medians = f"(medians of {' and '.join(f'{len(found[rule]):,}' for rule in rules)} steps)"
        return f"Computed again, a preempted request goes on after {again}; copied back, after {back} {medians}"
    again, back = (marks[rule] + took(found[rule]) for rule in rules)
    return (
        f"A preempted request goes on after {again} if its tokens are computed again, "
        f"{back} if its blocks are copied back"
    )


def took(seconds: Sequence[float]) -> str:
    """From the fastest to the slowest of a few steps, else their median."""
    if len(seconds) >= SEVERAL:
        return f"{aligned_millis(median(seconds), 2)} in the median"
    low, high = (aligned_millis(pick(seconds), 2) for pick in (min, max))
    return high if low == high else f"{low.removesuffix(' ms')} to {high}"


def told_by_returns(rows: Sequence[Row]) -> str:
    """Say what the points of the returns are, and how far so many of them tell the two rules apart."""
    again, back = (seconds for seconds, _ in compared_returns(rows))
    if min(len(again), len(back)) >= SEVERAL:
        how = "Where the two rows overlap, a single step does not tell the rules apart, so compare the medians."
    else:
        lie = "lie apart" if max(back) < min(again) or max(again) < min(back) else "overlap"
        brought = [returned_alone(row["each"]) or returns(row["each"]).total() for row in rows]
        how = (
            f"The full points, {len(again)} and {len(back)}, bring {brought[0]} and {brought[1]} requests back; they "
            f"{lie}, but are too few for a ratio."
        )
    above, below = (f"{found.total()} in {len(found)}" for found in (returns(row["each"]) for row in rows))
    steps = f"{above} steps in the upper row, {below} in the lower"
    return f"A point is a **step** of the engine in which requests return, one or several at once: {steps}. {how}"


def compared_returns(rows: Sequence[Row]) -> list[tuple[list[float], list[float]]]:
    """For each rule, the seconds of the steps with returns that are compared, and of those left out.

    Left out are steps in which the engine prefilled a new request, too, unless a rule has no other.
    """
    found = [parted_returns(row["each"]) for row in rows]
    return found if all(alone for alone, _ in found) else [(alone + beside, []) for alone, beside in found]


def copied(rows: Sequence[Row]) -> str:
    """Say what became of the blocks that were copied to the host's memory, and why fewer came back; "" if none were."""
    swap = next(row for row in rows if row["policy"] == "swap")
    out, back = swap["swapped_out_blocks"], swap["swapped_in_blocks"]
    if not out:
        return ""
    said = f"**{out:,} blocks** were copied to the host's memory, and {back:,} of them back"
    if out == back or swap["done"] < swap["requests"]:
        return f"{said}."
    return f"{said}. The other {out - back:,} were still intact in the device's memory when their request returned."


def all_answered(rows: Sequence[Row]) -> str:
    """Say when all requests are answered in static batches and with continuous batching."""
    found = {row["policy"]: row for row in rows if row.get("tokens_per_s")}
    if not {"static", "continuous"} <= set(found):
        return ""
    static, joined = (_time(found[name], "seconds", 2) for name in ("static", "continuous"))
    return f"**All requests are answered** after {static} in static batches, {joined} with continuous batching."


def untouched(rows: Sequence[Row]) -> float | None:
    """How many times as long requests that neither of two rules preempts take from token to token under the second.

    The median over those requests, of the medians of each; None if there are none.
    """
    paces = [
        {one["number"]: median(between) for one in row["each"] if not one["preempted_s"] and (between := _gaps(one))}
        for row in rows
    ]
    ratios = [paces[1][number] / paces[0][number] for number in paces[0].keys() & paces[1].keys()]
    return median(ratios) if ratios else None


def _gaps(one: Row) -> list[float]:
    return [later - earlier for earlier, later in pairwise(one["token_s"])]


def fair(rows: Sequence[Row]) -> bool:
    """Whether the machine was equally fast under two rules, judged by the requests that neither of them preempts."""
    times = untouched(rows)
    return times is None or 1 / FAIR <= times <= FAIR


def preemption_in_all(rows: Sequence[Row]) -> str:
    """Say how long all requests take under two rules, and how much of the difference the machine may be."""
    first, second = (f"{mark(row)}{millis(row['seconds'])}" for row in rows)
    times, whole = untouched(rows), rows[1]["seconds"] / rows[0]["seconds"]
    if times is None:
        return f"All requests take {first} if tokens are computed again, {second} if they are copied."
    if not fair(rows):
        return (
            f"Requests that neither rule preempts took {times:.2f} times as long for a token in the second run, so "
            "nothing here tells the two rules apart: **serve them again** on a quiet machine."
        )
    return (
        f"All requests take {first} if tokens are computed again, {second} if they are copied, {whole:.2f} times as "
        f"long. As a check: requests that neither rule preempts took {times:.2f} times as long for a token in the "
        "second run; 1 means that both ran under the same conditions."
    )


def _swapped(row: Row) -> str:
    """What was copied to the host's memory and back, before what was computed again; "" if nothing was."""
    if not row["swapped_out_blocks"]:
        return ""
    out, back = (f"{row[f'swapped_{way}_blocks']:,} blocks" for way in ("out", "in"))
    nbytes = human(row["swapped_out_bytes"] + row["swapped_in_bytes"])
    return f"{out} were copied to the host's memory and {back} back, {nbytes} in all, and "


def _compared(rows: Sequence[Row]) -> list[str]:
    most, least = (choose(rows, key=lambda row: row["tokens_per_s"]) for choose in (max, min))
    soonest, latest = (choose(rows, key=lambda row: row["ttft_s_p99"]) for choose in (min, max))
    whom = "of a hundred requests, 99" if tail(*(row["done"] for row in rows)) == "p99" else "all requests"
    said = [
        f"**Throughput**: {most['title']} {mark(most)}{most['tokens_per_s']:,.0f} tokens/s, {least['title']} "
        f"{mark(least)}{least['tokens_per_s']:,.0f}.",
        f"**First token**: {whom} have it within {_time(soonest, 'ttft_s_p99')} with "
        f"{soonest['title']}, and within {_time(latest, 'ttft_s_p99')} with {latest['title']}.",
    ]
    paced = [row for row in rows if row["itl_s_p99"] is not None]
    if paced[1:]:
        even, uneven = (choose(paced, key=lambda row: row["itl_s_p99"]) for choose in (min, max))
        said.append(
            f"**Between two tokens**: 99 of a hundred pauses are at most {_time(even, 'itl_s_p99')} with "
            f"{even['title']}, {_time(uneven, 'itl_s_p99')} with {uneven['title']}."
        )
    return said


def _time(row: Row, name: str, digits: int = 3) -> str:
    return mark(row) + millis(row[name], digits)


def _identity(rows: Sequence[Row], checked: int) -> str:
    other = [row["title"] for row in rows if row["identical"] is False]
    alone = f"{checked:,} of them decoded alone as well" if checked else "none of them decoded alone"
    if other:
        return (
            f"**Not identical**: {', '.join(other)}. The order of the additions depends on what shares a forward, and "
            "rounding can tip a near tie."
        )
    return f"**Identical**: each request got the same tokens under every policy; {alone}."


def _refusals(rows: Sequence[Row]) -> list[str]:
    """Why requests were refused: the first sentence, and how many more there are."""
    refused = [one["sentence"] for one in rows[0]["each"] if one["state"] == "refused"]
    if not refused:
        return []
    count = len(refused) - 1
    more = f"; {count:,} more {'was' if count == 1 else 'were'} refused" if count else ""
    return [f"**Refused**: {refused[0]}{more}. The others went on."]


def text(found: Mapping[str, Any]) -> str:
    """Format a serving run for a terminal."""
    names = ("ttft_s_p50", "ttft_s_p99", "itl_s_p50", "itl_s_p99")
    heads = " ".join(f"{head:>10}" for head in ("TTFT p50", "p99", "ITL p50", "p99", "preempted"))
    lines = [f"{'policy':14} {'tokens/s':>9} {heads}"]
    for row in found["rows"]:
        times = " ".join(f"{'-' if row[name] is None else millis(row[name]):>10}" for name in names)
        rate = f"{row['tokens_per_s']:,.0f}" if row["tokens_per_s"] else "-"
        known = f"{'-' if row['preempted'] is None else row['preempted']:>10}"
        beside = "  ≈ beside other work" if mark(row) else ""
        lines.append(f"{row['policy']:14} {rate:>9} {times} {known}{beside}")
    said = [sentence.replace("**", "") for sentence in (*found["sentences"], *found.get("notes", ()))]
    return "\n".join([*lines, "", *said])


def claim(rows: Sequence[Row]) -> str:
    """Say when half of the requests have a first token if any may join, and in static batches."""
    found = {row["policy"]: row for row in rows if row.get("ttft_s_p50") is not None}
    if not {"static", "continuous"} <= set(found):
        return "Requests that are decoded together"
    joined, static = (_time(found[name], "ttft_s_p50", 2) for name in ("continuous", "static"))
    return f"Continuous batching: a median wait of {joined} for the first token instead of {static}{ONCE}"
