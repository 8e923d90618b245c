"""The memory page's answers: figures, formulas, charts and tables for what was asked."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.precision import precision, weight_bytes
from kvviz.base.words import human
from kvviz.charts.memory import batch_figure, context_figure, fit_figure, layer_figure
from kvviz.decoding.meta_probe_process import probe_apart
from kvviz.memory.calculator import Answer, Asked, answer, as_csv, as_json, memory_of
from kvviz.memory.capacity import MOST, Activations, Fit, activation_bytes, fits_all, states_intermediate, widths
from kvviz.memory.engine_log import judge, parse
from kvviz.memory.explain import activation_equation, equation, origins, terms
from kvviz.memory.formula import kv_memory
from kvviz.memory.views import VIEWS
from kvviz.memory.what_if import Idea, as_gqa, ideas
from kvviz.models.catalog.rows import accelerators, examples, references
from kvviz.models.spec import ModelSpec
from kvviz.server.scheduler import Scheduler
from kvviz.server.script_slots import aside
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import CHART, plot

_CHART = {**CHART, "toImageButtonOptions": {"format": "svg", "filename": "kvviz-memory"}}

COUNTS = {  # the columns that count bytes one by one
    name: st.column_config.NumberColumn(format="localized") for name in ("state bytes", "bytes", "allocated")
}

# On a narrow screen a long formula scrolls by itself, not the page.
_STYLE = "<style>.katex-display { overflow-x: auto; overflow-y: hidden; }</style>"


def headline(main: Answer, asked: Asked) -> None:
    """The total, its formula with the numbers put in, and the field that each number came from."""
    st.html(_STYLE)
    memory, spec = main.memory, main.spec
    if memory is None or spec is None:
        st.warning(plain(f"{main.title}: {main.problem}"))
        return
    left, right = st.columns([2, 5], gap="large")
    with left:
        each = f" on each of {memory.tensor_parallel} devices" if memory.tensor_parallel > 1 else ""
        st.metric(f"KV cache of {plain(main.title)}{each}", human(memory.total_bytes), border=True)
        st.caption(_growth(memory))
    with right:
        st.latex(equation(spec, memory))
        st.caption(_where_from(spec))
    _notes(main, asked)


def _growth(memory: Any) -> str:
    parts = [f"**{memory.total_bytes:,} B**"]
    if memory.fixed_bytes:
        parts.append(f"{human(memory.fixed_bytes)} of it constant")
    if memory.plateau_bytes:
        parts.append(f"{human(memory.plateau_bytes)} in windows that are full")
    parts.append(f"each further token adds {memory.per_token_bytes:,} B")
    if memory.reserved_bytes != memory.total_bytes:
        parts.append(f"**{human(memory.reserved_bytes)} reserved** ({memory.reserved_bytes:,} B)")
    return "; ".join(parts)


def _where_from(spec: ModelSpec) -> str:
    found = (f"{origin.what} {plain(origin.value)} ← `{origin.field}`" for origin in origins(spec))
    return " · ".join(found)


def _notes(main: Answer, asked: Asked) -> None:
    """What a reader has to know beside the figure: whose bytes, and where the model ends."""
    view = VIEWS[asked.view]
    st.caption(f"{view.title}: {view.rule} {precision(asked.dtype).title}. Source: {view.source}")
    context = main.spec.context if main.spec else None
    if context and 0 < context < asked.tokens:
        st.info(f"{plain(main.title)} was made for {context:,} tokens; beyond them the figure is arithmetic only.")


def compared(found: Sequence[Answer]) -> None:
    """One row for each model."""
    rows = [_row(each, found[0]) for each in found if each.memory]
    for each in found[1:]:
        if each.problem:
            st.warning(plain(f"{each.title}: {each.problem}"))
    st.dataframe(rows, hide_index=True, width="stretch", column_config=COUNTS, key="m_compared")
    with st.container(horizontal=True):
        st.download_button(
            "JSON", lambda: as_json(found), "kv-memory.json", "application/json", key="m_json", on_click="ignore"
        )
        st.download_button(
            "CSV, a row per layer", lambda: as_csv(found), "kv-memory.csv", "text/csv", key="m_csv", on_click="ignore"
        )


def _row(found: Answer, first: Answer) -> dict[str, Any]:
    memory, spec = found.memory, found.spec
    assert memory is not None and spec is not None
    base = first.memory.total_bytes if first.memory else 0
    return {
        "model": found.title,
        "layers": "; ".join(term.words for term in terms(spec, memory)),
        "total": human(memory.total_bytes),
        "bytes": _exact(memory.total_bytes),
        "one more token": f"{memory.per_token_bytes:,} B",
        "constant": human(memory.fixed_bytes),
        "full windows": human(memory.plateau_bytes),
        "reserved": human(memory.reserved_bytes),
        "weights": human(memory.weights_bytes) if memory.weights_bytes else "unknown",
        "against the first": f"{memory.total_bytes / base:.3g}×" if base else "",
    }


def _exact(count: int) -> int | None:
    """A number for a table's cell; None above what a browser counts exactly, which no cache has."""
    return count if abs(count) < 2**53 else None


