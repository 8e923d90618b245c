"""Serves the same requests at one rate after another, and predicts each pass by the cost model."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from torch.nn.functional import linear

from kvviz.base.errors import KvvizError
from kvviz.base.words import lasting
from kvviz.caches.layer_groups import LayerGroups
from kvviz.caches.swap import SwapSpace
from kvviz.cost.flops import estimated
from kvviz.cost.roofline import weighed
from kvviz.decoding.loading import Loaded
from kvviz.decoding.measure_paces import paces_of
from kvviz.decoding.products import product
from kvviz.device.clock import no_collection, synchroniser
from kvviz.device.disturbance import Watch, undisturbed
from kvviz.device.multiply_adds import MultiplyAdds
from kvviz.experiments.batching.batcher import Batcher, Request, refusal
from kvviz.experiments.batching.engine import Engine
from kvviz.experiments.batching.policies import policy_named
from kvviz.experiments.batching.run import requests_of
from kvviz.experiments.batching.timeline import Arrivals, Row, Steps, figures_of, scheduling_of, serve, together
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.load.figures import by_running, free_up_to, mean_context, missed, waits
from kvviz.experiments.load.predicted_engine import CostModel, PredictedEngine
from kvviz.experiments.load.rates import BISECTIONS, NARROWEST, growth, knee, next_rate, planned, rounded
from kvviz.experiments.load.spec import LoadSpec
from kvviz.experiments.load.words import offered, sentences
from kvviz.models.text import Speller

WARM_UP = 2  # requests that are served once before the clock counts
TRIED = 2  # requests for each place, that tell about how many are completed a second
FORETOLD = ("completed_per_s", "tokens_per_s", "ttft_s_p50", "ttft_s_p99", "itl_s_p50", "itl_s_p99")
WIDEST = 4  # times the places: so far the prediction is drawn, if the caches outweigh the weights only there


class _TimeUp(Exception):
    """The seconds of the sweep are used up."""


def run(spec: LoadSpec, bench: Bench) -> Iterator[Record]:
    """Serve all at once, then at one rate after another: a record for each, then the document.

    Raises KvvizError if the time is too short for any sweep, Stopped if it has to stop.
    """
    loaded = bench.load(spec.work())
    yield look(spec, loaded)
    sweep = _Sweep(spec, loaded, bench)
    sweep.measure(None, sweep.requests[:WARM_UP])
    few = sweep.requests[: TRIED * spec.places]
    some, halvings = sweep.chosen(sweep.measure(None, few)["completed_per_s"])
    sweep.passes.clear()
    at_once, points, short = sweep.measure(None, some), list[dict[str, Any]](), False
    capacity = at_once["completed_per_s"]
    start, of = rounded(capacity / 2**halvings), len(spec.rates) or halvings + 2 + BISECTIONS
    rates = iter(spec.rates)
    while True:
        found = [(point["rate"], point["unbounded"]) for point in points]
        rate = next(rates, None) if spec.rates else next_rate(found, start, capacity)
        if rate is None:
            break
        try:
            if len(some) * max(1 / rate, 1 / capacity) > sweep.left_s:
                raise _TimeUp
            points.append(sweep.measure(rate, some, strict=True))
        except _TimeUp:
            short = True
            break
        yield {"t": "progress", "left_s": sweep.left_s}
        yield {"t": "way", "done": len(points), "of": max(of, len(points)), "title": offered(rate)}
    document = {**sweep.document(some), "at_once": at_once, "short": short}
    document["rows"] = sorted(points, key=lambda point: point["rate"])
    document["knee"] = dict(zip(("steady", "growing"), knee(found), strict=True))
    yield {"t": "done", "document": {**document, "sentences": sentences(document)}}


class _Sweep:
    """The passes of a sweep through one model, and the clock of their budget."""

    def __init__(self, spec: LoadSpec, loaded: Loaded, bench: Bench) -> None:
        self._spec, self._loaded, self._bench = spec, loaded, bench
        self._policy, self._context = policy_named(spec.policy), loaded.spec.context
        every = requests_of(spec.serving, loaded)
        self.requests = [one for one in every if not refusal(one, spec.slots, self._context)]
        if len(self.requests) < spec.least:
            raise KvvizError(
                f"{loaded.source.title} has positions for {len(self.requests)} of these requests, and a sweep needs "
                f"{spec.least}: take shorter ones"
            )
        self._model, self._spell = _cost_model(loaded), Speller(loaded.codec)
        self._windows = list(self._engine().cache.groups.tables)
        self.passes: list[tuple[Steps, bool | None]] = []
        self._began = time.monotonic()

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self._began + self._spec.seconds - time.monotonic())

    def chosen(self, capacity: float) -> tuple[list[Request], int]:
        """The requests to serve at each rate, and how often the capacity is halved for the lowest."""
        spec, left = self._spec, self.left_s
        if spec.rates:
            often = 1 + sum(max(1.0, capacity / rate) for rate in spec.rates)
            fit = min(len(self.requests), int(left * capacity / often))
            found, needed = ((0, fit) if fit >= spec.least else None), often
        else:
            found, needed = planned(capacity, len(self.requests), spec.least, left), NARROWEST
        if found is None:
            seconds = spec.seconds - left + spec.least * needed / capacity
            raise KvvizError(
                f"at about {capacity:.2g} requests a second, a sweep with {spec.least} requests takes about "
                f"{lasting(seconds)} here: give it more than {spec.seconds} s, or let fewer run at once"
            )
        halvings, count = found
        return self.requests[:count], halvings

    def measure(self, rate: float | None, some: Sequence[Request], *, strict: bool = False) -> dict[str, Any]:
        """Serve requests at a rate, or all at once, and predict it; a `strict` pass ends with the budget."""
        spec, arrivals = self._spec, self._arriving(rate, some)

        def between() -> None:
            self._bench.check_stop()
            if strict and not self.left_s:
                raise _TimeUp

        engine, watch = self._engine(), Watch()
        with no_collection():
            sync = synchroniser(self._loaded.device)
            parts = list(serve(engine, arrivals, self._spell, sync=sync, between=between))
        clean, (each, steps, _) = watch.read().clean, together(parts)
        self.passes.append((steps, clean))
        figures = _figures(each) | scheduling_of(each, spec.places)
        slope = growth(steps, arrivals[-1][0], rate) if rate else None
        grew = {"unbounded": slope.unbounded, "per_s": slope.per_s, "within": slope.within} if slope else {}
        foretold = self._foretold(arrivals) if self._model else None
        return {"rate": rate, **figures, **grew, "waits": waits(each), "clean": clean, "predicted": foretold}

    def _arriving(self, rate: float | None, some: Sequence[Request]) -> Arrivals:
        """Return the same arrivals, stretched to `rate` requests a second; without a rate all come at once."""
        times = self._spec.trace.arrivals_s[: len(some)]
        scale = (len(some) - 1) / rate / times[-1] if rate else 0.0
        return [(at * scale, request) for at, request in zip(times, some, strict=True)]

    def _engine(self) -> Engine:
        spec = self._spec
        return Engine(
            self._loaded.model,
            self._policy,
            spec.serving.blocks,
            places=spec.places,
            budget=spec.budget,
            context=self._context,
        )

    def _foretold(self, arrivals: Arrivals) -> dict[str, float | None]:
        spec, model = self._spec, self._model
        assert model is not None
        blocks = spec.serving.blocks
        memory = SwapSpace(LayerGroups(self._windows, blocks), blocks if self._policy.swaps else 0)
        batcher = Batcher(memory, self._policy, spec.places, spec.budget, self._context)
        engine = PredictedEngine(batcher, model.step)
        parts = serve(engine, arrivals, self._spell, clock=lambda: engine.now, sleep=engine.sleep)
        each, _, _ = together(parts)
        figures = _figures(each)
        return {name: figures[name] for name in FORETOLD}

    def document(self, some: Sequence[Request]) -> dict[str, Any]:
        """What was served where, and the step time against the running sequences."""
        spec, loaded, model = self._spec, self._loaded, self._model
        context = mean_context([len(one.prompt) for one in some], [one.new_tokens for one in some])
        kept = undisturbed(self.passes, [clean for _, clean in self.passes])
        steps, heavy, foretold = by_running(each for each, _ in kept), None, list[tuple[int, float]]()
        if model:
            (heavy,) = weighed(model.shape, [context], loaded.dtype)
            reach = max(spec.places, min(WIDEST * spec.places, round(1.25 * (heavy["batch"] or 0))))
            foretold = [(count, model.decode_step(count, context)) for count in range(1, reach + 1)]
        known = dict(foretold)
        return {
            "spec": spec.to_dict(),
            "model": loaded.source.model,
            "title": loaded.source.title,
            "weights": loaded.source.weights,
            "note": loaded.note,
            "environment": asdict(loaded.environment),
            "took_s": spec.seconds - self.left_s,
            "requests": len(some),
            "mean_context": context,
            "steps": [{**row, "predicted_s": known.get(int(row["running"]))} for row in steps],
            "steps_clean": all(clean is not False for _, clean in kept),
            "predicted_steps": foretold,
            "steps_missed": missed([(known.get(int(row["running"])), row["s"]) for row in steps]),
            "free_up_to": free_up_to(steps),
            "outweighs": heavy,
        }


def _figures(each: Sequence[Row]) -> dict[str, Any]:
    figures = figures_of(each)
    return {**figures, "completed_per_s": figures["done"] / figures["seconds"]}


def _cost_model(loaded: Loaded) -> CostModel | None:
    """The cost model of this engine on this device; None for a model whose work can't be counted."""
    shape = estimated(loaded.source.config)
    if shape is None:
        return None
    engine = Engine(loaded.model, policy_named("continuous"), 8)
    for number, length in enumerate((3, 3, 5)):
        if number == 2:
            engine.step()
            with MultiplyAdds() as decoding:
                engine.step()
        engine.submit(Request(number, tuple(range(5, 5 + length)), 4))
    with MultiplyAdds() as mixed:
        engine.step()
    paces, _ = paces_of(loaded, linear if engine.model is loaded.model else product)
    more = mixed.operations - decoding.operations
    return CostModel(shape, paces, decoding.operations, more, queues=loaded.device != "cpu")
