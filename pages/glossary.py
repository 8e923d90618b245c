"""/glossary: the field's words by their first letters, each under a heading that one can link to."""

import streamlit as st

from kvviz.ui.frame.glossary import TERMS, by_letter, in_words
from kvviz.ui.frame.page import page

with page("glossary"):
    letters = by_letter()
    with st.container(key="glossary_letters"):
        st.markdown(" ".join(f"[{letter}](#{names[0]})" for letter, names in letters.items()))
    with st.container(key="glossary_terms", gap="small"):
        for letter, names in letters.items():
            with st.container(key=f"glossary_{letter}"):
                st.caption(letter)
                for name in names:
                    with st.container(gap=None):
                        st.header(TERMS[name].term, anchor=name)
                        st.markdown(in_words(TERMS[name]))
