"""The memory page's headline: the total, its formula with the numbers put in, and the cases of an example."""

from dataclasses import replace

import streamlit as st

from kvviz.base.precision import precision
from kvviz.base.words import human, two_digits
from kvviz.memory.calculator import Answer, Asked, answer
from kvviz.memory.engine_views import VIEWS
from kvviz.memory.explain import equation, origins
from kvviz.memory.formula import Memory
from kvviz.models.catalog.rows import examples, models
from kvviz.models.gguf.config import FileWeights
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.tables import draw_table

_TIE = "\u00a0"  # a space at which no line ends
_A_LINE = 48  # characters of a telephone's line
_NO_FACTOR = "query heads"  # they keep nothing: only KV heads stand in the formula


def headline(main: Answer, asked: Asked) -> None:
    """Draw the total, its formula, the field that each number came from, and where the context ends."""
    memory, spec = main.memory, main.spec
    if memory is None or spec is None:
        st.warning(plain(f"{main.title}: {main.problem}"))
        return
    st.container(key="m_headline").markdown(_claim(plain(main.title), memory))
    with st.container(key="m_formula", gap="xsmall"):
        st.latex(equation(spec, memory), width="content")
        found = [_tied(f"{w} {plain(value)} ← `{field}`") for w, value, field in origins(spec) if w != _NO_FACTOR]
        kept = f"even with quantized weights, cached numbers are {precision(asked.dtype).title}"
        st.caption(f"{', '.join(found)}; {kept}.")
    for said in (_growth(memory), _weights_of(main.file) if main.file else ""):
        if said:
            st.caption(said)
    for note in memory.notes:
        st.info(plain(note))


def _claim(title: str, memory: Memory) -> str:
    """Say the total, what a further token adds, and the total beside the weights."""
    each = f" on each of {memory.tensor_parallel} devices" if memory.tensor_parallel > 1 else ""
    adds = f"adds {human(memory.per_token_bytes)}" if memory.per_token_bytes else "adds nothing"
    said = f"**The KV cache of {title} takes {human(memory.total_bytes)}{each}.** Each further token {adds}"
    if not memory.weights_bytes or memory.tensor_parallel > 1:  # what its weights take is of all devices together
        return f"{said}."
    share = _share(memory.total_bytes / memory.weights_bytes)
    return f"{said}; all of it is {share} the weights, which take {human(memory.weights_bytes)}."


def _tied(words: str) -> str:
    """Words that stay on one line if a telephone's holds them; else only what begins with an arrow does."""
    return words.replace(" ", _TIE) if len(words) <= _A_LINE else words.replace(" ← ", f"{_TIE}←{_TIE}")


def explained(main: Answer, asked: Asked) -> None:
    """Say from what the figure is calculated, or whose way of keeping it counts."""
    if main.memory is None:
        return
    view, row, dtype = VIEWS[asked.view], models().get(main.key), precision(asked.dtype).title
    if view.version:
        st.caption(f"Counted as {view.title} {view.version} [keeps it]({view.source}), in {dtype}. {view.rule}")
    else:
        config = f"[{view.source}]({row.source})" if row else view.source
        st.caption(f"Calculated from {config}, in {dtype}; a window of W counts W tokens, the newest among them.")


def _weights_of(file: FileWeights) -> str:
    """What the file's weights take, in all and by tensor type."""
    types = ", ".join(f"{human(nbytes)} {name}" for name, _, _, nbytes in file.types[:4])
    more = " and others" if len(file.types) > 4 else ""
    return f"Weights in the file: **{human(file.nbytes)}** ({file.nbytes:,} B): {types}{more}"


def _share(of: float) -> str:
    """The cache's bytes over those of the weights: a percentage, or how many times as many."""
    return f"{two_digits(100 * of)}% of" if of < 1 else f"{two_digits(of)} times"


def _growth(memory: Memory) -> str:
    """What of the bytes does not grow, or is reserved beyond them; '' if nothing is."""
    parts = []
    if memory.fixed_bytes:
        parts.append(f"{human(memory.fixed_bytes)} of it constant")
    if memory.plateau_bytes:
        parts.append(f"{human(memory.plateau_bytes)} in windows that are full")
    if memory.reserved_bytes != memory.total_bytes:
        parts.append(f"**{human(memory.reserved_bytes)} reserved** ({memory.reserved_bytes:,} B)")
    return "; ".join(parts)


def example_table(name: str | None) -> None:
    """Draw all cases of a chosen example."""
    row = next((row for row in examples() if row.id == name), None)
    if row is None:
        return
    st.markdown(f"**{row.title}.** {row.shows}")
    asked = Asked(models=row.models, batch=row.batch, dtype=row.dtype, view=row.view)
    cases = ((key, tokens, weights) for key in row.models for tokens in row.tokens for weights in row.weights_dtype)
    found = ((answer(replace(asked, tokens=tokens, weights=weights), key), weights) for key, tokens, weights in cases)
    rows = [_example_row(each.title, each.memory, weights) for each, weights in found if each.memory]
    draw_table(rows, key="m_example_table")


def _example_row(title: str, memory: Memory, weights: str) -> dict[str, object]:
    return {
        "model": title,
        "tokens": memory.tokens,
        "cache dtype": memory.dtype,
        "cache": human(memory.total_bytes),
        "cache, B": memory.total_bytes,
        "weights dtype": weights,
        "weights": human(memory.weights_bytes) if memory.weights_bytes else "unknown",
        "weights, B": memory.weights_bytes,
    }
