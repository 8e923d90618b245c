"""The figure that proves each answer of the quiz: counted, calculated by the memory formula, or of a kept recording."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import streamlit as st

from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.charts.claims import of_curves, of_recording
from kvviz.charts.curves import overlay
from kvviz.charts.proofs import AGAIN, COLOURS, KEPT, MASKED, NEW, NONE, bars_figure, causal, cells_figure
from kvviz.experiments.questions import QUESTIONS, Question
from kvviz.memory.calculator import Asked, answer
from kvviz.memory.formula import kv_memory
from kvviz.memory.what_if import with_kv_heads
from kvviz.models.catalog.rows import models
from kvviz.ui.compare.recordings import recorded
from kvviz.ui.shared.experiment import recording
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import colour_key, plot, shades

_FEW = 8  # tokens of a drawn prefill
_UNCACHED, _CACHED = palette.LIGHT["uncached"], palette.LIGHT["cached"]
Proof = tuple[str, object, str]  # what the figure shows, the figure, and whose numbers it draws


def prove(question: Question) -> None:
    """Draw the question's figure under its claim, what its colours mean, and whose numbers it draws."""
    claim, figure, source = PROOFS[question.id]()
    st.markdown(f"**{claim}**")
    if meant := MEANT.get(question.id):
        colour_key(shades(*((words, COLOURS[cell]) for cell, words in meant.items())))
    plot(figure, key=f"proof_{question.id}")
    st.caption(source)


def _square() -> Proof:
    tokens = round(float(QUESTIONS["square"].check.right))
    cells = [[NEW if query == tokens - 1 else AGAIN for _ in range(tokens)] for query in range(tokens)]
    claim = f"Of {tokens} × {tokens} = {tokens**2:,} pairs, a cached step scores the last row: {tokens}"
    return claim, cells_figure({"": cells}, "key of token", "query of token"), "Counted, for one head."


def _ttft() -> Proof:
    rows, source = _swept()
    found = sorted((row for row in rows if row["mode"] == "cached"), key=lambda row: row["prompt_tokens"])
    parts = {
        "the first token": (palette.PREFILL, [1e3 * row["ttft_s"] for row in found]),
        "a later token": (_CACHED, [1e3 * row["itl_s"] for row in found]),
    }
    first, last = found[0], found[-1]
    claim = (
        f"A prompt of {last['prompt_tokens']:,} tokens instead of {first['prompt_tokens']:,}: the first token takes "
        f"{last['ttft_s'] / first['ttft_s']:.2g} times as long, a later one {last['itl_s'] / first['itl_s']:.2g} times"
    )
    places = [f"prompt of {row['prompt_tokens']:,}" for row in found]
    return claim, bars_figure(parts, places, "ms, with the cache"), source


def _swept() -> tuple[list[Mapping[str, Any]], str]:
    """The rows of the sweep's recording, and whose they are."""
    kept = recording("sweep")
    assert kept is not None  # it comes with kvviz
    found = kept["document"]
    models_, place = ", ".join(found["spec"]["models"]), plain(found["environment"]["device_name"])
    return found["rows"], f"Recorded: {models_} on {place}, made on {kept['made']}."


def _parting() -> Proof:
    return _curves("recording", "step")


def _flat() -> Proof:
    return _curves("h100-gpt2", "total")


def _curves(file: str, view: str) -> Proof:
    started, curves, told = recorded(file)
    place = "this GPU" if started["environment"]["device"] == "cuda" else "this processor"
    claim = of_curves(curves) if view == "step" else of_recording(curves, place, "" if told else "≈ ")
    source = f"Recorded: {started['model']['title']} on {started['environment']['device_name']}."
    return claim, overlay(curves, view=view), source


def _total() -> Proof:
    without, cached = [4, 5, 6, 7], [4, 1, 1, 1]
    parts = {"No cache": (_UNCACHED, without), "KV cache": (_CACHED, cached)}
    sums = [f"{' + '.join(map(str, read))} = {sum(read)}" for read in (without, cached)]
    places = ["prefill", *(f"step {n}" for n in range(1, 4))]
    figure = bars_figure(parts, places, "tokens computed")
    return (
        f"Without the cache {sums[0]} tokens are computed, with it {sums[1]}",
        figure,
        "Counted: 4 tokens, 4 new ones.",
    )


def _metrics() -> Proof:
    rows, source = _swept()
    most = max(row["prompt_tokens"] for row in rows)
    at = {row["mode"]: row for row in rows if row["prompt_tokens"] == most}
    ratios = [at["uncached"][name] / at["cached"][name] for name in ("ttft_s", "itl_s")]
    ratios.append(at["cached"]["tokens_per_s"] / at["uncached"]["tokens_per_s"])
    claim = (
        f"After {most:,} tokens of prompt the cache changes ms/token {ratios[1]:.2g} times, the time to the first "
        f"token {ratios[0]:.2g} times"
    )
    places = ["time to first token", "ms/token", "tokens/s"]
    return claim, bars_figure({"changed": (_CACHED, ratios)}, places, "times better with the cache"), source


