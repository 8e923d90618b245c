"""The bench of one's own engines: a row for each lane, the servers that are left out, a chart of runs that are kept."""

from contextlib import contextmanager, nullcontext
from urllib.parse import parse_qs, urlsplit

import pytest

from bench import own_engines
from kvviz.cli.files import open_store
from tests.openai_server import serving


@contextmanager
def missing():
    raise SystemExit("the server did not start: no such program")
    yield


@pytest.mark.slow
@pytest.mark.long
def test_each_lane_has_a_row_and_the_chart_names_runs_that_are_kept(bench, monkeypatch, capsys):
    with serving(pieces=tuple("On a mat"), owner="llamacpp") as does:
        servers = {"transformers serve": missing()}
        monkeypatch.setattr(own_engines, "_servers", lambda *_: servers)
        monkeypatch.setattr(own_engines, "bench_here", lambda what: nullcontext(bench()))
        found = own_engines.measure("mini-gpt2", 8, 1, "", [f"llama.cpp={does.url}"])
    lanes = ("cached", "compiled", "endpoint")
    assert [(row["beside"], row["mode"]) for row in found["rows"]] == [("llama.cpp", mode) for mode in lanes]
    assert all(row["itl_mean_s"] > 0 for row in found["rows"])
    assert [row["engine"] and row["engine"]["name"] for row in found["rows"]] == [None, None, "llamacpp"]
    assert list(found["left_out"]) == ["transformers serve"] and "no such program" in found["left_out"].popitem()[1]
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("transformers serve is left out") and said[-1].startswith("llama.cpp: first token")
    page = urlsplit(found["page"])
    kept = [open_store().run(name) for name in parse_qs(page.query)["runs"][0].split(",")]
    assert page.path == "/compare" and tuple(run.mode for run in kept) == lanes


def test_without_any_server_the_reason_is_said(bench, monkeypatch):
    monkeypatch.setattr(own_engines, "_servers", lambda *_: {"llama.cpp": missing()})
    monkeypatch.setattr(own_engines, "bench_here", lambda what: nullcontext(bench()))
    with pytest.raises(SystemExit, match=r"no server could be started.*no such program"):
        own_engines.measure("mini-gpt2", 8, 1, "")
