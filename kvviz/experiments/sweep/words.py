"""Says what a sweep's rows show, beside a published table too, and writes its report. Standard library only."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.words import brief, human, ratio
from kvviz.cost.flops import Rates
from kvviz.cost.shorthand import Case
from kvviz.cost.step_estimate import Model, chiefly
from kvviz.decoding.modes import title_of
from kvviz.experiments.comparison.curve_fit import Estimate
from kvviz.experiments.shapes import alike, flat, power
from kvviz.experiments.sweep.spec import PRESETS, SweepSpec, find_sources
from kvviz.models.catalog.rows import Published
from kvviz.models.sources import Source

NEAR = 1.25  # figures of which the largest is at most this many times the smallest neither climb nor fall
FEW = 3  # with fewer repeats, one slow step can move the median
AXES = {"prompt_tokens": "prompt", "new_tokens": "new tokens", "batch": "batch"}
RANGES = {  # from one value of the axis to another
    "prompt_tokens": "from a prompt of {:,} tokens to {:,}",
    "new_tokens": "from {:,} new tokens to {:,}",
    "batch": "from {:,} sequences to {:,}",
}
AT = {"prompt_tokens": "a prompt of {:,} tokens", "new_tokens": "{:,} new tokens", "batch": "a batch of {:,}"}
HOW = {"uncached": "without the cache", "cached": "with the cache"}  # other modes have their titles
FIGURES = {
    "itl_s": "time per token",
    "ttft_s": "TTFT",
    "total_s": "whole time",
    "tokens_per_s": "tokens/s",
    "peak_bytes": "peak memory",
    "peak_with_weights_bytes": "peak with weights",
    "cache_bytes": "cache",
    "speedup": "speed-up",
    "operations": "operations",
    "flops": "work of the whole generation",
}
TIMES = ("itl_s", "ttft_s", "total_s", "tokens_per_s", "speedup")  # figures that other work disturbs

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], str]]


@dataclass(frozen=True)
class Trend:
    """One figure of one mode along one axis, from the axis's first value to its last.

    A time is `disturbed` if other work disturbed every pass of one of its rows.
    """

    model: str
    mode: str
    fixed: str
    axis: str
    places: tuple[int, ...]
    figure: str
    values: tuple[float, ...]
    disturbed: bool = False

    @property
    def start(self) -> int:
        """The axis's first value."""
        return self.places[0]

    @property
    def end(self) -> int:
        """The axis's last value."""
        return self.places[-1]

    @property
    def ratio(self) -> float:
        """The last value over the first."""
        return self.values[-1] / self.values[0]

    @property
    def word(self) -> str:
        """The shape: flat, near (its values are, but too few or too scattered to be called flat), climbs, falls, or
        wavers (its values are far apart, but it ends near where it began).
        """
        if flat(self.places, self.values) and not self.disturbed:
            return "flat"
        if max(self.values) <= NEAR * min(self.values):
            return "near"
        if 1 / NEAR <= self.ratio <= NEAR:
            return "wavers"
        return "climbs" if self.ratio > 1 else "falls"

    @property
    def power(self) -> Estimate | None:
        """The power of its axis with which it goes, with its 95% interval; None for fewer than three points."""
        return power(self.places, self.values)

    @property
    def factor(self) -> str:
        """The shape with its factor: 'climbs to 6.1 times', 'falls to 1/6.1', 'stays flat within 9%', 'stays within 9%'
        or 'goes up and down'.
        """
        about = "≈ " if self.disturbed else ""
        times = f"{self.ratio:,.0f}" if self.ratio >= 999.5 else f"{self.ratio:.3g}"
        within = f"within {about}{max(self.values) / min(self.values) - 1:.0%}"
        return {
            "climbs": f"climbs to {about}{times} times",
            "falls": f"falls to {about}1/{1 / self.ratio:.3g}",
            "flat": f"stays flat {within}",
            "near": f"stays {within}",
            "wavers": "goes up and down",
        }[self.word]

    @property
    def change(self) -> str:
        """The shape with its factor and both end values: 'climbs to 6.1 times (2.1 ms to 12.9 ms)'."""
        first, last = (shown(self.figure, value) for value in (self.values[0], self.values[-1]))
        return f"{self.factor} ({first} to {last})"

    @property
    def words(self) -> str:
        """The figure's name and its change."""
        return f"{FIGURES[self.figure]} {self.change}"

    @property
    def range(self) -> str:
        """From where to where on the axis: 'from a prompt of 64 tokens to 512'."""
        return RANGES[self.axis].format(self.start, self.end).replace("from 1 sequences", "from one sequence")


