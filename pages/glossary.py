"""/glossary: the field's words, each under a heading that one can link to."""

import streamlit as st

from kvviz.ui.frame.glossary import listed
from kvviz.ui.frame.page import page

with page("glossary"):
    st.markdown(listed())
