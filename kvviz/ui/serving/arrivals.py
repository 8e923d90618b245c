"""The serving page's first section: sequences come and go in one memory, under policies side by side."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.caches.block_table import BLOCK
from kvviz.charts import claims
from kvviz.charts.serving import counts_figure, map_figure, waste_figure
from kvviz.experiments.serving.policies import Batched
from kvviz.experiments.serving.spec import RANGES, ArrivalsSpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import LONGEST, RATES, SLOTS, progress
from kvviz.ui.shared.experiment import Document, measured
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import in_pairs, plot
from kvviz.ui.shared.tables import draw_table


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    st.subheader("Fragmentation", anchor="fragmentation")
    st.markdown(TEXTS["serving"]["fragmentation"])
    words = "No model: the allocators of this project's caches, with keys and values of one number each."
    with errors_said():
        measured(scheduler, _ask(form), _draw, key="vf", words=words, progress=progress, press="Run the trace")


def _ask(form: Form) -> ArrivalsSpec:
    slot = "A slot holds the key and value of one token of one layer."
    with st.container(border=True):
        one, two, three, four, five = st.columns(5, gap="medium")
        requests = one.slider("Requests", **form.within("requests", *RANGES["requests"]))
        rate = two.select_slider("Arrivals a tick", RATES, **form.value("rate"))
        slots = three.select_slider("Memory, slots", SLOTS, help=slot, **form.value("slots"))
        longest = four.select_slider("Longest sequence", LONGEST, **form.value("longest"))
        same = "The same seed is the same requests."
        seed = five.number_input("Seed", help=same, **form.within("seed", *RANGES["seed"]))
    return ArrivalsSpec(requests, rate, slots, longest, seed)


def _draw(found: Document) -> None:
    st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"]))
    _table(found)
    running = claims.of_running(found["ways"]) or "How many run at once"
    for place, (count, claim) in in_pairs([("running", running), ("waiting", "How many wait")]):
        plot(counts_figure(found["ways"], count), place, key=f"v_{count}", claim=claim)
    st.caption(TEXTS["serving"]["batching"])
    others = [way for way in found["ways"] if way["name"] != Batched.name]  # its regions look like the reserved ones
    kept = {**found, "ways": others}
    _waste(kept)
    st.fragment(_moment)(kept)


_MEANS = {  # over the ticks at which somebody waits
    "Run at once": ("mean_running_while_some_wait", ".1f"),
    "Tokens": ("used_share_while_some_wait", ".1%"),
    "Wasted inside": ("internal_share_while_some_wait", ".1%"),
    "Wasted between": ("external_share_while_some_wait", ".1%"),
}
_COUNTS = {
    "Preempted": "preempted",
    "Computed again": "recomputed_tokens",
    "Moved": "moved_tokens",
    "Cache hits": "found_tokens",
    "Evicted": "evicted_blocks",
    "Done at tick": "ended_at_tick",
}


def _row(way: Document) -> dict[str, object]:
    means = {
        title: "nobody waits" if way[name] is None else format(way[name], how) for title, (name, how) in _MEANS.items()
    }
    return {"Policy": way["title"], **means, **{title: way[name] for title, name in _COUNTS.items()}}


def _table(found: Document) -> None:
    draw_table([_row(way) for way in found["ways"]], key="v_table")
    st.caption(TEXTS["serving"]["policies"])


def _waste(found: Document) -> None:
    st.markdown("**What the memory holds, and what is wasted of it**")
    last = max(way["ended_at_tick"] for way in found["ways"])
    for place, way in in_pairs(found["ways"]):
        place.markdown(way["title"])
        plot(waste_figure(way, found["slots"], last), place, key=f"v_waste_{way['name']}")
    st.caption(TEXTS["serving"]["waste"])


def _moment(found: Document) -> None:
    """Draw the memory of each policy at one tick, slot by slot."""
    st.markdown("**The memory at one moment**")
    stride = max(way["stride"] for way in found["ways"])
    last = max(way["ended_at_tick"] for way in found["ways"]) // stride * stride
    if last <= stride:
        st.caption("It was over too soon to look into.")
        return
    paged = next(way for way in found["ways"] if way["name"] == "paged")
    crowded = max(range(len(paged["pictures"])), key=lambda i: paged["ticks"]["used"][(i + 1) * paged["stride"] - 1])
    start = max(stride, (crowded + 1) * paged["stride"] // stride * stride)
    tick = st.slider("Tick", stride, last, start, step=stride, key=f"v_tick_{stride}_{last}")
    for place, way in in_pairs(found["ways"]):
        _memory(place, way, tick, found["slots"])
    st.caption(TEXTS["serving"]["map"])
    _formulas(found, tick)


def _memory(place: DeltaGenerator, way: Document, tick: int, slots: int) -> None:
    number = tick // way["stride"]
    picture = way["pictures"][number - 1] if number <= len(way["pictures"]) else None
    words = f"over since tick {way['ended_at_tick']:,}" if picture is None else _in_words(picture, way, tick)
    place.markdown(f"{way['title']}: {words}")
    plot(map_figure(picture, slots), place, config={"displayModeBar": False}, key=f"v_map_{way['name']}")


def _in_words(picture: Document, way: Document, tick: int) -> str:
    """Who runs and who waits at this tick, and which memory is free."""
    running, waiting = (way["ticks"][name][tick - 1] for name in ("running", "waiting"))
    head = f"**{running} run**, {waiting} wait; "
    if picture["kind"] == "regions":
        holes = [length for _, length in picture["holes"]]
        many = f"{len(holes)} holes, the largest" if len(holes) > 1 else "one hole of"
        return head + (f"{many} {max(holes):,} slots" if holes else "no hole")
    free = picture["free"]
    following = f", next {', '.join(map(str, free[:3]))} …" if free else ""
    return head + f"free list: {len(free)} block{'s' * (len(free) != 1)}{following}"


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
            st.caption(f"At tick {tick:,} nothing runs in blocks any more.")
            return
        running, wasted = (ways["paged"][name][tick - 1] for name in ("running", "internal"))
        st.latex(
            rf"\text{{wasted inside}} \le n \cdot (\text{{block}} - 1) = {running} \cdot {BLOCK - 1} = "
            rf"{running * (BLOCK - 1)}"
        )
        st.caption(f"Measured at tick {tick:,}: {wasted} slots, in {running} sequences.")
