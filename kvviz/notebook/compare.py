"""`compare()`: decodes one piece of work in several modes from a notebook and returns the result."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kvviz.base.errors import KvvizError
from kvviz.base.logs import quieten_profiler
from kvviz.base.records import Sampling
from kvviz.base.words import human, millis, ratio
from kvviz.device.lock import measuring
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.records import Document, Record, Run
from kvviz.experiments.comparison.spec import ComparisonSpec, how_often
from kvviz.experiments.comparison.verdict import verdict
from kvviz.models.text import STORY
from kvviz.notebook.table import html_table
from kvviz.store.files.reading import to_json

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CURVES = ("step_s", "step_s_q1", "step_s_q3", "cache_bytes", "allocated_bytes")  # with a value for each step


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: its document (docs/json.md) and the records that led to it."""

    document: Document
    records: list[Record]

    def __repr__(self) -> str:
        """Say in a line what was compared; a notebook prints it where a cell ends with the comparison."""
        modes = ", ".join(
            f"{run['mode']} {run['total_s']:.3g} s" + (f" ({ratio(run['speedup'])}×)" if run["speedup"] else "")
            for run in self.document["runs"]
        )
        return f"<Comparison of {self.document['model']}, {self.document['new_tokens']} new tokens: {modes}>"

    def _repr_html_(self) -> str:
        """Draw a table with a row for each mode, in the colours of the notebook around it."""
        found = self.document
        said = f"{escape(found['model'])}, {found['prompt_tokens']:,} + {found['new_tokens']:,} tokens"
        if found["batch"] > 1:
            said += f" × {found['batch']:,} sequences"
        environment = found["environment"]
        said += f", {escape(environment['dtype'])} on {escape(environment['device_name'])}"
        heads = ("mode", "first token", "a further token", "all", "speed-up", "tokens", "cache at the end")
        table = html_table(heads, (_cells(run, found["reference"]) for run in found["runs"]))
        note = "≈: other work on the machine disturbed every pass." if any(map(_disturbed, found["runs"])) else ""
        return f'<div style="color:inherit"><div>{said}</div>{table}<div>{note}</div></div>'

    def figure(self, *, log: bool = False) -> "go.Figure":
        """Draw the latency curves as a Plotly figure, in milliseconds per new token."""
        from kvviz.charts.curves import latency_figure

        return latency_figure(self.document, log=log)

    def frame(self) -> "pandas.DataFrame":
        """Return a pandas DataFrame with a row per mode and step: seconds (median, quartiles), bytes, token id."""
        import pandas

        return pandas.DataFrame([row for run in self.document["runs"] for row in _rows(run)])

    def verdict(self) -> Mapping[str, object]:
        """Return the fit of each curve, the context from which the cache pays, and what bounds the run."""
        return verdict(self.document)

    def save(self, path: str | Path) -> Path:
        """Write a file that the dashboard opens and `kvviz import` takes; returns its path."""
        Path(path).write_text(to_json(self.records, self.document), encoding="utf-8")
        return Path(path)


