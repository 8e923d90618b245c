"""What the cost page shows of a case: the shorthand, its two terms, the full count, and where the two part."""

from collections.abc import Mapping, Sequence

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.charts.cost import PARTS, area_figure, figure_of, savings_figure, steps_figure
from kvviz.cost.shorthand import Case, disagreements, full, run_flops, savings, shape_of
from kvviz.memory.calculator import is_own
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import models
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import fit_formulas, plot
from kvviz.ui.shared.tables import draw_table, localized

_POINTS = 120  # of a curve


def draw(case: Case) -> None:
    """Draw all of the answer; what can't be counted is said in a sentence."""
    fit_formulas()
    problem = ""
    try:
        said_and_counted(case)
    except KvvizError as error:
        problem = str(error)
        st.warning(plain(f"The full count: {problem}"))
    shorthand(case)
    step_by_step(case)
    if not problem:
        whole_count(case)
        parting(case)


def said_and_counted(case: Case) -> None:
    """Draw what is often said of a run's saving beside what is counted. Raises KvvizError if it can't be counted."""
    found, (without, within) = savings(case), run_flops(case)
    left, right = st.columns([3, 2], gap="large", vertical_alignment="center")
    tokens = case.prompt + case.new
    claim = f"It is often said that the cache saves {tokens:,}×; counted, it saves {found['counted']:,.1f}×"
    plot(savings_figure(found), left, key="c_savings", claim=claim)
    with right:
        st.markdown(
            f"**{_name(case)}, a prompt of {case.prompt:,} and {_new(case)}:** {figure_of(without, 'FLOP')} without "
            f"the cache, {figure_of(within, 'FLOP')} with it."
        )
        st.markdown(TEXTS["cost"]["said"])
        _cache(case)


def _name(case: Case) -> str:
    if not case.model:
        return f"{case.layers:,} plain layer{'s' if case.layers > 1 else ''} of width {case.width:,}"
    return "Your model" if is_own(case.model) else models()[case.model].title


def _new(case: Case) -> str:
    return f"{case.new:,} new token{'s' if case.new > 1 else ''}"


def shorthand(case: Case) -> None:
    """Draw the run's cost by the shorthand against its new tokens; beside it the formula with the numbers put in."""
    left, right = st.columns([3, 2], gap="large")
    xs = _points(1, max(case.new, 2))
    parts: dict[str, list[float]] = {
        "linear": [x * case.prompt * case.width**2 for x in xs],
        "square": [x**2 * case.width**2 / 2 for x in xs],
    }
    cached = [(case.prompt + x) * case.width**2 for x in xs]
    figure = area_figure(
        xs, parts, x_title="new tokens N", unit=" multiply-adds", scale=" of one product", cached=cached
    )
    more = "the prompt, read again" if case.linear >= case.square else "the new tokens, read again"
    claim = f"By the shorthand, most of the work without the cache is {more} for each new token"
    plot(figure, left, key="c_areas", claim=claim)
    with right:
        st.markdown("**The shorthand: T · d² for a step that reads T tokens**")
        st.latex(_equation(case))
        st.caption(
            "Counted are the multiply-adds, of 2 FLOPs each, of one product of one layer. Each layer does the same, so "
            "the ratio holds for the whole model. Of the two terms, reading the prompt each time is 2 P / N = "
            f"**{case.linear_over_square:,.4g}** times reading the new tokens each time, whatever d is."
        )


def _cache(case: Case) -> None:
    """Say what the cache takes instead, of the model itself or of plain layers, and how that is worked out."""
    tokens, layers, nbytes, heads = case.prompt + case.new, case.layers, case.cache_bytes, ""
    if case.model:
        memory = kv_memory(shape_of(case.model).spec, tokens, dtype=case.dtype)
        nbytes, layers = memory.total_bytes, len(memory.layers)
        kinds = {(row.nbytes, row.kv_heads) for row in memory.layers}
        layers = layers if len(kinds) == 1 else 0  # unlike layers are no product
        heads = f" (the keys and values of {memory.layers[0].kv_heads} KV heads)" if memory.layers[0].kv_heads else ""
    st.markdown(f"**What the cache takes instead: {human(nbytes)} of memory at the end**")
    each, rest = divmod(nbytes, tokens * layers) if layers else (0, 1)
    product = f"{layers:,} layers × {tokens:,} tokens × {each:,} B{heads} = " if not rest else ""
    st.caption(
        f"{product}{nbytes:,} B, which is {human(nbytes)} (powers of 1024) or {figure_of(nbytes, 'B')} "
        "(powers of 1000). The last new token is read too; a run on the live page ends before that and holds one token "
        "fewer."
    )


def _equation(case: Case) -> str:
    sums = [_tex(value) for value in (case.linear, case.square, case.uncached, case.cached, round(case.ratio, 1))]
    return (
        r"\begin{aligned}\text{without: }& N P d^2 + N^2 d^2 / 2\\"
        rf"&= {sums[0]} + {sums[1]}\\&= {sums[2]}\\"
        rf"\text{{with: }}&(P + N)\,d^2 = {sums[3]}\\"
        rf"\text{{ratio: }}&{sums[4]}"
        r"\end{aligned}"
    )