def shown(figure: str, value: float | None) -> str:
    """Format a figure with its unit."""
    if value is None:
        return "–"
    if figure.endswith("_bytes"):
        return human(value)
    if figure == "speedup":
        return f"{value:.1f}×"
    if figure == "operations":
        return f"{value:,.0f}"
    if figure == "tokens_per_s":
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return brief(value)


def trends(rows: Iterable[Row], figures: Sequence[str] = tuple(FIGURES)) -> list[Trend]:
    """Find the trend of each figure and mode along each axis that varies, with the other axes fixed."""
    rows = list(rows)
    varying = {name for name in (*AXES, "dtype") if len({row[name] for row in rows if name in row}) > 1}
    found = []
    for axis in (axis for axis in AXES if axis in varying):
        others = [name for name in (*AXES, "dtype") if name != axis]
        for line in _lines(rows, axis, others):
            found += _along(line, axis, [name for name in others if name in varying], figures)
    return found


def _lines(rows: Sequence[Row], axis: str, others: Sequence[str]) -> list[list[Row]]:
    """Group rows that differ only along the axis, sorted by it; each group has at least two rows."""
    lines: dict[tuple, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row[axis]):
        lines.setdefault((row.get("model"), row["mode"], *(row.get(name) for name in others)), []).append(row)
    return [line for line in lines.values() if len(line) > 1]


def _along(line: Sequence[Row], axis: str, fixed: Sequence[str], figures: Sequence[str]) -> list[Trend]:
    first = line[0]
    held = ", ".join(f"{AXES.get(name, name)} {first[name]}" for name in fixed)
    known = [name for name in figures if all(row.get(name) for row in line)]
    known = [name for name in known if not (name == "speedup" and first["mode"] == "uncached")]
    place = (first.get("model", ""), first["mode"], held, axis, tuple(row[axis] for row in line))
    busy = any(_all_disturbed(row) for row in line)
    return [Trend(*place, name, tuple(row[name] for row in line), busy and name in TIMES) for name in known]


def _all_disturbed(row: Row) -> bool:
    """Whether other work disturbed every pass of a measured row; False for a published one, because that is unknown."""
    return bool(row.get("disturbed")) and row["disturbed"] == row["repeats"]


def findings(rows: Iterable[Row]) -> list[str]:
    """Describe the trends of each mode along each axis in one sentence."""
    rows = list(rows)
    several = len({row.get("model") for row in rows}) > 1
    sentences: dict[str, list[str]] = {}
    for trend in trends(rows, ("itl_s", "ttft_s", "tokens_per_s", "peak_bytes", "speedup")):
        place = [trend.model] if several else []
        place += [title_of(trend.mode), *([trend.fixed] if trend.fixed else [])]
        sentences.setdefault(f"{', '.join(place)}, {trend.range}", []).append(trend.words)
    return [f"{head}: {'; '.join(words)}." for head, words in sentences.items()]