def _batching() -> Proof:
    lengths = (3, 7, 5)
    cells = [[KEPT] * length + [NEW] + [NONE] * (max(lengths) - length) for length in lengths]
    said = ", ".join(map(str, lengths[:-1]))
    claim = f"One step takes one token of each of three sequences, of {said} and {lengths[-1]} tokens so far"
    return claim, cells_figure({"": cells}, "token of the sequence", "sequence"), "An example of three requests."


def _quantization() -> Proof:
    asked = Asked(models=("llama-3.1-8b",), tokens=16384)
    memory = {bits: answer(replace(asked, weights=bits), asked.models[0]).memory for bits in ("bfloat16", "int4")}
    found = {bits: each for bits, each in memory.items() if each is not None}
    weights = [(each.weights_bytes or 0) / 2**30 for each in found.values()]
    caches = [each.total_bytes / 2**30 for each in found.values()]
    parts = {"weights": (palette.KINDS["weights"], weights), "KV cache": (_CACHED, caches)}
    claim = f"The weights go from {weights[0]:.3g} GiB to {weights[1]:.3g} GiB, the cache stays {caches[1]:.3g} GiB"
    places = [f"weights in {'16 bits' if bits == 'bfloat16' else '4 bits'}" for bits in found]
    title = models()[asked.models[0]].title
    return claim, bars_figure(parts, places, "GiB"), f"By formula: {title}, {asked.tokens:,} tokens, one sequence."


def _why_not_q() -> Proof:
    token = 2
    cells = causal(_FEW, NONE)
    for query in range(token, _FEW):
        cells[query][token] = KEPT
    cells[token][: token + 1] = [NEW] * (token + 1)
    claim = f"All {_FEW - token - 1} later tokens read the key and value of token {token}; none reads its query"
    return (
        claim,
        cells_figure({"": cells}, "key of token", "query of token"),
        f"A causal layer over {_FEW} tokens: a query meets no later key.",
    )


def _encoder() -> Proof:
    before = _FEW - 1
    encoder = [[AGAIN] * _FEW for _ in range(before)] + [[NEW] * _FEW]
    decoder = [*([*row, MASKED] for row in causal(before, KEPT)), [NEW] * _FEW]
    claim = f"One more word changes all {before} rows before it in an encoder, and none in a decoder"
    figure = cells_figure({"encoder": encoder, "decoder": decoder}, "sees token", "row of token")
    return claim, figure, f"{before} tokens, and one more."


def _training() -> Proof:
    claim = f"One forward pass over {_FEW} known tokens: {_FEW} predictions, and each key and value computed once"
    return (
        claim,
        cells_figure({"": causal(_FEW)}, "key of token", "query of token"),
        "A causal layer, all rows at once.",
    )


def _heads() -> Proof:
    tokens, spec = 8192, answer(Asked(), Asked().models[0]).spec
    assert spec is not None and spec.heads is not None  # a row of the catalog
    shared, each = (kv_memory(one, tokens).total_bytes for one in (spec, with_kv_heads(spec)))
    claim = f"With {spec.heads} KV heads the cache takes {human(each)}, with {spec.layers[0].kv_heads} {human(shared)}"
    places = [f"{heads} KV heads" for heads in (spec.layers[0].kv_heads, spec.heads)]
    figure = bars_figure({"KV cache": (_CACHED, [shared / 2**30, each / 2**30])}, places, "GiB")
    return claim, figure, f"By formula: {spec.name}, {tokens:,} tokens, bfloat16."


PROOFS: dict[str, Callable[[], Proof]] = {
    "square": _square,
    "ttft": _ttft,
    "parting": _parting,
    "total": _total,
    "metrics": _metrics,
    "flat": _flat,
    "batching": _batching,
    "quantization": _quantization,
    "why-not-q": _why_not_q,
    "encoder": _encoder,
    "training": _training,
    "heads": _heads,
}
MEANT = {
    "square": {NEW: "scored by a cached step", AGAIN: "scored once more without the cache"},
    "batching": {KEPT: "kept in the sequence's own cache", NEW: "the token that this step takes"},
    "why-not-q": {NEW: "its query, used in its own step", KEPT: "its key and value, read by later queries"},
    "encoder": {AGAIN: "changes", KEPT: "stays as it was", NEW: "new"},
    "training": {NEW: "computed in this forward pass"},
}
