"""Weights, cache and an estimate of the prefill's activations against an accelerator's memory."""

from dataclasses import replace

import streamlit as st

from kvviz.base.precision import precision, weight_bytes
from kvviz.base.words import human
from kvviz.charts.memory import batch_figure, fit_figure
from kvviz.memory.calculator import Answer, Asked, memory_of
from kvviz.memory.capacity import UNLIMITED, Activations, Fit, fits_all, states_intermediate, widths
from kvviz.memory.explain import activation_equation
from kvviz.models.catalog.rows import accelerators
from kvviz.ui.memory.look_inside import counted_params
from kvviz.ui.memory.tables import CHART
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plots import plot


def on_a_gpu(main: Answer, asked: Asked, form: Form) -> None:
    """Draw what fits on the chosen accelerator, and a row for each of the others."""
    if main.memory is None or main.spec is None:
        return
    rows = accelerators()
    chosen = form.choice("gpu", list(rows), Asked().gpu)
    row = rows[st.selectbox("Accelerator", format_func=lambda name: rows[name].title, **chosen)]
    weights = _weights(main, asked)
    if weights is None:
        return
    estimate = _activations(main, asked)
    parts = {
        "weights": weights,
        "KV cache": main.memory.reserved_bytes,
        "prefill activations (estimate)": estimate.nbytes,
    }
    plot(fit_figure(parts, row.memory_bytes, row.title), config=CHART, key="m_fit")
    st.caption(f"{row.title}: {human(row.memory_bytes)}. {row.memory_note} Source: {row.source}")
    _show_estimate(main, estimate)
    every = fits_all(
        main.spec,
        asked.tokens,
        batch=asked.batch,
        weights_bytes=weights,
        activation_bytes=estimate.nbytes,
        dtype=asked.dtype,
        view=asked.view,
        beams=asked.beams,
    )
    st.dataframe([_row(found) for found in every], hide_index=True, width="stretch", key="m_fits")
    counts = {n: memory_of(main.spec, replace(asked, batch=n)).reserved_bytes for n in (1, 2, 4, 8, 16, 32, 64)}
    plot(batch_figure(counts, weights), config=CHART, key="m_batch_chart")
    st.caption("The weights are there once; every sequence brings a cache of its own.")


def _activations(main: Answer, asked: Asked) -> Activations:
    """The estimate for a prefill of the whole context, in the cache's dtype if that is a float."""
    hidden, intermediate = widths(main.config)
    size = precision(asked.dtype).state_bytes
    return Activations(hidden, intermediate, asked.tokens, asked.batch, size)


def _show_estimate(main: Answer, estimate: Activations) -> None:
    assumed = (
        "" if states_intermediate(main.config) else " The config states no intermediate size; 4 x hidden is assumed."
    )
    with st.expander("The estimate of the activations"):
        st.latex(activation_equation(estimate))
        st.caption(
            "The widest point of a prefill in one go: the residual stream and its normed copy, gate and up of one MLP; "
            "attention computed without a matrix of scores. An engine that reads the prompt in chunks needs less."
            + assumed
        )


def _weights(main: Answer, asked: Asked) -> int | None:
    """Bytes of the weights; the parameters of a config of one's own are asked for, or counted by the probe."""
    params = main.params or counted_params(main)
    if params is None:
        billions = st.number_input("Parameters, billions", 0.0, 10_000.0, value=None, key="m_billions")
        st.caption("A config alone does not say how many parameters the model has; 'Look inside' counts them.")
        if not billions:
            return None
        params = int(billions * 1e9)
    return weight_bytes(params, asked.weights)


def _row(found: Fit) -> dict[str, object]:
    row = found.accelerator
    return {
        "accelerator": row.title,
        "memory": human(row.memory_bytes),
        "left for caches": human(found.room) if found.room > 0 else "none",
        "longest context, tokens": "any" if found.context == UNLIMITED else f"{found.context or 0:,}",
        "sequences at once": "any" if found.sequences == UNLIMITED else f"{found.sequences:,}",
        "fits as asked": found.fits,
        "source": row.source,
    }
