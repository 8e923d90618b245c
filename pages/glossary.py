"""/glossary: the field's words, to be searched or by their first letters, each under a heading that one can link to."""

import streamlit as st

from kvviz.ui.frame.glossary import FIRST, TERMS, by_letter, in_words
from kvviz.ui.frame.page import page
from kvviz.ui.shared.component import component

_search = component("kvviz_search", "frame/glossary_search.js", "kv-search")

with page("glossary"):
    letters = by_letter()
    with st.container(key="glossary_letters", horizontal=True, vertical_alignment="center"):
        _search(key="glossary_search")
        st.markdown(" ".join(f"[{letter}](#{names[0]})" for letter, names in letters.items()))
    st.markdown(f"**Start with the shaded terms**: {', '.join(f'[{TERMS[name].term}](#{name})' for name in FIRST)}.")
    with st.container(key="glossary_terms", gap="small"):
        for letter, names in letters.items():
            with st.container(key=f"glossary_{letter}"):
                st.caption(letter)
                for name in names:
                    with st.container(gap=None, key=f"first_{name}" if name in FIRST else None):
                        st.header(TERMS[name].term, anchor=name)
                        st.markdown(in_words(TERMS[name]))
