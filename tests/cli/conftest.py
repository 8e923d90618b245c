"""`kvviz(...)`: a command in this process, on this session's models; what it wrote, and its exit status."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

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
