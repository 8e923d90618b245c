"""The whole memory of a deployment on a card: weights, cache, activations, and what driver and engine take."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import streamlit as st

from kvviz.base.words import human, human_range
from kvviz.charts import claims
from kvviz.charts.memory import part_colour, sequences_figure
from kvviz.deployment import plan as deployment
from kvviz.deployment.plan import Filled, OnCard, Option, Plan, reach, short
from kvviz.memory.calculator import Answer, Asked
from kvviz.models.catalog.rows import accelerators
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.memory.layers import counted_params
from kvviz.ui.memory.links import linked, sources
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.plots import MEMORY_CHART, colour_key, drawn_once, plot, shades
from kvviz.ui.shared.tables import draw_table


def on_a_gpu(main: Answer, asked: Asked, form: Form) -> None:
    """Draw what a card holds, whether it fits, what would make it fit, and a row for each of the other cards."""
    if main.memory is None or main.spec is None:
        return
    rows = accelerators()
    chosen = form.choice("gpu", list(rows), Asked().gpu)
    card = st.selectbox("Accelerator", format_func=lambda name: rows[name].title, width=330, **chosen)
    params = main.params or counted_params(main) or _asked_params(main)
    wanted = _deployment(replace(asked, gpu=card))
    with errors_said():
        found, filled, others, every = _worked_out(json.dumps(main.config), wanted, main.title, params)
        rest = _said(found, filled)
        _sequences_drawn(filled, wanted, (found.card.memory_bytes, found.budget_bytes, found.card.title))
        if rest:
            st.markdown(rest)
        _from_where(found, asked)
        _in_other_precisions(others, found)
        _on_every_card(every, found)


@lru_cache(maxsize=64)
def _worked_out(
    config: str, wanted: deployment.Asked, title: str, params: int | None
) -> tuple[Plan, tuple[Filled, ...], tuple[Option, ...], tuple[OnCard, ...]]:
    """The plan, the card with more sequences, what it holds in other precisions, and what every other card would."""
    read = json.loads(config)
    return (
        deployment.plan(read, wanted, name=title, params=params),
        deployment.by_sequences(read, wanted, params=params),
        deployment.options(read, wanted, params=params),
        deployment.on_every_card(read, wanted, params=params),
    )


def _sequences_drawn(filled: Sequence[Filled], wanted: deployment.Asked, limits: tuple[int, int, str]) -> None:
    """Draw what fills the card with as many sequences as are asked, and with more and more."""
    columns = [
        (each.sequences, [(part.name, part.least, part.most) for part in each.parts], each.fits) for each in filled
    ]
    drawn = filled[0].parts
    unsure = next((part.name for part in drawn if part.least < part.most), None)
    hatched = shades(("between its least and its most", part_colour(unsure))) if unsure else None
    colour_key(shades(*((part.name, part_colour(part.name)) for part in drawn)), hatched=hatched)
    figure = drawn_once(sequences_figure, columns, wanted.sequences, *limits)
    plot(figure, config=MEMORY_CHART, key="m_sequences")


def _deployment(asked: Asked) -> deployment.Asked:
    """The calculator's case as a deployment: its tensor-parallel devices are the cards."""
    names = ("tokens", "dtype", "weights", "view", "beams", "source_tokens", "llama_cpp")
    same: dict[str, Any] = {name: getattr(asked, name) for name in names}
    count = asked.tensor_parallel
    return deployment.Asked(card=asked.gpu, count=count, tensor=count, sequences=asked.batch, **same)


def _asked_params(main: Answer) -> int | None:
    """The parameters in a field, for a model of which nobody states them; None to have them counted from the config."""
    if main.file:
        return None
    billions = st.number_input("Parameters, billions", 0.0, 10_000.0, value=None, key="m_billions")
    st.caption("Empty: they are counted from the config's matrices; 'Look inside' counts them in the model itself.")
    return int(billions * 1e9) if billions else None


