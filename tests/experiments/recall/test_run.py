"""A recall measurement on the model that was trained for it: a window recalls what it holds, and nothing else."""

import json
from dataclasses import asdict

import pytest

from kvviz.base.errors import KvvizError
from kvviz.cli import measure_here
from kvviz.cli.main import app
from kvviz.experiments.recall.run import run
from kvviz.experiments.recall.spec import FORGETFUL, RecallSpec
from kvviz.experiments.recall.texts import draw
from kvviz.models.catalog.rows import recall_words
from tools.heldout import recall

SPEC = RecallSpec(designs=("sinks", "int8"), budgets=(40,), tokens=300, texts=1, facts=6, seeds=2, before=40)


@pytest.fixture(scope="module")
def found(bench):
    *_, done = run(SPEC, bench())
    return json.loads(json.dumps(done["document"]))


def test_the_full_cache_recalls_and_a_window_what_it_holds(found):
    full, window, codes = found["rows"]
    assert sum(full["right"]) >= 0.9 * len(full["right"]) and sum(codes["right"]) >= 0.9 * len(full["right"])
    kept = 0.4 * found["tokens"] - 20  # of them, tokens of the question and the name and the first four
    near = [question["distance"] < kept for question in found["questions"]]
    far = [question["distance"] > kept + 20 for question in found["questions"]]
    assert 0 < sum(near) < len(near) and any(far)
    assert all(right for right, is_near in zip(window["right"], near, strict=True) if is_near)
    assert not any(right for right, is_far in zip(window["right"], far, strict=True) if is_far)


def test_a_question_that_comes_in_time_is_no_help_to_a_window(found):
    """The window keeps the same tokens, but for those of the question, so it recalls the same names or one less."""
    (before,), window = found["before"], found["rows"][1]
    assert before["mode"] == "sinks" and before["percent"] == 40 and len(before["said"]) == len(found["questions"])
    assert 0 <= sum(window["right"]) - sum(before["right"]) <= 2
    assert before["share"] == pytest.approx(window["share"], abs=0.02)


def test_bytes_are_those_of_the_budget(found):
    full, window, codes = found["rows"]
    assert (full["share"], full["percent"], codes["percent"]) == (1.0, None, None)
    assert window["share"] == pytest.approx(0.4, abs=0.01) and 0.25 < codes["share"] < 0.5
    assert full["nbytes"] == found["tokens"] * 4 * 2 * 128 * 4  # layers x KV heads x numbers of a token x bytes


def test_the_document_says_what_was_asked(found):
    assert found["spec"] == json.loads(json.dumps(SPEC.to_dict())) and found["weights"] == "bundled"
    assert [question["seed"] for question in found["questions"]] == [1] * 6 + [2] * 6
    assert all(f" {question['answer']}" in question["statement"] for question in found["questions"])
    assert sorted(question["kind"] for question in found["questions"][:6]) == ["name"] * 3 + ["number"] * 3
    assert all(question["statement"] in found["text"] for question in found["questions"][:6])


def test_a_text_depends_on_its_seed_and_number_alone():
    texts = {draw(seed, number, 3, 200, len).text for seed in (1, 2) for number in (0, 1)}
    assert len(texts) == 4 and draw(1, 0, 3, 200, len).text in texts
    assert all(200 <= len(text) < 400 for text in texts)


def test_the_words_are_those_that_the_model_was_trained_with():
    written = recall()
    words = recall_words()
    assert [asdict(kind) for kind in words.kinds] == [
        {**kind, "answers": tuple(kind["answers"])} for kind in written["kinds"]
    ]
    assert [list(story) for story in words.stories] == written["stories"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"designs": ("paged",)}, "'paged' is no lossy cache design; there are sinks"),
        ({"designs": ()}, "needs a cache design and a budget"),
        ({"budgets": (0,)}, "a budget is a percentage"),
        ({"budgets": (101,)}, "a budget is a percentage"),
        ({"facts": 0}, "facts"),
    ],
)
def test_what_can_not_be_asked_is_refused(fields, sentence):
    with pytest.raises(KvvizError, match=sentence):
        RecallSpec(**fields)


def test_every_lossy_design_is_asked():
    assert {"sinks", "int8", "int4"} <= set(FORGETFUL) and "paged" not in FORGETFUL


def test_the_command(monkeypatch, capsys):
    monkeypatch.setattr(measure_here, "settle", lambda: None)
    said = ["recall", "--designs", "sinks", "--budgets", "50", "--tokens", "128", "--texts", "1", "--facts", "2"]
    app([*said, "--seeds", "1", "--device", "cpu", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert [(row["mode"], row["asked"]) for row in found["rows"]] == [("cached", 2), ("sinks", 2)]
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in found["rows"])