def _tex(value: float) -> str:
    """A number with all its digits; one of many with three, so that a formula fits its column."""
    if value >= 1e13:
        size, power = f"{value:.2e}".split("e")
        return rf"{size} \cdot 10^{{{int(power)}}}"
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    return text.replace(",", "{,}")


def step_by_step(case: Case) -> None:
    """Draw the table of the steps, to be opened."""
    with st.expander("Step by step: what each new token costs without the cache"):
        steps = case.steps()
        some = steps if len(steps) <= 200 else [*steps[:100], *steps[-100:]]  # the first and the last
        rows = [{"Generate": f"token {t:,}", "Forward sees T": n, "Cost, T d²": cost} for t, n, cost in some]
        draw_table(rows, height=340, columns=localized("Forward sees T", "Cost, T d²"))
        exact = sum(cost for _, _, cost in steps)
        st.caption(
            f"Summed up exactly: {exact:,}, since the steps count from 0: N (N − 1) / 2 where the formula says N² / 2."
        )


def _points(first: int, last: int) -> list[int]:
    """Whole numbers from first to last, at most _POINTS of them."""
    count = min(_POINTS, last - first + 1)
    return sorted({first + round(i * (last - first) / (count - 1)) for i in range(count)})


def whole_count(case: Case) -> None:
    """Draw a step with and without the cache, everything counted, against the context."""
    without, within = run_flops(case)
    st.header("Everything counted")
    st.markdown(
        f"The shorthand counts one product a token. With all products of all layers the run of {case.prompt:,} + "
        f"{case.new:,} tokens takes **{figure_of(without, 'FLOP')}** without the cache and "
        f"**{figure_of(within, 'FLOP')}** with it: **{without / within:,.1f}×**. Its last step goes over "
        f"{case.last_step:,} tokens, because the last new token is chosen and never read; the shorthand counts it as "
        f"read, P + N = {case.prompt + case.new:,}."
    )
    count, end = full(case), case.last_step
    xs = _points(1, max(end, round(1.3 * min(count.overtakes or 0, 200_000)), 3))
    steps = {"uncached": count.uncached, "cached": count.cached}
    costs = {mode: [sum(step(n).values()) for n in xs] for mode, step in steps.items()}
    last, with_it = (
        sum(step(end).values()) for step in (count.uncached, count.cached if case.new > 1 else count.uncached)
    )
    left, right = st.columns(2, gap="large")
    claim = (
        f"This run's last step, over {end:,} tokens: {figure_of(last, 'FLOP')} without the cache, "
        f"{figure_of(with_it, 'FLOP')} with it"
    )
    mark = (end, "this run ends") if end < xs[-1] else None
    plot(steps_figure(xs, costs, mark=mark), left, key="c_full", claim=claim)
    left.caption("**Logarithmic** axis: one line up is ten times the work. The axis beside it is linear.")
    over = (
        f"From {count.overtakes:,} tokens on, attention costs more than the rest of a step" if count.overtakes else ""
    )
    mark = (count.overtakes, "attention overtakes") if count.overtakes else None
    parts = _stacked([count.uncached(n) for n in xs])
    figure = area_figure(xs, parts, x_title="context T, tokens", unit="FLOP", scale=" for a step, linear", mark=mark)
    plot(figure, right, key="c_parts", claim=over or "What a step is made of")
    right.caption(f"**Linear** axis: a step without the cache, divided into its parts. {_says(case, count.overtakes)}")
    if not case.model:
        st.latex(
            r"\text{a plain layer over } T \text{ tokens: } \underbrace{24\,T\,d^2}_{\text{matrices}} + "
            r"\underbrace{4\,T^2\,d}_{\text{attention}}\ \text{FLOPs, equal at } T = 6\,d"
            f" = {_tex(6 * case.width)}"
        )


def _stacked(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """The parts of the steps that have any, what grows with the context on top."""
    return {term: [row.get(term, 0) for row in rows] for term in PARTS if any(term in row for row in rows)}


def _says(case: Case, overtakes: int | None) -> str:
    if not case.model:
        return TEXTS["cost"]["plain_layer"]
    shape = shape_of(case.model)
    if overtakes is None:
        return "No attention in this model: nothing grows with the square of the context."
    limit = shape.spec.context
    beyond = f", beyond its {limit:,} positions" if limit and limit < overtakes else ""
    return (
        f"This model's own widths, {len(shape.layers)} layers and its output layer: attention overtakes the layers' "
        f"other products at **{overtakes:,}** tokens{beyond}."
    )


def parting(case: Case) -> None:
    """Say where the shorthand and the full count part."""
    st.header("Where the two part")
    st.markdown(TEXTS["cost"]["parting"])
    rows = "\n".join(f"| {claim} | {counted} |" for claim, counted in disagreements(case))
    st.markdown(f"| What is often said | What is counted here |\n|---|---|\n{rows}")
    st.caption(TEXTS["cost"]["counted"])
