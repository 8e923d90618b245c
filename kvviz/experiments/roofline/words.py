"""Writes a measured roofline as sentences with its figures, and its document as text. Standard library only."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.base.words import human, millis, ratio
from kvviz.cost.roofline import DECODE, PREFILL, Roof
from kvviz.experiments.roofline.spec import SHORT

BOUNDS = {
    "memory": "**memory-bound**, reading is its largest part",
    "compute": "**compute-bound**, arithmetic is its largest part",
    "launch": "**launch-bound**, starting its operations is its largest part",
    "between": "**below both ceilings**, its operations are too small or of kinds that reach neither",
}
DISTURBED = 1.25  # a forward this many times slower without the profiler than with it was disturbed


def per_byte(intensity: float) -> str:
    """Write FLOPs per byte with two digits, or all those before the point."""
    return f"{intensity:,.0f}" if intensity >= 10 else f"{intensity:.2g}"


def sides(found: Mapping[str, Any]) -> str:
    """Say on which side of the ridge a decode step of one sequence and a prefill lie."""
    points, ridge = found["points"], Roof(**found["roof"]).ridge
    whole = max((p for p in points if p["phase"] == PREFILL), key=lambda p: p["tokens"])
    step = at_longest(points)[0]
    first, second = (_side(p, ridge) for p in (step, whole))
    if first == second:
        return f"A decode step of one sequence and a prefill both lie on the {first} side of the ridge"
    return f"A decode step of one sequence lies on the {first} side of the ridge, a prefill on the {second} side"


def crosses(found: Mapping[str, Any]) -> int | None:
    """Return the smallest batch whose decode step lies past the ridge, at the longest context, where one's does not."""
    ridge, steps = Roof(**found["roof"]).ridge, at_longest(found["points"])
    past = [p["batch"] for p in steps if p["intensity"] > ridge]
    return past[0] if past and past[0] > 1 else None


def batch_moves(found: Mapping[str, Any]) -> str:
    """Say where a batch of decode steps lies, at both contexts, and why; '' if only one sequence was measured."""
    points = found["points"]
    most = at_longest(points)[-1]
    if most["batch"] == 1:
        return ""
    at_short = (SHORT, most["batch"])
    brief = next(p for p in points if p["phase"] == DECODE and (p["tokens"], p["batch"]) == at_short)
    few, many = per_byte(brief["intensity"]), per_byte(most["intensity"])
    held = brief["intensity"] > 1.05 * most["intensity"]  # not in every design: many queries may share a key
    left, own = (", a long context further left", "but each has") if held else ("", "and each has")
    return (
        f"In the roofline a batch lies further right{left}: sequences share each weight, {own} its own cache to read. "
        f"{most['batch']} do {few} FLOPs per byte at a context of {SHORT} tokens, {many} at {most['tokens']:,}."
    )


