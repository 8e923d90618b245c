"""Whether a server is ready: what is tried, what is said where something is not, what a script reads."""

import json
import math
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.paths import CHECKOUT
from kvviz.base.settings import Limits, Settings
from kvviz.cli import ready as module
from kvviz.cli.port import health_at
from kvviz.cli.ready import Readiness, ready, with_weights
from kvviz.cost.flops import Rates
from kvviz.device.lock import lock_file
from kvviz.experiments.comparison.spec import opening
from kvviz.experiments.selftest.children import Found


@pytest.fixture
def quick(monkeypatch, engine):
    """No rates are measured: `quick(...)` is a Readiness whose device is a test's."""
    monkeypatch.setattr("kvviz.device.measure_ceilings.measure_rates", lambda name: Rates(2e10, 8e10, 2e-6))
    monkeypatch.setattr(module, "settle", lambda: None)
    monkeypatch.setattr(module, "checks", lambda device, names: iter([Found("place", True, "a test's device")]))
    monkeypatch.setattr("kvviz.decoding.loaded_models.LoadedModels", lambda: engine)

    def make(names=(), students=30, host="127.0.0.1", port=9, limits=None, public=False, compared=(0.5, True)):
        given = Settings(public=public, limits=limits or Limits())
        monkeypatch.setattr(module, "settings", lambda: given)
        monkeypatch.setattr(module, "_compare", lambda work, loaded: compared)
        return Readiness(names, students, host, port)

    return make


def found(readiness):
    return {check.name: check for check in readiness.checks()}


def test_it_measures_with_the_device_for_itself(quick, monkeypatch):
    """Else a dashboard's run on the same machine and its own figures disturb one another."""
    holders = []

    def measured(name):
        holders.append(json.loads(lock_file().read_text())["what"])
        return Rates(2e10, 8e10, 2e-6)

    readiness = quick()
    monkeypatch.setattr("kvviz.device.measure_ceilings.measure_rates", measured)
    list(readiness._inspect_device())
    assert holders == ["kvviz ready"]


@pytest.mark.slow
def test_what_is_not_as_it_should_be_is_said_and_what_to_do(quick, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_TRIAL", math.inf)  # the rates of a busy machine make an estimate long
    readiness = quick(["nonsense", "llama-3.1-405b", "tiny-gpt2"], students=40, limits=Limits(waiting=30))
    checks = found(readiness)
    assert not readiness.ready
    assert "no model 'nonsense'" in checks["model nonsense"].says and not checks["model nonsense"].ok
    assert "free" in checks["model llama-3.1-405b"].says and not checks["model llama-3.1-405b"].ok
    assert checks["model tiny-gpt2"].ok, "one that fails does not hinder the next"
    assert not checks["queue"].ok and "waiting in kvviz.toml to 40" in checks["queue"].do
    assert readiness.document()["queue_worst_s"] == 40 * 0.5


@pytest.mark.slow
def test_differing_tokens_and_runs_that_would_be_cut_off_are_no_readiness(quick):
    assert "tokens differ" in found(quick(["tiny-gpt2"], compared=(0.5, False)))["model tiny-gpt2"].says
    checks = found(quick(["tiny-gpt2"], limits=Limits(run_seconds=2), compared=(3.0, True)))
    assert not checks["model tiny-gpt2"].ok and "run_seconds" in checks["model tiny-gpt2"].do


@pytest.mark.slow
def test_a_comparison_that_would_take_long_is_estimated_and_said_to_be(quick, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_TRIAL", 0.0)
    readiness = quick(["tiny-gpt2"])
    assert "by estimate, tried with 4 tokens" in found(readiness)["model tiny-gpt2"].says
    assert readiness.document()["models"][0]["measured_s"] is None


@pytest.mark.slow
def test_models_that_do_not_fit_together_are_changed_in_the_worst_case(quick, monkeypatch):
    readiness = quick(["tiny-gpt2"], students=10)
    list(readiness.checks())
    readiness._free = 1
    assert "change models" in next(check for check in readiness._queue() if check.name == "wait").says


def test_without_names_all_that_really_write_are_tried():
    assert {"mini-gpt2", "mini-qwen3"} <= set(with_weights()) and "tiny-gpt2" not in with_weights()


@pytest.mark.parametrize(
    ("host", "public", "says"),
    [
        (
            "127.0.0.1",
            False,
            "this machine alone, not public: trusts whoever can reach it; HOST=0.0.0.0 lets a class in",
        ),
        ("0.0.0.0", False, "others too .*; set KVVIZ_PUBLIC=1 if strangers can reach it"),
        ("0.0.0.0", True, "others too .*, open to all: lower limits, no paths$"),
    ],
)
def test_who_can_reach_it_is_said(quick, host, public, says):
    assert re.search(says, next(quick(host=host, public=public)._access()).says)


def test_settings_that_can_not_be_read_are_no_readiness(quick, monkeypatch):
    readiness = quick()

    def broken():
        raise KvvizError("kvviz.toml can't be read")

    monkeypatch.setattr(module, "settings", broken)
    first = next(readiness.checks())
    assert (first.name, first.ok) == ("settings", False) and not readiness.ready


def test_a_disk_that_is_full_or_can_not_be_written(quick, monkeypatch):
    monkeypatch.setattr(module, "LEAST_DISK", 10**18)
    assert not next(quick()._disk()).ok
    monkeypatch.setenv("KVVIZ_HOME", "/proc/kvviz")
    (only,) = quick()._disk()
    assert not only.ok and "set KVVIZ_HOME" in only.do


@contextmanager
def answering(code, body):
    class Program(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Program)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


OK = {"status": "ok", "worker": "ready", "queue": 2, "version": "1.2", "reason": None}


@pytest.mark.parametrize(
    ("code", "body", "ok", "says"),
    [
        (200, json.dumps(OK).encode(), True, "kvviz 1.2 answers at port .*: ok, 2 in its queue"),
        (503, json.dumps({**OK, "status": "degraded", "reason": "x"}).encode(), False, "degraded"),
        (200, b"<html>hello", False, "another program"),
        (404, b"[]", False, "another program"),
    ],
)
def test_what_answers_at_the_port(quick, code, body, ok, says):
    with answering(code, body) as port:
        (check,) = quick(port=port)._listening()
    assert check.ok == ok and re.search(says, check.says)


def test_a_port_that_is_free_or_that_nobody_may_have(quick, free_port):
    assert next(quick(port=free_port)._listening()).says == f"port {free_port} is free"
    assert "nothing can listen" in next(quick(host="192.0.2.1", port=free_port)._listening()).says
    assert health_at("127.0.0.1", free_port) is None


@pytest.mark.slow
def test_the_lesson_is_what_the_live_page_opens_with(scheduler_without_worker):
    from streamlit.testing.v1 import AppTest

    page = AppTest.from_file(str(CHECKOUT / "kvviz/ui/main.py"), default_timeout=60).run()
    page = page.switch_page(str(CHECKOUT / "pages/live.py")).run()
    page.button(key="run").click().run()
    (work,) = scheduler_without_worker.jobs()
    assert work.spec == opening(page.selectbox(key="model").value)


@pytest.mark.parametrize(("students", "port", "says"), [("0", "1", "--students is 0"), ("3", "x", "PORT is 'x'")])
def test_bad_input_is_one_sentence(monkeypatch, students, port, says):
    monkeypatch.setenv("PORT", port)
    with pytest.raises(KvvizError, match=says):
        ready(models="tiny-gpt2", students=int(students))