def claim(rows: Iterable[Row], figure: str, axis: str) -> str:
    """Say in one sentence what a figure does along an axis in each mode; '' where more than the axis varies."""
    found = [trend for trend in trends(rows, (figure,)) if trend.axis == axis]
    if not found or len({trend.mode for trend in found}) < len(found):
        return ""
    parts = [f"{trend.factor} {HOW.get(trend.mode) or f'in mode “{title_of(trend.mode)}”'}" for trend in found]
    if len({trend.word for trend in found}) == 1 and found[0].word in ("climbs", "falls"):
        parts[1:] = [part.removeprefix(f"{found[0].word} ") for part in parts[1:]]
    said = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    if found[0].mode == "uncached":  # which has named the cache
        said = said.replace(HOW["cached"], "with it")
    return f"{found[0].range.capitalize()}, the {FIGURES[figure]} {said}"


def gain(rows: Iterable[Row], axis: str) -> str:
    """Say how many times as fast generation is with the cache at both ends of an axis; '' where more than it varies."""
    found = [each for each in trends(rows, ("speedup",)) if (each.axis, each.mode) == (axis, "cached")]
    if len(found) != 1:
        return ""
    about = "≈ " if found[0].disturbed else ""
    first, last = (f"{about}{ratio(value)} times" for value in (found[0].values[0], found[0].values[-1]))
    return (
        f"The cache makes generation {first} as fast at {AT[axis].format(found[0].start)}, {last} at {found[0].end:,}"
    )


def reason(rows: Iterable[Row], axis: str) -> str:
    """Say by the tokens that each step computes why a generation grows along an axis; '' for a batch or one mode.

    If the first token makes up more than half of what a generation with the cache grows by, say that, too.
    """
    rows = list(rows)
    if axis not in ("prompt_tokens", "new_tokens") or not set(HOW) <= {row["mode"] for row in rows}:
        return ""
    told = [each for each in trends(rows, ("ttft_s", "total_s")) if (each.axis, each.mode) == (axis, "cached")]
    grown = [each.values[-1] - each.values[0] for each in told]
    first = len(grown) == 2 and 0 < grown[1] < 2 * grown[0]
    return (
        "Without the cache each step computes the whole text again; with it only the first step computes the prompt, "
        "and every later one a single token."
        + (" Most of the climb with the cache is the first token (TTFT)." if first else "")
    )


_POINTS = (  # of the table of an axis's points: a figure, its column, its unit's factor, digits of the least value
    ("ttft_s", "TTFT, ms", 1e3, 2),
    ("itl_mean_s", "Later token, ms", 1e3, 2),
    ("total_s", "Whole generation, ms", 1e3, 3),
    ("flops", "Work, GFLOP", 1e-9, 3),
)
TO = "\u00a0→\u00a0"  # in a cell, which is not broken
MOST = 6  # points of such a table; of a longer axis it has the two ends


def at_points(rows: Iterable[Row], axis: str) -> str:
    """Each point of an axis as a row of a table in Markdown, its figures without the cache and with it.

    The values of a column have equally many decimals. '' if there are not two points.
    """
    rows = [row for row in rows if row["mode"] in HOW]
    places = sorted({row[axis] for row in rows}) if axis in AT else []
    if len(places) < 2:
        return ""
    shown = places if len(places) <= MOST else [places[0], places[-1]]
    found = {(row[axis], row["mode"]): row for row in rows if row[axis] in shown}
    modes = [mode for mode in HOW if all((place, mode) in found for place in shown)]
    told = [[found[place, mode] for mode in modes] for place in shown]
    columns = [
        [AXES[axis].capitalize(), *(f"{place:,}" for place in shown)],
        ["Tokens computed", *(TO.join(f"{_computed(row):,}" for row in each) for each in told)],
    ]
    for figure, title, factor, digits in _POINTS:
        values = [factor * row[figure] for each in told for row in each if row.get(figure)]
        if values and len(values) == len(shown) * len(modes):
            decimals = _decimals(min(values), digits)
            cells = [[_cell(row, figure, factor, decimals) for row in each] for each in told]
            columns.append([title, *map(TO.join, cells)])
    faster = [each[-1]["speedup"] for each in told if each[-1].get("speedup")]
    if "cached" in modes and len(faster) == len(shown):
        columns.append(["Speed-up", *(f"**{ratio(times)}×**" for times in faster)])
    head, *lines = zip(*columns, strict=True)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["--:"] * len(columns), *lines))


