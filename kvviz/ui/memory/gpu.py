"""Weights, cache and an estimate of the prefill's activations against an accelerator's memory."""

from dataclasses import replace
from typing import Any

import streamlit as st

from kvviz.base.precision import precision, weight_bytes
from kvviz.base.words import human
from kvviz.charts import claims
from kvviz.charts.memory import batch_figure, fit_figure
from kvviz.memory.calculator import Answer, Asked, memory_of
from kvviz.memory.capacity import UNLIMITED, Activations, Fit, fits_all, states_intermediate, widths
from kvviz.memory.explain import activation_equation
from kvviz.models.catalog.rows import accelerators
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.memory.layers import counted_params
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plots import MEMORY_CHART, plot
from kvviz.ui.shared.tables import draw_table


def on_a_gpu(main: Answer, asked: Asked, form: Form) -> None:
    """Draw what fits on the chosen accelerator, and a row for each of the others."""
    if main.memory is None or main.spec is None:
        return
    rows = accelerators()
    chosen = form.choice("gpu", list(rows), Asked().gpu)
    row = rows[st.selectbox("Accelerator", format_func=lambda name: rows[name].title, **chosen)]
    weights, devices = _weights(main, asked), asked.tensor_parallel
    if weights is None:
        return
    weights = -(-weights // devices)
    size = precision(asked.dtype).state_bytes  # the cache's dtype, if that is a float
    estimate = Activations(*widths(main.config), asked.tokens, asked.batch, size)  # of a prefill of the whole context
    cache = main.memory.reserved_bytes
    parts = {"weights": weights, "KV cache": cache, "prefill activations (estimate)": estimate.nbytes}
    claim = claims.of_fit(sum(parts.values()), row.memory_bytes)
    plot(fit_figure(parts, row.memory_bytes, row.title), config=MEMORY_CHART, key="m_fit", claim=claim)
    st.caption(f"{row.title}: {human(row.memory_bytes)}. {row.memory_note} Source: {row.source}")
    if devices > 1:
        st.caption(TEXTS["memory"]["one_device"].format(devices=devices))
    _show_estimate(main, estimate)
    case: dict[str, Any] = {"batch": asked.batch, "dtype": asked.dtype, "view": asked.view, "beams": asked.beams}
    case |= {"tensor_parallel": devices, "llama_cpp": asked.llama_cpp}
    every = fits_all(main.spec, asked.tokens, weights_bytes=weights, activation_bytes=estimate.nbytes, **case)
    draw_table([_row(found, main.spec.context) for found in every], key="m_fits")
    if main.spec.context is None:
        st.caption(TEXTS["memory"]["context_untold"])
    counts = {n: memory_of(main.spec, replace(asked, batch=n)).reserved_bytes for n in (1, 2, 4, 8, 16, 32, 64)}
    claim = "The weights are there once; every sequence brings a cache of its own"
    plot(batch_figure(counts, weights), config=MEMORY_CHART, key="m_batch_chart", claim=claim)


def _show_estimate(main: Answer, estimate: Activations) -> None:
    assumed = " The config states no intermediate size; 4 x hidden is assumed."
    assumed = "" if states_intermediate(main.config) else assumed
    with st.expander("The estimate of the activations"):
        st.latex(activation_equation(estimate))
        st.caption(TEXTS["memory"]["activations"] + assumed)


def _weights(main: Answer, asked: Asked) -> int | None:
    """Bytes of the weights: those of the GGUF file, or of parameters: known, counted by the probe, or asked for."""
    if main.file:
        return main.file.nbytes
    params = main.params or counted_params(main)
    if params is None:
        billions = st.number_input("Parameters, billions", 0.0, 10_000.0, value=None, key="m_billions")
        st.caption("A config alone does not say how many parameters the model has; 'Look inside' counts them.")
        if not billions:
            return None
        params = int(billions * 1e9)
    return weight_bytes(params, asked.weights)


def _row(found: Fit, trained: int | None) -> dict[str, object]:
    """A row; `trained` is the longest context that the model was made for."""
    row = found.accelerator
    room = "any" if found.context == UNLIMITED else f"{found.context or 0:,}"
    beyond = trained and (found.context or 0) > trained
    return {
        "accelerator": row.title,
        "memory": human(row.memory_bytes),
        "left for caches": human(found.room) if found.room > 0 else "none",
        "longest context, tokens": f"{trained:,} (room for {room})" if beyond else room,
        "sequences at once": "any" if found.sequences == UNLIMITED else f"{found.sequences:,}",
        "fits as asked": found.fits,
        "source": row.source,
    }
