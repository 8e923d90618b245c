"""A load sweep with a real engine: its document, what it predicts, its budget, the command."""

import json
from dataclasses import replace
from itertools import chain, repeat

import pytest

from kvviz.base.errors import KvvizError, Stopped
from kvviz.caches.layer_groups import LayerGroups
from kvviz.caches.swap import SwapSpace
from kvviz.cli import measure_here as headless
from kvviz.cli.main import app
from kvviz.experiments.batching.batcher import Batcher, Request
from kvviz.experiments.batching.engine import Engine
from kvviz.experiments.batching.policies import POLICIES
from kvviz.experiments.load import run as load_run
from kvviz.experiments.load.predicted_engine import PredictedEngine
from kvviz.experiments.load.run import run
from kvviz.experiments.load.spec import LoadSpec
from kvviz.experiments.load.words import text
from tests.caches.conftest import family, one_thread, prompt_of  # noqa: F401  fixtures

SPEC = LoadSpec("tiny-gpt2", rates=(300.0, 3_000.0), requests=12, longest=24, places=2, slots=96, seconds=60)


@pytest.fixture(scope="module")
def records(bench):
    return list(run(SPEC, bench()))


@pytest.fixture(scope="module")
def document(records):
    return json.loads(json.dumps(records[-1]["document"], allow_nan=False))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_prediction_takes_the_very_steps_that_the_engine_takes(family, policy):  # noqa: F811
    """Requests that come together: who runs in which step does not depend on time, but on the scheduler alone."""
    lengths = [(9, 4), (30, 12), (3, 1), (17, 20), (40, 6)]
    rule = POLICIES[policy]
    engine = Engine(family("gpt2")[0], rule, 5, places=3, budget=20)
    room = 5 if rule.swaps else 0
    foretold = PredictedEngine(Batcher(SwapSpace(LayerGroups([None], 5), room), rule, 3, 20), lambda parts: 1.0)
    for one in (engine, foretold):
        for number, (prompt, answer) in enumerate(lengths):
            one.submit(Request(number, tuple(prompt_of(1, prompt, seed=number)[0].tolist()), answer))
    while engine.busy:
        real, predicted = engine.step(), foretold.step()
        assert replace(real, tokens={}) == replace(predicted, tokens={})
        assert real.tokens.keys() == predicted.tokens.keys()
    assert not foretold.busy and foretold.now > 20


@pytest.mark.slow
def test_the_document_holds_each_rate_with_its_prediction(records, document):
    assert [record["t"] for record in records] == ["look", *["progress", "way"] * 2, "done"]
    assert [point["rate"] for point in document["rows"]] == [300, 3_000] and not document["short"]
    assert document["spec"] == json.loads(json.dumps(SPEC.to_dict())) and document["requests"] == 12
    for point in [*document["rows"], document["at_once"]]:
        assert point["done"] == 12 == len(point["waits"])
        assert point["completed_per_s"] == pytest.approx(12 / point["seconds"])
        assert all(value > 0 for value in point["predicted"].values())
    last, once = document["rows"][-1], document["at_once"]
    assert once["rate"] is None and "unbounded" not in once
    assert last["predicted"]["completed_per_s"] == pytest.approx(once["predicted"]["completed_per_s"], rel=0.2)
    assert {row["running"] for row in document["steps"]} <= {1, 2} and document["free_up_to"] in (1, 2)
    assert document["outweighs"]["tokens"] == document["mean_context"]
    shown = text(document)
    assert "**" not in shown and shown.splitlines()[3].split()[0] == "all"


@pytest.mark.slow
def test_a_budget_that_is_used_up_ends_the_sweep(bench, monkeypatch):
    left = chain([60.0] * 8, repeat(0.0))
    monkeypatch.setattr(load_run._Sweep, "left_s", property(lambda sweep: next(left)))
    document = list(run(SPEC, bench()))[-1]["document"]
    assert document["rows"] == [] and document["short"] and document["knee"] == {"steady": None, "growing": None}
    assert "60 s were used up" in document["sentences"][0]


@pytest.mark.slow
def test_a_sweep_that_can_not_end_in_time_is_refused_before_it_begins(bench):
    with pytest.raises(KvvizError, match=r"a sweep with 8 requests takes about .* give it more than 5 s"):
        list(run(replace(SPEC, rates=(0.5, 300.0), seconds=5), bench()))


def test_it_stops_between_two_steps(bench):
    asked = []
    with pytest.raises(Stopped):
        list(run(SPEC, bench(should_stop=lambda: asked.append(1) or len(asked) > 9)))
    assert len(asked) == 10


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rates": (2.0, 1.0)}, "rates grow from one to the next"),
        ({"rates": (0.0,)}, "rates are at most 24 numbers"),
        ({"policy": "fastest"}, "no policy 'fastest'"),
        ({"policy": "transformers"}, "tells nothing of its steps"),
        ({"requests": 7}, "requests is 7; it is a whole number from 8 to"),
        ({"seconds": 1}, "seconds is 1"),
        ({"longest": 100}, "longest is 100"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(fields, said):
    with pytest.raises(KvvizError, match=said):
        replace(SPEC, **fields)


def test_the_command_sweeps_rates(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(
        load_run, "run", lambda spec, bench: asked.append(spec) or iter([{"t": "done", "document": {}}])
    )
    monkeypatch.setattr(headless, "settle", lambda: None)
    for rates in ("10,20.5", "auto"):
        app(["serving", "tiny-gpt2", "--rates", rates, "--seconds", "9", "--json"], standalone_mode=False)
        assert json.loads(capsys.readouterr().out) == {}
    assert [spec.rates for spec in asked] == [(10.0, 20.5), ()] and asked[0].seconds == 9
    with pytest.raises(KvvizError, match="it takes numbers, separated by commas"):
        app(["serving", "tiny-gpt2", "--rates", "many"], standalone_mode=False)
    with pytest.raises(KvvizError, match="name one, such as mini-gpt2"):
        app(["serving", "--rates", "auto"], standalone_mode=False)
