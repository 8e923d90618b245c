"""The memory page's models side by side: bytes against context, and one row for each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import streamlit as st

from kvviz.base.words import human, in_one_unit, two_digits
from kvviz.charts import claims
from kvviz.charts.memory import context_figure
from kvviz.memory.calculator import Answer, Asked, as_csv, as_json, memory_of
from kvviz.memory.explain import Term, terms
from kvviz.memory.formula import Memory
from kvviz.memory.levers import Kept, attention, counted, kept, levers
from kvviz.models.spec import ModelSpec
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.memory.form import compare_with
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import choose_picture, drawn_once, plot
from kvviz.ui.shared.tables import COUNTS, draw_table, exact

_NUMBERS, _AS_MHA = "numbers per token and layer", "if every query head had its own KV head"


def side_by_side(found: Sequence[Answer], asked: Asked, form: Form) -> None:
    """Draw bytes against context, all models: windows flatten, states stay; and the table."""
    last = 2 ** (2 * max(asked.tokens, 2048) - 1).bit_length()
    alike = replace(asked, models=(), tokens=1, gpu="")
    known = [(each, each.spec, each.memory) for each in found if each.spec and each.memory]
    lines = [
        (_named(each.title, spec, asked), *_curve(spec, alike, last), _limit(spec, last), memory.reserved_bytes)
        for each, spec, memory in known
    ]
    what = "KV cache" if all(memory.reserved_bytes == memory.total_bytes for *_, memory in known) else "reserved"
    picture = st.container()
    flattens = any(row.window or row.state_bytes for *_, memory in known for row in memory.layers)
    st.caption(" ".join(TEXTS["memory"][name] for name in ("curves", "flattens")[: 1 + flattens]))
    largest_first = sorted(found, key=lambda each: -each.memory.total_bytes if each.memory else 0)
    reasons = [f"- {said}" for each in largest_first if not _kept(each) and (said := _because(found[0], each))]
    if reasons:
        st.markdown("\n".join(reasons))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        compare_with(form, asked.models[0])
        log = st.toggle("Logarithmic axes", key="m_log", width="content")
        with st.popover("Save", icon=":material/download:"):
            saved = choose_picture("m_picture", "kvviz-memory")
            _files(found)
    if known:
        first, spec, memory = known[0]
        figure = drawn_once(context_figure, lines, asked.tokens, log=log, what=what)
        claim = claims.of_cache(plain(first.title), spec, memory, first.config)
        plot(figure, picture, config=saved, key="m_curves", claim=claim)
    _table(found, known)


@lru_cache(maxsize=512)
def _curve(spec: ModelSpec, asked: Asked, last: int) -> tuple[list[int], list[int]]:
    """Tokens up to `last`, and the bytes held at each; for views that reserve, what they reserve.

    `last` is a power of two, so that one curve serves all who ask for like lengths.
    """
    early = {round(last * (i / 40) ** 2) for i in range(1, 41)}  # close together first: windows fill there
    xs = sorted({1, _limit(spec, last) or 1, *early})
    return xs, [memory_of(spec, replace(asked, tokens=x)).reserved_bytes for x in xs]


def _limit(spec: ModelSpec, last: int) -> int | None:
    """The longest context that a model was made for, if a line up to `last` tokens goes beyond it."""
    return spec.context if spec.context and 0 < spec.context < last else None


def _table(found: Sequence[Answer], known: Sequence[tuple[Answer, ModelSpec, Memory]]) -> None:
    """Draw a row for each model: what makes its cache large or small; folded, its bytes one by one."""
    base = found[0].memory.total_bytes if found[0].memory else 0
    totals = in_one_unit([memory.total_bytes for *_, memory in known]) if known else []
    ratio = f"ratio to {found[0].title}"
    rows = [
        {
            "model": each.title,
            **dict(zip((_NUMBERS, _AS_MHA), _layer(_kept(each)), strict=True)),
            "layers": _layers(terms(spec, memory)),
            "KV cache": total,
            ratio: f"{_factor(memory.total_bytes / base)}×" if base else "",
        }
        for (each, spec, memory), total in zip(known, totals, strict=True)
    ]
    for each in found[1:]:
        if each.problem:
            st.warning(plain(f"{each.title}: {each.problem}"))
    draw_table(_told(rows), key="m_compared")

    def to_the_byte() -> None:
        exactly = [_to_the_byte(each.title, memory) for each, _, memory in known]
        draw_table(_told(exactly), columns=COUNTS, key="m_bytes")

    fold("To the byte", "m_to_the_byte", to_the_byte)


def _files(found: Sequence[Answer]) -> None:
    """Draw the buttons that save the figures."""
    files = {"json": ("JSON", as_json, "application/json"), "csv": ("CSV, a row per layer", as_csv, "text/csv")}
    for suffix, (label, write, mime) in files.items():
        name, content = f"kv-memory.{suffix}", partial(write, found)
        st.download_button(label, content, name, mime, key=f"m_{suffix}", on_click="ignore")


def _named(title: str, spec: ModelSpec, asked: Asked) -> str:
    """A model's title with how its query heads share keys and values, which is why its line is steep or not."""
    kind, _, _ = attention(counted(spec, asked.view)).partition("-")
    return f"{title}\n{kind}" if kind else title


