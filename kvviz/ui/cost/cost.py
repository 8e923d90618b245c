"""The cost page's widgets: the case that is asked for, and the parts of the answer."""

from collections.abc import Sequence

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.charts.cost import NAMES, area_figure, figure_of
from kvviz.cost.shorthand import MOST, PRESETS, Case, from_params, full, partings, run_flops, shape_of, to_params
from kvviz.memory.calculator import is_own, own_title, pack, parse_config, slim, unpack
from kvviz.memory.formula import DTYPE_BYTES, kv_memory
from kvviz.models.catalog.rows import models
from kvviz.ui.shared import filled, links
from kvviz.ui.shared.plots import plot

_STYLE = "<style>.katex-display { overflow-x: auto; overflow-y: hidden; }</style>"
_PLAIN, _OWN = "", "own"
_POINTS = 120


def ask() -> Case:
    """Draw the form, seeded by the link in the address bar; the link follows what is chosen."""
    st.html(_STYLE)
    _restore()
    st.pills("Examples", list(PRESETS), key="c_preset", on_change=_take)
    with st.container(border=True):
        case = _form()
    links.write("cost", to_params(case))
    return case


def _take() -> None:
    case = PRESETS.get(st.session_state.c_preset or "")
    if case is not None:
        _fill(case)


def _restore() -> None:
    """Take over a link, or, back from another page, this page's own last address."""
    came = links.arrived("cost")
    if not came and "c_width" in st.session_state:
        return
    case, problems = from_params(came or links.last("cost"))
    for problem in problems:
        st.warning(problem)
    _fill(case)


def _fill(case: Case) -> None:
    """Every widget set to the case."""
    for name in ("prompt", "new", "width", "layers", "dtype"):
        st.session_state[f"c_{name}"] = getattr(case, name)
    own = is_own(case.model)
    st.session_state["c_model"] = _OWN if own else case.model
    if own:
        st.session_state["c_own"] = case.model


def _form() -> Case:
    one, two, three, four, five = st.columns([3, 2, 2, 2, 2])
    counted = [_PLAIN, *models(), _OWN]
    model = one.selectbox(
        "Full count of",
        counted,
        filled.index("c_model", counted),
        key="c_model",
        format_func=_named,
        on_change=_adopt,
        help="The shorthand knows only L, T and d. The full count takes a plain decoder layer, or a real model.",
    )
    prompt = two.number_input("Prompt L, tokens", 1, MOST["prompt"], filled.value("c_prompt"), key="c_prompt")
    new = three.number_input("New tokens T", 1, MOST["new"], filled.value("c_new"), key="c_new")
    width = four.number_input(
        "Hidden size d", 1, MOST["width"], filled.value("c_width"), key="c_width", disabled=bool(model)
    )
    layers = five.number_input(
        "Layers", 1, MOST["layers"], filled.value("c_layers"), key="c_layers", disabled=bool(model)
    )
    if model == _OWN:
        model = _own_config()
    dtype = st.session_state.get("c_dtype", "float32")
    with st.expander(f"Precision of the cache: {dtype}"):
        dtype = st.segmented_control("Precision", list(DTYPE_BYTES), default=dtype, key="c_dtype", required=True)
    return Case(int(prompt), int(new), int(width), int(layers), dtype, model)


def _named(key: str) -> str:
    if key == _PLAIN:
        return "plain layers of width d"
    return "Your own config" if key == _OWN else models()[key].title


def _adopt() -> None:
    """A model brings its own d and its own layers."""
    key = st.session_state.c_model
    if key in models():
        _adopt_shape(key)
    elif key == _OWN and st.session_state.get("c_own"):
        _adopt_shape(st.session_state["c_own"])


def _adopt_shape(key: str) -> None:
    try:
        shape = shape_of(key)
    except KvvizError:
        return  # the count itself will say why
    st.session_state["c_width"], st.session_state["c_layers"] = shape.hidden, len(shape.layers)


