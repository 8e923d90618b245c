"""The first look: the curves that a viewer sees before anything is compared."""

from dataclasses import replace
from itertools import takewhile

import pytest

from kvviz.decoding.measure_paces import knows_paces, paces_of
from kvviz.experiments.comparison import run
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.text import book
from kvviz.store.files import reading

pytestmark = pytest.mark.slow  # they decode with real models

WORK = ComparisonSpec("tiny-gemma3", prompt="Once upon a time", new_tokens=5, repeats=1)


def records(engine, work, **how):
    """The records up to the check's last."""
    found = perform(work, engine.get(work), comparison_id="c", **how)
    return list(takewhile(lambda record: record["t"] != "memory", found))


def test_it_comes_first_and_shows_what_the_check_finds(engine):
    found = records(engine, WORK, watched=True)
    looks = [record for record in found if record["t"] == "first_look"]
    proofs = [record for record in found if record["t"] == "proof"]
    assert [record["i"] for record in looks] == [0, 1, 2, 3, 4]
    assert found.index(looks[-1]) < found.index(proofs[0])
    for look, proof in zip(looks, proofs, strict=True):
        assert list(look["modes"]) == ["uncached", "cached"]
        for mode, step in look["modes"].items():
            assert step["s"] > 0
            for name in ("ids", "text", "layers"):
                assert step[name] == proof["modes"][mode][name]
    assert reading.checked(found), "a saved run may hold it"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("watched", [True, False])
def test_who_watches_waits_for_no_pace_and_the_prediction_is_before_the_timed_passes(
    engine, monkeypatch, known, watched
):
    monkeypatch.setattr(run, "knows_paces", lambda loaded: known)
    kinds = [record["t"] for record in records(engine, WORK, watched=watched)]
    assert kinds.count("predicted") == 1
    assert kinds.index("predicted") == (1 if known or not watched else len(kinds) - 1)


def test_the_paces_of_a_model_are_known_once_they_were_measured(engine, monkeypatch):
    loaded = engine.get(WORK)
    paces_of(loaded)
    assert knows_paces(loaded)
    monkeypatch.setattr(loaded.model.config, "another", "field", raising=False)
    assert not knows_paces(loaded)


def test_nobody_watches_a_run_of_the_command_line(engine):
    assert not [record for record in records(engine, WORK) if record["t"] == "first_look"]


def test_a_text_that_ends_early_ends_its_first_look(engine):
    work = ComparisonSpec("tiny-gpt2", prompt="x", new_tokens=40, repeats=1)
    text = "".join(record["modes"]["cached"]["text"] for record in records(engine, work) if record["t"] == "proof")
    ended = ComparisonSpec("tiny-gpt2", prompt="x", new_tokens=40, repeats=1, stop_text=text[3:12])
    found = records(engine, ended, watched=True)
    assert len([r for r in found if r["t"] == "first_look"]) == len([r for r in found if r["t"] == "proof"]) < 40


@pytest.mark.parametrize("length", [16, 30_000])
def test_a_prompt_of_any_length_is_the_books(engine, length):
    from kvviz.experiments.comparison.comparison_run import encode_prompt

    work = ComparisonSpec("tiny-gpt2", prompt_tokens=length, filler="book", batch=2)
    ids = encode_prompt(work, engine.get(work))
    whole = book().encode()
    assert ids.shape == (2, length) and ids[0].tolist() == ids[1].tolist()
    assert bytes(ids[0].tolist()) == (whole * 2)[:length]
    own = replace(work, prompt="The cat ", filler="text")
    assert bytes(encode_prompt(own, engine.get(own))[1].tolist()) == (b"The cat " * length)[:length]
