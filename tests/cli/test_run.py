"""`kvviz run`: its document, what is kept of it, --pin and --check."""

import copy
import json

import pytest

from kvviz.cli import run
from kvviz.decoding.endpoint.address import KEY
from kvviz.experiments.comparison.expected_text import expected_of, key_of, pin
from kvviz.store.db.store import Store
from kvviz.store.files import reading
from tests.cli.conftest import RUN
from tests.openai_server import serving


def printed_part(document):
    """What a run's JSON holds besides the verdict, which each reader works out anew."""
    return {name: value for name, value in document.items() if name != "verdict"}


@pytest.mark.slow
def test_it_prints_a_comparison_and_its_verdict(kvviz):
    done = kvviz("run", "--model", "tiny-mistral", "--prompt-tokens", "40", "--new-tokens", "5", "--json")
    document = done.document
    assert document["identical"] is True
    assert [run["mode"] for run in document["runs"]] == ["uncached", "cached"]
    assert document["runs"][1]["speedup"] > 0
    assert document["verdict"]["sentence"].startswith("By prediction")
    assert "4 steps are too few" in document["verdict"]["modes"][0]["untold"][0]
    assert "/40 " in done.err, "a bar of 2 modes x 5 tokens x 4 passes"


@pytest.mark.slow
def test_an_endpoint_has_the_key_of_whoever_types_the_command(kvviz, monkeypatch):
    monkeypatch.setenv(KEY, "sk-mine")
    with serving(pieces=tuple("abcd")) as server:
        done = kvviz("run", "--model", "tiny-gpt2", "--new-tokens", "4", "--mode", "endpoint", "--endpoint", server.url)
    sent = [{name.lower(): value for name, value in headers.items()} for headers in server.headers]
    assert {headers["authorization"] for headers in sent} == {"Bearer sk-mine"}
    assert len(done.document["runs"][0]["arrivals_s"]) == 4 and "sk-mine" not in done.out + done.err


@pytest.mark.slow
def test_a_config_on_standard_input(kvviz):
    config = '{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}'
    document = kvviz("run", "--model", "-", "--new-tokens", "3", "--repeats", "1", stdin=config).document
    assert len(document["runs"][1]["layers"]) == 2


@pytest.mark.slow
def test_it_is_kept_and_written(ran, home):
    found = reading.read((home / "run.json").read_bytes())
    assert found.document == printed_part(ran)
    store = Store(home / "kvviz.sqlite")
    assert store.document(ran["id"]) == printed_part(ran)
    assert (store.get(ran["id"]).origin, store.get(ran["id"]).state) == ("run", "done")
    assert [json.loads(record) for record in store.records(ran["id"])] == found.records
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "no-such-model"], "catalog id"),
        (["--model", "tiny-gpt2", "--mode", "fast"], "uncached, cached, unpassed"),
        (["--model", "tiny-gpt2", "--mode", "cached,cached"], "each named once"),
        (["--model", "tiny-mistral", "--mode", "cached,scratch"], "sliding window of 16 tokens"),
        (["--model", "tiny-gpt2", "--new-tokens", "0"], "from 1 to"),
        (["--model", "tiny-gpt2", "--prompt", "a", "--prompt-tokens", "3"], "one of --prompt"),
        (["--model", "tiny-gpt2", "--prompt-file", "/nowhere"], "can't be read"),
        (["--model", "tiny-gpt2", "--prompt", ""], "empty"),
        (["--model", "tiny-gpt2", "--prompt", "\udcff"], "bytes that are not UTF-8"),
        (["--model", "tiny-gpt2", "--dtype", "int3"], "float32, bfloat16, float16"),
        (["--model", "tiny-gpt2", "--device", "cuda:99"], "not on this machine"),
        (["--model", "tiny-gpt2", "--top-p", "2"], "top_p"),
        (["--model", "tiny-gpt2", "--prompt-tokens", "1000"], "1,024 positions"),
        (["--model", "tiny-gpt2", "--batch", "65"], "1 to 64"),
        ([*RUN[1:], "--output", "/nowhere/x"], "can't be written"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(refused, arguments, says):
    refused(says, "run", *arguments)


def test_a_broken_config_on_standard_input(refused):
    refused("JSON", "run", "--model", "-", stdin="{nope")


# --- pinned texts, and a run that is taken from the file of the first -------------------------------------------------


@pytest.fixture
def measured(home, monkeypatch):
    """`measured("again")`: the next run measures nothing and is the first one under that id."""

    def measured(run_id):
        first = reading.read((home / "run.json").read_bytes())
        again = first.renamed(run_id) if run_id else first
        monkeypatch.setattr(run, "measure", lambda work, **_: (again.document, again.records))

    return measured


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--pin", "--check"], "one of --pin and --check"), (["--check", "--new-tokens", "4"], "no text is pinned")],
)
def test_pins_that_can_not_be_are_refused_before_anything_is_measured(refused, home, monkeypatch, arguments, says):
    monkeypatch.setattr(run, "measure", lambda work, **_: pytest.fail("it was measured"))
    refused(says, *RUN, *arguments)


def test_check_passes_and_then_fails_for_another_text(ran, home, kvviz, measured):
    measured("again")
    done = kvviz(*RUN, "--check")
    assert done.document["runs"][0]["text"] == ran["runs"][0]["text"]
    assert done.err == "kvviz: the text is the expected one (5 tokens)\n"
    other = copy.deepcopy(expected_of(ran))
    other["runs"][0]["token_ids"][2] += 1
    pin(key_of(ran), other)
    measured("third")
    done = kvviz(*RUN, "--check")
    assert (done.status, json.loads(done.out)["identical"]) == (1, True)
    assert "kvviz: new token 3 is" in done.err and "apart there" in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(("exact", "status"), [(True, 1), (False, 0)])
def test_check_fails_where_an_exact_mode_wrote_something_else(ran, home, kvviz, monkeypatch, exact, status):
    pin(key_of(ran), expected_of(ran))
    document = copy.deepcopy(ran)
    document["runs"][1] |= {"exact": exact, "identical": False, "first_divergence": 2}
    monkeypatch.setattr(run, "measure", lambda work, **_: (document, []))
    monkeypatch.setattr(run, "_keep", lambda *_: None)
    done = kvviz(*RUN, "--check")
    assert done.status == status and "from new token 3 on its tokens are not those of uncached" in done.err


def test_a_store_that_fails_costs_no_result(ran, kvviz, measured):
    """The same id again is what a store refuses; the run is printed all the same."""
    measured("")
    done = kvviz(*RUN)
    assert done.document == ran
    assert "not kept" in done.err and len(done.err.splitlines()) == 1
