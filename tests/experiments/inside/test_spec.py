"""A look inside, from what is asked to what the worker sends; one look serves everyone who asks for the same."""

from dataclasses import replace
from functools import partial

import pytest

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.first_steps import benchmark
from kvviz.experiments.inside import run as inside
from kvviz.experiments.inside.spec import AnatomySpec, FirstStepsSpec, MistakeSpec

ANATOMY = AnatomySpec("tiny-qwen3", "hello there", new_tokens=3)
FIRST = FirstStepsSpec()
MISTAKE = MistakeSpec("tiny-gpt2", "hello there", new_tokens=3)

LONG = AnatomySpec("tiny-qwen3", "x" * 60)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "x"}, "of the kind 'anatomy', not 'x'"),
        ({"new_tokens": 1}, "from 2 to 48"),
        ({"new_tokens": 2.5}, "from 2 to 48"),
        ({"layer": -1}, "from 0 to"),
        ({"clock": "no-sync"}, "no field clock"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"weights": "x"}, "weights is 'x'"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(fields, said):
    with pytest.raises(KvvizError, match=said):
        AnatomySpec.from_dict({**ANATOMY.to_dict(), **fields})


@pytest.mark.parametrize("temperature", [0, 3.1, True, "1", float("nan")])
def test_a_temperature_is_a_number_that_can_be_divided_by(temperature):
    with pytest.raises(KvvizError, match=r"a number from 0\.1 to 3\.0"):
        FirstStepsSpec(temperature)


@pytest.mark.slow
def test_the_temperature_that_was_asked_for_is_the_one_that_draws(bench, monkeypatch):
    monkeypatch.setattr(inside, "benchmark", lambda device: {})
    texts = []
    for temperature in (0.1, 3.0):
        _, found, _ = inside.first_steps(FirstStepsSpec(temperature), bench())
        assert found["temperature"] == temperature
        texts.append(set(found["text"]))
    assert len(texts[0]) < len(texts[1]), "a low temperature draws few letters again and again"


def test_a_mistake_of_the_clock_is_one_that_exists():
    with pytest.raises(KvvizError, match="no mistake 'x'"):
        MistakeSpec("tiny-gpt2", "hello", clock="x")
    with pytest.raises(KvvizError, match="clock is 'stale', which is no mistake of the clock"):
        MistakeSpec("tiny-gpt2", "hello", clock="stale")


def test_the_same_look_is_taken_once(scheduler_without_worker):
    scheduler = scheduler_without_worker
    first = scheduler.submit(ANATOMY, "one browser")
    assert scheduler.submit(ANATOMY, "another") == first
    scheduler.record(first, {"t": "done", "document": {}})
    assert scheduler.submit(ANATOMY, "a third") == first
    assert scheduler.submit(MISTAKE, "one browser") != first


def test_how_long_a_look_takes_is_not_known_before_the_first(scheduler_without_worker):
    scheduler = scheduler_without_worker
    first = scheduler.submit(ANATOMY, "one")
    second = scheduler.submit(MISTAKE, "another")
    assert scheduler.expected_wait(second) is None
    scheduler.record(first, {"t": "look"})
    scheduler.record(first, {"t": "done", "document": {}})
    third = scheduler.submit(replace(ANATOMY, layer=1), "a third")
    fourth = scheduler.submit(LONG, "a fourth")
    assert scheduler.expected_wait(fourth) is None, "no mistake was made before"
    scheduler.stop(second, "another")
    assert 0 <= scheduler.expected_wait(fourth) == scheduler.get(third).countdown.whole


def test_a_look_that_failed_is_taken_again(scheduler_without_worker):
    first = scheduler_without_worker.submit(ANATOMY)
    scheduler_without_worker.record(first, {"t": "failed", "message": "x"})
    assert scheduler_without_worker.submit(ANATOMY) != first


def test_a_model_that_cannot_be_built_from_scratch_is_refused_before_anything_is_queued(scheduler_without_worker):
    with pytest.raises(KvvizError, match="scratch can't decode"):
        scheduler_without_worker.submit(AnatomySpec("tiny-mistral", "hello"))
    assert scheduler_without_worker.jobs() == []


@pytest.mark.slow
def test_each_is_carried_out_and_says_what_it_cannot(bench, monkeypatch):
    monkeypatch.setattr(inside, "benchmark", partial(benchmark, new_tokens=4, runs=1))
    about, found, end = inside.anatomy(ANATOMY, bench())
    assert [about["t"], found["t"], end["t"]] == ["look", "anatomy", "done"] and about["title"]
    _, found, *_ = inside.mistake(MISTAKE, bench())
    assert found["first_difference"] is not None
    _, found, _ = inside.first_steps(FIRST, bench())
    assert found["difference"] < 1e-5
    assert min(found["benchmark"]["no_cache_ms"], found["benchmark"]["cache_ms"]) > 0
    assert found["text"].startswith("Hello")
    assert found["stopped"] == (found["written"] < 64)
    with pytest.raises(KvvizError, match="60 tokens; an anatomy takes at most 48"):
        list(inside.anatomy(LONG, bench()))
