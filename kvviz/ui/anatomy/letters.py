"""The walk with three letters, a line at a time."""

import streamlit as st

from kvviz.experiments.inside.letters import walk


def letters() -> None:
    """Draw Back and Next through the lines, and the cache as boxes."""
    moments = list(walk())
    at = st.session_state.setdefault("l_at", 0)
    last = at == len(moments) - 1
    back, onward, _ = st.columns([1, 1, 6])
    back.button("Back", key="l_back", disabled=at == 0, on_click=_move, args=(-1,), width="stretch")
    onward.button("Next", key="l_next", disabled=last, on_click=_move, args=(1,), width="stretch")
    moment = moments[at]
    st.code("\n".join(one.line for one in moments[: at + 1]), language="python")
    boxes = " ".join(f":blue-badge[{entry}]" for entry in moment.cache) or "empty"
    st.markdown(f"**{moment.words.capitalize()}.** The cache: {boxes}")
    if moment.query:
        context = f" What it makes of them: `{moment.context}`" if moment.context else ""
        st.markdown(f"The query: :green-badge[{moment.query}]{context}")
    if last:
        st.caption(
            "One thing is simpler here than in a model: a layer appends D's own key and value before its query looks, "
            "so that D sees itself too, and reads 4 rows. The walk above shows it on real tensors."
        )


def _move(by: int) -> None:
    st.session_state.l_at += by
