"""`kvviz endpoint`: a server under more and more requests at once."""

import signal
import threading

from kvviz.decoding.endpoint.address import KEY
from kvviz.experiments.concurrency import run
from tests.openai_server import serving

ASK = ("--new-tokens", "4", "--requests", "1", "--concurrency", "1,2")


def test_it_prints_a_row_for_each_level(kvviz, monkeypatch):
    monkeypatch.setenv(KEY, "sk-mine")
    with serving(pieces=tuple("abcd")) as server:
        done = kvviz("endpoint", server.url, *ASK, "--json")
        table = kvviz("endpoint", server.url, *ASK).out
    document = done.document
    assert [row["concurrency"] for row in document["rows"]] == [1, 2] and document["engine"]["model"] == "m"
    assert document["sentences"][0] in table
    assert "2 at once, " in done.err and "sk-mine" not in done.out + done.err
    assert len(server.asked) == 2 * (1 + 1 + 2 + 1 + 2)


def test_what_can_not_be_is_a_sentence(refused):
    refused("from 1 to 64", "endpoint", "http://localhost:1", "--concurrency", "8,4")
    refused("such as http://localhost:8000/v1", "endpoint", "localhost")


def test_a_signal_ends_it(kvviz, monkeypatch):
    def level(*given):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)  # it is there before this returns

    monkeypatch.setattr(run, "_measure_level", level)
    with serving(pieces=tuple("abcd")) as server:
        done = kvviz("endpoint", server.url, *ASK)
    assert done.status == 128 + signal.SIGTERM and "nothing of it is kept" in done.err
