"""Hubs with a real worker, and with one that has no model: quick, and it hangs when asked to."""

import sys
import time
from pathlib import Path

import pytest

from kvviz.device.clock import share_of_cores
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server.scheduler import Hub

FAKE = Path(__file__).with_name("fake_worker.py")


def fake_command(descriptor, cores):
    return [sys.executable, str(FAKE), str(descriptor), cores]


def asking(what):
    """Work for a worker without a model."""
    return ComparisonSpec(model="tiny-gpt2", prompt=what)


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def finished(hub, work_id):
    until(lambda: not hub.get(work_id).active)
    return hub.get(work_id)


@pytest.fixture
def fake():
    """`fake(limits=…)` is a hub whose worker has no model."""
    hubs = []

    def make(**options):
        hub = Hub(fake_command, **options)
        hub.start()
        hubs.append(hub)
        return hub

    yield make
    for hub in hubs:
        hub.close()


@pytest.fixture(scope="package")
def real():
    """One hub with a real worker for all faults that it survives."""
    hub = Hub()
    hub.start(share_of_cores()[0])
    yield hub
    hub.close()
