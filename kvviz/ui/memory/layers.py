"""The bytes of each layer, as the formula has them, and as a probe finds them in the model itself."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.precision import precision
from kvviz.charts import claims
from kvviz.charts.memory import layer_figure
from kvviz.decoding.meta_probe_process import probe_apart
from kvviz.memory.calculator import Answer, Asked, answer
from kvviz.memory.engine_views import VIEWS
from kvviz.memory.formula import kv_memory
from kvviz.server.script_slots import aside
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document, recording, say_recorded
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import MEMORY_CHART, drawn_once, plot
from kvviz.ui.shared.tables import COUNTS, draw_table, exact, localized

PROBES, PARAMS = "m_probes", "m_params"  # of this session: by what was asked, and parameters by model


def by_layer(main: Answer) -> None:
    """Draw a bar for each layer, and a row for those next to one another that keep alike."""
    if main.memory is None:
        return
    claim = claims.of_layers(main.memory)
    plot(drawn_once(layer_figure, main.memory), config=MEMORY_CHART, key="m_layers", claim=claim)
    _table([vars(layer) for layer in main.memory.layers], "m_layer_rows")


def _table(layers: Sequence[Mapping[str, Any]], key: str) -> None:
    """Draw a row for the layers next to one another that keep alike, without columns that say nothing."""
    rows = _joined([_layer_row(layer) for layer in layers])
    empty = {name for name in rows[0] if all(row[name] in (None, 0, "0", "none") for row in rows)}
    if all(row["allocated"] == row["bytes each"] for row in rows):
        empty.add("allocated")
    told = [{name: value for name, value in row.items() if name not in empty} for row in rows]
    draw_table(told, columns={**COUNTS, **localized("bytes each")}, key=key)


def _joined(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """A row for the layers that are alike and follow one another: layers 0 to 31."""
    found = []
    for _, some in groupby(rows, key=lambda row: list(row.values())[1:]):
        first, *others = some
        layers = f"{first['layer']} to {others[-1]['layer']}" if others else f"{first['layer']}"
        found.append({"layers": layers, **{_EACH.get(name, name): first[name] for name in list(first)[1:]}})
    return found


_EACH = {"bytes": "bytes each"}


def _layer_row(layer: Mapping[str, Any]) -> dict[str, object]:
    """A table's row of a layer's memory."""
    return {
        "layer": layer["index"],
        "kind": layer["kind"],
        **{name: None if layer[name] is None else f"{layer[name]:,}" for name in ("window", "seen", "held")},
        "keys": _shape(layer["key_shape"]),
        "values": _shape(layer["value_shape"]),
        "state bytes": exact(layer["state_bytes"]),
        "bytes": exact(layer["nbytes"]),
        "allocated": exact(layer["allocated"]),
    }


def _shape(shape: Sequence[int] | None) -> str:
    return " × ".join(f"{size:,}" for size in shape) if shape else "none"


def look_inside(main: Answer, asked: Asked) -> None:
    """Draw the button, and what the probe has found: until it has, what it found of another case."""
    st.markdown(TEXTS["memory"]["probe"])
    key = (main.key, asked.tokens, asked.batch, asked.dtype, asked.source_tokens)
    kept = st.session_state.setdefault(PROBES, {})
    if st.button("Probe the model", key="m_probe", disabled=main.spec is None and not main.config):
        kept[key] = _probed(main, asked)
    document = kept.get(key)
    if isinstance(document, str):
        st.warning(plain(document))
    elif document:
        _show(main, document)
        params = document["weights_bytes"] // precision(document["dtype"]).block_bytes
        st.session_state.setdefault(PARAMS, {})[main.key] = params
    elif kept_probe := recording("probe"):
        document = kept_probe["document"]
        other = answer(Asked(), document["model"])
        case = f"the probe of {other.title} at {document['tokens']:,} tokens, in {document['dtype']}"
        made = f"made with transformers {document['transformers']} on {kept_probe['made']}"
        press = "press **Probe the model** to probe here what is chosen above."
        say_recorded(f"This is a **recording** of {case}, {made}: {press}", "probe")
        _show(other, document)


def counted_params(main: Answer) -> int | None:
    """The parameters that a probe of this session has counted; None before one has."""
    return st.session_state.get(PARAMS, {}).get(main.key)


def _probed(main: Answer, asked: Asked) -> Document | str:
    """What the probe found, or the sentence why it could not."""
    dtype = asked.dtype if asked.dtype in VIEWS["hf-dynamic"].dtypes else "bfloat16"
    try:
        building = st.spinner(f"Building {plain(main.title)} without weights and reading its cache", show_time=True)
        with building, aside():
            return probe_apart(
                main.config, tokens=asked.tokens, batch=asked.batch, dtype=dtype, source_tokens=asked.source_tokens
            )
    except KvvizError as error:
        return str(error)


def _show(main: Answer, document: Document) -> None:
    st.markdown(_against_formula(main, document))
    _table(document["layers"], "m_inside")


def _against_formula(main: Answer, document: Document) -> str:
    probed = document["total_bytes"]
    cache = f"{document['cache_class']} of {len(document['layers'])} layers: " if document.get("cache_class") else ""
    counted = f"{cache}**{probed:,} B** in its tensors"
    if main.spec is None:
        return f"{counted}. The formula can't read this config: {plain(main.problem)}."
    case = {name: document[name] for name in ("tokens", "batch", "dtype", "source_tokens")}
    formula = kv_memory(main.spec, view="hf-dynamic", **case).total_bytes
    if formula == probed:
        view = "the formula's view *transformers, DynamicCache*"
        return f"{counted}; {view} says the same, to the byte. :material/check:"
    return f"{counted}; the formula says {formula:,} B. Trust the probe: it is what transformers does."
