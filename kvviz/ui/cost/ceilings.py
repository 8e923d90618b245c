"""The foot of the cost page: what this machine was measured to reach, beside what makers of accelerators advertise."""

from collections.abc import Sequence

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.cost.ceilings import Ceilings, kept
from kvviz.models.catalog.rows import Accelerator, accelerators
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.tables import draw_table, localized


def ceilings() -> None:
    """Draw the measured ceilings that are kept, and a table of known accelerators, each to be opened."""
    problem = ""
    found: Sequence[Ceilings] = []
    try:
        found = kept()
    except KvvizError as error:
        problem = str(error)
    title = "What limits a step: the ceilings of this machine"
    fold(title, "c_ceilings", lambda: _ceilings(found, problem), expanded=bool(problem))
    fold("Known accelerators, as advertised", "c_accelerators", _accelerators)


def _ceilings(found: Sequence[Ceilings], problem: str) -> None:
    st.markdown(TEXTS["cost"]["ceilings"])
    if problem:
        st.warning(f"{problem[:1].upper()}{problem[1:]}.")
    elif found:
        draw_table([_measured(one) for one in reversed(found)])
        st.caption(TEXTS["cost"]["measured"])
    else:
        st.caption(TEXTS["cost"]["unmeasured"])


def _accelerators() -> None:
    memory, source = st.column_config.NumberColumn(format="%.1f"), st.column_config.LinkColumn()
    columns = {**localized("Read, GB/s"), "Memory, GiB": memory, "Source": source}
    known = [row for row in accelerators().values() if row.bandwidth_bytes_per_s]
    draw_table([_advertised(row) for row in known], columns=columns)
    st.caption(TEXTS["cost"]["advertised"])


def _advertised(row: Accelerator) -> dict[str, object]:
    tera = {name: rate / 1e12 for name, rate in row.flops_per_s.items()}
    return {
        "Accelerator": row.title,
        "Read, GB/s": (row.bandwidth_bytes_per_s or 0) / 1e9,
        "float32, TFLOP/s": tera.get("float32"),
        "16 bits, TFLOP/s": tera.get("float16"),
        "Memory, GiB": row.memory_bytes / 2**30,
        "Source": row.source,
    }


def _measured(found: Ceilings) -> dict[str, str]:
    here, row, rate = found.environment, found.row_product.get("float32"), found.matrix_rate.get("float32")
    return {
        "Device": f"{here.device_name}, {here.threads} thread{'s' if here.threads > 1 else ''}",
        "Plain read": f"{found.read_bandwidth / 1e9:,.1f} GB/s",
        "One-row product": "not measured" if row is None else f"{row / 1e9:,.1f} GB/s",
        "Matrix product": "not measured" if rate is None else f"{rate / 1e9:,.0f} GFLOP/s",
        "Least time of an operation": f"{found.launch * 1e6:,.1f} µs",
        "Measured": f"{found.measured_at[:10]}, torch {here.torch}",
    }
