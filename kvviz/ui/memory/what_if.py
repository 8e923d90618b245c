"""The same model with another idea for its cache: what each saves."""

import re
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from kvviz.base.precision import precision
from kvviz.base.words import human
from kvviz.charts import claims, palette
from kvviz.charts.memory import CUT, ideas_figure, times
from kvviz.memory.calculator import Answer, Asked, memory_of
from kvviz.memory.what_if import Idea, as_it_is, ideas, with_kv_heads
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import MEMORY_CHART, drawn_once, plot
from kvviz.ui.shared.tables import COUNTS, draw_table, exact


def what_if(main: Answer, asked: Asked) -> None:
    """Draw a bar for each idea, those that need another model beside those that need another precision."""
    if main.memory is None or main.spec is None:
        return
    found = ideas(main.spec, main.memory)
    now = memory_of(main.spec, replace(asked, tensor_parallel=1))
    same = Idea(as_it_is(main.spec), "Nothing.", now, 1.0, 0)
    groups = [(name, [idea for idea in found if idea.of_dtype == of_dtype]) for name, of_dtype in _GROUPS.items()]
    groups = [(name, some) for name, some in groups if some]
    folded = _folded([idea for idea in found if idea.of_dtype])
    reach = min(CUT, max(2.0, *(idea.factor for idea in found)))  # of both charts: equal bytes are equally long
    st.markdown(f"**{claims.of_ideas([idea for idea in found if idea not in folded])}**")
    st.markdown(TEXTS["memory"]["no_weights"])
    for place, (name, some) in zip(st.columns(max(1, len(groups)), gap="large"), groups, strict=False):
        with place:
            st.markdown(name)
            if some[0].of_dtype:
                _precisions(same, some, reach)
            else:
                _bars(same, some, palette.KEPT, reach, "m_ideas_trained")
                _grouped(main, asked)
    st.caption(TEXTS["memory"]["ideas"])

    def to_the_byte() -> None:
        draw_table([_row(idea) for idea in (same, *found)], columns=COUNTS, key="m_ideas")

    fold("To the byte", "m_ideas_bytes", to_the_byte)


# What the ideas of a group need, and whether that is only another precision.
_GROUPS = {"It needs a model that was trained so:": False, "It needs only another precision of the same cache:": True}


def _precisions(same: Idea, some: Sequence[Idea], reach: float) -> None:
    """Draw the ideas of precision, some of them folded up."""
    packed = _folded(some)
    same = replace(same, name=f"As it is: {same.memory.dtype}")
    _bars(same, [idea for idea in some if idea not in packed], palette.CODES, reach, "m_ideas_stored")
    if packed:
        least, most = (times(pick(idea.factor for idea in packed)) for pick in (min, max))
        title = f"llama.cpp's own {len(packed)}: {least} to {most} times the bytes"
        fold(title, "m_llama_cpp", lambda: _bars(same, packed, palette.CODES, reach, "m_ideas_packed"))


def _folded(some: Sequence[Idea]) -> list[Idea]:
    """The ideas of precision that are llama.cpp's alone, if as many others are left."""
    packed = [idea for idea in some if "llama.cpp" in precision(idea.name).source]
    return packed if len(some) >= 2 * len(packed) else []


def _bars(same: Idea, some: Sequence[Idea], colour: str, reach: float, key: str) -> None:
    """Draw the model as it is, and under it ideas, the least bytes first."""
    ranked = sorted(some, key=lambda idea: idea.factor)
    bars = [(idea.name, _gloss(idea), idea.memory.reserved_bytes, idea.factor) for idea in ranked]
    bars.insert(0, (same.name, "", same.memory.reserved_bytes, same.factor))
    plot(drawn_once(ideas_figure, bars, colour, reach), config=MEMORY_CHART, key=key)


def _gloss(idea: Idea) -> str:
    """What an idea is, in a few words: what its sentence begins with, or how the format packs its values."""
    if idea.of_dtype:
        return re.split("[:,] ", precision(idea.name).title, maxsplit=1)[-1].removeprefix(idea.name)
    said = re.split(r", as| \(arXiv|\.$", idea.sentence, maxsplit=1)[0]
    return said[0].lower() + said[1:]


def _row(idea: Idea) -> dict[str, object]:
    return {
        "idea": idea.name,
        "what changes": idea.sentence,
        "bytes": exact(idea.memory.reserved_bytes),
        "more or less": f"{'−' if idea.saved > 0 else '+'}{human(abs(idea.saved))}" if idea.saved else "",
        "as a factor": f"{times(idea.factor)}×",
    }


def _grouped(main: Answer, asked: Asked) -> None:
    """Draw grouped-query attention with any number of groups that the query heads divide into."""
    spec, memory = main.spec, main.memory
    if spec is None or memory is None or not any(each.kv_heads and not each.latent for each in spec.layers):
        return
    heads = spec.heads or 1
    if heads == 1:
        return
    groups = [count for count in range(1, heads + 1) if heads % count == 0]
    own = max(row.kv_heads for row in memory.layers)
    start = own if own in groups else groups[-1]
    chosen = st.select_slider("KV heads for all layers", groups, value=start, key=f"m_groups_{main.key}")
    with errors_said():
        other = memory_of(with_kv_heads(spec, chosen), asked)
        kind = {1: "multi-query", heads: "multi-head"}.get(chosen, f"grouped-query, {heads // chosen} to a group")
        on = f"**{chosen}** KV head{'s' * (chosen > 1)} ({kind})"
        st.markdown(
            f"{heads} query heads on {on}: **{human(other.reserved_bytes)}**, "
            f"{times(other.reserved_bytes / memory.reserved_bytes)}× of what the model keeps as it is."
        )
