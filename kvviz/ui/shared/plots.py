"""Figures and formulas on a page: in colours that stand out from it, light or dark, and no wider than it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.hashing import data_digest
from kvviz.charts import palette
from kvviz.charts.layout import for_page
from kvviz.ui.shared.component import component

Thing = TypeVar("Thing")
Options = Mapping[str, object]  # Plotly's, of a chart
CHART: Options = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "sendChartToCloud"]}
BUTTON = 26  # pixels below a chart, for the button that opens its figures as a table (frame.css)
MEMORY_CHART = {**CHART, "toImageButtonOptions": {"format": "svg", "filename": "kvviz-memory"}}


class Drawn(NamedTuple):
    """A figure as plotly.js reads it, and its height in pixels."""

    figure: str
    height: int


_chart = component("kvviz_chart", "shared/plot.js", "kv-plot")


def plot(
    figure: object,
    place: DeltaGenerator | None = None,
    *,
    key: str,
    claim: str = "",
    config: Options = CHART,
    together: tuple[str, int, int] | None = None,
) -> None:
    """Draw a figure, made for a light page, on this one; `claim` says above it what it shows.

    `together`: the name of charts whose figures one button opens, below the last; this one's place among how many.
    """
    ready = figure if isinstance(figure, Drawn) else Drawn(*for_page(figure, dark=_dark()))
    with (place or st).container(gap=None):
        if claim:
            st.markdown(f"**{claim}**")
        data: dict[str, object] = {"figure": ready.figure, "config": dict(config)}
        if together:
            group, number, count = together
            data |= {"group": group, "number": number, "last": number == count - 1, "claim": claim}
        _chart(key=f"chart_{key}", data=data, height=ready.height + BUTTON)


def drawn_once(make: Callable[..., object], *args: object, **kwargs: object) -> Drawn:
    """Draw the figure that `make` returns, or take it from an earlier call with equal arguments.

    All visitors mostly see the same figures, and to build one takes the server up to a fifth of a second. Arguments are
    data, and equal if their `data_digest` is.
    """
    return _kept(_name(make), data_digest((args, kwargs)), _dark(), lambda: [make(*args, **kwargs)])[0]


def all_drawn_once(make: Callable[..., Sequence[object]], *args: object) -> Sequence[Drawn]:
    """Draw the figures that `make` returns, as `drawn_once` does one."""
    return _kept(_name(make), data_digest(args), _dark(), lambda: make(*args))


def _name(make: Callable[..., object]) -> str:
    return f"{make.__module__}.{make.__qualname__}"


@st.cache_resource(max_entries=200, show_spinner=False)
def _kept(name: str, digest: bytes, dark: bool, _make: Callable[[], Sequence[object]]) -> Sequence[Drawn]:
    return [Drawn(*for_page(figure, dark=dark)) for figure in _make()]


def _dark() -> bool:
    return bool(st.context.theme.type == "dark")


def colour_key(colours: Mapping[str, tuple[str, str]], *, hatched: Mapping[str, tuple[str, str]] | None = None) -> None:
    """Explain the colours of the figures below: words, and the colour on a light and on a dark page."""
    fills = {words: f"light-dark({light},{dark})" for words, (light, dark) in colours.items()}
    for words, (light, dark) in (hatched or {}).items():
        fills[words] = f"repeating-linear-gradient(135deg,light-dark({light},{dark}) 0 2px,transparent 2px 5px)"
    mark = "display:inline-block;width:14px;height:14px;margin-right:.4rem;border-radius:3px;vertical-align:-2px"
    said = "".join(f'<span><i style="{mark};background:{fill}"></i>{words}</span>' for words, fill in fills.items())
    st.html(f'<div style="display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.92rem">{said}</div>')


def shades(*parts: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """The colours of a figure's parts on a light and on a dark page, for `colour_key`."""
    return {name: (colour, palette.ON_DARK.get(colour, colour)) for name, colour in parts}


def in_pairs(things: Sequence[Thing]) -> Iterator[tuple[DeltaGenerator, Thing]]:
    """Each thing with its column, two beside one another; one that would be left over stands beside the last two."""
    over = len(things) % 2 if len(things) > 1 else 0
    starts = range(0, max(1, len(things) - over), 2)
    for start in starts:
        some = things[start:] if start == starts[-1] else things[start : start + 2]
        yield from zip(st.columns(max(2, len(some)), gap="medium"), some, strict=False)


def choose_picture(key: str, filename: str = "kvviz") -> Options:
    """Choose what the camera button of a chart saves in the browser; returns the chart's options."""
    kinds, how = ["PNG", "SVG"], "What the camera saves, at a chart's corner while the pointer is over it."
    kind = st.segmented_control("Pictures", kinds, default="PNG", key=key, help=how, width="content") or "PNG"
    image = {"format": kind.lower(), "filename": filename, "scale": 1 if kind == "SVG" else 2}
    return {**CHART, "toImageButtonOptions": image}
