"""Small real models and a scheduler without a worker; no test needs a download."""

import gc
import json
import os
import sys

import hypothesis
import pytest

from kvviz.base.errors import KvvizError
from kvviz.decoding.modes import check_modes, mode_named
from kvviz.device import remembered
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.catalog.rows import model_row
from tests.figures import GET, keep_the_first

TINY = ("tiny-gpt2", "tiny-llama", "tiny-qwen3", "tiny-mistral", "tiny-gemma3")


def pytest_configure(config):
    """Hide NVIDIA cards: every law has to hold on a CPU. `-m gpu` asks for the tests that need one.

    A small product is slower on two threads than on one, most of all with a second test process beside it.
    """
    if "gpu" not in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before any process of the tests imports torch
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    hypothesis.settings.register_profile("kvviz", deadline=None)  # one timing on a busy machine says nothing
    hypothesis.settings.load_profile("kvviz")


def freeze_libraries():
    """Keep what was imported out of full collections: kvviz makes one before each load and each timed pass."""
    if len(sys.modules) != frozen["modules"]:
        gc.collect()
        gc.freeze()
        frozen["modules"] = len(sys.modules)


frozen = {"modules": 0}


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item):
    freeze_libraries()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    freeze_libraries()


def can(mode, model):
    """Whether a mode can decode a batch of a catalog model by itself."""
    if not mode_named(mode).batches:
        return False
    try:
        check_modes([mode], model_row(model).config, "cpu")
    except KvvizError:
        return False
    return True


@pytest.fixture(scope="session", autouse=True)
def kept_apart(tmp_path_factory):
    """What tests keep goes into a folder of theirs, also where they start kvviz in another process."""
    before = os.environ.get("KVVIZ_HOME")
    os.environ["KVVIZ_HOME"] = str(tmp_path_factory.mktemp("home"))
    yield
    os.environ.pop("KVVIZ_HOME") if before is None else os.environ.update(KVVIZ_HOME=before)


@pytest.fixture(scope="session", autouse=True)
def measured_once():
    """Keep the first figures of the device; `own_paces` is for tests that need those of each model."""
    with pytest.MonkeyPatch.context() as patch:
        keep_the_first(patch.setattr)
        yield


@pytest.fixture
def own_paces(monkeypatch):
    """Measure each model's own paces."""
    monkeypatch.setattr(remembered.Remembered, "get", GET)


@pytest.fixture(scope="session")
def engine():
    """One engine for the session: each tiny model is built once."""
    from kvviz.decoding.loaded_models import LoadedModels
    from kvviz.device.environment import set_threads

    set_threads(1)
    return LoadedModels()


@pytest.fixture(scope="session")
def load(engine):
    """`load("tiny-gpt2")` is that model, ready to decode."""
    return lambda model, **fields: engine.get(ComparisonSpec(model=model, prompt="x", **fields))


@pytest.fixture(scope="session")
def bench(engine):
    """`bench(limits=…)` is what a run is given, on this session's engine."""
    from kvviz.base.settings import Limits
    from kvviz.experiments.kind import Bench

    return lambda **fields: Bench(**{"id": "x", "models": engine, "limits": Limits(), **fields})


@pytest.fixture
def scheduler_without_worker():
    """A scheduler in whose worker's place the test speaks, with `record`."""
    from kvviz.server.scheduler import Scheduler

    class Quiet(Scheduler):
        def __init__(self):
            super().__init__()
            (self.worker,) = self.workers
            self.worker.state = "ready"
            rates = {"read": 2e10, "flops": 8e10, "launch": 2e-6}
            self.worker.device = {"rates": rates, "device_name": "a test's device", "total_bytes": 16 * 2**30}

        def record(self, comparison_id, record):
            """What a worker would have sent."""
            with self._lock:
                self._queue.remove(comparison_id)
                self.worker.job = self.get(comparison_id)
                self.worker.received(comparison_id, record["t"], json.dumps(record))

    from kvviz.server import scheduler as module

    quiet = Quiet()
    module.use(quiet)
    yield quiet
    module.use(None)


@pytest.fixture(scope="session")
def components_found_once():
    """Streamlit's tester reads the metadata of every installed package for each page; they stay the same."""
    from streamlit.components.v2 import manifest_scanner

    with pytest.MonkeyPatch.context() as patch:
        found = manifest_scanner.scan_component_manifests()
        patch.setattr(manifest_scanner, "scan_component_manifests", lambda: found)
        yield


class Every(set):
    """The folds of a page, all of them opened."""

    def __contains__(self, _key: object) -> bool:
        return True


@pytest.fixture
def open_page(scheduler_without_worker, components_found_once):
    """`open_page("memory", tokens="64")` is that page with that in its address; `app.scheduler` has no worker.

    What stands in its folds is there, as for a reader who has opened them all, or only those with the keys `opened`.
    """
    from streamlit.testing.v1 import AppTest
    from streamlit.util import calc_hash

    from kvviz.ui.folders import MAIN

    def open_page(page, *, opened=None, **link):
        app = AppTest.from_file(str(MAIN), default_timeout=60)
        app.session_state["folds_opened"] = Every() if opened is None else opened
        for name, value in link.items():
            app.query_params[name] = value
        app._page_hash = calc_hash(page)  # as a browser asks for it, without a run of the front page
        app.run()
        assert not app.exception
        app.scheduler = scheduler_without_worker
        return app

    return open_page
