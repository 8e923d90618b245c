"""What the cost page shows of a case: the whole run counted, a step's parts, and the shorthand."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.words import brief, human, ratio, two_digits
from kvviz.charts.cost import (
    CASES,
    PARTS,
    SEEN,
    WAITS,
    WIDE,
    amount,
    area_figure,
    each_step_figure,
    figure_of,
    run_figure,
    scaled,
    time_figure,
)
from kvviz.cost.roofline import DECODE, Place, Roof, advertised, work_of
from kvviz.cost.shorthand import (
    Case,
    Count,
    RunTime,
    attention_share,
    bend,
    config_of,
    full,
    questions,
    run_flops,
    run_time,
    saving,
    shape_of,
)
from kvviz.deployment.weights import Weights, read_weights
from kvviz.memory.calculator import is_own
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import accelerators, models
from kvviz.ui.cost.ceilings import ceilings
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import colour_key, drawn_once, plot, shades
from kvviz.ui.shared.tables import draw_table, localized

_POINTS = 120  # of a curve
LESS = 2  # times: if the work shrinks by so much more than the time, the page says why
GPU, GPU_DTYPE = "h100-sxm", "bfloat16"  # by whose data sheet a run's time is told


def draw(case: Case) -> None:
    """Draw all of the answer; what can't be counted is said in a sentence."""
    problem = ""
    try:
        whole_run(case)
        in_time(case)
        parts_of_a_step(case)
    except KvvizError as error:
        problem = str(error)
        st.warning(plain(f"The full count: {problem}"))
    shorthand(case)
    if not problem:
        asked(case)
    with suppress(KvvizError):  # a shape that can't be read is in the warning above
        cache(case)
    ceilings()


def whole_run(case: Case) -> None:
    """Draw what the run computes without and with the cache. Raises KvvizError if it can't be counted."""
    without, within = run_flops(case)
    xs, said, digits = _points(1, case.new), TEXTS["cost"], _digits(3, without[-1], within[-1], _times)
    work = {mode: [sums[n - 1] for n in xs] for mode, sums in (("uncached", without), ("cached", within))}
    if case.new > 1:
        claim = said["run"].format(times=_times(saving(case)), memory=human(_cache(case)[0]))
    else:
        claim = "One new token comes from the prefill alone: there the cache saves nothing"
    st.header(claim, anchor="run")
    if case.new > 2:
        left, right = st.columns(2, gap="medium")
        plot(drawn_once(each_step_figure, xs, case.prompt), left, key="c_each", claim=said["each_step"])
        left.markdown(_areas(case))
        plot(drawn_once(run_figure, xs, work, digits), right, key="c_run", claim=said["so_far"])
        right.markdown(f"{_shape(case, bend(without), bend(within))} {_apart(case)}")
    else:
        plot(drawn_once(run_figure, xs, work, digits), key="c_run")
        st.markdown(_areas(case))


def _areas(case: Case) -> str:
    """Say what the first step, the last one and all of them compute, in tokens."""
    prompt, again = case.read_uncached
    first = TEXTS["cost"]["first"].format(prompt=case.prompt)
    if case.new < 2:
        return first
    return f"{first} " + TEXTS["cost"]["areas"].format(
        last=case.last_step, rectangle=prompt, triangle=again, whole=prompt + again
    )


def _shape(case: Case, without: float, within: float) -> str:
    """Say why the totals have their shapes, and how much more work the second half of the steps takes in each."""
    prompt, again = case.read_uncached
    halves = "the second half of the new tokens takes {} times the work of the first"
    if without >= 1.5:
        bent = f"grows with the square: {halves.format(ratio(without))}"
    elif prompt > again:
        bent = "is nearly a straight line, as the rectangle is the larger part"
    else:
        bent = f"bends little: {halves.format(f'only {ratio(without)}')}"
    even = "grows in a straight line" if within < 1.1 else f"bends, too: {halves.format(ratio(within))}"
    return f"*No cache* {bent}. *KV cache* {even}."


def _apart(case: Case) -> str:
    """Say why the work's ratio is not that of the tokens; '' if it is, or if no one part makes most of the gap."""
    tokens, work = sum(case.read_uncached) / case.last_step, saving(case)
    if _times(tokens) == _times(work):
        return ""
    told = {"attention": "attention costs most in the last steps, where the cache saves most"}
    if work < tokens:
        told = {"head": "the output layer scores one token a step in both"}
        if any(layer.latent for layer in shape_of(case.model).spec.layers):
            told["projections"] = "transformers makes all keys and values again from the latent rows in each step"
    gaps = {term: abs(math.log(saving(case, but=term) / tokens)) for term in told}
    part = min(gaps, key=gaps.__getitem__)
    if gaps[part] > abs(math.log(work / tokens)) / 2:
        return ""
    return (
        f"Without the cache {_times(tokens)} times as many tokens are computed, with {_times(work)} times the work: "
        f"{told[part]}."
    )


