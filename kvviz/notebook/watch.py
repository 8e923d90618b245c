"""`watch(model)`: the time and the cache of someone else's run, step by step, and no trace left on the model.

Works on any transformers causal model and any loop around it: `generate`, assisted generation, a loop by hand.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kvviz.base.records import LayerState
from kvviz.decoding.loading import adopt
from kvviz.decoding.read_cache import layer_states
from kvviz.device.clock import synchroniser
from kvviz.device.environment import environment
from kvviz.experiments.comparison.equivalence import grouped
from kvviz.experiments.comparison.report import figures
from kvviz.store.files import recording


@dataclass(frozen=True)
class WatchedStep:
    """One forward of the watched model: the ids it was fed (B, T), its seconds, the cache afterwards."""

    index: int
    phase: str
    fed: tuple[tuple[int, ...], ...]
    seconds: float
    layers: tuple[LayerState, ...]

    @property
    def cache_bytes(self) -> int:
        """Bytes of the tokens held, over all layers."""
        return sum(row.nbytes for row in self.layers)


@dataclass
class Trace:
    """What was seen: a list of steps, as a figure, as a frame, as a file."""

    model: Any
    tokenizer: Any = None
    steps: list[WatchedStep] = field(default_factory=list)

    def figure(self) -> Any:
        """Milliseconds per forward and the cache's bytes, as a Plotly figure."""
        from kvviz.charts.curves import watched_figure

        return watched_figure(self.steps)

    def frame(self) -> Any:
        """A pandas DataFrame with a row per forward."""
        import pandas

        columns = ("index", "phase", "fed_tokens", "seconds", "seen", "cache_bytes", "allocated_bytes")
        return pandas.DataFrame([dict(zip(columns, _row(step), strict=True)) for step in self.steps], columns=columns)

    def save(self, path: str | Path) -> Path:
        """Write a recording that the dashboard's live page opens."""
        return recording.write(_records(self), path)


@contextmanager
def watch(model: Any, *, tokenizer: Any = None) -> Iterator[Trace]:
    """Watch every forward of `model` inside `with`. The hooks go when it ends, whatever happens inside."""
    trace = Trace(model, tokenizer)
    sync = synchroniser(str(next(model.parameters()).device))
    hooks = _Hooks(trace, sync)
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
    """The clock around a forward: started last thing before it, stopped first thing after it."""

    def __init__(self, trace: Trace, sync: Callable[[], None]) -> None:
        self._trace = trace
        self._sync = sync
        self._started = 0.0

    def before(self, module: Any, args: tuple, kwargs: dict) -> None:
        self._sync()
        self._started = time.perf_counter()

    def after(self, module: Any, args: tuple, kwargs: dict, output: Any) -> None:
        self._sync()
        seconds = time.perf_counter() - self._started
        ids = kwargs.get("input_ids", args[0] if args else None)
        fed = tuple(map(tuple, ids.tolist())) if ids is not None else ()
        cache = getattr(output, "past_key_values", None)
        cache = kwargs.get("past_key_values") if cache is None else cache
        layers = layer_states(cache) if hasattr(cache, "layers") else ()
        first = not layers or layers[0].seen <= (len(fed[0]) if fed else 0)
        index = len(self._trace.steps)
        self._trace.steps.append(WatchedStep(index, "prefill" if first else "decode", fed, seconds, layers))


def _row(step: WatchedStep) -> tuple:
    allocated = sum(row.allocated for row in step.layers)
    seen = max((row.seen for row in step.layers), default=0)
    return step.index, step.phase, len(step.fed[0]) if step.fed else 0, step.seconds, seen, step.cache_bytes, allocated


def _records(trace: Trace) -> list[dict[str, Any]]:
    """The trace as records of the live feed: one mode, one pass."""
    loaded = adopt(trace.model, trace.tokenizer)
    prompt = list(trace.steps[0].fed[0]) if trace.steps and trace.steps[0].fed else []
    seconds = [step.seconds for step in trace.steps]
    started = {
        "t": "started",
        "spec": {
            "new_tokens": max(1, len(seconds)),
            "batch": max(1, len(trace.steps[0].fed) if trace.steps else 1),
            "repeats": 1,
            "warmup": 0,
        },
        "environment": asdict(environment(loaded.model, loaded.device, loaded.dtype)),
        "model": {
            "id": loaded.source.model,
            "title": loaded.source.title,
            "weights": loaded.source.weights,
            "params": loaded.params,
            "layers": len(trace.steps[-1].layers) if trace.steps else 0,
            "context": None,
            "note": "A run that was watched from outside: the text is what each forward was fed next.",
        },
        "prompt": {
            "tokens": len(prompt),
            "text": loaded.codec.decode(prompt),
            "pieces": [loaded.codec.decode([i]) for i in prompt],
        },
        "modes": [{"name": "watched", "title": "Watched run", "summary": "a run of the user's own", "exact": False}],
    }
    proof = [_proof_record(trace, step, loaded) for step in trace.steps]
    times = {"t": "times", "mode": "watched", "repeat": 0, "from": 0, "s": seconds}
    summary = {"mode": "watched", "identical": True, "first_divergence": None, "max_abs_logit_diff": None}
    headline = {**summary, **figures([seconds]), "speedup": None} if seconds else None
    end = [{"t": "figures", "runs": [headline]}] if headline else []
    return [started, *proof, times, *end, {"t": "done"}]


def _proof_record(trace: Trace, step: WatchedStep, loaded: Any) -> dict[str, Any]:
    following = trace.steps[step.index + 1] if step.index + 1 < len(trace.steps) else None
    ids = [row[-1] for row in following.fed] if following else []
    text = loaded.codec.decode(following.fed[0][-1:]) if following and following.fed else ""
    held = sum(row.allocated for row in step.layers)
    row = {
        "ids": ids,
        "text": text,
        "layers": grouped(step.layers),
        "outliving": held,
        "delta": None,
        "divergence": None,
    }
    return {"t": "proof", "i": step.index, "modes": {"watched": row}}