def _said(found: Plan, filled: Sequence[Filled]) -> str:
    """Say how many sequences fit, or that those asked do not and what would help; return what is left to say."""
    most = max((each for each in filled if each.fits), key=lambda each: each.sequences, default=None)
    claim = ""
    if most:
        (_, cache, activations, *_), first = most.parts, filled[0].parts[2]
        claim = claims.of_sequences(most.sequences, cache.most, (first.most, activations.most), found.asked.together)
    needs = claims.of_plan(found.fits, (found.least, found.most), found.budget_bytes)
    who = f"{found.sequences:,} at once" if found.sequences > 1 else "One"
    grows = f"{who} can grow to {reach(found.context, found.trained)}." if found.context else ""
    if found.fits and claim:
        st.markdown(f"**{claim}**")
        return f"As asked, {needs[0].lower()}{needs[1:]}. {grows}"
    said = [f"{claim}." if claim else "", grows, *(plain(change.sentence) for change in found.changes)]
    st.markdown("\n".join([f"**{needs}**\n", *(f"- {each}" for each in said if each)]))
    return ""


def _from_where(found: Plan, asked: Asked) -> None:
    """Say what the card's size and the parts are from."""
    card = found.card
    if found.asked.together:
        st.caption(TEXTS["memory"]["at_once"])
    st.caption(linked(f"{card.title}: {human(card.memory_bytes)}. {card.memory_note} Source: {card.source}"))
    if asked.tensor_parallel > 1:
        st.caption(TEXTS["memory"]["one_device"].format(devices=asked.tensor_parallel))

    def parts() -> None:
        lines = (f"**{part.name}**: {human_range(part.least, part.most)}; {linked(part.says)}" for part in found.parts)
        st.markdown("\n".join(f"- {line}" for line in lines))
        st.caption("  \n".join(plain(note) for note in found.notes))

    fold("Where each part is from", "m_parts", parts)


def _in_other_precisions(others: Sequence[Option], found: Plan) -> None:
    best = max(others, key=lambda each: each.sequences, default=None)
    if best is None:
        return
    most = f"up to {_sequences(best.sequences)} with {best.weights} weights and a cache in {best.dtype}"

    def options() -> None:
        draw_table([_option(each, found) for each in others], key="m_options")
        st.caption(TEXTS["memory"]["one_or_many"])

    fold(f"Other precisions: {most if best.sequences else 'not one sequence fits in any'}", "m_precisions", options)


def _on_every_card(every: Sequence[OnCard], found: Plan) -> None:
    best, fits = max(every, key=lambda each: each.sequences), sum(each.fits is True for each in every)
    most = f", and up to {_sequences(best.sequences)} do ({best.card.title})" if best.sequences else ""

    def cards() -> None:
        draw_table([_row(each, found) for each in every], columns={"source": sources()}, key="m_fits")

    fold(f"Every card: it fits on {fits} of {len(every)}{most}", "m_cards", cards)


def _sequences(count: int) -> str:
    return f"{count:,} sequence{'s' * (count != 1)}"


def _longest(context: int | None, trained: int | None) -> str:
    """A longest context for a table: at most the one that the model was made for."""
    return f"{min(context, trained or context):,}" if context else "none"


def _option(each: Option, found: Plan) -> dict[str, object]:
    return {
        "weights": each.weights,
        "cache": each.dtype,
        "weights take": human(each.weights_bytes),
        "longest context of one sequence, tokens": _longest(each.context, found.trained),
        f"sequences of {short(found.asked.tokens)} tokens": f"{each.sequences:,}",
    }


def _row(each: OnCard, found: Plan) -> dict[str, object]:
    who = f"{found.sequences:,} sequences" if found.sequences > 1 else "one sequence"
    return {
        "accelerator": each.card.title,
        "memory": human(each.card.memory_bytes),
        f"longest context of {who}, tokens": _longest(each.context, found.trained),
        f"sequences of {short(found.asked.tokens)} tokens": f"{each.sequences:,}",
        "fits as asked": {True: "yes", None: "perhaps", False: "no"}[each.fits],
        "source": each.card.source,
    }
