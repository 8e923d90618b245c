"""/glossary: the field's words by topic, to be searched, each under a heading that one can link to."""

from collections.abc import Iterable, Sequence

import streamlit as st

from kvviz.ui.frame.glossary import FIRST, TERMS, TOPICS, in_words
from kvviz.ui.frame.page import page
from kvviz.ui.shared.component import component

_search = component("kvviz_search", "frame/glossary_search.js", "kv-search")


def _section(anchor: str, title: str, names: Iterable[str], above: Sequence[str] = ()) -> None:
    with st.container(key=f"glossary_{anchor}"):
        st.header(title, anchor=anchor)
        if above:
            st.caption("Explained above: " + " ".join(f"[{TERMS[name].term}](#{name})" for name in above))
        for name in names:
            with st.container(gap=None):
                st.subheader(TERMS[name].term, anchor=name)
                st.markdown(in_words(TERMS[name]))


with page("glossary"):
    anchors = {topic: f"topic-{topic.lower().replace(' ', '-')}" for topic in TOPICS}
    with st.container(key="glossary_topics", horizontal=True, vertical_alignment="center"):
        _search(key="glossary_search", data={"ways": {name: term.ways for name, term in TERMS.items()}})
        st.markdown(" ".join(f"[{topic}](#{anchor})" for topic, anchor in anchors.items()))
    with st.container(key="glossary_terms", gap=None):
        _section("first", "Begin with these, in this order", FIRST)
        for topic, names in TOPICS.items():
            above = [name for name in names if name in FIRST]
            _section(anchors[topic], topic, (name for name in names if name not in FIRST), above)
