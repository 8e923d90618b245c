"""The serving page's third section: sequences come and go in one memory, under policies side by side."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.caches.block_table import BLOCK
from kvviz.charts import claims
from kvviz.charts.memory_map import FOLLOWED, KEY, STYLE, followed, memory_map
from kvviz.charts.serving import FREE, PARTS, shares_figure, waste_figure
from kvviz.experiments.serving.policies import Growing, Paged, Prefix, Reserved
from kvviz.experiments.serving.spec import RANGES, ArrivalsSpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import LONGEST, RATES, SLOTS, progress
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import colour_key, drawn_once, in_pairs, plot, shades
from kvviz.ui.shared.tables import draw_table, localized

ORDER = (Reserved, Paged, Growing, Prefix)  # of the drawings; the first two are seen at once


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    st.markdown(TEXTS["serving"]["fragmentation"])
    bar = run_bar("arrivals")
    words = "No model runs, only the allocators of this project's caches."
    with errors_said():
        spec = _ask(bar, form)
        measured(scheduler, spec, _draw, place=bar, key="vf", words=words, progress=progress, press="Run the trace")


def _ask(bar: DeltaGenerator, form: Form) -> ArrivalsSpec:
    slot, same = "A slot holds the key and value of one token of one layer.", "The same seed is the same requests."
    with bar:
        slots = st.select_slider("Memory, in token slots", SLOTS, help=slot, width=240, **form.value("slots"))
        longest = st.select_slider("Longest sequence", LONGEST, width=240, **form.value("longest"))
        with st.popover("The requests", icon=":material/tune:"):
            requests = st.slider("Requests", **form.within("requests", *RANGES["requests"]))
            rate = st.select_slider("Arrivals in a time step", RATES, **form.value("rate"))
            seed = st.number_input("Seed", help=same, **form.within("seed", *RANGES["seed"]))
    return ArrivalsSpec(requests, rate, slots, longest, seed)


def _draw(found: Document) -> None:
    ways = {way["name"]: way for way in found["ways"]}
    drawn = [ways[policy.name] for policy in ORDER]
    st.fragment(_moment)(found, drawn)
    whole = "All five policies over the whole trace: what fills the memory, and what that costs"
    fold(whole, "v_on_average", lambda: _on_average(found))

    def over_time() -> None:
        colour_key(shades(*PARTS.values()))
        last = max(way["ended_at_tick"] for way in drawn)
        for number, place in enumerate(st.columns(2, gap="large")):
            plot(drawn_once(waste_figure, drawn[number::2], found["slots"], last), place, key=f"v_waste_{number}")
        st.caption(TEXTS["serving"]["waste"])

    fold("The memory over time, and when each policy is done", "v_over_time", over_time)


def _moment(found: Document, drawn: list[Document]) -> None:
    """Draw the memory of each policy at one tick, slot by slot."""
    stride = max(way["stride"] for way in drawn)
    last = max(way["ended_at_tick"] for way in drawn) // stride * stride
    if last <= stride:
        st.caption("It was over too soon to look into.")
        return
    paged = next(way for way in drawn if way["name"] == Paged.name)
    crowded = max(range(len(paged["pictures"])), key=lambda i: paged["ticks"]["used"][(i + 1) * paged["stride"] - 1])
    start = max(stride, (crowded + 1) * paged["stride"] // stride * stride)
    title, (moved, key) = st.container(), st.columns([2, 3], gap="large", vertical_alignment="center")
    tick = moved.slider("Time step", stride, last, start, step=stride, key=f"v_tick_{stride}_{last}")
    title.header(claims.of_moment(drawn, tick), anchor="fragmentation")
    one = followed(*(_picture(way, tick) for way in drawn[:2]))
    with key:
        states = dict(list(KEY.items())[: 2 + any(_some_free(way, tick) for way in drawn[:2])])
        colour_key(({f"tokens of request {one[0]}": FOLLOWED} if one else {}) | states)
    st.html(STYLE)
    _maps(drawn[:2], found["slots"], tick, one and one[0])
    lies = "**Request {}** is one piece if it reserves, and {} blocks if paged, wherever one was free. "
    st.markdown((lies.format(*one) if one and one[1] > 1 else "") + TEXTS["serving"]["map"])

    def more() -> None:
        colour_key(KEY)
        _maps(drawn[2:], found["slots"], tick)
        st.caption(TEXTS["serving"]["map_more"])

    fold(
        "The same time step under two more policies: in one piece that grows, and in blocks that are shared",
        "v_more_policies",
        more,
    )
    formulas = "How many fit, and how much is wasted at most: the two formulas"
    fold(formulas, "v_formulas", lambda: _formulas(found, tick))


def _some_free(way: Document, tick: int) -> bool:
    """Say whether a slot of a policy's memory belongs to nobody at a tick."""
    at = way["ticks"]
    return tick > len(at["free"]) or at["free"][tick - 1] + at["external"][tick - 1] > 0


