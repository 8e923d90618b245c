"""Who shares a key: the heads of any model's layer as a picture, and what they do to the cache."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from kvviz.charts.heads import STYLE, heads_drawing
from kvviz.models.catalog.rows import models
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec
from kvviz.ui.anatomy.architectures import BYTES, numbers_of_head
from kvviz.ui.shared.form import Field, Form

DRAWN = {"full", "sliding", "chunked", "latent", "indexed", "hybrid"}
EXAMPLES = {  # a model of each way to share
    "Multi-head (MHA)": "gpt2",
    "Grouped-query (GQA)": "qwen3-4b",
    "Multi-query (MQA)": "falcon-7b",
    "Latent (MLA)": "deepseek-v3",
}


def shared_heads(walked: str) -> None:
    """Pick a way to share or a model; see its heads. `walked` is the title of the model of the walk above."""
    titles = {row.id: row.title for row in models().values() if not row.has_encoder}
    form = Form("heads", "h_", model=Field(EXAMPLES["Grouped-query (GQA)"]))
    layer, heads = _layer(form["model"])
    st.session_state.h_kind = _kind(layer, heads) if layer else None

    def take() -> None:
        form["model"] = EXAMPLES.get(st.session_state.h_kind, form["model"])

    bare: dict[str, Any] = {"label_visibility": "collapsed"}
    with st.container(horizontal=True, vertical_alignment="center"):
        st.segmented_control("How query heads share", list(EXAMPLES), key="h_kind", on_change=take, **bare)
        name = st.selectbox(
            "Model", format_func=titles.__getitem__, width=260, **bare, **form.choice("model", [*titles])
        )
        st.caption(f"A layer of a published model; the walk above is through {walked}.", width="content")
    if layer is None:
        st.info(f"{titles[name]} has no attention layer whose heads could be drawn like this.")
        return
    held, own = _bytes(layer, heads, models()[name].config)
    claim = f"{titles[name]}: {_claim(layer, heads, held, own)}"
    st.markdown(f"**{claim}**")
    st.html(STYLE)
    with st.container(key="h_drawing"):
        st.html(heads_drawing(layer, heads, held, own, claim))
    st.markdown(_words(layer, heads, held, own))


def _layer(name: str) -> tuple[LayerSpec | None, int]:
    """The first layer of a model whose heads can be drawn, None if there is none, and its query heads."""
    spec = ModelSpec.from_config(models()[name].config, name=name)
    layer = next((row for row in spec.layers if row.kind in DRAWN and (row.kv_heads or row.kind == "latent")), None)
    heads = spec.heads
    if layer is None or not heads or (layer.kind != "latent" and heads % layer.kv_heads):
        return None, 0
    return layer, heads


def _kind(layer: LayerSpec, heads: int) -> str:
    if layer.latent:
        return "Latent (MLA)"
    return {heads: "Multi-head (MHA)", 1: "Multi-query (MQA)"}.get(layer.kv_heads, "Grouped-query (GQA)")


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
