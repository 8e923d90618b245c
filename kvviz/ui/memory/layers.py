"""The bytes of each layer, as the formula has them and as the probe has found them."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from kvviz.charts.memory import layer_figure
from kvviz.memory.calculator import Answer
from kvviz.ui.shared.plots import MEMORY_CHART, plot
from kvviz.ui.shared.tables import COUNTS, exact, shape_text


def by_layer(main: Answer) -> None:
    """Draw a bar and a row for each layer."""
    if main.memory is None:
        return
    plot(layer_figure(main.memory), config=MEMORY_CHART, key="m_layers")
    rows = [layer_row(vars(layer), "window", "seen", "held") for layer in main.memory.layers]
    st.dataframe(rows, hide_index=True, height=260, column_config=COUNTS)


def layer_row(layer: Mapping[str, Any], *more: str) -> dict[str, object]:
    """A table's row of a layer's memory, with these further columns."""
    return {
        "layer": layer["index"],
        "kind": layer["kind"],
        **{name: layer[name] for name in more},
        "keys": shape_text(layer["key_shape"]),
        "values": shape_text(layer["value_shape"]),
        "state bytes": exact(layer["state_bytes"]),
        "bytes": exact(layer["nbytes"]),
        "allocated": exact(layer["allocated"]),
    }
