"""What the roofline page shows of a measured document: where the time goes, the roofline, batches, every figure."""

from functools import partial
from typing import Any

import streamlit as st

from kvviz.base.precision import precision
from kvviz.base.words import human, millis, two_digits
from kvviz.charts import claims
from kvviz.charts.cost import figure_of, scaled
from kvviz.charts.roofline import (
    CLASSES,
    SPENT,
    batch_figure,
    profile_figure,
    roofline_figure,
    uncached_alone,
    uncached_rates,
    untold,
    waiting,
    waiting_figure,
)
from kvviz.cost.roofline import DECODE, PREFILL, Roof, advertised
from kvviz.experiments.roofline.words import (
    batch_moves,
    compiled_point,
    crosses,
    disturbance,
    disturbed,
    from_cache,
    sides,
)
from kvviz.models.catalog.rows import accelerators
from kvviz.models.sources import weights_in_words
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import colour_key, drawn_once, plot, shades
from kvviz.ui.shared.tables import draw_table, localized
from kvviz.ui.shared.tabs import draw_tabs

NO_OTHER, BESIDE = "none", "r_beside"
GPU, GPU_DTYPE = "h100-sxm", "bfloat16"  # whose ridge stands beside the one measured


def draw(found: Document) -> None:
    """Draw a tab for each question: what a step's time goes to, what bounds it, what a batch gains."""
    for p in [p for p in found["profiles"] if disturbed(p)][:1]:
        st.warning(disturbance(p), icon=":material/warning:")
    parts = {"Where the time goes": _time, "Under the roof": _under_the_roof}
    if max(p["batch"] for p in found["points"]) > 1:
        parts["Batches"] = batches
    draw_tabs({name: partial(part, found) for name, part in parts.items()}, "r_part")
    _measured_on(found)


def _time(found: Document) -> None:
    """Draw each forward pass's time as a bar, and say what its pieces are."""
    st.header(claims.of_roofline(found), anchor="time")
    if said := claims.of_bounds(found):
        st.markdown(said)
    passes = waiting(found)
    plot(drawn_once(waiting_figure, passes), key="r_waiting")
    rates = ", ".join(untold(passes))
    st.caption(TEXTS["roofline"]["spent"].format(rates=f" ({rates})" if rates else ""))
    fold("The decode step's parts in ms", "r_divided", lambda: _divided(found))
    if found["profiles"]:
        fold("What torch's profiler sees of a step", "r_profiled", lambda: _profiled(found))


def _under_the_roof(found: Document) -> None:
    """Draw the points under the roof, and say how a batch moves them."""
    beside = _beside(found)
    st.header(sides(found), anchor="roofline")
    plot(drawn_once(roofline_figure, found, beside), key="r_chart")
    why = from_cache(found)
    above = f" *Compiled* lies above the roof. {why}" if why else ""
    compiled = " *Compiled*: one call starts the whole step." if compiled_point(found) else ""
    tokens = f"{found['spec']['tokens']:,}"
    past = f", {crossing:,} of them past the ridge" if (crossing := crosses(found)) else ""
    st.markdown(TEXTS["roofline"]["chart"].format(tokens=tokens, past=past, compiled=compiled) + above)
    with st.expander("Another device's roof beside it, two points worked out, and every point"):
        _choose_beside(found, beside)
        st.markdown(_on_a_gpu())
        _worked_out(found)
        st.markdown("\n".join(f"- {sentence}" for sentence in _others(found)))
        table(found)


def _divided(found: Document) -> None:
    """Draw the parts of the decode step's time in milliseconds, which add up to it, and say how it is divided."""
    _, seconds, spent, _ = waiting(found)[0]
    read = figure_of(found["row"]["read"], "B/s")
    profiled = any(profile["forward"] == DECODE for profile in found["profiles"])
    names = SPENT | ({} if profiled else {"rest": SPENT["unknown"]})
    names |= {
        "memory": f"reading at the roof's {figure_of(found['roof']['read'], 'B/s')}",
        "slower": f"beyond it: a product of one row reads at {read}",
        "launch": "launch, at most",
    }
    rows = [{"Decode step": names[part], "ms": s * 1e3} for part, s in spent.items() if s >= 0.005 * seconds]
    draw_table(rows, columns={"ms": st.column_config.NumberColumn(format="%.2g", width="small")})
    st.markdown(claims.of_compiling(found))
    if profiled:
        st.caption(TEXTS["roofline"]["divided"])


def _others(found: Document) -> list[str]:
    """All that was found, and which rates the parts of a step's time are divided by."""
    rates = TEXTS["roofline"]["rates"].format(
        read=figure_of(found["roof"]["read"], "B/s"),
        row=figure_of(found["row"]["read"], "B/s"),
        starting=millis(found["starting_s"]),
    )
    return [rates, *found["sentences"]]


