"""The checks themselves, on this processor: what passes, what does not apply, and that a wrong device fails them."""

import functools
import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch

from kvviz.device.environment import Place
from kvviz.experiments.selftest import children, run
from kvviz.experiments.selftest.children import NAMES, Found, answer_of, check, checks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def briefly():
    """Make one comparison for all checks that need one, and take short contexts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_compared", functools.cache(run._compared))
        patch.setattr(run, "LADDER", (16, 32))
        patch.setattr(run, "TOKENS", 12)
        yield


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("clock", "second device", "prediction")])
def test_a_processor_passes_what_applies_to_it(name):
    ok, says, _ = run.CHECKS[name]("cpu")
    assert ok is True, says


@pytest.mark.parametrize("name", ["clock", "second device"])
def test_what_does_not_apply_says_so(name):
    ok, says, figures = run.CHECKS[name]("cpu")
    assert ok is None and says and not figures


def test_the_prediction_is_held_against_what_was_measured(monkeypatch):
    for error, passes in ((0.1, True), (0.9, False)):
        document = {"runs": [{"mode": "cached", "prediction_error": error}]}
        monkeypatch.setattr(run, "_compared", lambda device, document=document: (document, []))
        assert run.prediction("cpu")[0] is passes


@pytest.mark.parametrize("name", ["identity", "sampling", "graph"])
def test_other_tokens_fail(name, monkeypatch):
    monkeypatch.setattr(run, "_tokens", lambda loaded, mode, *rest, **named: [[len(mode)]])
    ok, says, _ = run.CHECKS[name]("cpu")
    assert ok is False and says


def test_wrong_logits_fail(monkeypatch):
    monkeypatch.setattr(run, "ROUNDING", dict.fromkeys(run.ROUNDING, 1e-9))
    assert run.kernels("cpu")[0] is False


def test_a_later_pass_with_other_tokens_fails(monkeypatch):
    document = {"runs": [{"mode": "cached", "repeatable": False}]}
    monkeypatch.setattr(run, "_compared", lambda device: (document, []))
    ok, says, _ = run.repeats("cpu")
    assert ok is False and "cached" in says


def test_an_allocator_that_disagrees_fails(monkeypatch):
    document, records = run._compared("cpu")
    runs = [{**one, "memory": {**one["memory"], "allocator": {"kept": 7}}} for one in document["runs"]]
    monkeypatch.setattr(run, "_compared", lambda device: ({**document, "runs": runs}, records))
    assert run.memory("cpu")[0] is False


def test_a_card_that_is_not_used_fails_the_first_check(monkeypatch):
    monkeypatch.setattr(run, "default_place", lambda: Place("cpu", "The driver is too old."))
    ok, says, _ = run.place("cpu")
    assert ok is False and "too old" in says


def test_no_kernels_recorded_fails(monkeypatch):
    monkeypatch.setattr(run, "profile", lambda *given: SimpleNamespace(classes={}, operations=9, wall=1.0))
    assert run.profiler("cpu")[0] is False


def test_a_full_memory_that_is_not_recognised_fails(monkeypatch):
    monkeypatch.setattr(run, "is_out_of_memory", lambda error: False)
    assert run.recovery("cpu")[0] is False


# --- in processes of their own --------------------------------------------------------------------------------------


@pytest.mark.worker
def test_each_check_has_a_process_of_its_own():
    found = list(checks("cpu", ("place", "second device")))
    assert [(one.name, one.ok) for one in found] == [("place", True), ("second device", None)]
    assert found[0].figures["environment"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("device", "name", "said"),
    [("cpu", "no such check", "no such check"), ("cuda:9", "place", "is not on this machine")],
)
def test_whatever_a_check_raises_is_its_line(device, name, said):
    found = check(name, device)
    assert found.ok is False and said in found.says


@pytest.mark.worker
@pytest.mark.skipif(not children.FORKS, reason="there is no fork to test")
def test_a_process_that_dies_or_hangs_costs_one_line(monkeypatch):
    monkeypatch.setattr(children, "check", lambda name, device: os.kill(os.getpid(), signal.SIGKILL))
    assert answer_of("graph", "cpu") == Found("graph", False, "its process ended early (exit status -9)")
    monkeypatch.setattr(children, "check", lambda name, device: time.sleep(60))
    assert answer_of("graph", "cpu", 0.2) == Found("graph", False, "no answer within 0.2 s")
    monkeypatch.setattr(children, "check", lambda name, device: print("a library's word") or Found(name, True, "well"))
    assert answer_of("graph", "cpu") == Found("graph", True, "well")
