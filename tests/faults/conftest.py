"""Schedulers with a real worker, and with one that has no model: quick, and it hangs when asked to."""

import sys
import time
from pathlib import Path

import pytest

from kvviz.device.cores import share_of_cores
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server.scheduler import Scheduler
from kvviz.server.worker_process import WorkerLink
from tests.cli.conftest import kvviz  # noqa: F401, a fixture

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


def finished(scheduler, work_id):
    until(lambda: not scheduler.get(work_id).active)
    return scheduler.get(work_id)


@pytest.fixture
def fake():
    """`fake(limits=…)` is a scheduler whose worker has no model."""
    schedulers = []

    def make(**options):
        scheduler = Scheduler(WorkerLink(fake_command), **options)
        scheduler.start()
        schedulers.append(scheduler)
        return scheduler

    yield make
    for scheduler in schedulers:
        scheduler.close()


@pytest.fixture(scope="package")
def real():
    """One scheduler with a real worker for all faults that it survives."""
    scheduler = Scheduler()
    scheduler.start(share_of_cores()[0])
    yield scheduler
    scheduler.close()
