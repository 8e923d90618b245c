"""The walk with three letters, a line at a time."""

import streamlit as st

from kvviz.experiments.inside.letters import walk


def letters() -> None:
    """Back and Next through the lines, the cache as boxes."""
    moments = list(walk())
    st.session_state.setdefault("l_at", 0)
    back, onward, _ = st.columns([1, 1, 6])
    back.button("Back", key="l_back", disabled=st.session_state.l_at == 0, on_click=_move, args=(-1,), width="stretch")
    last = st.session_state.l_at == len(moments) - 1
    onward.button("Next", key="l_next", disabled=last, on_click=_move, args=(1,), width="stretch")
    at = st.session_state.l_at
    moment = moments[at]
    st.code("\n".join(one.line for one in moments[: at + 1]), language="python")
    boxes = " ".join(f":blue-badge[{entry}]" for entry in moment.cache) or "empty"
    st.markdown(f"**{moment.words.capitalize()}.** The cache: {boxes}")
    if moment.query:
        st.markdown(f"The query: :green-badge[{moment.query}]{_context(moment.context)}")
    if last:
        st.caption(
            "One thing is simpler here than in a model: a layer appends D's own key and value before its query looks, "
            "so that D sees itself too, and reads 4 rows. The walk above shows it on real tensors."
        )


def _context(text: str) -> str:
    return f" What it makes of them: `{text}`" if text else ""


def _move(by: int) -> None:
    st.session_state.l_at += by
