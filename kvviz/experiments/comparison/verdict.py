"""Interprets a comparison's figures: each curve's fit, where the cache starts to pay, and what bounds the run.

The fits and the crossover use measured decode steps, without the prefill. What bounds a step is an estimate and is
labelled as one. If the figures can't answer a question, the verdict says so.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.words import brief, ratio
from kvviz.cost.step_estimate import StepEstimate
from kvviz.decoding.modes import MODES, title_of
from kvviz.experiments.comparison.curve_fit import Crossover, Estimate, Fit, crossover, fit
from kvviz.experiments.comparison.endpoint_words import lumped, served, told_of_cache
from kvviz.experiments.comparison.figures import mark
from kvviz.experiments.comparison.records import ShapeName
from kvviz.experiments.comparison.spec import LIMITS
from kvviz.experiments.comparison.speculated import expected, speculated
from kvviz.experiments.evidence import counted
from kvviz.experiments.shapes import shape

FEWEST = 8  # steps of a run that may have advice although its speed-up has no interval
PAYS = 1.2  # a whole run has to be at least this many times as fast with the cache, or the verdict gives advice
OFF = 2.0  # an estimate that differs from the measured time by more than this factor does not explain it
POINTS = 512  # a longer curve is fitted by medians of neighbouring steps
STRANGE = "this kvviz does not know the mode"
COEFFICIENTS = ("a_s", "b_s_per_token", "c_s_per_token2")
UNITS = (  # of each coefficient: its unit in words, in LaTeX, and what a second is in it
    ("ms", r"\text{ms}", 1e3),
    ("µs per token", r"\tfrac{\mu\text{s}}{\text{token}}\,T", 1e6),
    ("ns per token²", r"\tfrac{\text{ns}}{\text{token}^2}\,T^2", 1e9),
)

Run = Mapping[str, Any]  # a document's run; a stored one may lack fields


def verdict(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on a comparison's document as JSON values, in seconds and tokens of context (docs/json.md)."""
    return judge(document["prompt_tokens"], document["runs"])


