"""The fast step is compiled ahead of the first run, by a process that keeps off the measuring cores."""

import fcntl
import os
import subprocess
import time
from threading import Thread

import pytest

from kvviz.decoding.compiled import ahead


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "kernels.py").write_text("")
    (tmp_path / "__pycache__").mkdir()
    monkeypatch.setattr(ahead, "HERE", tmp_path)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return tmp_path


def test_what_was_compiled_before_the_last_change_does_not_count(folder):
    assert not ahead.is_compiled()
    kept = folder / "__pycache__" / "kernels.step-1.py311.nbi"
    kept.write_text("")
    assert ahead.is_compiled()
    now = kept.stat().st_mtime
    os.utime(folder / "kernels.py", (now + 10, now + 10))
    assert not ahead.is_compiled()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system can't pin processes")
def test_it_is_started_once_on_a_core_that_is_not_measured_on(folder, monkeypatch):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **streams: started.append((command, env)))
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    ahead.compile_ahead()
    ((command, env),) = started
    assert command[1:] == ["-m", "kvviz.decoding.compiled.ahead"] and env[ahead.CORES] == "2"
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    assert ahead.compile_ahead() is None and len(started) == 1, "every core is measured on"
    monkeypatch.setattr(ahead, "is_compiled", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    assert ahead.compile_ahead() is None and len(started) == 1


def test_two_processes_do_not_compile_at_once(folder):
    done = []

    def compile_it():
        with ahead.one_at_a_time():
            done.append(ahead.is_compiled())
            (folder / "__pycache__" / "kernels.step-1.py311.nbi").write_text("")

    with ahead.one_at_a_time():
        second = Thread(target=compile_it)
        second.start()
        time.sleep(0.05)
        assert not done, "the second waits"
    second.join()
    assert done == [False], "it waited only because nothing was compiled when it came"
    with (folder / "__pycache__" / "kernels.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        compile_it()
    assert done == [False, True], "what is compiled needs no lock"
