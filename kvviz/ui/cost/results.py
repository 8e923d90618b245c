"""What the cost page shows of a case: the shorthand, its two terms, the full count, and where the two part."""

from collections.abc import Mapping, Sequence

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.charts.cost import PARTS, area_figure, figure_of, most
from kvviz.cost.shorthand import Case, disagreements, full, run_flops, shape_of
from kvviz.memory.calculator import is_own
from kvviz.memory.formula import DTYPE_BYTES, kv_memory
from kvviz.models.catalog.rows import models
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import fit_formulas, plot
from kvviz.ui.shared.tables import draw_table, localized

_POINTS = 120  # of a curve


def draw(case: Case) -> None:
    """Draw all of the answer; what can't be counted is said in a sentence."""
    fit_formulas()
    shorthand(case)
    areas(case)
    try:
        full(case)
    except KvvizError as error:
        st.warning(plain(f"The full count: {error}"))
        return
    whole_count(case)
    parting(case)


def shorthand(case: Case) -> None:
    """Draw the headline figures, the formula with the numbers put in, and what its two terms are."""
    one, two, three, four = st.columns(4)
    one.metric("No cache, operations", figure_of(case.uncached), border=True)
    two.metric("KV cache, operations", figure_of(case.cached), border=True)
    three.metric("Ratio by the shorthand", f"{case.ratio:,.1f}×", border=True)
    four.metric("The cache at the end", human(case.cache_bytes), border=True)
    st.latex(_equation(case))
    st.caption(
        f"The cache: 2 × {case.layers:,} layers × {case.prompt + case.new:,} tokens × {case.width:,} × "
        f"{DTYPE_BYTES[case.dtype]} B = {case.cache_bytes:,} B, which is {human(case.cache_bytes)} (powers of 1024) "
        f"or {figure_of(case.cache_bytes, 'B')} (powers of 1000), with as many KV heads as query heads and the last "
        "new token read too; a run on the live page ends before that and holds one token fewer." + _own_cache(case)
    )


def _own_cache(case: Case) -> str:
    """What the chosen model itself keeps, if that is something else."""
    try:
        spec = shape_of(case.model).spec if case.model else None
    except KvvizError:
        return ""  # the full count will say why
    if spec is None:
        return ""
    own = kv_memory(spec, case.prompt + case.new, dtype=case.dtype).total_bytes
    name = "Your model" if is_own(case.model) else models()[case.model].title
    return f" **{name} itself keeps {human(own)}.**" if own != case.cache_bytes else ""


def _equation(case: Case) -> str:
    p, n, d = (_tex(value) for value in (case.prompt, case.new, case.width))
    return (
        r"\begin{aligned}\text{without: }&"
        rf"\underbrace{{N P d^2}}_{{{n}\cdot{p}\cdot{d}^2 = {_tex(case.linear)}}} + "
        rf"\underbrace{{N^2 d^2 / 2}}_{{{n}^2\cdot{d}^2/2 = {_tex(case.square)}}} = {_tex(case.uncached)}\\"
        rf"\text{{with: }}&(P + N)\,d^2 = {_tex(case.prompt + case.new)}\cdot{d}^2 = {_tex(case.cached)}"
        r"\end{aligned}"
    )


def _tex(value: float) -> str:
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    return text.replace(",", "{,}")


def areas(case: Case) -> None:
    """Draw the two terms against the number of new tokens, and the table of the steps."""
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.header("Two terms")
        xs = _points(1, max(case.new, 2))
        parts: dict[str, list[float]] = {
            "linear": [x * case.prompt * case.width**2 for x in xs],
            "square": [x**2 * case.width**2 / 2 for x in xs],
        }
        plot(area_figure(xs, parts, x_title="new tokens N", unit=" operations"), key="c_areas")
        st.caption(
            f"Look which area is the wider at the right edge: linear over quadratic is 2 P / N = "
            f"**{case.linear_over_square:,.4g}**, whatever d is."
        )
    with right:
        st.header("Step by step")
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
    st.header("Everything counted")
    count = full(case)
    st.latex(
        r"\text{a plain layer over } T \text{ tokens: } \underbrace{24\,T\,d^2}_{\text{matrices}} + "
        r"\underbrace{4\,T^2\,d}_{\text{attention}}\ \text{FLOPs, equal at } T = 6\,d"
        + (f" = {_tex(6 * case.width)}" if not case.model else "")
    )
    st.caption(_says(case, count.overtakes))
    reach = max(case.prompt + case.new, round(1.3 * min(count.overtakes or 0, 200_000)), 3)
    alike = st.toggle(
        "Both on one scale", value=True, key="c_alike", help="Off: each axis ends at its own largest step."
    )
    xs = _points(1, reach)
    panels = {"u": ("No cache", count.uncached), "c": ("KV cache", count.cached)}
    steps = {key: _stacked([step(n) for n in xs]) for key, (_, step) in panels.items()}
    top = max(map(most, steps.values())) if alike else None
    for column, key in zip(st.columns(2, gap="large"), panels, strict=True):
        mark = (count.overtakes, "the square overtakes") if key == "u" and count.overtakes else None
        drawn = area_figure(xs, steps[key], x_title="context T, tokens", unit="FLOP", mark=mark, top=top)
        claim = f"{panels[key][0]}: a step costs at most {figure_of(most(steps[key]), 'FLOP')} here"
        plot(drawn, column, key=f"c_full_{key}", claim=claim)
    without, within = run_flops(case)
    st.markdown(
        f"The whole run of {case.prompt:,} + {case.new:,} tokens: **{figure_of(without, 'FLOP')}** without the cache, "
        f"**{figure_of(within, 'FLOP')}** with it, **{without / within:,.1f}×**, where the shorthand said "
        f"{case.ratio:,.1f}×."
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
        f"This model's own widths, {len(shape.layers)} layers and its head: attention overtakes the layers' other "
        f"products at **{overtakes:,}** tokens{beyond}."
    )


def parting(case: Case) -> None:
    """Say where the shorthand and the full count part."""
    st.header("Where the two part")
    st.markdown(TEXTS["cost"]["parting"])
    rows = "\n".join(f"| {claim} | {counted} |" for claim, counted in disagreements(case))
    st.markdown(f"| What is often said | What is counted here |\n|---|---|\n{rows}")
    st.caption(TEXTS["cost"]["counted"])