def _kept(each: Answer) -> Kept | None:
    """What one token leaves in a layer; None if layers differ, or one device holds a part of it."""
    if not each.spec or not each.memory or each.memory.tensor_parallel > 1:
        return None
    return kept(counted(each.spec, each.memory.view), each.config)


def _layer(found: Kept | None) -> tuple[str | None, str | None]:
    """The numbers that one token leaves in a layer, as a product; and those that it would leave there with MHA."""
    if not found:
        return None, None
    one = f"{found.sum} = {found.numbers:,}"
    if not found.as_mha or found.as_mha <= found.numbers:
        return one, "the same" if found.as_mha == found.numbers else None
    times = two_digits(found.as_mha / found.numbers)
    return one, f"{found.mha_sum} = {found.as_mha:,}, {times} times as many"


def _because(first: Answer, other: Answer) -> str:
    """What makes another model's cache smaller or larger than the first one's: the product of its reasons."""
    if not (first.spec and first.memory and other.spec and other.memory and first.memory.total_bytes):
        return ""
    why = levers(first.spec, first.memory, other.spec, other.memory)
    whole = _factor(other.memory.total_bytes / first.memory.total_bytes)
    names = f"**{plain(other.title)}** takes {whole} times the bytes of {plain(first.title)}"
    if len(why) == 1:  # its factor is the one already said
        return f"{names}, for one reason: {why[0].name}"
    return f"{names}: {' × '.join(f'{_factor(lever.factor)} ({lever.name})' for lever in why)}" if why else ""


def _factor(times: float) -> str:
    """A factor with two digits, or as many as tell it from 1."""
    return f"{times:.3g}" if 0.9 < times < 1.1 else two_digits(times)


def _told(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Leave out the columns that tell nothing about any row, so that the others have room."""
    telling = {name for row in rows for name, said in row.items() if said not in (None, "0 B")}
    return [{name: value for name, value in row.items() if name in telling} for row in rows]


def _layers(found: Sequence[Term]) -> str:
    """How many layers are of which kind: '40 sliding, 8 full attention'; some kinds are no attention."""
    noun = " attention" if {term.row.kind for term in found} <= {"full", "sliding", "chunked", "latent"} else ""
    return ", ".join(f"{term.count} {term.row.kind}" for term in found) + noun


def _to_the_byte(title: str, memory: Memory) -> dict[str, object]:
    return {
        "model": title,
        "bytes": exact(memory.total_bytes),
        "each further token": f"{memory.per_token_bytes:,} B",
        "constant": human(memory.fixed_bytes),
        "held by full windows": human(memory.plateau_bytes),
        "reserved": human(memory.reserved_bytes) if memory.reserved_bytes != memory.total_bytes else None,
        "weights": human(memory.weights_bytes) if memory.weights_bytes else "unknown",
    }