def at_longest(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the decode steps at the longest context, one sequence first."""
    steps = [p for p in points if p["phase"] == DECODE]
    tokens = max(p["tokens"] for p in steps if p["batch"] == 1)
    return sorted((p for p in steps if p["tokens"] == tokens), key=lambda p: p["batch"])


def together(batch: int) -> str:
    """Name the profiled decode step of a batch."""
    return f"{batch} sequences"


def divided(found: Mapping[str, Any], batch: int) -> dict[str, float]:
    """Return the seconds of each class of a decode step of so many sequences, by its profile's shares.

    Empty without that profile, or if something else used the device.
    """
    name = DECODE if batch == 1 else together(batch)
    profile = next((p for p in found["profiles"] if p["forward"] == name), None)
    if profile is None or disturbed(profile):
        return {}
    return {part: s / profile["wall_s"] * profile["unprofiled_s"] for part, s in profile["classes"].items()}


def _side(point: Mapping[str, Any], ridge: float) -> str:
    """Name what sets the roof above a point."""
    return "memory" if point["intensity"] < ridge else "arithmetic"


def sentences(found: Mapping[str, Any]) -> list[str]:
    """Explain the points of a document in a few sentences with their figures (Markdown)."""
    points, roof = found["points"], Roof(**found["roof"])
    steps = [p for p in points if p["phase"] == DECODE]
    single = sorted((p for p in steps if p["batch"] == 1), key=lambda p: p["tokens"])
    whole = max((p for p in points if p["phase"] == PREFILL), key=lambda p: p["tokens"])
    flops = sorted(p["intensity"] for p in single)
    least, most = f"{flops[0]:.2g}", f"{flops[-1]:.2g}"
    said = [
        f"The ridge lies at **{roof.ridge:.3g} FLOP/B**: left of it a forward pass is at best limited by memory, "
        "right of it by arithmetic.",
        f"A **decode step** of one sequence does {least}{'' if least == most else f' to {most}'} FLOP/B at any "
        f"context. At {single[-1]['tokens']:,} tokens it reaches {single[-1]['roof_share']:.0%} of the roof: "
        f"{BOUNDS[single[-1]['bound']]}.",
        f"The **prefill** of {whole['tokens']:,} tokens does {whole['intensity']:.3g} FLOP/B and reaches "
        f"{whole['roof_share']:.0%} of the roof: {BOUNDS[whole['bound']]}.",
    ]
    if not found["profiles"]:
        said.append("torch's profiler recorded no kernels on this device, so a step's time is not divided here.")
    busy = [disturbance(p) for p in found["profiles"] if disturbed(p)][:1]
    return [*busy, *said, *_small(found, single[-1]), *_batches(steps)]


def disturbed(profile: Mapping[str, Any]) -> bool:
    """Whether a forward was slower by itself than under the profiler, which adds work: then something slowed it."""
    return bool(profile["unprofiled_s"] > DISTURBED * profile["wall_s"])


def disturbance(p: Mapping[str, Any]) -> str:
    """Say by which two figures of a profile something else is seen to have used the device."""
    return (
        f"**The machine was busy with something else** when this was measured: the {p['forward']} took "
        f"{millis(p['unprofiled_s'])} by itself and {millis(p['wall_s'])} a moment later under the profiler, though "
        "the profiler adds work. These times are too long; measure again when the machine is idle."
    )


def _small(found: Mapping[str, Any], step: Mapping[str, Any]) -> list[str]:
    """Give the figures that show a launch-bound step, or weights that fit in the chip's cache."""
    said = []
    profiled = next((p for p in found["profiles"] if p["forward"] == DECODE), None)
    if profiled and step["bound"] == "launch":
        count, least = profiled["operations"], found["launch"]
        said.append(
            f"This step starts **{count:,} operations** in {millis(step['s'])}, one every "
            f"{step['s'] / count * 1e6:.2g} µs. The least that any takes here is {least * 1e6:.2g} µs, and Python has "
            "to reach each: a larger model or a larger batch gives them more to do meanwhile."
        )
    weights, fast = step["weight_bytes"], found["fast_memory_bytes"]
    if fast and weights <= fast:
        said.append(
            f"Its weights, {human(weights)}, fit into the chip's own cache of {human(fast)}: they need "
            "not come from memory at every step, so the slanted roof is no limit here."
        )
    return said


def compiled_point(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The decode step that was compiled into one call as a point: the same work in its own time; None without one."""
    call = next((p for p in found["profiles"] if p["forward"] == "compiled step"), None)
    points = [p for p in found["points"] if p["phase"] == DECODE and p["batch"] == 1]
    step = next((p for p in points if call and p["tokens"] == call["tokens"]), None)
    if not call or not step:
        return None
    return {**step, "s": call["unprofiled_s"], "flops_per_s": step["flops"] / call["unprofiled_s"]}


def from_cache(found: Mapping[str, Any]) -> str:
    """Explain a compiled step that moves its bytes faster than memory was measured to; '' if it does not."""
    step, fast, read = compiled_point(found), found["fast_memory_bytes"], found["roof"]["read"]
    if not step or not fast or step["weight_bytes"] > fast or step["bytes"] <= read * step["s"]:
        return ""
    times, near = step["bytes"] / step["s"] / read, found.get("near_read")
    roof = f" A plain read of as many bytes from there reaches {near / 1e9:.3g} GB/s." if near else ""
    return (
        f"It moves {human(step['bytes'])} at {times:.2g} times the rate of the slanted roof, at which more bytes were "
        f"read than the chip's own cache holds: its weights, {human(step['weight_bytes'])}, stay in that cache of "
        f"{human(fast)}, so the slanted roof does not limit it.{roof}"
    )


def _batches(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    for tokens in sorted({p["tokens"] for p in steps if p["batch"] > 1}):
        row = sorted((p for p in steps if p["tokens"] == tokens), key=lambda p: p["batch"])
        gain = row[-1]["tokens_per_s"] / row[0]["tokens_per_s"]
        said.append(
            f"**{row[-1]['batch']} sequences** at a context of {tokens:,} decode {ratio(gain)} times the tokens "
            f"per second of one; the FLOP/B go from {row[0]['intensity']:.2g} to {row[-1]['intensity']:.2g}."
        )
    return said


def text(found: Mapping[str, Any]) -> str:
    """Write a document as a table and its sentences."""
    lines = [f"{found['title']}, {found['dtype']}, on {found['environment']['device_name']}"]
    lines.append(f"{'':<8}{'tokens':>8}{'batch':>6}{'ms':>11}{'FLOP/B':>9}{'GFLOP/s':>10}{'of roof':>9}  bound")
    for p in found["points"]:
        lines.append(
            f"{p['phase']:<8}{p['tokens']:>8,}{p['batch']:>6}{p['s'] * 1e3:>11,.3f}{p['intensity']:>9.3g}"
            f"{p['flops_per_s'] / 1e9:>10,.3g}{p['roof_share']:>9.0%}  {p['bound']}"
        )
    for row in found["profiles"]:
        shares = ", ".join(f"{name} {s / row['wall_s']:.0%}" for name, s in row["classes"].items())
        lines.append(f"{row['forward']} at {row['tokens']:,} tokens, {millis(row['wall_s'])} profiled: {shares}")
    return "\n".join([*lines, *(line.replace("**", "") for line in found["sentences"])])
