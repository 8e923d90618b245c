"""/glossary: the field's words, to be searched or by their first letters, each under a heading that one can link to."""

import streamlit as st

from kvviz.ui.frame.glossary import FIRST, TERMS, by_letter, in_words
from kvviz.ui.frame.page import page
from kvviz.ui.shared.component import component

_search = component("kvviz_search", "frame/glossary_search.js", "kv-search")


def _term(name: str) -> None:
    with st.container(gap=None):
        st.header(TERMS[name].term, anchor=name)
        st.markdown(in_words(TERMS[name]))


with page("glossary"):
    letters = by_letter()
    with st.container(key="glossary_letters", horizontal=True, vertical_alignment="center"):
        _search(key="glossary_search")
        places = {
            letter: next((name for name in names if name not in FIRST), names[0]) for letter, names in letters.items()
        }
        st.markdown(" ".join(f"[{letter}](#{name})" for letter, name in places.items()))
    with st.container(key="glossary_terms", gap="small"):
        with st.container(key="glossary_first"):
            st.caption("Begin with these, in this order")
            for name in FIRST:
                _term(name)
        for letter, names in letters.items():
            if rest := [name for name in names if name not in FIRST]:
                with st.container(key=f"glossary_{letter}"):
                    st.caption(letter)
                    for name in rest:
                        _term(name)
