"""The four views of a race on the caches page: bytes, quality, memory slot by slot, and time."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from kvviz.base.words import human, millis, small
from kvviz.caches.designs import BUDGET, DESIGNS
from kvviz.charts import claims, palette
from kvviz.charts.caches import (
    HELD,
    MOVED,
    WRITTEN,
    held_figures,
    kl_figure,
    moves_figures,
    quality_figure,
    written_figures,
)
from kvviz.charts.pictures import STYLE, picture_html, slots_of, strips_html
from kvviz.experiments.cache_designs.words import (
    KL_ROUNDING,
    caches_of,
    cost_of_bytes,
    cost_of_gathering,
    designs_of,
    in_perplexity,
    named,
    nats,
    rows,
    run_of,
    sentences,
    time_of_bytes,
)
from kvviz.models.sources import weights_in_words
from kvviz.server.scheduler import Scheduler
from kvviz.ui.caches.designs_said import as_named_here, each_design, say_codes
from kvviz.ui.caches.form import PARTS, ask, expected, progress
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document, measured
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import all_drawn_once, colour_key, drawn_once, in_pairs, plot, shades
from kvviz.ui.shared.tables import draw_table


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the race's form, and of the race that it asks for, or the kept one, what the open tab shows."""
    spec, bar = ask(scheduler, form)
    if spec is not None:
        words, draw = expected(scheduler, spec, form["part"]), partial(_draw, VIEWS[form["part"]])
        measured(scheduler, spec, draw, place=bar, key="k", words=words, progress=progress)


def _draw(view: Callable[[Document], None], found: Document) -> None:
    found = as_named_here(found)
    view(found)
    _where(found, forced=view is _quality)


def _wasted(found: Document) -> None:
    every = rows(found)
    st.header(claims.of_empty(every), anchor="held")
    _panels("held", HELD, all_drawn_once(held_figures, every), more=claims.of_same_room(every))
    each_design(caches_of(found))

    def figures() -> None:
        draw_table([_row(r) for r in every], width=900)  # a figure stands near its name
        st.caption(TEXTS["caches"]["table"])

    fold(f"Every design in figures: {_first_small(claims.of_held(every))}", "k_held_figures", figures)

    def said() -> None:
        st.markdown("\n".join(f"- {sentence}" for sentence in sentences(found)))

    fold("What was found, in sentences", "k_said", said)

    def slow() -> None:
        sources = {
            name: f" [Where it comes from]({design.source})." for name, design in DESIGNS.items() if design.source
        }
        st.markdown("\n".join(f"- **{r['title']}**: {r['slow']}{sources.get(r['mode'], '')}" for r in every))

    fold("What is slow by design, and what by our simple code", "k_slow", slow)


def _lies(found: Document) -> None:
    st.fragment(lambda: _pictures(found))()
    each_design(run for run in found["runs"] if run["books"])


def _moved(found: Document) -> None:
    every, designs = rows(found), designs_of(found)
    of_bytes, latency = time_of_bytes(caches_of(found)), claims.of_latency(found["runs"])
    grey = cost_of_gathering(designs)
    st.header(of_bytes or latency or "Time of a step", anchor="time")
    taken = any(r["mode"] == "cached" and r["copied"] is not None for r in every)
    hatched = (TEXTS["caches"]["hatched"], palette.NEW)
    colour_key(shades(*MOVED), hatched=shades(hatched) if taken else {})
    both, *apart = all_drawn_once(moves_figures, every)
    plot(both, st.container(key="moves_wide"), key="k_moves")
    with st.container(key="moves_narrow"):
        for number, figure in enumerate(apart):
            plot(figure, key=f"k_moves_{number}", together=("moves", number, len(apart)))
    st.markdown(f"{TEXTS['caches']['bytes_told' if of_bytes else 'bytes_asked']} {grey}")
    if claim := claims.of_written(designs):

        def steps() -> None:
            _panels("written", WRITTEN, all_drawn_once(written_figures, every))

        fold(f"What each step writes: {_first_small(claim)}", "k_written", steps)

    def timing() -> None:
        how = TEXTS["caches"]["latency"].format(repeats=found["repeats"], **_sizes(found))
        none = next((r for r in every if not r["held"] and r["itl_s"]), None)
        slow = f"Without a cache, which is not drawn, a step takes {millis(none['itl_s'], 2)}." if none else ""
        st.markdown(f"{how}\n\n{cost_of_bytes(caches_of(found))} {slow}")
        draw_table([_moves(r) for r in every], key="k_moved")
        st.caption(TEXTS["caches"]["moved"])

    fold(f"How a step is timed, and every figure: {_first_small(latency)}", "k_timed", timing)
    each_design(caches_of(found))