def judge(prompt_tokens: int | None, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the verdict on some or all runs of one comparison."""
    known = {run["mode"]: run for run in runs if run["mode"] in MODES}
    fits = {mode: fitted(2 if MODES[mode].caches is False else 1, prompt_tokens, run) for mode, run in known.items()}
    lines = {  # where the square can't be told from 0
        mode: fitted(1, prompt_tokens, known[mode])
        for mode, found in fits.items()
        if isinstance(found, Fit) and any(not row.told for row in found.coefficients[2:])
    }
    again, once = _first(known, caches=False), _first(known, caches=True)
    speculating = [run for run in runs if run.get("steps")]
    return {
        "modes": [_entry(run, fits.get(run["mode"], STRANGE), lines.get(run["mode"])) for run in runs],
        "crossover": _crossover(once, again, fits),
        "sentence": _bounded([run for run in (once, again) if run is not None]) + _starts(known, once),
        "speculation": [speculated(run, known.get("cached")) for run in speculating],
        "expected": [asdict(found) for run in speculating if (found := expected(run, known.get("cached")))],
        "endpoint": [
            served(run, [one for one in known.values() if one is not run]) for run in runs if run.get("engine")
        ],
        "endpoint_cache": [told_of_cache(run) for run in runs if run.get("engine")],
        "advice": _advice(once, again),
        "prediction": _prediction(runs),
    }


def _first(known: Mapping[str, Run], *, caches: bool) -> Run | None:
    """Pick the run to report on: the first in the order of MODES, among those with a cache or those without."""
    rank = [row.name for row in MODES.values() if row.caches == caches and row.name in known]
    return known[rank[0]] if rank else None


# --- the curves ---------------------------------------------------------------------------------------------------


def fitted(degree: int, prompt_tokens: int | None, run: Run) -> Fit | str:
    """Fit the decode steps; return the fit, or a sentence that says why they can't be fitted."""
    steps = run.get("step_s") or ()
    if lumped(run):
        return "its tokens come several at a time"
    if prompt_tokens is None:
        return "the prompt's length is not known"
    if len(steps) > LIMITS["new_tokens"]:
        return f"more than {LIMITS['new_tokens']:,} steps are not fitted"
    tokens, seconds = _thinned([prompt_tokens + i for i in range(1, len(steps))], steps[1:])
    try:
        return fit(tokens, seconds, degree)
    except KvvizError as error:
        return str(error)


def _thinned(tokens: Sequence[float], seconds: Sequence[float]) -> tuple[list[float], list[float]]:
    """Reduce to at most POINTS points: the mean token and the median seconds of each group of neighbouring steps."""
    width = max(1, math.ceil(len(tokens) / POINTS))
    groups = [slice(i, i + width) for i in range(0, len(tokens), width)]
    return [statistics.fmean(tokens[g]) for g in groups], [statistics.median(seconds[g]) for g in groups]


def _entry(run: Run, found: Fit | str, line: Fit | str | None) -> dict[str, Any]:
    estimate, measured = StepEstimate.of_run(run), _typical(run)
    return {
        "mode": run["mode"],
        "fit": _coefficients(found) if isinstance(found, Fit) else None,
        "line": _coefficients(line) if isinstance(line, Fit) else None,
        "shape": _shape(run, line if isinstance(line, Fit) else found),
        "untold": _untold(found) if isinstance(found, Fit) else [f"can't tell: {found}"],
        "bound": estimate.within(measured).words if estimate else None,
        "estimate_s": _whole(run, estimate) if estimate else None,
        "mark": mark(run),
        "measured_s": measured,
        "prediction_error": run.get("prediction_error"),
        "prediction_bias": run.get("prediction_bias"),
    }


def shape_of(prompt_tokens: int | None, run: Run) -> ShapeName | None:
    """Return the shape of a run's decode steps; None where they can't tell."""
    found: ShapeName | None = judge(prompt_tokens, [run])["modes"][0]["shape"]
    return found


def _shape(run: Run, found: Fit | str) -> ShapeName | None:
    typical = _typical(run)
    return shape(found, typical) if isinstance(found, Fit) and typical else None


def _whole(run: Run, estimate: StepEstimate) -> float:
    """Seconds of the step that an estimate is of: as predicted, the dashed line's; in a mode without one, its total."""
    return _foretold(run) or estimate.total


def _foretold(run: Run) -> float | None:
    """Seconds that were predicted for the middle step."""
    predicted = run.get("predicted_s") or ()
    return predicted[len(predicted) // 2] if len(predicted) > 1 else None


def _typical(run: Run) -> float | None:
    """Return the median decode step; None without one, and for tokens that come several at a time."""
    steps = (run.get("step_s") or ())[1:]
    return statistics.median(steps) if steps and not lumped(run) else None


def _coefficients(found: Fit) -> dict[str, Any]:
    rows = zip(COEFFICIENTS, found.coefficients, strict=False)
    return {
        **{name: {**asdict(row), "told": row.told} for name, row in rows},
        "spread_s": found.spread,
        "points": found.points,
        "spikes": found.spikes,
        "first_token": found.first,
        "last_token": found.last,
    }


def _untold(found: Fit) -> list[str]:
    """Return one sentence for each coefficient whose interval includes 0."""
    rows = zip("abc", UNITS, found.coefficients, strict=False)
    return [
        f"can't tell {name} from 0: it lies between {_three(r.low * scale)} and {_three(r.high * scale)} {unit}"
        for name, (unit, _, scale), r in rows
        if not r.told
    ]


def _three(value: float) -> str:
    """Format with three significant digits, but write 1,000 to 1e9 as whole numbers, without an exponent."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _crossover(once: Run | None, again: Run | None, fits: Mapping[str, Fit | str]) -> dict[str, Any] | None:
    """Return where the cache starts to pay; None unless one run with a cache and one without it are there."""
    if once is None or again is None:
        return None
    cached, uncached = fits[once["mode"]], fits[again["mode"]]
    try:
        if isinstance(cached, str) or isinstance(uncached, str):
            raise KvvizError(cached if isinstance(cached, str) else str(uncached))
        return asdict(crossover(cached, uncached))
    except KvvizError as error:
        return asdict(Crossover("untold", sentence=f"can't tell where the cache starts to pay: {error}"))


LEFT_OUT = (
    "A prediction adds up the counted work, each kind at the pace that it has by itself. It leaves out the Python of "
    "the model's own code, and what one operation pushes out of the processor's cache before the next one needs it."
)


def _prediction(runs: Sequence[Run]) -> str | None:
    """Say how far off the prediction of a median step was for each mode; return None if there was no prediction."""
    each = []
    for run in runs:
        expected, measured = _foretold(run), _typical(run)
        if expected and measured:
            off = expected / measured - 1
            how = f"{abs(off):.0%} too {'low' if off < 0 else 'high'}"
            each.append(f"{_name(run)} {brief(expected)} where {brief(measured)} were measured, {how}")
    if not each:
        return None
    return f"Dashed: predicted before the timed passes, for a median step {'; '.join(each)}. {LEFT_OUT}"


# --- what bounds it -----------------------------------------------------------------------------------------------


def _name(run: Run) -> str:
    return title_of(run["mode"])


def _bounded(runs: Sequence[Run]) -> str:
    """Say what a step spends most of its time on by its prediction, next to the measured time.

    No part of a step takes longer than the whole of it: a part that was predicted to is cut off at the measured step.
    """
    each, apart, tokens = [], [], 0
    for run in runs:
        estimate, seconds = StepEstimate.of_run(run), _typical(run)
        if estimate is None:
            continue
        part, whole = getattr(estimate, estimate.largest), _whole(run, estimate)
        share = f"{brief(part)} of {brief(whole)}" + (f"; measured: {brief(seconds)}" if seconds else "")
        if seconds and part > seconds:
            share = f"at most the measured {brief(seconds)}; predicted: {brief(part)} of {brief(whole)}"
        each.append(f"{_name(run)}, {estimate.words} ({share})")
        tokens = tokens or estimate.tokens
        factor = max(seconds / whole, whole / seconds) if seconds and whole else 1.0
        if factor > OFF or (seconds and part > seconds):
            apart.append(f"{_name(run)}: {ratio(factor)} times")
    if not each:
        return "What bounds this run is unknown: it was kept without what the cost model says at its device's rates."
    words = f"By prediction, a step at {counted(tokens)} is: {'; '.join(each)}."
    caution = f" Prediction and measurement are far apart ({', '.join(apart)}), so take the reason as a guess."
    return words + (caution if apart else "")


ONE_CALL = (
    "Starting an operation takes as long however small it is, so a small model waits for its starts, on a GPU most of "
    "all; the mode Compiled takes them away: a whole step is one call, on a GPU one graph that is replayed"
)


def _starts(known: Mapping[str, Run], once: Run | None) -> str:
    """If launch overhead bounds the cached step, name the mode Compiled, with its measured time if it ran; else ""."""
    estimate = StepEstimate.of_run(once) if once else None
    if once is None or estimate is None or estimate.largest != "starting_s":
        return ""
    usual, compiled = _typical(once), _typical(known.get("compiled", {}))
    if not usual or not compiled or once["mode"] == "compiled":
        return f" {ONE_CALL}."
    return f" {ONE_CALL}: here its step took {brief(compiled)}, and that of {_name(once)} {brief(usual)}."


_WHY = {
    "starting_s": (
        "so small a step spends longest on starting operations, which takes as long for many tokens as for one",
        "take a longer prompt, more new tokens, a larger model or a larger batch",
    ),
    "weights_s": (
        "the step spends longest on reading the weights, which takes as long for many tokens as for one",
        "take a longer prompt, more new tokens or a larger batch",
    ),
    "computing_s": (
        "the arithmetic of all these tokens should show, and the times do not follow it",
        "measure again on a device that does nothing else, with a longer prompt and more new tokens",
    ),
}


def _advice(once: Run | None, again: Run | None) -> str | None:
    """If the cache brings little or nothing, say why and what to change; None if it pays or can't be compared."""
    gain = once.get("speedup") if once else None
    if once is None or again is None or again["mode"] != "uncached" or gain is None or gain >= PAYS:
        return None
    low, high = once.get("speedup_interval") or ((gain, gain) if len(once["step_s"]) >= FEWEST else (0.0, math.inf))
    if high >= PAYS and low < 1 / PAYS:
        return (
            f"What the cache brings here can't be told: the whole run was {ratio(gain)} times as fast, but in passes "
            "so short or so unlike that it may as well pay as not. Decode more new tokens, or take more passes."
        )
    brings = "little" if low > 1 else "nothing" if high <= 1 else "little or nothing"
    head = f"The cache brings {brings} here, the whole run is {ratio(gain)} times as fast"
    fast, slow = _typical(once), _typical(again)
    if fast and slow and slow / fast >= PAYS:
        return (
            f"{head}, though its decode steps are {ratio(slow / fast)} times as fast: "
            f"{once['step_s'][0] / sum(once['step_s']):.0%} of the time goes into the prefill, its prompt's first "
            "reading, which a cache cannot skip. To see the difference in the whole, decode more new tokens."
        )
    estimate = StepEstimate.of_run(again)
    if estimate is None or estimate.largest not in _WHY:
        return f"{head}. Why is unknown; with a longer prompt, more new tokens or a larger model it has more to save."
    why, change = _WHY[estimate.largest]
    return f"{head}: without it a step reads {counted(estimate.tokens)}, but by estimate {why}. To see it, {change}."


# --- as words and as a formula ------------------------------------------------------------------------------------


def equation(entry: Mapping[str, Any], which: str = "fit") -> str | None:
    """Write a mode's fit (or its `line`) as LaTeX, each number ± half its 95% interval; return None without a fit."""
    found = entry[which]
    if found is None:
        return None
    there = [name for name in COEFFICIENTS if name in found]
    rows = [Estimate(*(found[name][key] for key in ("value", "low", "high"))) for name in there]
    terms = [_term(row, place) for place, row in enumerate(rows)]
    return rf"t_{{\text{{{title_of(entry['mode'])}}}}}(T) = {' + '.join(terms)}"


def _term(row: Estimate, place: int) -> str:
    _, unit, scale = UNITS[place]
    term = rf"({_plus_minus(row.value * scale, (row.high - row.low) / 2 * scale)})\,{unit}"
    return term if row.told else rf"\underbrace{{{term}}}_{{\text{{can't be told from 0}}}}"


def _plus_minus(value: float, half: float) -> str:
    """Format both to the second significant digit of `half`; a curve without noise gets four digits and no interval."""
    if not half:
        return _power(f"{value:.4g}")
    if not 1e-6 < half < 1e6:
        return rf"{_power(f'{value:.3g}')} \pm {_power(f'{half:.2g}')}"
    digits = max(0, 1 - math.floor(math.log10(half)))
    return rf"{value:.{digits}f} \pm {half:.{digits}f}"


def _power(number: str) -> str:
    """Write an exponent such as 1e6 in LaTeX."""
    digits, _, power = number.partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if power else digits
