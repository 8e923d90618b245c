"""What a serving run has shown, in sentences and as a table: each figure is the document's. Standard library only."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from kvviz.base.words import aligned_millis, human, millis
from kvviz.experiments.batching.policies import POLICIES, THEIRS
from kvviz.experiments.batching.timeline import Return, returned, returns
from kvviz.experiments.comparison.figures import tail

Row = Mapping[str, Any]  # a policy of a document (docs/json.md)
FAIR = 1.1  # times: what no rule touches may take so much longer under one than under the other
APART = 0.8  # of all pairs, in how many more a rule takes longer than in how many it takes less: the rules differ
LONGER = 1.1  # times a pause that no noise of one run makes


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
    """Say what the return of a preempted request takes, computed again and copied back."""
    if not all(row["preempted"] for row in rows):
        return "Nobody was preempted: the memory is large enough for all"
    if not fair(rows):
        return "No comparison: the machine was disturbed while one of the rules was measured"
    found = [compared_returns(row) for row in rows]
    if not all(found):
        return "No comparison: too few steps without a return are like those with one"
    takes = [_takes(row, steps) for row, steps in zip(rows, found, strict=True)]
    counts = " and ".join(f"{sum(one.requests for one in steps):,}" for steps in found)
    said = f"{takes[0]} if its tokens are computed again, {takes[1]} if they are copied back ({counts} returns)"
    return f"{'A' if _part(*found) else 'No clear difference: a'} preempted request's return takes {said}"


def _takes(row: Row, steps: Sequence[Return]) -> str:
    """What a return adds to its step, from the least to the most."""
    costs = [(one.more_s or 0.0) / one.requests for one in steps]
    if max(costs) <= 0:
        return "no time that could be measured"
    high = aligned_millis(max(costs), 2)
    digits = high.removesuffix(" ms")
    low = f"{max(0.0, 1e3 * min(costs)):.{len(digits.partition('.')[2])}f}"
    return mark(row) + (high if low == digits else f"{low if float(low) else '0'} to {high}")


def _part(some: Sequence[Return], others: Sequence[Return]) -> bool:
    """Whether a return took longer under the same rule in nearly every pair of steps, one of each rule."""
    costs = [[(one.more_s or 0.0) / one.requests for one in steps] for steps in (some, others)]
    return abs(fmean((one > other) - (one < other) for one in costs[0] for other in costs[1])) >= APART


def compared_returns(row: Row) -> list[Return]:
    """The steps with returns for which there are steps without one to compare them with."""
    return [one for one in returned(row) if one.more_s is not None]


def told_by_returns(rows: Sequence[Row]) -> str:
    """Say what the points of the returns are."""
    steps = [compared_returns(row) for row in rows]
    requests = [sum(one.requests for one in each) for each in steps]
    again, back = (
        f"{count:,} in {len(each):,} step{'s' * (len(each) > 1)}" for count, each in zip(requests, steps, strict=True)
    )
    tokens = [sum(one.tokens for one in each) / count for count, each in zip(requests, steps, strict=True)]
    left_out = sum(len(returned(row)) for row in rows) - sum(map(len, steps))
    none = f" {left_out:,} more had no steps to be compared with." if left_out else ""
    return (
        f"A point is a **step** in which preempted requests return, one or several at once: {again}, computed again, "
        f"and {back}, copied back; of {tokens[0]:,.0f} and {tokens[1]:,.0f} tokens on average. Its height is "
        "**what each return adds to the step's time**, over the median step that does the same other work without one. "
        f"Copying out, at the preemption, is not in it.{none}"
    )


def intact(rows: Sequence[Row]) -> str:
    """Say how much of what was taken had to be brought back, because the rest was intact; "" if all of it had to."""
    again, swap = rows
    tokens = sum(one.tokens for one in returned(again))
    out, back = swap["swapped_out_blocks"], swap["swapped_in_blocks"]
    if not out or (again["recomputed_tokens"] >= tokens and back >= out):
        return ""
    return (
        "Blocks that were still intact came back for nothing: "
        f"{again['recomputed_tokens'] / tokens:.0%} of the tokens had to be computed again, {back / out:.0%} of the "
        "blocks to be copied back."
    )


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
    """Say what joining at any time gains, and what it costs: waits for the first token, and pauses between tokens."""
    found = {row["policy"]: row for row in rows if None not in (row.get("ttft_s_p50"), row.get("itl_s_p99"))}
    if not {"static", "continuous"} <= set(found):
        return "Requests that are decoded together"
    joined, static = found["continuous"], found["static"]
    price = joined["ttft_s_p50"] < static["ttft_s_p50"] and joined["itl_s_p99"] > LONGER * static["itl_s_p99"]
    soon, late, more, less = (_time(row, name, 2) for name in ("ttft_s_p50", "itl_s_p99") for row in (joined, static))
    pauses = f"{'but' if price else 'and'} pauses between tokens of {more} instead of {less} (p99)"
    return f"Continuous batching: the first token after {soon} instead of {late} (median), {pauses}"
