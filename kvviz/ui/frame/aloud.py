"""How to say a page out loud, as in an interview: the state that changes, the axis it changes on, the trade-off."""

import streamlit as st


def say_aloud(*, state: str, axis: str, trade_off: str) -> None:
    """Draw the foot of a page: one sentence each."""
    st.divider()
    st.subheader("How to say it out loud", anchor=False)
    parts = {"The state that changes": state, "The axis it changes on": axis, "The trade-off": trade_off}
    for column, (title, sentence) in zip(st.columns(3, gap="medium"), parts.items(), strict=True):
        column.markdown(f"**{title}**  \n{sentence}")