def _picture(way: Document, tick: int) -> Document | None:
    """Return a policy's memory at a tick; None once all requests are done."""
    number = tick // way["stride"]
    return way["pictures"][number - 1] if number <= len(way["pictures"]) else None


def _maps(drawn: list[Document], slots: int, tick: int, follow: int | None = None) -> None:
    """Draw the memory of two policies side by side."""
    for place, way in in_pairs(drawn):
        picture = _picture(way, tick)
        words = _in_words(way, tick) if picture else f"over since time step {way['ended_at_tick']:,}"
        place.markdown(f"**{way['title']}**: {words}")
        place.html(memory_map(picture, slots, follow))


def _in_words(way: Document, tick: int) -> str:
    """How many run, wait and are done at this tick, and what the whole memory holds: percents whose sum is 100."""
    at = {name: values[tick - 1] for name, values in way["ticks"].items()}
    names = {"used": "tokens", "internal": "taken and empty", "external": "free, in holes too small", "free": "free"}
    whole = sum(at[name] for name in names)
    shares = {name: round(100 * at[name] / whole) for name in names}
    shares[max(shares, key=shares.__getitem__)] += 100 - sum(shares.values())  # what rounding has left
    parts = ", ".join(f"{share}% {names[name]}" for name, share in shares.items() if share)
    come = at["running"] + at["waiting"] + at["done"]
    return f"of {come} requests so far, {at['running']} run, {at['waiting']} wait, {at['done']} are done  \n{parts}"


def _on_average(found: Document) -> None:
    """Draw the parts of the memory under each policy, and a table of what else happened."""
    st.markdown(f"**{claims.of_waste(found['ways'])}**")
    colour_key(shades(*PARTS.values(), FREE))
    plot(drawn_once(shares_figure, found["ways"]), key="v_shares")
    draw_table([_row(way) for way in found["ways"]], key="v_table", columns=localized(*_COUNTS))
    st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"]))
    dashes = any(way[_RUNNING] is None for way in found["ways"])
    st.caption(TEXTS["serving"]["policies"] + (f" {TEXTS['serving']['dash']}" if dashes else ""))


_RUNNING = "mean_running_while_some_wait"
_COUNTS = {
    "Preempted": "preempted",
    "Computed again": "recomputed_tokens",
    "Moved": "moved_tokens",
    "Cache hits": "found_tokens",
    "Evicted": "evicted_blocks",
    "Done at time step": "ended_at_tick",
}


def _row(way: Document) -> dict[str, object]:
    mean = "–" if way[_RUNNING] is None else f"{way[_RUNNING]:.1f}"
    return {"Policy": way["title"], "Run at once": mean, **{title: way[name] for title, name in _COUNTS.items()}}


def _formulas(found: Document, tick: int) -> None:
    slots, longest = found["slots"], found["trace"]["longest"]
    ways = {way["name"]: way["ticks"] for way in found["ways"]}
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Reserved for the longest**: so many fit, whatever they write.")
        st.latex(
            rf"\left\lfloor \frac{{\text{{slots}}}}{{\text{{longest}}}} \right\rfloor = "
            rf"\left\lfloor \frac{{{slots}}}{{{longest}}} \right\rfloor = {slots // longest}"
        )
        most = max(ways["reserved"]["running"])
        st.caption(f"Measured: at most {most} ran at once.")
    with right:
        st.markdown("**In blocks**: only the last block of a sequence can have empty slots.")
        if tick > len(ways["paged"]["tick"]):
            st.caption(f"At time step {tick:,} nothing runs in blocks any more.")
            return
        running, wasted = (ways["paged"][name][tick - 1] for name in ("running", "internal"))
        st.latex(
            rf"\text{{wasted inside}} \le n \cdot (\text{{block}} - 1) = {running} \cdot {BLOCK - 1} = "
            rf"{running * (BLOCK - 1)}"
        )
        st.caption(f"Measured at time step {tick:,}: {wasted} slots, in {running} sequences.")
