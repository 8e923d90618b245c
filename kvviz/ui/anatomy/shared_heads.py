"""Who shares a key: the heads of any model's layer as a picture, and what they do to the cache."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from kvviz.charts.heads import heads_figure
from kvviz.models.catalog.rows import models
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec
from kvviz.ui.anatomy.architectures import BYTES, numbers_of_head
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.plots import drawn_once, plot

DRAWN = {"full", "sliding", "chunked", "latent", "indexed", "hybrid"}
EXAMPLES = {
    "gpt2": "multi-head: a KV head for every query head",
    "qwen3-4b": "grouped-query: a few share one",
    "falcon-7b": "multi-query: one for all",
    "deepseek-v3": "latent: one row, which all heads read",
}


def shared_heads() -> None:
    """Pick a model; see its heads."""
    titles = {row.id: row.title for row in models().values() if not row.has_encoder}
    known = [name for name in EXAMPLES if name in titles]
    form = Form("heads", "h_", model=Field(known[min(1, len(known) - 1)]))
    with st.container(horizontal=True, key="h_models"):
        for name in known:
            look: dict[str, Any] = {"type": "primary" if name == form["model"] else "secondary", "help": EXAMPLES[name]}
            st.button(titles[name], key=f"h_{name}", on_click=partial(form.fill, {"model": name}), **look)
        choice: dict[str, Any] = {"label_visibility": "collapsed", "width": 260, **form.choice("model", list(titles))}
        name = st.selectbox("Model", format_func=titles.__getitem__, **choice)
    spec = ModelSpec.from_config(models()[name].config, name=name)
    layer = next((row for row in spec.layers if row.kind in DRAWN and (row.kv_heads or row.kind == "latent")), None)
    heads = spec.heads
    if layer is None or not heads or (layer.kind != "latent" and heads % layer.kv_heads):
        st.info(f"{titles[name]} has no attention layer whose heads could be drawn like this.")
        return
    held, own = _bytes(layer, heads, models()[name].config)
    claim = f"{titles[name]}: {_claim(layer, heads, held, own)}"
    figure = drawn_once(heads_figure, layer, heads, f"{held:,} B", f"{own:,} B")
    plot(figure, claim=claim, config={"displayModeBar": False}, key="h_chart")
    st.markdown(_words(layer, heads, held, own))


def _bytes(layer: LayerSpec, heads: int, config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the bytes of a token in this layer, and those that keys and values of each query head would take."""
    row = layer.key_dim + layer.value_dim
    head = numbers_of_head(config) if layer.latent else row
    return layer.kv_heads * row * BYTES, heads * head * BYTES


def _claim(layer: LayerSpec, heads: int, held: int, own: int) -> str:
    if layer.kv_heads == heads:
        return f"each of {heads} query heads has a KV head of its own"
    if layer.kind == "latent":
        shared = f"{heads} query heads read one latent row"
    else:
        shared = f"{heads} query heads share {layer.kv_heads} KV head{'s' * (layer.kv_heads > 1)}"
    return f"{shared}, so a token takes {held:,} B in a layer, not {own:,} B"


def _words(layer: LayerSpec, heads: int, held: int, own: int) -> str:
    """Say how these bytes are counted, and what those who read the same row do with it."""
    row = f"({layer.key_dim} + {layer.value_dim}) × {BYTES} B"
    if layer.kind == "latent":
        return (
            f"Multi-head latent attention (MLA), in bfloat16: a row takes {row} = {held:,} B; keys and values of all "
            f"{heads} heads would take **{own / held:.1f} times** as much. Each head could compute its keys and values "
            "from the row; in practice the key matrix is folded into the query."
        )
    counted = f"In bfloat16, a token takes {layer.kv_heads} × {row} = {held:,} B in a layer"
    if layer.kv_heads == heads:
        return f"{counted}: every query head has keys and values of its own."
    return (
        f"{counted}; {heads} KV heads would take **{own // held} times** as much. "
        "Query heads that meet in one square ask different questions about the same keys."
    )
