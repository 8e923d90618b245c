"""A look inside, from what is asked to what the worker sends; one look serves everyone who asks for the same."""

import json
import time
from dataclasses import replace

import pytest

from kvviz.base.errors import KvvizError
from kvviz.experiments.inside.spec import AnatomySpec, FirstStepsSpec, MistakeSpec
from kvviz.experiments.roofline.spec import RoofSpec
from kvviz.server.scheduler import Scheduler

ANATOMY = AnatomySpec("tiny-qwen3", "hello there", new_tokens=3)
FIRST = FirstStepsSpec()
ROOF = RoofSpec("tiny-llama", tokens=64, batch=2)
MISTAKE = MistakeSpec("tiny-gpt2", "hello there", new_tokens=3, mistake="positions")

LONG = AnatomySpec("tiny-qwen3", "x" * 60)


@pytest.mark.parametrize("spec", [ANATOMY, MISTAKE, FIRST])
def test_a_look_is_read_back_as_it_was_written(spec):
    assert type(spec).from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "x"}, "of the kind 'anatomy', not 'x'"),
        ({"new_tokens": 1}, "from 2 to 48"),
        ({"new_tokens": 2.5}, "from 2 to 48"),
        ({"layer": -1}, "from 0 to"),
        ({"mistake": "positions"}, "no field mistake"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"weights": "x"}, "weights is 'x'"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(fields, said):
    with pytest.raises(KvvizError, match=said):
        AnatomySpec.from_dict({**ANATOMY.to_dict(), **fields})


def test_a_mistake_is_named_and_exists():
    with pytest.raises(KvvizError, match="an inspection needs mistake"):
        MistakeSpec.from_dict({"kind": "mistake", "model": "tiny-gpt2", "prompt": "hello"})
    with pytest.raises(KvvizError, match="no mistake 'x'"):
        MistakeSpec("tiny-gpt2", "hello", mistake="x")


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
@pytest.mark.worker
def test_the_worker_takes_looks_and_says_what_it_cannot():
    scheduler = Scheduler()
    scheduler.start()
    try:
        asked = [scheduler.submit(spec) for spec in (ANATOMY, MISTAKE, FIRST, LONG, ROOF)]
        end = time.monotonic() + 240
        while any(scheduler.get(one).active for one in asked) and time.monotonic() < end:
            time.sleep(0.05)
        anatomy, mistake, first, long, roof = (scheduler.get(one) for one in asked)
        assert [work.state for work in (anatomy, mistake, first, long, roof)] == ["done"] * 3 + ["failed", "done"]
        found = json.loads(first.records[2])
        assert found["difference"] < 1e-5
        assert min(found["benchmark"]["no_cache_ms"], found["benchmark"]["cache_ms"]) > 0
        assert found["text"].startswith("Hello")
        assert found["stopped"] == (found["written"] < 64)
        assert [json.loads(r)["t"] for r in anatomy.records] == ["loading", "look", "anatomy", "done"]
        assert json.loads(mistake.records[2])["first_difference"] is not None
        assert len(roof.document["points"]) == 8 and len(roof.document["profiles"]) == 4
        assert roof.document["roof"]["flops"] > 1e8 and roof.document["sentences"]
        assert "60 tokens; an inspection takes at most 48" in long.message
    finally:
        scheduler.close()
