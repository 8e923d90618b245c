"""What the measuring process does with an error of its device."""

import json
from types import SimpleNamespace

import pytest

from kvviz.base.settings import Limits
from kvviz.device.clock import median_call
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.worker import loop

LOST = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"


@pytest.fixture
def failing(monkeypatch):
    """`failing(error)`: a worker in whose hands any job ends with that error; returns what it sent and how it left."""

    def work(error):
        sent, left = [], []

        def records(task):
            raise error
            yield

        worker = loop.Worker(SimpleNamespace(send_bytes=lambda data: sent.append(json.loads(data.split(b"\n", 1)[1]))))
        monkeypatch.setattr(worker, "_records", records)
        monkeypatch.setattr(loop.os, "_exit", left.append)
        spec = ComparisonSpec("tiny-gpt2", prompt="x").to_dict()
        message = {"id": "a", "do": "comparison", "spec": spec, "limits": vars(Limits())}
        worker._perform(loop.Task(message, lambda job_id: False))
        return sent, left

    return work


def test_a_lost_gpu_is_reported_and_then_given_up_with_the_process(failing):
    sent, left = failing(RuntimeError(LOST))
    assert sent[-1]["t"] == "failed" and "device-side assert" in sent[-1]["message"]
    assert left == [loop.DEVICE_LOST]


@pytest.mark.parametrize("said", ["CUDA error: out of memory", "something else"])
def test_after_any_other_error_the_process_goes_on(failing, said):
    sent, left = failing(RuntimeError(said))
    assert sent[-1]["t"] == "failed" and left == []


@pytest.mark.parametrize(("said", "status"), [(LOST, [loop.DEVICE_LOST]), ("something else", [])])
def test_a_gpu_that_is_lost_while_the_worker_is_idle_ends_the_process_too(idle, monkeypatch, said, status):
    """A refresh that fails would else be tried again for ever, on a GPU that answers nothing more."""
    worker, sent, _ = idle
    left = []

    def failing(*_):
        raise RuntimeError(said)

    monkeypatch.setattr(loop.os, "_exit", left.append)
    monkeypatch.setattr(loop, "refresh_figures", failing)
    assert worker._refresh() is False and (left, sent) == (status, [])
    left.clear()
    kind = SimpleNamespace(rehearsal=lambda: None, runner=lambda: failing)
    monkeypatch.setattr(loop, "KINDS", {"comparison": kind})
    worker._rehearse()
    assert left == status


def test_an_endpoints_key_reaches_the_run_and_nothing_else(monkeypatch):
    told = []
    monkeypatch.setattr(
        loop, "kind_of", lambda spec: SimpleNamespace(runner=lambda: lambda *given: told.append(given) or ())
    )
    spec = ComparisonSpec("tiny-gpt2", prompt="x").to_dict()
    message = {"id": "a", "do": "comparison", "spec": spec, "limits": vars(Limits()), "key": "sk-mine"}
    list(loop.Worker(None)._records(loop.Task(message, lambda job_id: False)))
    ((given, bench),) = told
    assert bench.key == "sk-mine" and "sk-mine" not in repr((given, bench))


def test_the_device_says_why_it_is_not_a_gpu(monkeypatch):
    monkeypatch.setattr(loop, "default_place", lambda: SimpleNamespace(device="cpu", why="The driver is too old."))
    said = loop.hello()
    assert said["why"] == "The driver is too old." and said["devices"][-1]["device"] == "cpu"
    assert (said["driver"], said["capability"]) == (None, None)


@pytest.fixture
def idle(monkeypatch):
    """A worker without a job, what it sends, and a list that grows when it measures figures again."""
    sent, figures = [], []
    worker = loop.Worker(SimpleNamespace(send_bytes=lambda data: sent.append(json.loads(data.split(b"\n", 1)[1]))))
    monkeypatch.setattr(loop, "IDLE_S", 0)
    monkeypatch.setattr(loop, "refresh_figures", lambda check: check() or figures.append("again"))
    monkeypatch.setattr(loop, "hello", lambda: {"rates": {"read": 2.0}})
    others_compute(monkeypatch, 0.0)
    return worker, sent, figures


def others_compute(monkeypatch, cores):
    """Other processes keep so many cores busy."""
    monkeypatch.setattr(loop, "Watch", lambda: SimpleNamespace(read=lambda: SimpleNamespace(others=cores)))


def test_rates_that_were_measured_again_are_told(idle):
    worker, sent, figures = idle
    worker._refresh()
    assert (figures, sent) == (["again"], [{"t": "hello", "rates": {"read": 2.0}}])


@pytest.mark.parametrize("begins", ["before", "while it waits for jobs"])
def test_nothing_is_measured_again_beside_another_worker(idle, monkeypatch, begins):
    worker, sent, figures = idle
    found = iter([True] if begins == "before" else [False, True])
    monkeypatch.setattr(loop, "beside_another", lambda since: next(found))
    worker._refresh()
    assert (figures, sent) == ([], [])


@pytest.mark.parametrize(("cores", "measures"), [(0.9, False), (0.1, True), (None, True)])
def test_nothing_is_measured_again_while_a_browser_draws_a_page(idle, monkeypatch, cores, measures):
    """None: the system does not tell."""
    worker, _, figures = idle
    others_compute(monkeypatch, cores)
    assert worker._refresh() is measures and figures == ["again"] * measures


def test_on_a_machine_that_is_never_quiet_figures_are_measured_again_after_a_while(idle, monkeypatch):
    worker, _, figures = idle
    pauses = []

    class Waiting:
        def get(self, timeout):
            if timeout is None:
                return {"id": "job"}
            pauses.append(timeout)
            raise loop.queue.Empty

        def empty(self):
            return True

    worker._messages = Waiting()
    others_compute(monkeypatch, 2.0)
    monkeypatch.setattr(loop, "figures_due_in", lambda: None if figures else 0.0)
    assert worker._next_message() == {"id": "job"}
    assert figures == ["again"] and pauses == [0, 5, 10, 20, 40]


def test_nothing_is_measured_again_while_a_job_waits(idle, monkeypatch):
    worker, sent, figures = idle
    monkeypatch.setattr(worker, "_is_wanted", lambda: True)
    worker._refresh()
    assert (figures, sent) == ([], [])


def test_a_job_that_comes_while_a_figure_is_measured_waits_for_one_of_its_calls(idle, monkeypatch):
    worker, sent, _ = idle
    monkeypatch.setattr(loop, "refresh_figures", lambda check: median_call(called, lambda: None, calls=100))
    calls = []

    def called():
        calls.append(1)
        worker._messages.put({"id": "job"})

    assert worker._refresh() is False and (len(calls), sent) == (1, [])
    assert worker._next_message() == {"id": "job"}


def test_what_is_in_doubt_is_measured_again_between_jobs_and_not_by_the_next_one(idle, monkeypatch):
    """Another worker is busy at first, so the second try measures; only then does a job come."""
    worker, _, figures = idle
    beside = iter([True, False, False])
    due = iter([0.0, 0.0, None])

    def due_in():
        if (seconds := next(due)) is None:
            worker._messages.put({"id": "job"})
        return seconds

    monkeypatch.setattr(loop, "RETRY_S", 0)
    monkeypatch.setattr(loop, "figures_due_in", due_in)
    monkeypatch.setattr(loop, "beside_another", lambda since: next(beside))
    assert worker._next_message() == {"id": "job"}
    assert figures == ["again"]