ALIKE = 0.1  # of a time: first tokens less far apart need no word
FIRST = (
    "For the first token both compute the same prompt, yet TTFT differs by up to {:.0%}: a difference of this size may "
    "be noise."
)


def first_tokens(rows: Iterable[Row]) -> str:
    """Say how far apart the first tokens of a point are, though both modes compute the same prompt; '' if little."""
    found: dict[tuple, list[float]] = {}
    for row in _as_printed(rows, "ttft_s"):
        if row["mode"] in HOW and row.get("ttft_s"):
            found.setdefault(tuple(row.get(name) for name in AT), []).append(row["ttft_s"])
    apart = max((max(times) / min(times) - 1 for times in found.values()), default=0.0)
    return FIRST.format(apart) if apart > ALIKE else ""


QUARTILES = "itl_s_q1", "itl_s_q3"  # of a point's decode steps


def falls(rows: Iterable[Row], axis: str) -> list[str]:
    """Say of each mode where a later token first takes less after a longer prompt, and whether that is their spread."""
    ranked = sorted(_as_printed(rows, "itl_mean_s"), key=lambda row: row["prompt_tokens"])
    found = []
    for mode, how in HOW.items() if axis == "prompt_tokens" else ():
        mine = [row for row in ranked if row["mode"] == mode and row.get("itl_mean_s")]
        pair = next((both for both in pairwise(mine) if both[1]["itl_mean_s"] < both[0]["itl_mean_s"]), None)
        if pair:
            known = all(row.get(name) is not None for row in pair for name in QUARTILES)
            overlap = known and max(row[QUARTILES[0]] for row in pair) <= min(row[QUARTILES[1]] for row in pair)
            why = "within the spread of its steps (their quartiles overlap)" if overlap else "why was not measured"
            before, after = (row[axis] for row in pair)
            found.append(f"A later token {how} takes less at {after:,} than at {before:,}: {why}.")
    return found


def _as_printed(rows: Iterable[Row], figure: str) -> list[Row]:
    """The rows with a time as the table of the points has it."""
    rows = list(rows)
    factor, digits = next((factor, digits) for name, _, factor, digits in _POINTS if name == figure)
    decimals = _decimals(min((factor * row[figure] for row in rows if row.get(figure)), default=1.0), digits)
    return [{**row, figure: round(factor * row[figure], decimals) / factor} if row.get(figure) else row for row in rows]


def _decimals(least: float, digits: int) -> int:
    """The decimals of a column in which the least value has so many digits."""
    return max(0, digits - 1 - math.floor(math.log10(least)))


def _cell(row: Row, figure: str, factor: float, decimals: int) -> str:
    about = "≈ " if _all_disturbed(row) and figure != "flops" else ""
    return f"{about}{factor * row[figure]:,.{decimals}f}"


def _computed(row: Row) -> int:
    """The tokens that all forwards of a row's generation compute."""
    run = Case(prompt=row["prompt_tokens"], new=row["new_tokens"])
    return row.get("batch", 1) * (sum(run.read_uncached) if row["mode"] == "uncached" else run.last_step)


def beside(rows: Iterable[Row], published: Published) -> list[dict[str, Any]]:
    """Pair each published row with the measured row of the same work (`here`; None if it was not measured)."""
    keys = ("mode", "prompt_tokens", "new_tokens", "batch")
    here: dict[tuple, Row] = {}
    for row in rows:
        here.setdefault(tuple(row[name] for name in keys), row)
    return [{**row, "here": here.get(tuple(row.get(name, 1) for name in keys))} for row in published.rows]