def curves(found: Sequence[Answer], asked: Asked) -> None:
    """Bytes against context, all models: windows flatten, states stay."""
    log = st.toggle("Logarithmic axes", key="m_log")
    last = 2 ** (2 * max(asked.tokens, 2048) - 1).bit_length()
    alike = replace(asked, models=(), tokens=1, gpu="")
    lines = [(a.title, *_curve(a.spec, alike, last)) for a in found if a.memory and a.spec]
    plot(context_figure(lines, asked.tokens, log=log), config=_CHART, key="m_curves")
    st.caption(
        "Full attention climbs in a straight line; layers with a window climb until it is full and then stay flat; "
        "a recurrent state is the same at any length. The dotted line is the context chosen above."
    )


def _ticks(last: int) -> list[int]:
    """Numbers of tokens to draw at: close together at first, where windows fill."""
    steep = {round(last * (i / 40) ** 2) for i in range(1, 41)}
    return sorted({1, *(n for n in steep if n)})


@lru_cache(maxsize=512)
def _curve(spec: ModelSpec, asked: Asked, last: int) -> tuple[list[int], list[int]]:
    """Tokens up to `last`, and the bytes held at each; for views that reserve, what they reserve.

    `last` is a power of two, so that one curve serves all who ask for like lengths.
    """
    xs = _ticks(last)
    return xs, [memory_of(spec, asked, tokens=x).reserved_bytes for x in xs]


def layers(main: Answer) -> None:
    """Bytes by layer."""
    if main.memory is None:
        return
    plot(layer_figure(main.memory), config=_CHART, key="m_layers")
    rows = [_layer_row(row) for row in main.memory.layers]
    st.dataframe(rows, hide_index=True, width="stretch", height=260, column_config=COUNTS)


def _layer_row(row: Any) -> dict[str, Any]:
    return {
        "layer": row.index,
        "kind": row.kind,
        "window": row.window,
        "seen": row.seen,
        "held": row.held,
        "keys": _shape(row.key_shape),
        "values": _shape(row.value_shape),
        "state bytes": _exact(row.state_bytes),
        "bytes": _exact(row.nbytes),
        "allocated": _exact(row.allocated),
    }


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else "none"