def _own_config() -> str:
    """A pasted config; the last one that could be read stays until another can."""

    def paste() -> None:
        st.session_state["c_problem"] = ""
        try:
            st.session_state["c_own"] = pack(slim(parse_config(st.session_state.c_paste)))
            _adopt_shape(st.session_state["c_own"])
        except KvvizError as error:
            st.session_state["c_problem"] = str(error)

    st.text_area("config.json", key="c_paste", height=120, placeholder='{"model_type": …}', on_change=paste)
    if st.session_state.get("c_problem"):
        st.warning(st.session_state["c_problem"])
    own = st.session_state.get("c_own", "")
    st.caption(f"Counting {own_title(unpack(own))}." if own else "Paste a config; until then plain layers are counted.")
    return own


def shorthand(case: Case) -> None:
    """The headline figures, the formula with the numbers put in, and what its two terms are."""
    one, two, three, four = st.columns(4)
    one.metric("Without the cache, operations", figure_of(case.uncached), border=True)
    two.metric("With the cache, operations", figure_of(case.cached), border=True)
    three.metric("Ratio by the shorthand", f"{case.ratio:,.1f}×", border=True)
    four.metric("The cache at the end", human(case.cache_bytes), border=True)
    st.latex(_equation(case))
    st.caption(
        f"The cache: 2 × {case.layers:,} layers × {case.prompt + case.new:,} tokens × {case.width:,} × "
        f"{DTYPE_BYTES[case.dtype]} B = {case.cache_bytes:,} B, which is {human(case.cache_bytes)} (powers of 1024) "
        f"or {_decimal(case.cache_bytes)} (powers of 1000), with as many KV heads as query heads.{_own_cache(case)}"
    )


def _own_cache(case: Case) -> str:
    """What the chosen model itself keeps, where that is something else."""
    try:
        spec = shape_of(case.model).spec if case.model else None
    except KvvizError:
        return ""  # the full count will say why
    if spec is None:
        return ""
    own = kv_memory(spec, case.prompt + case.new, dtype=case.dtype).total_bytes
    name = "Your model" if is_own(case.model) else models()[case.model].title
    return f" **{name} itself keeps {human(own)}.**" if own != case.cache_bytes else ""


def _decimal(value: int) -> str:
    return figure_of(value, "B")


def _equation(case: Case) -> str:
    n, t, d = (_tex(value) for value in (case.prompt, case.new, case.width))
    return (
        r"\begin{aligned}\text{without: }&"
        rf"\underbrace{{T L d^2}}_{{{t}\cdot{n}\cdot{d}^2 = {_tex(case.linear)}}} + "
        rf"\underbrace{{T^2 d^2 / 2}}_{{{t}^2\cdot{d}^2/2 = {_tex(case.square)}}} = {_tex(case.uncached)}\\"
        rf"\text{{with: }}&(L + T)\,d^2 = {_tex(case.prompt + case.new)}\cdot{d}^2 = {_tex(case.cached)}"
        r"\end{aligned}"
    )


def _tex(value: float) -> str:
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    return text.replace(",", "{,}")


def areas(case: Case) -> None:
    """The two terms against the number of new tokens, and the table of the steps."""
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.subheader("Two terms", anchor=False)
        xs = _points(1, max(case.new, 2))
        parts = {
            "linear": [x * case.prompt * case.width**2 for x in xs],
            "square": [x**2 * case.width**2 / 2 for x in xs],
        }
        plot(area_figure(xs, parts, x_title="new tokens T", unit=" operations"), key="c_areas")
        st.caption(
            f"Look which area is the wider at the right edge: linear over quadratic is 2 L / T = "
            f"**{case.linear_over_square:,.4g}**, whatever d is."
        )
    with right:
        st.subheader("Step by step", anchor=False)
        rows = [{"Generate": f"token {t:,}", "Forward sees": n, "Cost, n d²": cost} for t, n, cost in _some(case)]
        whole = st.column_config.NumberColumn(format="localized")
        columns = dict.fromkeys(("Forward sees", "Cost, n d²"), whole)
        st.dataframe(rows, hide_index=True, height=340, column_config=columns)
        exact = sum(cost for _, _, cost in case.steps())
        st.caption(
            f"Summed up exactly: {exact:,}, since the steps count from 0: T (T − 1) / 2 where the formula says T² / 2."
        )


