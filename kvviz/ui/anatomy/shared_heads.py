"""Who shares a key: the heads of any model's layer as a picture, and what they do to the cache."""

from functools import partial
from typing import Any

import streamlit as st

from kvviz.charts.heads import heads_figure
from kvviz.models.catalog.rows import models
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.plots import drawn_once, plot

DRAWN = {"full", "sliding", "chunked", "latent", "indexed", "hybrid"}
EXAMPLES = {
    "gpt2": "multi-head: a KV head for every query head",
    "qwen3-4b": "grouped-query: a few share one",
    "falcon-7b": "multi-query: one for all",
    "deepseek-v3": "latent: one row, which all heads read",
}
BYTES = 2  # bfloat16


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
    claim = f"{titles[name]}: {_claim(layer, heads)}"
    plot(drawn_once(heads_figure, layer, heads), claim=claim, config={"displayModeBar": False}, key="h_chart")
    st.markdown(_words(layer, heads))


def _claim(layer: LayerSpec, heads: int) -> str:
    if layer.kind == "latent":
        return f"{heads} query heads read one latent row for each token"
    if layer.kv_heads == heads:
        return f"each of {heads} query heads has a KV head of its own"
    return f"{heads} query heads share {layer.kv_heads} KV head{'s' * (layer.kv_heads > 1)}"


def _words(layer: LayerSpec, heads: int) -> str:
    """The bytes of a token in this layer, and what a KV head for each query head would take."""
    if layer.kind == "latent":
        row = layer.key_dim + layer.value_dim
        return (
            f"All **{heads}** query heads read **one** latent row per token (multi-head latent attention, MLA): "
            f"{layer.key_dim} + {layer.value_dim} = {row} numbers, {row * BYTES:,} B in bfloat16. Each head could "
            "compute its keys and values from it; in practice the key matrix is folded into the query."
        )
    width = layer.key_dim + layer.value_dim
    own = f"{layer.kv_heads} × ({layer.key_dim} + {layer.value_dim}) × {BYTES} B = {layer.kv_heads * width * BYTES:,} B"
    sizes = f"**{heads}** query heads, **{layer.kv_heads}** KV heads: a token takes {own} in a layer, in bfloat16."
    if layer.kv_heads == heads:
        return f"{sizes} Every query head has keys and values of its own."
    return (
        f"{sizes} With one KV head for each query head it would be **{heads // layer.kv_heads} times** as much. "
        "Query heads that meet in one square ask different questions about the same keys."
    )
