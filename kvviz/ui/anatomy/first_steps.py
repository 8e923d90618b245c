"""The step before: a decoder of attention alone, whose cache is a plain dict; its source, and what it does when run."""

import ast
from pathlib import Path

import streamlit as st

from kvviz.decoding import scratch
from kvviz.experiments.inside.spec import FirstStepsSpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document, inspected

SOURCE = Path(scratch.__file__).with_name("first_steps.py")
SHOWN = {"AttentionNoCache": "No cache", "AttentionWithCache": "KV cache"}


def first_steps(scheduler: Scheduler) -> None:
    """The two attentions side by side, the model made of them, and what they do when they are run."""
    st.markdown(TEXTS["anatomy"]["first_steps"])
    for place, (name, title) in zip(st.columns(2, gap="large"), SHOWN.items(), strict=True):
        with place:
            st.markdown(f"**{title}**")
            st.code(_written(name), language="python")
    with st.expander("The model around them: prefill, then one token a step"):
        st.code(_written("GPTWithCache"), language="python")
    how = "What the logits are divided by before a token is drawn: below 1 the likely letters win, above 1 all come."
    least, most = FirstStepsSpec.TEMPERATURES
    temperature = st.slider("Temperature", least, most, 1.0, 0.1, key="f_temperature", help=how, width=340)
    if st.button("Run it", key="f_run") or st.session_state.get("f_ran"):
        st.session_state.f_ran = True
        inspected(scheduler, FirstStepsSpec(temperature), _show, key="f_look")


def _written(name: str) -> str:
    text = SOURCE.read_text(encoding="utf-8")
    node = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name)
    return ast.get_source_segment(text, node) or ""


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
