"""An engine's own log against the formula."""

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.memory.calculator import Answer, Asked
from kvviz.memory.check_engine_log import judge
from kvviz.memory.engine_log import parse
from kvviz.ui.shared.plain import plain


def log_line(main: Answer, asked: Asked) -> None:
    """Draw the box for the log, and whether what it says agrees."""
    text = st.text_area(
        "Lines of vLLM's or llama.cpp's log",
        key="m_logline",
        height=110,
        placeholder="GPU KV cache size: 42,656 tokens\nllama_kv_cache: size = 1166.62 MiB (32768 cells, 61 layers, …",
    )
    if not text.strip() or main.spec is None:
        return
    case = {"tokens": asked.tokens, "batch": asked.batch, "tensor_parallel": asked.tensor_parallel}
    try:
        verdict = judge(parse(text), main.spec, dtype=asked.dtype, **case)
    except KvvizError as error:
        st.warning(plain(error))
        return
    show = {True: st.success, False: st.error, None: st.info}[verdict.agrees]
    show(plain(f"{main.title}: {verdict.sentence}"))
