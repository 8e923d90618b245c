"""The step before: a decoder of attention alone, whose cache is a plain dict; its source, and what it does when run."""

import ast
import html
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import streamlit as st

from kvviz.decoding import scratch
from kvviz.experiments.inside.spec import FirstStepsSpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui import mistakes
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document, inspected
from kvviz.ui.shared.fold import fold

SOURCE = Path(scratch.__file__).with_name("first_steps.py")
STYLES = Path(mistakes.__file__).with_name("results.css"), Path(__file__).with_suffix(".css")
_FOR_CHECKERS = re.compile(r"  # type: ignore\[.*?\]")


def first_steps(scheduler: Scheduler) -> None:
    """The two attentions side by side, the model made of them, and what they do when they are run."""
    st.markdown(TEXTS["anatomy"]["first_steps"])
    for style in STYLES:
        st.html(style)
    st.html(_both())

    def model() -> None:
        st.code("\n".join(written("GPTWithCache")), language="python")

    fold("The model around them: prefill, then one token a step", "f_model", model)
    how = "What the logits are divided by before a token is drawn: below 1 the likely letters win, above 1 all come."
    least, most = FirstStepsSpec.TEMPERATURES
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        kept: dict[str, Any] = {"key": "f_temperature", "persist_state": "page", "help": how, "width": 340}
        temperature = st.slider("Temperature", least, most, 1.0, 0.1, **kept)
        run = st.button("Run it", key="f_run")
    if run or st.session_state.get("f_ran"):
        st.session_state.f_ran = True
        inspected(scheduler, FirstStepsSpec(temperature), _show, key="f_look")


def _both() -> str:
    """What differs, line beside line, and what both have, as HTML."""
    plain, cached = written("AttentionNoCache.forward"), written("AttentionWithCache.forward")
    same = beside(plain, cached)
    gaps = [(line or "", "" if line else "kv-gap") for line in same]
    marked = [(line, "" if line == other else "kv-mend") for line, other in zip(cached, same, strict=True)]
    made = [*written("AttentionNoCache.__init__"), "", *written("AttentionNoCache.split")]
    boxes = (
        _box("No cache", gaps, "kv-aligned"),
        _box("KV cache", marked, "kv-aligned"),
        _box("In both: queries, keys and values", [(line, "") for line in made]),
        _box("In both: attention", [(line, "") for line in written("AttentionNoCache.attend")]),
    )
    return f'<div class="kv-forwards" style="--kv-rows: {1 + len(cached)}">{"".join(boxes)}</div>'


def beside(plain: Sequence[str], cached: Sequence[str]) -> list[str | None]:
    """For each line with a cache the one without that begins alike; None where only a cache needs a line."""
    rest = list(plain)
    same: list[str | None] = []
    for line in cached:
        alike = rest and rest[0].partition("(")[0] == line.partition("(")[0]
        same.append(rest.pop(0) if alike else None)
    return same


def _box(title: str, lines: Sequence[tuple[str, str]], kind: str = "") -> str:
    """Lines of code, each with what it is marked as, under a title."""
    spans = "".join(f'<span class="{mark}">{html.escape(line) or " "}</span>' for line, mark in lines)
    return f'<div class="{kind}"><b>{title}</b><pre class="kv-source">{spans}</pre></div>'


# Parsed once, when the server starts: two threads that parse at the same time can fail in Python 3.11.
_TEXT = SOURCE.read_text(encoding="utf-8")
_TREE = ast.parse(_TEXT)


def written(path: str) -> list[str]:
    """The lines of a class or a method, without what only a checker of types reads."""
    node: Any = _TREE
    for name in path.split("."):
        node = next(one for one in node.body if getattr(one, "name", "") == name)
    return _FOR_CHECKERS.sub("", dedent("\n".join(_TEXT.splitlines()[node.lineno - 1 : node.end_lineno]))).splitlines()


def _show(about: Document, found: Document) -> None:
    measured = found["benchmark"]
    one, two, three = st.columns(3)
    one.metric("No cache", f"{measured['no_cache_ms']:.1f} ms")
    two.metric("KV cache", f"{measured['cache_ms']:.1f} ms")
    three.metric("Speed-up", f"{measured['speedup']:.2f}×")
    st.caption(TEXTS["anatomy"]["timed"].format(**measured, device=about["device"]))
    ending = "and stopped at a full stop" if found["stopped"] else "and met no full stop"
    st.markdown(
        f"The two attentions differ by at most **{found['difference']:.1e}** on the same weights. At temperature "
        f"{found['temperature']:g} the untrained model drew {found['written']} letters {ending}:"
    )
    st.code(found["text"], language=None, wrap_lines=True)