def _on_a_gpu() -> str:
    """Where the ridge of a data centre's GPU lies, by its data sheet; '' without one."""
    row = accelerators()[GPU]
    sheet, size = advertised(row, GPU_DTYPE), precision(GPU_DTYPE).state_bytes
    if sheet is None:
        return ""
    return TEXTS["roofline"]["gpu"].format(
        title=row.title,
        source=row.source,
        flops=figure_of(sheet.flops, "FLOP/s"),
        dtype=GPU_DTYPE,
        read=figure_of(sheet.read, "B/s"),
        ridge=f"{sheet.ridge:,.0f}",
        size=size,
        batch=f"{sheet.ridge * size / 2:,.0f}",
    )


def _worked_out(found: Document) -> None:
    st.markdown(TEXTS["roofline"]["worked_out"])
    for place, phase in zip(st.columns(2, gap="medium"), (DECODE, PREFILL), strict=True):
        members = [p for p in found["points"] if p["phase"] == phase and p["batch"] == 1]
        p = max(members, key=lambda p: p["tokens"])
        place.markdown(f"**{phase}**, {p['tokens']:,} tokens: {millis(p['s'])}")
        place.latex(_equation(p, Roof(**found["roof"])))


def _beside(found: Document) -> tuple[str, Roof] | None:
    """The accelerator chosen below the chart, which is drawn before the choice, if its data sheet was found."""
    row = accelerators().get(st.session_state.get(BESIDE, NO_OTHER))
    sheet = advertised(row, found["dtype"]) if row else None
    return (row.title, sheet) if row and sheet else None


def _choose_beside(found: Document, beside: tuple[str, Roof] | None) -> None:
    """Let an accelerator be chosen, and say where its roof is from."""
    rows = accelerators()
    titles = {NO_OTHER: "None", **{name: row.title for name, row in rows.items()}}
    look: dict[str, Any] = {"help": "By its maker's data sheet, not measured: programs reach less.", "width": 340}
    chosen = st.selectbox("Beside it, another roof", list(titles), format_func=titles.__getitem__, key=BESIDE, **look)
    if chosen == NO_OTHER:
        return
    row = rows[chosen]
    if beside is None:
        st.info(f"Unknown: no data sheet with the {found['dtype']} peak of {row.title} was found, so no roof is drawn.")
        return
    _, sheet = beside
    note = f"; {row.flops_note}" if found["dtype"] != "float32" else ""
    st.caption(
        f"{row.title}: {figure_of(sheet.flops, 'FLOP/s')} ({row.flops_source}{note}) and "
        f"{figure_of(sheet.read, 'B/s')} ({row.source}). The data sheet's, not measured; its ridge lies at "
        f"{sheet.ridge:,.3g} FLOP/B."
    )


def _equation(p: Document, roof: Roof) -> str:
    return (
        rf"\begin{{aligned}}I &= \frac{{{_tex(p['flops'], 'FLOP')}}}{{{_bytes(p['bytes'])}}} = "
        rf"{p['intensity']:.3g}\,\mathrm{{FLOP/B}}\\"
        rf"B \cdot I &= {_tex(roof.read, 'B/s')} \cdot {p['intensity']:.3g} = "
        rf"{_tex(roof.read * p['intensity'], 'FLOP/s')}\\"
        rf"F &= {_tex(roof.flops, 'FLOP/s')}\\"
        rf"\text{{measured}} &= {_tex(p['flops_per_s'], 'FLOP/s')}\end{{aligned}}"
    )


def _tex(value: float, unit: str) -> str:
    size, prefix = scaled(value)
    return rf"{_number(value / size)}\,\mathrm{{{prefix}{unit}}}"


def _bytes(value: int) -> str:
    """A number of bytes with all its digits: it is divided by, and divides, rates in powers of 1000."""
    return f"{value:,}".replace(",", "{,}") + r"\,\mathrm{B}"


def _number(value: float) -> str:
    return (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}").replace(",", "{,}")


def batches(found: Document) -> None:
    """Draw tokens per second against the batch."""
    st.header(claims.of_batches(found["points"]), anchor="batches")
    plot(drawn_once(batch_figure, found), key="r_batches")
    st.markdown(f"{claims.of_shared(found)} {claims.of_most(found)}")
    if alone := [f"{two_digits(rate)} tokens/s at {tokens:,}" for tokens, rate in uncached_alone(found).items()]:
        st.markdown(TEXTS["roofline"]["dashed"].format(alone=" and ".join(alone)))
    _moved(found)


def _moved(found: Document) -> None:
    """Say what a batch moves, and from which batch on the caches outweigh the weights."""
    rows = found["outweighs"]
    second = " ".join(filter(None, (claims.of_two(found), claims.of_second(found))))

    def words_and_table() -> None:
        for said in filter(None, (second, batch_moves(found), _uncached(found))):
            st.markdown(said)
        row = rows[-1]
        table = [
            {
                "Context": row["tokens"],
                "Cache of one": human(row["cache_bytes"]),
                "Caches > weights from": "no batch" if row["batch"] is None else f"{row['batch']:,} sequences",
            }
            for row in rows
        ]
        draw_table(table, columns=localized("Context"), width=480)
        st.latex(
            rf"\frac{{\text{{weights}}}}{{\text{{cache of one, {row['tokens']} tokens}}}} = "
            rf"\frac{{{_bytes(row['weight_bytes'])}}}{{{_bytes(row['cache_bytes'])}}} = "
            + _number(row["weight_bytes"] / row["cache_bytes"])
        )
        st.caption(f"{TEXTS['roofline']['read']} {_copied(found)}")

    words = "What a second sequence adds, what a batch moves, and from which size on caches outweigh the weights"
    fold(words, "r_moved", words_and_table)