def _sizes(found: Document) -> dict[str, object]:
    """The sizes of a race, in words."""
    last = found["prompt_tokens"] + found["new_tokens"]
    return {
        "prompt": f"{found['prompt_tokens']:,}",
        "last": f"{last:,}",
        "sequences": f"{found['batch']} sequences" if found["batch"] > 1 else "one sequence",
        "threads": f"{found['environment']['threads']} thread{'s' * (found['environment']['threads'] != 1)}",
    }


def _panels(name: str, key: Sequence[tuple[str, str]], figures: Sequence[object], more: str = "") -> None:
    colour_key(shades(*key))
    for number, (place, figure) in enumerate(zip(st.columns(2), figures, strict=False)):
        plot(figure, place, key=f"k_{name}_{number}", together=(name, number, len(figures)))
    st.markdown(f"{TEXTS['caches'][name]} {more}")


def _row(r: Document) -> dict[str, object]:
    first = r["first_divergence"]
    return {
        "Design": r["title"],
        "Held at the end": human(r["held"]),
        "Wasted on average": human(r["mean_wasted"]),
        "Tokens": "identical" if first is None else f"other from {first + 1} on",
        "Largest difference of a logit": _or_dash(r["max_abs_logit_diff"], small),
    }


def _moves(r: Document) -> dict[str, object]:
    return {
        "Design": r["title"],
        "Written at the last step": _or_dash(r["copied"], human),
        "Gathered by our code": _or_dash(r["gathered"], human),
        "A step": _or_dash(r["itl_s"], millis),
    }


def _lost(r: Document) -> dict[str, object]:
    kl = r["kl"]
    return {
        "Design": r["title"],
        "Mean KL": _or_dash(kl, nats),
        "Perplexity": _or_dash(r["perplexity"], "{:.4g}".format),
    }


def _or_dash(value: Any, words: Callable[[Any], str]) -> str:
    return "–" if value is None else words(value)


