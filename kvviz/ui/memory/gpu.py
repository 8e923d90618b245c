"""The whole memory of a deployment on a card: weights, cache, activations, and what driver and engine take."""

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

import streamlit as st

from kvviz.base.words import human, human_range
from kvviz.charts import claims
from kvviz.charts.memory import batch_figure, card_figure
from kvviz.deployment import plan as deployment
from kvviz.deployment.plan import OnCard, Option, Plan, reach, short
from kvviz.memory.calculator import Answer, Asked, memory_of
from kvviz.models.catalog.rows import accelerators
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.memory.layers import counted_params
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.plots import MEMORY_CHART, drawn_once, plot
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
        found, others, every = _worked_out(json.dumps(main.config), wanted, main.title, params)
        claim = claims.of_plan(found.fits, (found.least, found.most), found.budget_bytes)
        parts = [(part.name, part.least, part.most) for part in found.parts]
        figure = drawn_once(card_figure, parts, found.card.memory_bytes, found.budget_bytes, found.card.title)
        plot(figure, config=MEMORY_CHART, key="m_fit", claim=claim)
        _said(found, asked)
        weights = found.parts[0].most
        counts = {n: memory_of(main.spec, replace(asked, batch=n)).reserved_bytes for n in (1, 2, 4, 8, 16, 32, 64)}
        claim = "The weights are there once; every sequence brings a cache of its own"
        plot(drawn_once(batch_figure, counts, weights), config=MEMORY_CHART, key="m_batch_chart", claim=claim)
        st.subheader("The same cards with other precisions", anchor=False)
        draw_table([_option(each, found) for each in others], key="m_options")
        st.subheader("Every card", anchor=False)
        source = st.column_config.LinkColumn(display_text=r"https?://(?:www\.)?([^/]+)")
        draw_table([_row(each, found.trained) for each in every], columns={"source": source}, key="m_fits")


@lru_cache(maxsize=64)
def _worked_out(
    config: str, wanted: deployment.Asked, title: str, params: int | None
) -> tuple[Plan, tuple[Option, ...], tuple[OnCard, ...]]:
    """The plan, what the same cards hold in other precisions, and what every other card would."""
    read = json.loads(config)
    return (
        deployment.plan(read, wanted, name=title, params=params),
        deployment.options(read, wanted, params=params),
        deployment.on_every_card(read, wanted, params=params),
    )


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


def _said(found: Plan, asked: Asked) -> None:
    """Say what the parts are from, how many sequences and which context fit, and what would make it fit."""
    certain, possible = found.most_sequences
    perhaps = f", perhaps {possible:,}" if possible > certain else ""
    counted = f"**{certain:,}** sequence{'s' * (certain != 1)} of {short(asked.tokens)} tokens"
    said = [f"- {counted} fit{'s' * (certain == 1)} on {_cards(found)}{perhaps}."]
    if found.context:
        who = f"{found.sequences:,} at once" if found.sequences > 1 else "One"
        said.append(f"- {who} can grow to {reach(found.context, found.trained)}.")
    said += [f"- {plain(change.sentence)}" for change in found.changes]
    st.markdown("\n".join(said))
    card = found.card
    st.caption(f"{card.title}: {human(card.memory_bytes)}. {card.memory_note} Source: {card.source}")
    if asked.tensor_parallel > 1:
        st.caption(TEXTS["memory"]["one_device"].format(devices=asked.tensor_parallel))
    with st.expander("Where each part is from"):
        st.markdown(
            "\n".join(
                f"- **{part.name}**: {human_range(part.least, part.most)}; {plain(part.says)}" for part in found.parts
            )
        )
        st.caption("  \n".join(plain(note) for note in found.notes))


def _cards(found: Plan) -> str:
    count = found.asked.count
    return f"{count} of these cards" if count > 1 else "this card"


def _longest(context: int | None, trained: int | None) -> dict[str, str]:
    """A longest context for a table: the one that the model was made for at most, and what there is room for."""
    room = f"{context:,}" if context else "none"
    most = f"{min(context, trained or context):,}" if context else "none"
    return {"longest context, tokens": most, "room for, tokens": room}


def _option(each: Option, found: Plan) -> dict[str, object]:
    return {
        "weights": each.weights,
        "cache": each.dtype,
        "weights take": human(each.weights_bytes),
        **_longest(each.context, found.trained),
        f"sequences of {short(found.asked.tokens)} tokens": f"{each.sequences:,}",
    }


def _row(each: OnCard, trained: int | None) -> dict[str, object]:
    """A row; `trained` is the longest context that the model was made for."""
    return {
        "accelerator": each.card.title,
        "memory": human(each.card.memory_bytes),
        **_longest(each.context, trained),
        "sequences at once": f"{each.sequences:,}",
        "fits as asked": {True: "yes", None: "perhaps", False: "no"}[each.fits],
        "source": each.card.source,
    }
