"""What a page has around its own part: title and opening words, and the sentences to say out loud at its foot."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from kvviz.ui.frame.tour import here
from kvviz.ui.shared.fold import fold

TEXTS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("pages.toml").read_text(encoding="utf-8"))
ALOUD = {"state": "The state that changes", "axis": "The axis it changes on", "trade_off": "The trade-off"}


@contextmanager
def page(name: str) -> Iterator[None]:
    """Draw a page's head, then what stands in the `with`, then its foot: the sentences, if the page has them.

    Those of a page with tabs are of the tab that is open, and under the others there are none.
    """
    row = TEXTS[name]
    with st.container(key=f"page_{name}_toured" if here() else f"page_{name}"):  # the styles ask for it
        st.title(row["title"], anchor=False)
        st.container(key=f"{name}_opening").markdown(row["opening"])
        yield
        said = row["aloud"].get(st.session_state.get(row["tabs"]), {}) if "aloud" in row else row
        if not said.keys() >= ALOUD.keys():
            return
        fold("In three sentences", f"{name}_aloud", partial(_sentences, said))


def _sentences(said: Mapping[str, str]) -> None:
    for column, (part, title) in zip(st.columns(3, gap="medium"), ALOUD.items(), strict=True):
        column.markdown(f"**{title}**  \n{said[part]}")