def _pictures(found: Document) -> None:
    """Draw one layer's memory of each design at the step that the slider says."""
    drawn = [run for run in found["runs"] if run["books"]]
    if not drawn:
        return
    title = st.container()
    steps = [picture["step"] + 1 for picture in drawn[0]["books"]["pictures"]]
    halfway = steps[(len(steps) - 1) // 2]  # where a reserved tail is still to be seen
    form = Form("pictures", "k_", step=Field(halfway))
    form["step"] = form["step"] if form["step"] in steps else halfway
    step = st.select_slider("New token", steps, **form.value("step"))
    now = {run["title"]: run["books"]["pictures"][steps.index(step)] for run in drawn}
    title.header(
        claims.of_written_slots({name: slots_of(one).count("new") for name, one in now.items()}), anchor="memory"
    )
    with st.container(key=f"k_strips_{len(drawn)}"):  # of the usual number the styles know the height
        st.html(STYLE + strips_html(now, {run["title"]: run["gloss"] for run in drawn}))
    undrawn = any(run["mode"] == "cached" for run in found["runs"])
    st.markdown(" ".join(TEXTS["caches"][name] for name in ("pictures", "pictures_without")[: 1 + undrawn]))

    def books() -> None:
        st.caption(_sequences(found))
        for place, run in in_pairs(drawn):
            name = f"{run['title']}, layer {run['books']['layer']}"
            place.container(border=True, height="stretch").html(picture_html(now[run["title"]], name))

    fold("Block tables, positions and codes: each design's memory in detail", "k_books", books)


def _sequences(found: Document) -> str:
    shared = found["shared_tokens"]
    if found["batch"] == 1:
        return f"One sequence: a prompt of {shared:,} tokens, and what it writes."
    return (
        f"{found['batch']} sequences share the first {shared:,} tokens of their prompt; the next one differs. The "
        "picture shows the first sequence, whose newest token enters the cache with the next step."
    )


def _quality(found: Document) -> None:
    """Draw what lossy designs lose: against their memory, and from token to token."""
    told = found["text"]
    st.header(claims.of_quality(found["runs"], found["environment"]["dtype"]), anchor="quality")
    plot(drawn_once(quality_figure, found["runs"]), key="k_quality")
    exact = [r for r in caches_of(found) if max(r["quality"]["kl"]) < KL_ROUNDING]
    whole = run_of(found, "cached")["quality"]["nbytes"]
    shares = {r["mode"]: r["quality"]["nbytes"] / whole for r in caches_of(found)}
    look = TEXTS["caches"]["quality"].format(mean=claims.of_mean(found["runs"]))
    same = f"**No drift**: {named(exact)} keep every key and value as it was computed." if len(exact) > 1 else ""
    st.markdown("\n".join(f"- {said}" for said in (look, in_perplexity(found), same) if said))
    say_codes(shares, told["tokens"], found["environment"]["dtype"])
    each_design(caches_of(found))

    def losses() -> None:
        plot(drawn_once(kl_figure, found["runs"]), key="k_kl")
        st.caption(TEXTS["caches"]["first_loss"])

    fold("Where the loss begins, from token to token", "k_losses", losses)

    def figures() -> None:
        draw_table([_lost(r) for r in caches_of(found)], key="k_lost")
        st.markdown(TEXTS["caches"]["lost"])

    fold("Every design in figures: mean KL and perplexity", "k_lost_figures", figures)

    def text() -> None:
        words = f"{TEXTS['caches']['source'][told['source']]}; its first {told['tokens']:,} tokens."
        if found["weights"] == "random":
            words += " These weights are random: perplexity says nothing about them, and KL little."
        st.caption(words)
        st.markdown(plain(told["text"], 4_000))

    fold("The text that every design reads", "k_read_text", text)


def _where(found: Document, *, forced: bool) -> None:
    """Say of what race the figures are, of the text that all read if `forced`, and where it was measured."""
    env, sizes, spec = found["environment"], _sizes(found), found["spec"]
    repeatable = all(run["repeatable"] for run in found["runs"])
    disturbed = "" if repeatable else " A timed pass chose other tokens than before."
    budget = f"{spec['cache_budget']} of the text's" if spec.get("cache_budget") else f"{BUDGET}"
    pyramid = ", lower layers more than higher ones" if spec.get("pyramid") else ""
    run = f"{found['new_tokens']:,} tokens after a prompt of {sizes['prompt']}, {sizes['sequences']} at once"
    if forced:
        text = f"every design reads the same {found['text']['tokens']:,} tokens of one text"
        run = f"{text}; how far other texts would spread was not measured"
    st.caption(
        f"{found['title']}, {weights_in_words(found['weights'])}, {env['dtype']}: {run}; designs with a "
        f"budget keep {budget} tokens{pyramid}. On {env['device_name']}, {sizes['threads']}, torch {env['torch']}, "
        f"transformers {env['transformers']}.{disturbed} {plain(found['note'])}"
    )


def _first_small(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


VIEWS = dict(zip(PARTS, (_lies, _wasted, _moved, _quality), strict=False))  # the last two parts are experiments apart