def contrasts(rows: Iterable[Row], published: Published) -> list[str]:
    """Say for each figure whether its trend has the published shape, over the work that both tables contain."""
    both = [row for row in beside(rows, published) if row["here"] is not None]
    found = {(trend.mode, trend.axis, trend.figure): trend for trend in trends([row["here"] for row in both])}
    pairs = [(found.get((there.mode, there.axis, there.figure)), there) for there in trends(both)]
    return [
        f"{title_of(there.mode)}: the {FIGURES[there.figure]} {here.change} here, and {there.change} in the published "
        f"table. {_alike(here, there)}"
        for here, there in pairs
        if here is not None
    ]


def _alike(here: Trend, there: Trend) -> str:
    """Whether a figure has the published shape: whether the powers with which both go agree within their intervals."""
    own, printed = here.power, there.power
    if own is None or printed is None:
        return "Fewer than three points can't tell a shape."
    verdict = {
        True: "It has the published shape",
        False: "The shapes differ",
        None: "These points can't tell whether it has the published shape",
    }[alike(own, printed)]
    return (
        f"{verdict}: it goes as the {AXES[here.axis]} to the power {_within(own)} here "
        f"and {_within(printed)} in the published table (95% intervals)."
    )


def _within(found: Estimate) -> str:
    return f"{found.value:.2f} ± {(found.high - found.low) / 2:.2f}"


def caveats(rows: Iterable[Row]) -> list[str]:
    """Warn about too few repeats, about other work on the machine, and about tokens that differ."""
    rows = list(rows)
    few = any(row["repeats"] < FEW for row in rows)
    different = sum(not (row["identical"] and row["repeatable"]) for row in rows)
    said = [f"Fewer than {FEW} repeats: a single slow step shows in these figures, in TTFT most of all."] if few else []
    if busy := sum(map(_all_disturbed, rows)):
        said.append(f"≈: other work on the machine disturbed every pass of {busy} of {len(rows)} rows.")
    return said + ([f"{different} of {len(rows)} rows did not choose the reference's tokens."] if different else [])


def passes(row: Row) -> str:
    """Return the number of timed passes of a row, and how many of them other work disturbed."""
    count, disturbed = row["repeats"], row.get("disturbed", 0)
    if not disturbed:
        return str(count)
    return f"≈ {count}, all disturbed" if _all_disturbed(row) else f"{count}, {disturbed} disturbed"


def reasons(
    source: Source, dtype: str, tokens: Sequence[int], rates: Mapping[str, float], fastest: float = math.inf
) -> str:
    """Say what dominates the estimated time of a step over each number of tokens; empty if the size is unknown.

    A step dominated by launch overhead or by reading weights takes as long for one token as for many. Launching takes
    no longer than the `fastest` measured step, which holds all its launches.
    """
    if source.params is None or source.spec is None:
        return ""
    model, each, longest = Model(source.spec, source.params, None), [], ""
    for n in sorted(set(tokens)):
        seconds = model.parts(n, dtype, Rates(**rates))
        reading, computing, launching = seconds.values()
        seconds["launching operations"] = launching = min(launching, fastest)
        longest, whole = max(seconds, key=seconds.__getitem__), max(reading, computing) + launching
        each.append(f"{chiefly(seconds[longest], whole)} {longest} over {n:,} token{'s' if n > 1 else ''}")
    same = "" if longest == "computing" else " By that estimate its time hardly depends on the number of tokens."
    return f"By estimate a step of {source.model} is here {', '.join(each)}.{same if len(each) > 1 else ''}"


# --- the report as text ---------------------------------------------------------------------------------------------


