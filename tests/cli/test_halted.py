"""A command that is sent a signal in the middle of its measurement: it keeps what there is and says where."""

import json
import os
import signal

import pytest

from kvviz.base.errors import Stopped
from kvviz.cli.measure_here import Halted, bench_here
from kvviz.device.clock import timed
from kvviz.experiments.sweep.journal import read
from kvviz.store.db.store import Store


@pytest.fixture
def halted(kvviz, tmp_path, monkeypatch):
    """`halted(SIGTERM, 3, "run", ...)`: that command, sent the signal at its third clocked step."""
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path))

    def halted(number, step, *arguments):
        left = iter(range(step, 0, -1))

        def told(*steps):
            for one in timed(*steps):
                if next(left, None) == 1:
                    os.kill(os.getpid(), number)
                yield one

        for module in ("comparison.comparison_run", "sweep.run"):
            monkeypatch.setattr(f"kvviz.experiments.{module}.timed", told)
        done = kvviz(*arguments)
        assert done.status == 128 + number and "Traceback" not in done.err
        assert done.out == "", "no document of what has not ended"
        return done.err

    return halted


@pytest.mark.slow
def test_a_headless_run_keeps_what_it_had_measured(halted, tmp_path):
    err = halted(signal.SIGTERM, 6 * 2 + 3, "run", "--model", "tiny-gpt2", "--new-tokens", "6", "--repeats", "2")
    store = Store(tmp_path / "kvviz.sqlite")
    (kept,) = store.find()
    assert kept.state == "stopped" and f"is kept as {kept.id}" in err
    records = [json.loads(text)["t"] for text in store.records(kept.id)]
    assert records[0] == "started" and "proof" in records and records[-1] == "stopped"
    store.close()


@pytest.mark.slow
def test_a_run_stopped_in_its_first_look_says_that_nothing_is_kept(halted, tmp_path):
    err = halted(signal.SIGTERM, 3, "run", "--model", "tiny-gpt2", "--new-tokens", "6")
    assert "stopped in its first look, before there was anything to keep" in err
    assert not (tmp_path / "kvviz.sqlite").exists() or not Store(tmp_path / "kvviz.sqlite").find()


@pytest.mark.slow
def test_a_headless_sweep_goes_on_from_its_journal(halted, tmp_path):
    journal = tmp_path / "sweep.jsonl"
    sizes = ("--prompt-tokens", "8,16", "--new-tokens", "6", "--repeats", "9", "--resume", str(journal))
    err = halted(signal.SIGINT, 6 * (2 * 2 + 6), "sweep", "--model", "tiny-gpt2", *sizes)
    assert f"kvviz sweep --resume {journal}" in err
    assert journal.read_text().endswith("\n"), "no line is torn"
    assert sum(record["t"] == "cell_pass" for record in read(journal)) >= 4


def test_a_signal_between_two_steps_ends_a_measurement_in_a_sentence(monkeypatch):
    monkeypatch.setattr("kvviz.cli.measure_here.settle", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Halted, match="nothing of it is kept") as end, bench_here("x") as bench:
        assert not bench.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        if bench.should_stop():
            raise Stopped
    assert end.value.status == 128 + signal.SIGTERM and signal.getsignal(signal.SIGTERM) == before
