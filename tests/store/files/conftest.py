"""Two real comparisons, of one sequence and of a batch, as a scheduler would have kept them."""

import json

import pytest

from kvviz.base.records import Sampling
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.store.files.reading import Imported

MODES = ("uncached", "cached", "unpassed")


def measured(engine, **fields):
    """A finished comparison; its values are those that JSON gives back."""
    fields = {"prompt": "Once upon a time", "modes": MODES, "new_tokens": 6, "repeats": 2, **fields}
    work = ComparisonSpec(model="tiny-qwen3", **fields)
    document, records = finished(list(perform(work, engine.get(work), comparison_id="made")))
    return Imported(*json.loads(json.dumps([document, [{"t": "loading"}, *records]])))


@pytest.fixture(scope="session")
def single(engine):
    return measured(engine)


@pytest.fixture(scope="session")
def batch(engine):
    return measured(engine, prompt=None, prompt_tokens=9, batch=3, sampling=Sampling(temperature=0.8, seed=5))


@pytest.fixture(scope="session", params=["single", "batch"])
def made(request):
    return request.getfixturevalue(request.param)
