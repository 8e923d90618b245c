"""The serving page's last section: what a server such as vLLM adds to a cache, each with the run here that shows it."""

from dataclasses import dataclass

import streamlit as st

from kvviz.ui.folders import PAGES
from kvviz.ui.live.form import link

PROMPT = "Once upon a time there was a little dog who liked to walk to the pond. " * 6


@dataclass(frozen=True)
class Row:
    """A feature: what it is, what for, and links into this dashboard: (label, page, its address's fields)."""

    name: str
    what: str
    why: str
    links: tuple[tuple[str, str, dict[str, str]], ...] = ()
    section: tuple[str, str] | None = None  # of this page: label, anchor


ROWS = (
    Row(
        "PagedAttention",
        "Keys and values lie in blocks of 16 tokens, anywhere in memory; a table for each sequence says where.",
        "No sequence has to guess how long it will get, so hardly any memory is wasted, and a block can belong to more "
        "than one.",
        (("Race joined, reserved and paged", "live", link(modes=["concat", "prealloc", "paged"], new_tokens=64)),),
        ("Waste and preemption, above", "fragmentation"),
    ),
    Row(
        "Prefix caching",
        "A full block is known by its tokens and all before them; who begins alike takes it, and computes the rest.",
        "A system prompt or a long history is computed once, not once a request.",
        (("Four like prompts, kept once", "live", link(modes=["cached", "prefix"], batch=4, new_tokens=32)),),
        ("Cold against warm, above", "prefix-sharing"),
    ),
    Row(
        "FlashAttention",
        "Scores, softmax and the sum over values in one kernel, tile by tile: the matrix of scores is never written "
        "to memory.",
        "Writing that matrix and reading it back takes memory and time, which grow with the square of the prompt.",
        (
            ("With torch's fused kernel", "live", link(attn="sdpa", modes=["uncached", "cached"], prompt=PROMPT)),
            ("With the softmax step by step", "live", link(attn="eager", modes=["uncached", "cached"], prompt=PROMPT)),
        ),
    ),
    Row(
        "Quantization of the cache",
        "Keys and values as 8-bit or 4-bit numbers with scales, in place of 16 or 32 bits.",
        "Longer contexts or more sequences in the same memory; the answer may change, so look where it does.",
        (("Race full, 8 bits and 4 bits", "live", link(modes=["cached", "int8", "int4"], new_tokens=128)),),
    ),
)


def section() -> None:
    """Draw the rows."""
    st.subheader("From this lab to vLLM", anchor="to-vllm")
    st.markdown(
        "A server such as vLLM is this cache with more around it. Each row opens the run **here** that shows it: the "
        "form is filled, press Run."
    )
    for row in ROWS:
        with st.container(border=True):
            name, what, why, links = st.columns([2, 4, 4, 4], gap="medium")
            name.markdown(f"**{row.name}**")
            what.markdown(f"**What.** {row.what}")
            why.markdown(f"**Why.** {row.why}")
            for label, page, fields in row.links:
                icon = ":material/play_arrow:"
                links.page_link(PAGES / f"{page}.py", label=label, icon=icon, query_params=fields)
            if row.section is not None:
                links.markdown(f"[{row.section[0]}](#{row.section[1]})")
    st.caption(
        "FlashAttention runs where torch has it, on a GPU in half precision; elsewhere torch's own fused kernel stands "
        "in its place. How much each is worth is what the run on this device says, and nothing else."
    )
