"""`kvviz(...)`: a command in this process, on this session's models; what it wrote, and its exit status."""

import io
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from kvviz.base.paths import CHECKOUT
from kvviz.cli.main import main

RUN = ("run", "--model", "tiny-gpt2", "--new-tokens", "5", "--repeats", "2", "--mode", "uncached,cached")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def document(self):
        """Its one JSON document; a command that failed has none."""
        assert self.status == 0, self.err
        return json.loads(self.out)


def call(*arguments, stdin=""):
    """Run a command as `python -m kvviz` does."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["kvviz", *arguments])
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as end:
            main()
    return Done(end.value.code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def kvviz(engine):
    """The function above; this process keeps its cores and threads, and each model is built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvviz.cli.measure_here.settle", lambda: None)
        patch.setattr("kvviz.cli.sweep.settle", lambda: None)
        patch.setattr("kvviz.decoding.loaded_models.LoadedModels", lambda: engine)
        yield call


@pytest.fixture
def refused(kvviz):
    """`refused(words, "run", ...)`: that command ends with status 2 and one sentence, in which those words are."""

    def refused(words, *arguments, stdin=""):
        done = kvviz(*arguments, stdin=stdin)
        assert (done.status, done.out) == (2, "")
        assert words in done.err and len(done.err.strip().splitlines()) == 1

    return refused


@pytest.fixture(scope="session")
def own_home(tmp_path_factory):
    """A KVVIZ_HOME that holds the run below and nothing of other tests."""
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="session")
def ran(own_home, kvviz):
    """A run that was pinned, kept and written to a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVVIZ_HOME", str(own_home))
        return kvviz(*RUN, "--pin", "-o", str(own_home / "run.json")).document


@pytest.fixture
def home(own_home, ran, monkeypatch):
    """KVVIZ_HOME as that run has left it."""
    monkeypatch.setenv("KVVIZ_HOME", str(own_home))
    return own_home


# --- a machine without the dashboard's packages -------------------------------------------------------------------

WITHOUT_A_DASHBOARD = """
import importlib.util, json, sys
missing = ("streamlit", "plotly", "sqlalchemy", "starlette", "pyarrow", "platformdirs", "pandas")
sys.modules.update(dict.fromkeys(missing))
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in missing else real(name, *more)
from dataclasses import replace
from kvviz.cli import ready
from kvviz.cli.main import main
opening = ready.opening
ready.opening = lambda name: replace(opening(name), new_tokens=24, repeats=1, precision=None)  # a short lesson
for command in json.loads(sys.argv[1]):
    sys.argv = ["kvviz", *command]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
    sys.stdout.flush()
"""
SWEEP = ("sweep", "--model", "tiny-gpt2", "--prompt-tokens", "4,8", "--new-tokens", "3")


@dataclass(frozen=True)
class Bare:
    """What a process on such a machine printed, and the journal of the sweep in which it was killed."""

    ready: dict
    sweep: dict
    err: str
    journal: object


@pytest.fixture(scope="session")
def bare(tmp_path_factory, free_port):
    """`ready` and two sweeps, one after the other, the second of them killed after some passes."""
    folder = tmp_path_factory.mktemp("bare")
    journal = folder / "sweep.jsonl"
    commands = [
        ("ready", "--models", "tiny-gpt2", "--students", "7", "--json"),
        (*SWEEP, "--repeats", "1", "--json"),
        (*SWEEP, "--repeats", "40", "--resume", str(journal)),
    ]
    environment = {**os.environ, "KVVIZ_HOME": str(folder), "PORT": str(free_port), "HOST": "127.0.0.1"}
    with (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", WITHOUT_A_DASHBOARD, json.dumps(commands)],
            cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=err, text=True,
        )  # fmt: skip
    printed = [process.stdout.readline() for _ in range(2)]
    while process.poll() is None and not (journal.exists() and journal.read_text().count('"cell_pass"') > 5):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert all(printed), (folder / "err").read_text()
    return Bare(*map(json.loads, printed), (folder / "err").read_text(), journal)


@pytest.fixture(scope="session")
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