def _uncached(found: Document) -> str:
    """What the text and the batch do to tokens a second without a cache; '' if only one context was measured."""
    rates = uncached_rates(found)
    if len(rates) < 2:
        return ""
    (few, short), (many, long) = rates.items()
    alone = [f"{two_digits(rate)} at {tokens:,}" for tokens, rate in uncached_alone(found).items()]
    return TEXTS["roofline"]["uncached"].format(
        **{"few": few, "many": f"{many:,}", "alone": " and ".join(alone)},
        **{name: two_digits(max(rate for _, rate in row)) for name, row in (("short", short), ("long", long))},
    )


def _copied(found: Document) -> str:
    """What the engine does on top: it is in the seconds, not in the bytes."""
    p = max(found["points"], key=lambda p: p["copied_bytes"])
    return (
        f"In addition, transformers joins each new row to the cache by copying all of it: at {p['tokens']:,} tokens × "
        f"{p['batch']} that moves {human(p['copied_bytes'])} a step, beside {human(p['bytes'])} that "
        "have to be moved."
    )


def _profiled(found: Document) -> None:
    if said := claims.of_profiles(found["profiles"]):
        st.markdown(f"**{said}**")
    colour_key(shades(*CLASSES.values()))
    plot(drawn_once(profile_figure, found["profiles"]), key="r_profile", claim=claims.of_shares(found["profiles"]))
    where = "in which no kernel ran" if found["environment"]["device"].startswith("cuda") else "in which none ran"
    st.caption(TEXTS["roofline"]["profile"].format(tokens=f"{found['profiles'][0]['tokens']:,}", where=where))
    draw_table([_timed(p) for p in found["profiles"]], columns=localized("Operations"), width=640)
    both = {p["forward"]: p for p in found["profiles"]}
    if "compiled step" in both:
        eager, compiled = both["decode"], both["compiled step"]
        took, instead = millis(compiled["unprofiled_s"]), millis(eager["unprofiled_s"])
        busy = disturbed(eager) or disturbed(compiled)
        text = TEXTS["roofline"]["compiled_disturbed" if busy else "compiled"]
        said = text.format(took=took, instead=instead, count=f"{eager['operations']:,}")
        st.markdown(said)


def _timed(p: Document) -> dict[str, object]:
    """A profiled forward as a row: how long it takes by itself, and how long under the profiler."""
    return {
        "Forward pass": p["forward"],
        "By itself": millis(p["unprofiled_s"]),
        "Under the profiler": millis(p["wall_s"]),
        "Operations": p["operations"],
    }


def table(found: Document) -> None:
    """Draw every point with its figures."""
    draw_table([_row(p) for p in found["points"]], columns=_COLUMNS)
    st.caption(TEXTS["roofline"]["points"].format(starting=millis(found["starting_s"])))


def _measured_on(found: Document) -> None:
    here, points = found["environment"], found["points"]
    fewest, most = (pick(p["repeats"] for p in points) for pick in (min, max))
    off = max(max(p["s_q3"] - p["s"], p["s"] - p["s_q1"]) / p["s"] for p in points)
    st.caption(
        f"{plain(found['title'])}, {weights_in_words(found['weights'])}, {found['dtype']}, "
        f"on {plain(here['device_name'])}, {here['threads']} thread{'s' * (here['threads'] != 1)}, "
        f"torch {here['torch']}; ceilings of {found['measured_at'][:10]}. Each time is the median of {fewest} to "
        f"{most} passes or steps; the quartiles lie within {off:.0%} of it. A batch is copies of one text. "
        f"`python -m kvviz roofline {plain(found['model'])}` measures the same."
    )


_FORMATS = {"ms": "%.3f", "FLOP/B": "%.2f", "GFLOP/s": "%.1f", "Of the roof": "percent"}
_COLUMNS = localized("Tokens", "Batch", "Tokens/s") | {
    title: st.column_config.NumberColumn(format=how) for title, how in _FORMATS.items()
}


def _row(p: Document) -> dict[str, object]:
    return {
        "": p["phase"],
        "Tokens": p["tokens"],
        "Batch": p["batch"],
        "ms": p["s"] * 1e3,
        "Quartiles, ms": f"{p['s_q1'] * 1e3:,.3g} to {p['s_q3'] * 1e3:,.3g}",
        "FLOPs": figure_of(p["flops"], "FLOP"),
        "Bytes": human(p["bytes"]),
        "FLOP/B": p["intensity"],
        "GFLOP/s": p["flops_per_s"] / 1e9,
        "Tokens/s": round(p["tokens_per_s"]),
        "Of the roof": p["roof_share"],
        "Bound by": "neither" if p["bound"] == "between" else p["bound"],
    }