def compare(
    model: "str | Path | PreTrainedModel",
    *,
    modes: Sequence[str] = ("uncached", "cached"),
    prompt: str | None = None,
    prompt_tokens: int | None = None,
    new_tokens: int = 64,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    weights: str = "auto",
    batch: int = 1,
    repeats: int | None = None,
    precision: float | None = None,
    budget_s: float | None = None,
    warmup: int = 1,
    dtype: str = "float32",
    device: str = "auto",
    attn: str = "sdpa",
    draft: str | None = None,
    cache_budget: str | None = None,
    pyramid: bool = False,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop_at_eos: bool = False,
    stop_text: str = "",
    threads: int | None = None,
) -> Comparison:
    """Decode the same work in several modes, check that they agree, and time them.

    `model` is a catalog id, a folder, a config.json, a Hugging Face id (with weights="hub"), or your own transformers
    causal model with its `tokenizer` if you have one; your own model keeps its device, precision and attention, and is
    measured without dropout. `draft` is the id of the model that proposes tokens to the mode speculative. Designs
    that evict keep `cache_budget`, "128" tokens or "25%" of all; as a `pyramid`, lower layers keep more. The work gets
    the cores and threads of a dashboard's worker, all but one; with `threads`, that many on any core. With `repeats`
    each mode is timed exactly so often; else until the speed-up and the curves are known to `precision` (a share, 0.05
    unless given) or `budget_s` seconds of timed passes are used. Raises KvvizError with a one-sentence message if the
    work can't be done.
    """
    work = ComparisonSpec(
        model=str(model) if isinstance(model, str | Path) else type(model).__name__,
        weights=weights,
        modes=tuple(modes),
        prompt=STORY if prompt is None and prompt_tokens is None else prompt,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        batch=batch,
        **how_often(repeats, precision),
        budget_s=budget_s,
        warmup=warmup,
        dtype=dtype,
        device=device,
        attn=attn,
        draft=draft,
        cache_budget=cache_budget,
        pyramid=pyramid,
        sampling=Sampling(temperature, top_k, top_p, seed),
        stop_at_eos=stop_at_eos,
        stop_text=stop_text,
    )
    if not isinstance(model, str | Path):
        _check_own(work)
    quieten_profiler()
    from kvviz.decoding.loaded_models import LoadedModels
    from kvviz.decoding.loading import adopt
    from kvviz.device.environment import share_of_machine
    from kvviz.experiments.comparison.run import load_draft, perform

    lock = measuring("compare()", tell=lambda words: print(f"kvviz: waiting: {words}", file=sys.stderr))
    with lock, share_of_machine(threads), nullcontext() if isinstance(model, str | Path) else _in_eval_mode(model):
        models = LoadedModels()
        loaded = models.get(work, may_split=True) if isinstance(model, str | Path) else adopt(model, tokenizer)
        second = load_draft(work, loaded, models.get)
        return Comparison(*finished(list(perform(work, loaded, comparison_id="compare", draft=second))))


def _check_own(work: ComparisonSpec) -> None:
    """Refuse options that only loading can fulfil, for a model that is loaded already."""
    usual = {"weights": "auto", "dtype": "float32", "device": "auto", "attn": "sdpa"}
    for name, value in usual.items():
        if getattr(work, name) != value:
            raise KvvizError(f"your own model keeps its {name}: leave {name} out, or load the model with it")


@contextmanager
def _in_eval_mode(model: "PreTrainedModel") -> Iterator[None]:
    """Keep dropout out of a measurement; each module has its mode again afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _disturbed(run: Run) -> bool:
    """Whether other work disturbed every timed pass of a mode."""
    passes = run["passes"]
    return passes is not None and not passes["clean"] and passes["disturbed"] > 0


def _cells(run: Run, reference: str) -> tuple[str, ...]:
    about = "≈&nbsp;" if _disturbed(run) else ""
    same = "the same" if run["identical"] else f"differ from token {(run['first_divergence'] or 0) + 1:,} on"
    return (
        f"<b>{escape(run['mode'])}</b>",
        about + millis(run["ttft_s"]),
        about + millis(run["itl_s"]) if run["itl_s"] is not None else "–",
        about + millis(run["total_s"]),
        f"{about}{ratio(run['speedup'])}×" if run["speedup"] else "–",
        "the reference" if run["mode"] == reference else same,
        human(run["cache_bytes"][-1]) if run["cache_bytes"] else "–",
    )


def _rows(run: Run) -> Iterator[dict[str, object]]:
    tokens = run["token_ids"]
    for step in range(len(run["step_s"])):
        chosen = tokens[step] if isinstance(tokens[0], int) else [row[step] for row in tokens if isinstance(row, list)]
        yield {
            "mode": run["mode"],
            "step": step,
            "phase": "decode" if step else "prefill",
            "token_id": chosen,
            **{name: values[step] if (values := cast(dict[str, Any], run)[name]) else None for name in CURVES},
        }
