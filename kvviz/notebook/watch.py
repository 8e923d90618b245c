"""`watch(model)`: records the time and the cache of your own run, step by step, and leaves the model unchanged.

It works with any transformers causal model and any loop around it: `generate`, assisted generation, or your own loop.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kvviz.base.records import LayerState
from kvviz.decoding.loading import Loaded, adopt
from kvviz.decoding.meta_probe import CACHES, by_layer
from kvviz.decoding.read_cache import layer_states
from kvviz.device.clock import synchroniser
from kvviz.experiments.comparison import records as form
from kvviz.experiments.comparison.comparison_run import started
from kvviz.experiments.comparison.equivalence import grouped
from kvviz.experiments.comparison.figures import HEADLINE, figures
from kvviz.store.files.reading import to_json

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MODE = "watched"


@dataclass(frozen=True)
class WatchedStep:
    """One forward pass of the watched model: the ids it was fed (B, T), its seconds, and the cache after it.

    `size` is (B, T), also for a pass that was fed embeddings and has no ids.
    """

    index: int
    phase: str
    fed: tuple[tuple[int, ...], ...]
    size: tuple[int, int]
    seconds: float
    layers: tuple[LayerState, ...]

    @property
    def cache_bytes(self) -> int:
        """Bytes of the tokens held, summed over all layers."""
        return sum(row.nbytes for row in self.layers)


@dataclass
class Trace:
    """The watched steps, available as a list, a figure, a DataFrame or a file."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase | None" = None
    steps: list[WatchedStep] = field(default_factory=list)

    def figure(self) -> "go.Figure":
        """Draw the milliseconds of each forward pass and the cache's bytes as a Plotly figure."""
        from kvviz.charts.curves import watched_figure

        return watched_figure(self.steps)

    def frame(self) -> "pandas.DataFrame":
        """Return a pandas DataFrame with a row per forward pass."""
        import pandas

        rows = [
            {
                "index": step.index,
                "phase": step.phase,
                "fed_tokens": step.size[1],
                "seconds": step.seconds,
                "seen": max((row.seen for row in step.layers), default=0),
                "cache_bytes": step.cache_bytes,
                "allocated_bytes": sum(row.allocated for row in step.layers),
            }
            for step in self.steps
        ]
        return pandas.DataFrame(rows)

    def save(self, path: str | Path) -> Path:
        """Write a recording that the dashboard's live page opens; returns its path."""
        Path(path).write_text(to_json(_records(self)), encoding="utf-8")
        return Path(path)


@contextmanager
def watch(model: "PreTrainedModel", *, tokenizer: "PreTrainedTokenizerBase | None" = None) -> Iterator[Trace]:
    """Watch every forward pass of `model` inside the `with` block; its hooks are removed at the end, even on errors."""
    trace = Trace(model, tokenizer)
    hooks = _Hooks(trace, synchroniser(*{str(tensor.device) for tensor in model.parameters()}))
    handles = [
        model.register_forward_pre_hook(hooks.before, with_kwargs=True),
        model.register_forward_hook(hooks.after, with_kwargs=True),
    ]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


class _Hooks:
    """Times each forward pass: starts the clock just before it, stops it just after, and then reads the cache."""

    def __init__(self, trace: Trace, sync: Callable[[], None]) -> None:
        self._trace = trace
        self._sync = sync
        self._started = 0.0
        self._cache: object = None  # of the pass before, and how many tokens it was fed
        self._tokens = 0

    def before(self, module: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        self._sync()
        self._started = time.perf_counter()

    def after(
        self, module: object, args: "tuple[torch.Tensor, ...]", kwargs: "Mapping[str, torch.Tensor]", output: object
    ) -> None:
        self._sync()
        seconds = time.perf_counter() - self._started
        named = (kwargs.get(name) for name in ("decoder_input_ids", "input_ids"))
        ids = next((one for one in named if one is not None), args[0] if args else None)
        given = kwargs.get("decoder_inputs_embeds", kwargs.get("inputs_embeds")) if ids is None else ids
        size = (given.shape[0], given.shape[1]) if given is not None else (1, 0)
        fed = tuple(map(tuple, ids.tolist())) if ids is not None else ()
        cache = _first([*(getattr(output, name, None) for name in CACHES), *map(kwargs.get, CACHES)])
        fresh = cache is None or cache is not self._cache
        self._cache, self._tokens = cache, size[1] + (0 if fresh else self._tokens)
        layers = layer_states(by_layer(cache, self._trace.model.config), seen=self._tokens)
        first = fresh and max((row.seen for row in layers if row.kind != "cross"), default=0) <= size[1]
        index = len(self._trace.steps)
        self._trace.steps.append(WatchedStep(index, "prefill" if first else "decode", fed, size, seconds, layers))


def _first(found: Iterable[object]) -> object:
    """Return the first of them that is there, or None."""
    return next((one for one in found if one is not None), None)


def _records(trace: Trace) -> list[form.Record]:
    """Return the trace as a recording: one mode, one pass, and None for what a single run can't show."""
    loaded = adopt(trace.model, trace.tokenizer)
    seconds = [step.seconds for step in trace.steps]
    proofs = [_proof(trace, step, loaded) for step in trace.steps]
    times: form.Times = {"t": "times", "mode": MODE, "repeat": 0, "from": 0, "s": seconds}
    end: list[form.Record] = [_figures(trace.steps), form.Done(t="done")] if seconds else [form.Done(t="done")]
    return [_started(trace, loaded), *proofs, times, *end]


def _started(trace: Trace, loaded: Loaded) -> form.Started:
    count, fed = len(trace.steps), trace.steps[0].fed if trace.steps else ()
    batch = trace.steps[0].size[0] if trace.steps else 1
    spec: form.SpecFields = {"new_tokens": max(1, count), "batch": batch, "repeats": 1, "warmup": 0}
    what = "a run of the user's own"
    mode: form.ModeFields = {"name": MODE, "title": "Watched run", "summary": what, "exact": False}
    note = "A run that was watched from outside: the text is what each forward was fed next."
    return started(loaded, spec, list(fed[0]) if fed else [], [mode], note)


def _proof(trace: Trace, step: WatchedStep, loaded: Loaded) -> form.Proof:
    """Build a step's record: its token is the one fed next; fields that need a second mode or tracing are None."""
    following = trace.steps[step.index + 1].fed if step.index + 1 < len(trace.steps) else ()
    seen: form.CheckedStep = {
        "ids": [row[-1] for row in following],
        "text": loaded.codec.decode(following[0][-1:]) if following else "",
        "layers": grouped(step.layers),
        "outliving": None,
        "delta": None,
        "divergence": None,
    }
    return {"t": "proof", "i": step.index, "modes": {MODE: seen}}


def _figures(steps: Sequence[WatchedStep]) -> form.Figures:
    """Return the figures of the run: TTFT is that of its first prefill, and ITL is that of the decode steps alone."""
    prefills, decodes = ([step.seconds for step in steps if step.phase == phase] for phase in ("prefill", "decode"))
    total = sum(prefills) + sum(decodes)
    curves = {**figures([[*prefills[:1], *decodes]]), "total_s": total}
    curves["tokens_per_s"] = sum(step.size[0] for step in steps) / total
    unknown = dict.fromkeys(("identical", "first_divergence", "max_abs_logit_diff", "speedup"))
    known = {name: value for name, value in curves.items() if name in HEADLINE}
    return {"t": "figures", "runs": [cast(form.Headline, {"mode": MODE, **unknown, **known})]}
