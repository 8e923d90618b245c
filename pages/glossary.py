"""/glossary: the field's words, each under a heading that one can link to."""

import streamlit as st

from kvviz.ui.frame.glossary import TERMS, in_words
from kvviz.ui.frame.page import page

with page("glossary"), st.container(key="glossary_terms", gap="small"):
    for name, term in TERMS.items():
        st.header(term.term, anchor=name)
        st.markdown(in_words(term))