def on_a_gpu(main: Answer, asked: Asked) -> None:
    """Weights, cache and an estimate of the prefill's activations against an accelerator's memory."""
    if main.memory is None or main.spec is None:
        return
    rows = accelerators()
    gpu = st.selectbox("Accelerator", list(rows), key="m_gpu", format_func=lambda name: rows[name].title)
    weights = _weights(main, asked)
    if weights is None:
        return
    estimate = _activations(main, asked)
    parts = {
        "weights": weights,
        "KV cache": main.memory.reserved_bytes,
        "prefill activations (estimate)": estimate.nbytes,
    }
    row = rows[gpu]
    plot(fit_figure(parts, row.memory_bytes, row.title), config=_CHART, key="m_fit")
    st.caption(f"{row.title}: {human(row.memory_bytes)}. {row.memory_note} Source: {row.source}")
    _show_estimate(main, estimate)
    case = _case(asked)
    every = fits_all(main.spec, asked.tokens, weights_bytes=weights, activation_bytes=estimate.nbytes, **case)
    st.dataframe([_fit_row(found) for found in every], hide_index=True, width="stretch", key="m_fits")
    counts = {n: memory_of(main.spec, asked, batch=n).reserved_bytes for n in (1, 2, 4, 8, 16, 32, 64)}
    plot(batch_figure(counts, weights), config=_CHART, key="m_batch_chart")
    st.caption("The weights are there once; every sequence brings a cache of its own.")


def _activations(main: Answer, asked: Asked) -> Activations:
    """The estimate for a prefill of the whole context, in the cache's dtype where that is a float."""
    hidden, intermediate = widths(main.config)
    size = precision(asked.dtype).state_bytes
    return activation_bytes(hidden, intermediate, asked.tokens, asked.batch, size)


def _show_estimate(main: Answer, estimate: Activations) -> None:
    with st.expander("The estimate of the activations"):
        st.latex(activation_equation(estimate))
        assumed = (
            ""
            if states_intermediate(main.config)
            else " The config states no intermediate size; 4 x hidden is assumed."
        )
        st.caption(
            "The widest point of a prefill in one go: the residual stream and its normed copy, gate and up of one MLP; "
            "attention computed without a matrix of scores. An engine that reads the prompt in chunks needs less."
            + assumed
        )


def _case(asked: Asked) -> dict[str, Any]:
    return {"batch": asked.batch, "dtype": asked.dtype, "view": asked.view, "beams": asked.beams}


def _weights(main: Answer, asked: Asked) -> int | None:
    """Bytes of the weights; for a config of one's own the parameters are asked for, or counted by the probe."""
    params = main.params or (st.session_state.get("m_params") or {}).get(main.key)
    if params is None:
        billions = st.number_input("Parameters, billions", 0.0, 10_000.0, value=None, key="m_billions")
        st.caption("A config alone does not say how many parameters the model has; 'Look inside' counts them.")
        if not billions:
            return None
        params = int(billions * 1e9)
    return weight_bytes(params, asked.weights)


def _fit_row(found: Fit) -> dict[str, Any]:
    row = found.accelerator
    return {
        "accelerator": row.title,
        "memory": human(row.memory_bytes),
        "left for caches": human(found.room) if found.room > 0 else "none",
        "longest context, tokens": "any" if found.context == MOST else f"{found.context or 0:,}",
        "sequences at once": "any" if found.sequences == MOST else f"{found.sequences:,}",
        "fits as asked": found.fits,
        "source": row.source,
    }


def what_if(main: Answer, asked: Asked) -> None:
    """The same model with another idea for its cache: what each saves."""
    if main.memory is None or main.spec is None:
        return
    rows = [_idea_row(idea) for idea in ideas(main.spec, main.memory)]
    st.dataframe(rows, hide_index=True, width="stretch", column_config=COUNTS, key="m_ideas")
    st.caption(
        "The same layers, tokens and sequences, on one device; only the one thing named changes. Other heads, latents "
        "and windows need a model that was trained with them; another precision does not."
    )
    _grouped(main, asked)


def _grouped(main: Answer, asked: Asked) -> None:
    """Grouped-query attention with any number of groups that the query heads divide into."""
    spec, memory = main.spec, main.memory
    heads = spec.heads if spec else None
    if spec is None or memory is None or not heads or heads < 2 or not any(row.kv_heads for row in memory.layers):
        return
    groups = [count for count in range(1, heads + 1) if heads % count == 0]
    usual = max(row.kv_heads for row in memory.layers)
    start = usual if usual in groups else groups[-1]
    chosen = st.select_slider("KV heads for all layers", groups, value=start, key=f"m_groups_{main.key}")
    try:
        other = memory_of(as_gqa(spec, chosen), asked)
    except KvvizError as error:
        st.warning(plain(error))
        return
    kind = {1: "multi-query", heads: "multi-head"}.get(chosen, f"grouped-query, {heads // chosen} to a group")
    st.markdown(
        f"{heads} query heads on **{chosen}** KV heads ({kind}): **{human(other.reserved_bytes)}**, "
        f"{other.reserved_bytes / memory.reserved_bytes:.3g}× of what the model keeps as it is."
    )


