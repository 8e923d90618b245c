"""The memory page's bytes by layer."""

import streamlit as st

from kvviz.charts.memory import layer_figure
from kvviz.memory.calculator import Answer
from kvviz.memory.formula import LayerMemory
from kvviz.ui.memory.tables import CHART, COUNTS, exact, shape_text
from kvviz.ui.shared.plots import plot


def by_layer(main: Answer) -> None:
    """Draw a bar and a row for each layer."""
    if main.memory is None:
        return
    plot(layer_figure(main.memory), config=CHART, key="m_layers")
    rows = [_row(layer) for layer in main.memory.layers]
    st.dataframe(rows, hide_index=True, width="stretch", height=260, column_config=COUNTS)


def _row(layer: LayerMemory) -> dict[str, object]:
    return {
        "layer": layer.index,
        "kind": layer.kind,
        "window": layer.window,
        "seen": layer.seen,
        "held": layer.held,
        "keys": shape_text(layer.key_shape),
        "values": shape_text(layer.value_shape),
        "state bytes": exact(layer.state_bytes),
        "bytes": exact(layer.nbytes),
        "allocated": exact(layer.allocated),
    }