def sweep_text(document: Mapping[str, Any]) -> str:
    """Write the whole report of a sweep's document."""
    spec = SweepSpec.from_dict(document["spec"])
    rows, preset = document["rows"], PRESETS.get(spec.preset)
    blocks = [[_heading(document, spec)], [table(rows, _columns(spec))]]
    blocks += [[f"{failed['name']}: {failed['message']}" for failed in document["failed"]], findings(rows)]
    if preset is not None and preset.published is not None:
        head = f"Published ({preset.published.note}):"
        blocks += [[head, _published(rows, preset.published)], contrasts(rows, preset.published)]
    blocks += [caveats(rows), why(spec, document["rates"], rows)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def why(spec: SweepSpec, rates: Mapping[str, float] | None, rows: Sequence[Row]) -> list[str]:
    """Say for each model what bounds a step over one token and a step over the longest sequence."""
    if not rates:
        return []
    longest = max(spec.prompt_tokens) + max(spec.new_tokens)
    try:
        sources = find_sources(spec).items()
    except KvvizError:  # a local model may have been deleted since the sweep
        return []
    steps = {model: [r["itl_s"] for r in rows if r["model"] == model and r["mode"] in HOW] for model, _ in sources}
    each = [
        reasons(source, spec.dtypes[0], (1, longest), rates, min(filter(None, steps[model]), default=math.inf))
        for model, source in sources
    ]
    return [*filter(None, each)]


def _heading(document: Mapping[str, Any], spec: SweepSpec) -> str:
    place = document["environment"]
    title = f"{PRESETS[spec.preset].title}\n{PRESETS[spec.preset].question}\n" if spec.preset else ""
    threads = f"{place['threads']} thread{'s' if place['threads'] > 1 else ''}"
    where = f"{place['device_name']}, {threads}, torch {place['torch']}"
    return f"{title}{', '.join(spec.models)} in {', '.join(spec.dtypes)} on {where}"


_WORK: tuple[Column, ...] = (
    ("prompt", lambda row: f"{row['prompt_tokens']:,}"),
    ("new", lambda row: f"{row['new_tokens']:,}"),
    ("mode", lambda row: title_of(row["mode"])),
)


def _columns(spec: SweepSpec) -> list[Column]:
    """The columns that this sweep needs; the heading has the model and dtype that do not vary."""
    lists = {"model": spec.models, "dtype": spec.dtypes, "batch": spec.batches}
    return [
        *((name, _text(name)) for name, values in lists.items() if len(values) > 1),
        *_WORK,
        ("TTFT", _figure("ttft_s")),
        ("per token", _figure("itl_s")),
        ("quartiles", lambda row: f"{shown('itl_s', row['itl_s_q1'])} – {shown('itl_s', row['itl_s_q3'])}"),
        ("mean", _figure("itl_mean_s")),
        ("tokens/s", _figure("tokens_per_s")),
        ("whole", _figure("total_s")),
        ("peak", _figure("peak_bytes")),
        ("cache", _figure("cache_bytes")),
        ("speed-up", _figure("speedup")),
        ("same tokens", lambda row: "yes" if row["identical"] and row["repeatable"] else "NO"),
        ("repeats", passes),
    ]


def _text(name: str) -> Callable[[Row], str]:
    return lambda row: str(row[name])


def _figure(name: str, *, here: bool = False) -> Callable[[Row], str]:
    return lambda row: shown(name, ((row["here"] or {}) if here else row).get(name))


def _published(rows: Sequence[Row], published: Published) -> str:
    """A table of the published figures, each beside the figure measured here for the same work."""
    pairs, columns = beside(rows, published), [*_WORK]
    for name in (name for name in FIGURES if any(name in row for row in pairs)):
        columns.append((FIGURES[name], _figure(name)))
        if name != "operations":  # this count does not depend on the machine
            columns.append(("here", _figure(name, here=True)))
    return table(pairs, columns)


def table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Format aligned columns, with words to the left and figures to the right."""
    cells = [[head for head, _ in columns], *([show(row) for _, show in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = [head in ("model", "dtype", "mode") for head, _ in columns]
    lines = []
    for line in cells:
        places = zip(line, widths, left, strict=True)
        lines.append("  ".join(text.ljust(width) if word else text.rjust(width) for text, width, word in places))
    return "\n".join(line.rstrip() for line in lines)