def _idea_row(idea: Idea) -> dict[str, Any]:
    return {
        "idea": idea.name,
        "what changes": idea.sentence,
        "total": human(idea.memory.reserved_bytes),
        "bytes": _exact(idea.memory.reserved_bytes),
        "saved": human(idea.saved),
        "as a factor": f"{idea.factor:.3g}×",
    }


def inside(main: Answer, asked: Asked) -> None:
    """The model itself, built without weights and run: what its real cache holds."""
    st.markdown(
        "The formula above reads the config. The **probe** builds the model itself from it, without weights, lets it "
        "read all tokens but one and take one step, and looks into its real cache."
    )
    key = (main.key, asked.tokens, asked.batch, asked.dtype, asked.source_tokens)
    kept = st.session_state.setdefault("m_probes", {})
    if st.button("Probe the model", key="m_probe", disabled=main.spec is None and not main.config):
        kept[key] = _probed(main, asked)
    document = kept.get(key)
    if isinstance(document, str):
        st.warning(plain(document))
    elif document:
        _probe_answer(main, asked, document)


def _probed(main: Answer, asked: Asked) -> dict[str, Any] | str:
    dtype = asked.dtype if asked.dtype in VIEWS["hf-dynamic"].dtypes else "bfloat16"
    try:
        building = st.spinner(f"Building {plain(main.title)} without weights and reading its cache", show_time=True)
        with building, aside():
            return probe_apart(
                main.config, tokens=asked.tokens, batch=asked.batch, dtype=dtype, source_tokens=asked.source_tokens
            )
    except KvvizError as error:
        return str(error)


def _probe_answer(main: Answer, asked: Asked, document: dict[str, Any]) -> None:
    st.markdown(_verdict(main, document))
    rows = document["layers"]
    st.dataframe(
        [
            {
                "layer": row["index"],
                "kind": row["kind"],
                "keys": _shape(row["key_shape"]),
                "values": _shape(row["value_shape"]),
                "state bytes": _exact(row["state_bytes"]),
                "bytes": _exact(row["nbytes"]),
                "allocated": _exact(row["allocated"]),
            }
            for row in rows
        ],
        hide_index=True,
        width="stretch",
        column_config=COUNTS,
        height=300,
        key="m_inside",
    )
    params = document["weights_bytes"] * 8 // (8 * precision(document["dtype"]).block_bytes)
    st.session_state.setdefault("m_params", {})[main.key] = params


def _verdict(main: Answer, document: dict[str, Any]) -> str:
    probed = document["total_bytes"]
    cache = f"{document['cache_class']} of {len(document['layers'])} layers: " if document.get("cache_class") else ""
    said = f"{cache}**{probed:,} B** in its tensors"
    if main.spec is None:
        return f"{said}. The formula can't read this config: {plain(main.problem)}."
    spec = kv_memory(
        main.spec,
        document["tokens"],
        batch=document["batch"],
        dtype=document["dtype"],
        view="hf-dynamic",
        source_tokens=document.get("source_tokens"),
    )
    if spec.total_bytes == probed:
        return f"{said}; the formula's view *transformers, DynamicCache* says the same, to the byte. :material/check:"
    return f"{said}; the formula says {spec.total_bytes:,} B. Trust the probe: it is what transformers does."