def _some(case: Case) -> Sequence[tuple[int, int, int]]:
    """All steps, or the first and the last hundred."""
    steps = case.steps()
    return steps if len(steps) <= 200 else [*steps[:100], *steps[-100:]]


def _points(first: int, last: int) -> list[int]:
    """Whole numbers from first to last, at most _POINTS of them."""
    count = min(_POINTS, last - first + 1)
    return sorted({first + round(i * (last - first) / (count - 1)) for i in range(count)})


def whole_count(case: Case) -> None:
    """A step with and without the cache, everything counted, against the context."""
    st.subheader("Everything counted", anchor=False)
    count = full(case)
    st.latex(
        r"\text{a plain layer over } n \text{ tokens: } \underbrace{24\,n\,d^2}_{\text{matrices}} + "
        r"\underbrace{4\,n^2\,d}_{\text{attention}}\ \text{FLOPs, equal at } n = 6\,d"
        + (f" = {_tex(6 * case.width)}" if not case.model else "")
    )
    st.caption(_says(case, count.overtakes))
    reach = max(case.prompt + case.new, round(1.3 * min(count.overtakes or 0, 200_000)), 3)
    left, right = st.columns(2, gap="large")
    panels = ((left, "Without the cache", count.uncached, "u"), (right, "With the cache", count.cached, "c"))
    for column, title, step, key in panels:
        xs = _points(1, reach if key == "u" else max(case.prompt + case.new, 3))
        rows = [step(n) for n in xs]
        parts = {term: [row.get(term, 0) for row in rows] for term in _stacked({t for row in rows for t in row})}
        mark = (count.overtakes, "the square overtakes") if key == "u" and count.overtakes else None
        with column:
            st.markdown(f"**{title}**, one step")
            drawn = area_figure(xs, parts, x_title="context, tokens", unit="FLOP", mark=mark)
            plot(drawn, key=f"c_full_{key}")
    without, within = run_flops(case)
    st.markdown(
        f"The whole run of {case.prompt:,} + {case.new:,} tokens: **{figure_of(without, 'FLOP')}** without the cache, "
        f"**{figure_of(within, 'FLOP')}** with it, **{without / within:,.1f}×**."
    )


def _stacked(terms: set[str]) -> list[str]:
    """Terms from the bottom up: what grows with the context on top."""
    return [term for term in NAMES if term in terms]


def _says(case: Case, overtakes: int | None) -> str:
    if not case.model:
        return (
            "Query, key, value and output are 4 d² weights, an MLP four times as wide 8 d²; each costs 2 FLOPs a token."
        )
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
    """Where the shorthand and the full count part."""
    st.subheader("Where the two part", anchor=False)
    st.markdown(
        "The shorthand is a good first look: it shows why the cost climbs. Its limits, with the numbers of this case:"
    )
    rows = "\n".join(f"| {row.said} | {row.counted} |" for row in partings(case))
    st.markdown(f"| A widely used shorthand says | The full count |\n|---|---|\n{rows}")
    st.caption(
        "FLOPs of matrix products, attention and convolutions, as transformers computes them (the causal half that is "
        "masked included); norms, softmax and other elementwise work are left out. `kvviz cost MODEL` prints the same."
    )


def draw(case: Case) -> None:
    """All of the answer; what can't be counted is said in a sentence."""
    shorthand(case)
    areas(case)
    try:
        full(case)
    except KvvizError as error:
        st.warning(f"The full count: {error}")
        return
    whole_count(case)
    parting(case)
