"""Expected texts: one key from spec and document, and a difference with its place and margin."""

import copy

import pytest

from kvviz import compare
from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.experiments.comparison.expected_text import PinFiles, compare_expected, expected_of, key_of
from kvviz.experiments.comparison.spec import ComparisonSpec


@pytest.fixture(scope="module")
def document():
    return compare("tiny-qwen3", prompt="Once upon a time", new_tokens=6, repeats=1).document


SPEC = dict(model="tiny-qwen3", prompt="Once upon a time", new_tokens=6, repeats=1)


def test_the_spec_and_its_document_have_one_key(document):
    assert key_of(ComparisonSpec(**SPEC)) == key_of(document)
    tokens = compare("tiny-qwen3", prompt_tokens=7, new_tokens=3, repeats=1).document
    assert key_of(ComparisonSpec("tiny-qwen3", prompt_tokens=7, new_tokens=3)) == key_of(tokens)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "Once upon a times"},
        {"new_tokens": 7},
        {"dtype": "bfloat16"},
        {"batch": 2},
        {"sampling": Sampling(seed=1)},
        {"model": "tiny-llama"},
    ],
)
def test_other_work_has_another_key(document, change):
    assert key_of(ComparisonSpec(**{**SPEC, **change})) != key_of(document)
    assert key_of({**document, "config_hash": "0"}) != key_of(document)


def test_repeats_modes_and_device_do_not_matter(document):
    same = ComparisonSpec(**{**SPEC, "repeats": 9, "modes": ("cached",), "device": "cpu", "attn": "eager"})
    assert key_of(same) == key_of(document)


def test_the_margin_of_every_choice_is_recorded(document):
    reference, other = document["runs"]
    assert len(reference["top_margin"]) == 6 and all(margin > 0 for margin in reference["top_margin"])
    assert other["top_margin"] is None


def test_the_same_text_passes(document):
    check = compare_expected(expected_of(document), document)
    assert check.same and check.first_difference is None and check.text == check.expected_text


def test_a_difference_says_where_and_how_near(document):
    other = copy.deepcopy(document)
    run = other["runs"][0]
    run["token_ids"][3] += 1
    run["text"] = "other"
    run["top_margin"][3] = 0.00123
    check = compare_expected(document, other)
    assert (check.same, check.first_difference, check.margin) == (False, 3, 0.00123)
    assert check.text == "other"
    old = document["runs"][0]
    assert check.sentence == (
        f"new token 4 is {run['token_ids'][3]} where {old['token_ids'][3]} was expected; the two best logits lay "
        f"0.00123 apart there, {old['top_margin'][3]:.3g} when it was pinned"
    )


def test_a_shorter_text_differs_where_it_ends(document):
    other = copy.deepcopy(document)
    for name in ("token_ids", "top_margin"):
        other["runs"][0][name] = other["runs"][0][name][:4]
    check = compare_expected(document, other)
    assert check.first_difference == 4 and "ends after 4 tokens where 6 were expected" in check.sentence


def test_drawn_tokens_have_no_margin(document):
    drawn = copy.deepcopy(document)
    drawn["sampling"]["temperature"] = 1.0
    drawn["runs"][0]["token_ids"][0] += 1
    check = compare_expected(document, drawn)
    assert check.margin is None and "drawn" in check.sentence


def test_a_batch_is_compared_step_by_step():
    batch = compare("tiny-gpt2", prompt_tokens=5, new_tokens=4, repeats=1, batch=2).document
    other = copy.deepcopy(batch)
    other["runs"][0]["token_ids"][1][2] += 1
    assert compare_expected(expected_of(batch), batch).same
    assert compare_expected(expected_of(batch), other).first_difference == 2


def test_pins_in_files(document, tmp_path):
    pins = PinFiles(tmp_path / "expected")
    assert pins.pinned(key_of(document)) is None
    pins.pin(key_of(document), expected_of(document))
    assert pins.pinned(key_of(ComparisonSpec(**SPEC))) == expected_of(document)
    (file,) = (tmp_path / "expected").iterdir()
    file.write_text("[]")
    with pytest.raises(KvvizError, match="pin again"):
        pins.pinned(key_of(document))