def log_line(main: Answer, asked: Asked) -> None:
    """An engine's own log against the formula."""
    text = st.text_area(
        "Lines of vLLM's or llama.cpp's log",
        key="m_logline",
        height=110,
        placeholder="GPU KV cache size: 42,656 tokens\nllama_kv_cache: size = 1166.62 MiB (32768 cells, 61 layers, …",
    )
    if not text.strip() or main.spec is None:
        return
    try:
        verdict = judge(
            parse(text),
            main.spec,
            tokens=asked.tokens,
            batch=asked.batch,
            dtype=asked.dtype,
            tensor_parallel=asked.tensor_parallel,
        )
    except KvvizError as error:
        st.warning(plain(error))
        return
    show = {True: st.success, False: st.error, None: st.info}[verdict.agrees]
    show(plain(f"{main.title}: {verdict.sentence}"))


def how_we_know(scheduler: Scheduler) -> None:
    """Published figures recomputed now, and the three accounts of the model that ran last on the live page."""
    _three_accounts(scheduler)
    st.subheader("Published figures, recomputed as you look", anchor=False)
    rows = [_reference_row(row) for row in references()]
    agree = sum(row["agrees"] for row in rows)
    st.markdown(f"**{agree} of {len(rows)}** agree within the rounding of what is printed.")
    st.dataframe(rows, hide_index=True, width="stretch", height=420, key="m_references")


def _reference_row(row: Any) -> dict[str, Any]:
    return {
        "what": row.title,
        "view": row.view,
        "dtype": row.dtype,
        "tokens": row.tokens,
        "printed": row.printed,
        "published, B": row.bytes,
        "kvviz, B": (ours := _reference_bytes(row)),
        "difference, B": ours - row.bytes,
        "agrees": row.agrees(ours),
        "note": row.slip or row.method,
        "source": row.source,
    }


@lru_cache(maxsize=512)
def _reference_figure(config: str, tokens: int, batch: int, dtype: str, view: str) -> int:
    spec = ModelSpec.from_config(json.loads(config))
    return kv_memory(spec, tokens, batch=batch, dtype=dtype, view=view).reserved_bytes


def _reference_bytes(row: Any) -> int:
    return _reference_figure(json.dumps(row.model_config), row.tokens, row.batch, row.dtype, row.view)


def _three_accounts(scheduler: Scheduler) -> None:
    last = scheduler.last_finished()
    document = (last and last.document) or {"runs": []}
    run = next((run for run in document["runs"] if run["mode"] == "cached" and run.get("memory")), None)
    if run is None:
        st.caption("Run a model on the live page, and its cache's three accounts stand here.")
        return
    account = run["memory"]
    st.subheader("One cache, three accounts", anchor=False)
    one, two, three = st.columns(3)
    one.metric("Formula", f"{account['formula']:,} B")
    two.metric("Sum over its tensors", f"{account['tensors']:,} B")
    kept = (account.get("allocator") or {}).get("kept")
    three.metric("Kept by the allocator", f"{kept:,} B" if kept is not None else "not told here")
    st.caption(f"{plain(document['model'])} on the live page, mode cached, after its last step.")


def example_table(name: str | None) -> None:
    """All cases of a chosen example."""
    row = next((row for row in examples() if row.id == name), None)
    if row is None:
        return
    st.markdown(f"**{row.title}.** {row.shows}")
    st.dataframe(_example_rows(row), hide_index=True, width="stretch", key="m_example_table")


def _example_rows(row: Any) -> list[dict[str, Any]]:
    asked = Asked(models=row.models, batch=row.batch, dtype=row.dtype, view=row.view)
    rows = []
    for key in row.models:
        for tokens in row.tokens:
            for weights in row.weights_dtype:
                found = answer(replace(asked, tokens=tokens, weights=weights), key)
                if found.memory:
                    rows.append(_example_row(found, weights))
    return rows


def _example_row(found: Answer, weights: str) -> dict[str, Any]:
    memory = found.memory
    assert memory is not None
    return {
        "model": found.title,
        "tokens": memory.tokens,
        "cache dtype": memory.dtype,
        "cache": human(memory.total_bytes),
        "cache, B": memory.total_bytes,
        "weights dtype": weights,
        "weights": human(memory.weights_bytes) if memory.weights_bytes else "unknown",
        "weights, B": memory.weights_bytes,
    }