def _weights(case: Case) -> Weights:
    """The weights of the case's model. Raises KvvizError if nobody states the parameters and none can be counted."""
    params = None if is_own(case.model) else models()[case.model].params
    return read_weights(config_of(case.model), params, GPU_DTYPE)


def _cards(case: Case) -> int:
    """The fewest GPUs whose memory, by their data sheet, holds the weights and the cache; 0 if that is not known."""
    try:
        shape = shape_of(case.model)
        held = _weights(case).nbytes + kv_memory(shape.spec, case.last_step, dtype=GPU_DTYPE).total_bytes
    except KvvizError:
        return 0
    return -(-held // accelerators()[GPU].memory_bytes)


def _least_time(case: Case) -> tuple[int, RunTime] | None:
    """The least time of the run on the fewest GPUs that hold it, and how many they are; None if it is not known."""
    roof, cards = advertised(accelerators()[GPU], GPU_DTYPE), _cards(case) if case.model else 0
    if not roof or not cards:
        return None
    took = run_time(case, GPU_DTYPE, Roof(cards * roof.read, cards * roof.flops))
    return (cards, took) if took else None


def _gpus(cards: int) -> str:
    """The GPUs by their short name, without maker, memory and socket."""
    row = accelerators()[GPU]
    name = row.title.removeprefix(f"{row.vendor} ").partition(" ")[0]
    return f"the {name}" if cards == 1 else f"{cards:,} × {name}"


def in_time(case: Case) -> None:
    """Draw why so much less work does not take so much less time on an accelerator, if that can be calculated."""
    if not (least := _least_time(case)):
        return
    cards, took = least
    said, row = TEXTS["cost"], accelerators()[GPU]
    held, read = _weights(case).nbytes, work_of(shape_of(case.model), Place(DECODE, case.last_step), GPU_DTYPE)
    roof = advertised(row, GPU_DTYPE)
    assert roof  # the least time was calculated by it
    whole, totals = max(took.totals), [brief(seconds, _digits(2, *took.totals, two_digits)) for seconds in took.totals]
    st.header(said["in_time"].format(gpus=_gpus(cards), without=totals[0], within=totals[1]), anchor="time")
    left, right = st.columns(2, gap="medium")
    most = max(took.cached, key=took.cached.__getitem__)
    spent = {"uncached": took.uncached, "cached": took.cached}
    with left:
        st.markdown("**" + said["waits"].format(share=took.cached[most] / took.totals[1], what=WAITS[most][0]) + "**")
        colour_key(shades(*_waits(spent, whole)))
        plot(drawn_once(time_figure, spent, totals), key="c_time")
    part = "" if read["weight_bytes"] > 0.99 * held else f" (of {human(held)})"
    why = "" if most == "arithmetic" else said["step"].format(weights=human(read["weight_bytes"]), part=part)
    behind = [("hidden", took.hidden), ("covered", took.covered if took.covered > SEEN * whole else 0.0)]
    hides = " and ".join(said[name].format(seconds=_seconds(seconds, whole)) for name, seconds in behind if seconds)
    hidden = said["hides"].format(hides) if hides else ""
    rates = f"{figure_of(roof.flops, 'FLOP/s')} in {GPU_DTYPE}, {figure_of(roof.read, 'B/s')}"
    gpu = f"the {row.title}" if cards == 1 else said["cards"].format(count=f"{cards:,}", gpu=row.title)
    each = " each" if cards > 1 else ""
    gain = two_digits(took.gain)
    falls = said["falls"].format(
        work=_times(saving(case)), gain="hardly at all" if gain == "1" else f"only {gain} times"
    )
    both = falls if LESS * took.gain < saving(case) else "Both"
    right.markdown(said["time"].format(both=both, hidden=hidden, why=why))
    right.caption(said["rates"].format(source=row.source, gpu=gpu, rates=f"{rates}{each}"))


def _waits(spent: Mapping[str, Mapping[str, float]], whole: float) -> list[tuple[str, str]]:
    """Name each piece of the bars that can be seen, with its colour; one that has no room for its seconds with them."""
    seen = []
    for name, (title, colour) in WAITS.items():
        seconds = [each[name] for each in spent.values()]
        if max(seconds) > WIDE * whole:
            seen.append((title, colour))
        elif max(seconds) > SEEN * whole:
            seen.append((f"{title} ({' and '.join(_seconds(each, whole) for each in seconds)})", colour))
    return seen


def _seconds(seconds: float, whole: float) -> str:
    """A part of a time in the unit that the whole is told in."""
    return f"{two_digits(seconds)} s" if whole >= 1 else brief(seconds, 2)


def _digits(first: int, without: float, within: float, told: Callable[[float], str]) -> int:
    """The fewest digits, from `first` on, with which two amounts as they are shown have the ratio that is told."""

    def shown(digits: int) -> str:
        return told(float(f"{without:.{digits}g}") / float(f"{within:.{digits}g}"))

    return next((digits for digits in range(first, 5) if shown(digits) == told(without / within)), 5)


def _times(times: float) -> str:
    return f"{times:,.0f}" if times >= 100 else f"{times:.3g}"


def parts_of_a_step(case: Case) -> None:
    """Draw a step without the cache and one with it, each divided into its parts, against the context."""
    count, end = full(case), case.last_step
    others = _others(count)
    if not count.overtakes:
        claim = "What a step is made of"
    elif count.overtakes > end:
        claim = f"Attention costs more than {others} only from {count.overtakes:,} tokens on; this run ends at {end:,}"
    else:
        claim = f"From {count.overtakes:,} tokens on, attention costs more than {others}"
    st.header(claim, anchor="parts")
    xs = _points(1, axis_end(end, count.overtakes))
    marks = [(end, "this run ends")] if end < xs[-1] else []
    if count.overtakes and count.overtakes < xs[-1]:
        marks.append((count.overtakes, "attention overtakes"))
    coarse = 0.0, ""
    for place, mode, step in zip(st.columns(2, gap="medium"), CASES, (count.uncached, count.cached), strict=True):
        parts = _stacked([step(n) for n in xs])
        size, prefix = scaled(sum(values[-1] for values in parts.values()) / 10)  # the axis has no second unit then
        unit = f"{prefix}FLOP"
        finer = f" ({coarse[0] / size:,.0f} = 1 {coarse[1]})" if coarse[0] > size else ""
        coarse, scale = (size, unit), f" for a step{finer}"
        figure = drawn_once(
            area_figure, xs, parts, x_title="context T, tokens", unit=unit, size=size, scale=scale, marks=marks
        )
        all_, last = (sum(of(xs[-1]).values()) for of in (count.uncached, step))
        claim = TEXTS["cost"][f"parts_{mode}"].format(
            work=f"{amount(last, size)} {unit}", edge=xs[-1], less=two_digits(all_ / last)
        )
        plot(figure, place, key=f"c_parts_{mode}", claim=claim)
    said = TEXTS["cost"]["parts"], output_layer(count.uncached(xs[-1]), count.cached(xs[-1]))
    st.markdown(" ".join(filter(None, [*said, _says(case, xs[-1], count.overtakes, others)])))
    st.caption(TEXTS["cost"]["counted"])
    if not case.model:
        st.latex(
            r"\begin{aligned}\text{a layer over } T: &\underbrace{24\,T\,d^2}_{\text{matrices}} + "
            r"\underbrace{4\,T^2\,d}_{\text{attention}}\ \text{FLOPs,}\\&\text{equal at } T = 6\,d"
            f" = {_tex(6 * case.width)}"
            r"\end{aligned}"
        )
        st.caption(TEXTS["cost"]["plain_layer"])


def axis_end(end: int, overtakes: int | None) -> int:
    """The last context drawn: where the run ends, or past where attention overtakes; a round number, at least 3."""
    last = max(end, round(1.3 * min(overtakes or 0, 200_000)), 3)
    unit = 10 ** max(len(str(last)) - 2, 0)
    return -(-last // unit) * unit


def output_layer(without: Mapping[str, float], within: Mapping[str, float]) -> str:
    """Say why the output layer is seen only in the step with the cache; '' where that is not so."""
    head = without.get("head", 0)
    thin, seen = head <= SEEN * sum(without.values()), within.get("head", 0) > SEEN * sum(within.values())
    if not (head and head == within["head"] and thin and seen):
        return ""
    return "The **output layer** scores one token in both: on the left it is too thin to be seen."


def _stacked(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """The parts of the steps that have any, what grows with the context on top."""
    return {term: [row.get(term, 0) for row in rows] for term in PARTS if any(term in row for row in rows)}


def _others(count: Count) -> str:
    """Name what attention is held against: the products of a layer that are not its own."""
    plain_layer = count.uncached(1).keys() <= {"projections", "mlp", "head", "attention"}
    return "projections and MLP" if plain_layer else "the layers' other products"


def _says(case: Case, edge: int, overtakes: int | None, others: str) -> str:
    if overtakes is None:
        return "No attention in this model: nothing grows with the square of the context."
    limit = shape_of(case.model).spec.context if case.model else None
    beyond = ""
    if limit and limit < overtakes:
        beyond = f" It overtakes {others} at **{overtakes:,}** tokens, beyond its {limit:,} positions."
    further = f"; the charts go on to {edge:,}, past where attention overtakes" if edge > 1.1 * case.last_step else ""
    return (
        f"In this run's last step without the cache, over {case.last_step:,} tokens, attention is "
        f"**{attention_share(case):.1%}** of the work{further}.{beyond}"
    )


def shorthand(case: Case) -> None:
    """Draw the run's cost by the shorthand, the formula with the numbers put in and each step, to be opened."""
    title = "On paper: the shorthand T · d², and why it comes to another ratio"
    fold(title, "c_shorthand", lambda: _shorthand(case))


def _shorthand(case: Case) -> None:
    st.markdown(TEXTS["cost"]["shorthand"])
    left, right = st.columns([3, 2], gap="medium", vertical_alignment="center")
    xs = _points(1, max(case.new, 2))
    parts: dict[str, list[float]] = {
        "linear": [x * case.prompt * case.width**2 for x in xs],
        "square": [x**2 * case.width**2 / 2 for x in xs],
    }
    cached = [(case.prompt + x) * case.width**2 for x in xs]
    figure = drawn_once(
        area_figure, xs, parts, x_title="new tokens N", unit=" multiply-adds", scale=" of one product", cached=cached
    )
    more = "the prompt, read again" if case.linear >= case.square else "the new tokens, read again"
    claim = f"By the shorthand, most of the work without the cache is {more} for each new token"
    plot(figure, left, key="c_areas", claim=claim)
    with right:
        st.latex(_equation(case))
        st.caption(TEXTS["cost"]["differs"])
    _steps(case)


def _equation(case: Case) -> str:
    sums = [_tex(value) for value in (case.linear, case.square, case.uncached, case.cached)]
    return (
        r"\begin{aligned}\text{without: }& N P d^2 + N^2 d^2 / 2\\"
        rf"&= {sums[0]}\\&\quad + {sums[1]}\\&= {sums[2]}\\"
        rf"\text{{with: }}&(P + N)\,d^2 = {sums[3]}\\"
        rf"\text{{ratio: }}&{_times(case.ratio)}"
        r"\end{aligned}"
    )


def _tex(value: float) -> str:
    """A number with all its digits; one of many with three, so that a formula fits its column."""
    if value >= 1e13:
        size, power = f"{value:.2e}".split("e")
        return rf"{size} \cdot 10^{{{int(power)}}}"
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    return text.replace(",", "{,}")


def _steps(case: Case) -> None:
    steps = case.steps()
    some = steps if len(steps) <= 200 else [*steps[:100], *steps[-100:]]  # the first and the last
    rows = [{"Generate": f"token {t:,}", "The pass sees T": n, "Cost, T d²": cost} for t, n, cost in some]
    draw_table(rows, height=340, columns=localized("The pass sees T", "Cost, T d²"))
    exact = sum(cost for _, _, cost in steps)
    st.caption(
        f"Summed up exactly: {exact:,}, since the steps count from 0: N (N − 1) / 2 where the formula says N² / 2."
    )


def asked(case: Case) -> None:
    """Answer questions about the cost with the numbers of this case, to be opened."""
    words = "Four questions, answered for this run: O(T²), the saving, a constant step, the larger term"

    def answers() -> None:
        for question, counted in questions(case):
            st.markdown(f"**{question}** {counted}")

    fold(words, "c_asked", answers)


def cache(case: Case) -> None:
    """Say how the memory that the cache takes is worked out, to be opened."""
    nbytes, product = _cache(case)
    words = (
        f"{product}{nbytes:,} B, which is {human(nbytes)} (powers of 1024) or {figure_of(nbytes, 'B')} "
        "(powers of 1000). The last new token is chosen, and no step reads it: the cache holds P + N − 1 tokens."
    )
    fold(f"How the cache comes to {human(nbytes)}", "c_bytes", lambda: st.caption(words))


def _cache(case: Case) -> tuple[int, str]:
    """Return the cache's bytes at the end, of the model itself or of plain layers, and the product that they are."""
    tokens, layers, nbytes, heads = case.last_step, case.layers, case.cache_bytes, ""
    if case.model:
        memory = kv_memory(shape_of(case.model).spec, tokens, dtype=case.dtype)
        nbytes, layers = memory.total_bytes, len(memory.layers)
        kinds = {(row.nbytes, row.kv_heads) for row in memory.layers}
        layers = layers if len(kinds) == 1 else 0  # unlike layers are no product
        heads = f" (the keys and values of {memory.layers[0].kv_heads} KV heads)" if memory.layers[0].kv_heads else ""
    each, rest = divmod(nbytes, tokens * layers) if layers else (0, 1)
    return nbytes, f"{layers:,} layers × {tokens:,} tokens × {each:,} B{heads} = " if not rest else ""


def _points(first: int, last: int) -> list[int]:
    """Whole numbers from first to last, at most _POINTS of them."""
    count = min(_POINTS, last - first + 1)
    return sorted({first + round(i * (last - first) / max(count - 1, 1)) for i in range(count)})
