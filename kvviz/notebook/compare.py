"""The notebook's front door: `compare()` decodes one piece of work in several modes and gives the result back."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvviz.base.records import Sampling
from kvviz.device.lock import measuring
from kvviz.experiments.comparison.report import headline
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.comparison.verdict import verdict
from kvviz.store.files import recording


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: its document (docs/json.md) and the records that led to it."""

    document: dict[str, Any]
    records: list[dict[str, Any]]

    def figure(self, *, log: bool = False) -> Any:
        """The latency curves as a Plotly figure, milliseconds per new token."""
        from kvviz.charts.curves import latency_figure

        return latency_figure(self.document, log=log)

    def frame(self) -> Any:
        """A pandas DataFrame with a row per mode and step: seconds (median, quartiles), bytes, token id."""
        import pandas

        rows = [_rows(run) for run in self.document["runs"]]
        return pandas.DataFrame([row for run in rows for row in run])

    def verdict(self) -> dict[str, Any]:
        """What the figures come to: the fit of each curve, where the cache starts to pay, what bounds the run."""
        return verdict(self.document)

    def save(self, path: str | Path) -> Path:
        """Write a recording that the dashboard's live page opens."""
        return recording.write(self.records, path)


def compare(
    model: Any,
    *,
    modes: Sequence[str] = ("uncached", "cached"),
    prompt: str | None = None,
    prompt_tokens: int | None = None,
    new_tokens: int = 64,
    tokenizer: Any = None,
    weights: str = "auto",
    batch: int = 1,
    repeats: int = 3,
    warmup: int = 1,
    dtype: str = "float32",
    device: str = "auto",
    attn: str = "sdpa",
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop_at_eos: bool = False,
    stop_text: str = "",
) -> Comparison:
    """Decode the same work in several modes, prove that they agree, time them.

    `model` is a catalog id, a folder, a config.json, a Hugging Face id (with weights="hub"), or a transformers
    causal model of your own, on its device and in its precision; then `tokenizer` may come with it. Raises
    KvvizError with one sentence for what can't be done.
    """
    own = not isinstance(model, str | Path)
    work = ComparisonSpec(
        model=type(model).__name__ if own else str(model),
        weights=weights,
        modes=tuple(modes),
        prompt=prompt if prompt is not None or prompt_tokens is not None else "Once upon a time there was a little",
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        batch=batch,
        repeats=repeats,
        warmup=warmup,
        dtype=dtype,
        device=device,
        attn=attn,
        sampling=Sampling(temperature, top_k, top_p, seed),
        stop_at_eos=stop_at_eos,
        stop_text=stop_text,
    )
    from kvviz.decoding.loaded_models import LoadedModels
    from kvviz.decoding.loading import adopt
    from kvviz.experiments.comparison.run import perform

    with measuring("compare()", tell=lambda words: print(f"kvviz: waiting: {words}", file=sys.stderr)):
        loaded = adopt(model, tokenizer) if own else LoadedModels().get(work)
        records = list(perform(work, loaded, comparison_id="compare"))
    document = records.pop()["document"]
    records += [{"t": "figures", "runs": headline(document)}, {"t": "done", "message": ""}]
    return Comparison(document, records)


def _rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    tokens = run["token_ids"]
    columns = ("step_s", "step_s_q1", "step_s_q3", "cache_bytes", "allocated_bytes")
    return [
        {
            "mode": run["mode"],
            "step": step,
            "phase": "decode" if step else "prefill",
            "token_id": tokens[step] if isinstance(tokens[step], int) else [row[step] for row in tokens],
            **{name: run[name][step] for name in columns},
        }
        for step in range(len(run["step_s"]))
    ]
