"""Expected texts: one key from spec and document, and a difference with its place and margin."""

import copy

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.experiments.comparison import run as module
from kvviz.experiments.comparison.expected_text import compare_expected, compare_modes, expected_of, key_of, pin, pinned
from kvviz.experiments.comparison.spec import ComparisonSpec

SPEC = dict(model="tiny-qwen3", prompt="Once upon a time", new_tokens=6, repeats=1)


@pytest.fixture(scope="module")
def measure(engine):
    """`measure(new_tokens=3)` is the document of that comparison, without the allocator's account."""

    def measure(**fields):
        work = ComparisonSpec(**{"model": "tiny-qwen3", "repeats": 1, **fields})
        return list(module.perform(work, engine.get(work), comparison_id="c"))[-1]["document"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "account_memory", lambda *_: iter(()))
        yield measure


@pytest.fixture(scope="module")
def document(measure):
    return measure(**SPEC)


def test_the_spec_and_its_document_have_one_key(document, measure):
    assert key_of(ComparisonSpec(**SPEC)) == key_of(document)
    tokens = measure(prompt_tokens=7, new_tokens=3)
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
        {"stop_at_eos": True},
        {"stop_text": "."},
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
    assert compare_expected(expected_of(document), document) == (True, "the text is the expected one (6 tokens)")


def test_a_difference_says_where_and_how_near(document):
    other = copy.deepcopy(document)
    run = other["runs"][0]
    run["token_ids"][3] += 1
    run["top_margin"][3] = 0.00123
    same, sentence = compare_expected(document, other)
    old = document["runs"][0]
    assert not same and sentence == (
        f"new token 4 is {run['token_ids'][3]} where {old['token_ids'][3]} was expected; the two best logits lay "
        f"0.00123 apart there, {old['top_margin'][3]:.3g} when it was pinned"
    )


def test_a_shorter_text_differs_where_it_ends(document):
    other = copy.deepcopy(document)
    for name in ("token_ids", "top_margin"):
        other["runs"][0][name] = other["runs"][0][name][:4]
    same, sentence = compare_expected(document, other)
    assert not same and "ends after 4 tokens where 6 were expected; the two best logits lay an unknown" in sentence


def test_drawn_tokens_have_no_margin(document):
    drawn = copy.deepcopy(document)
    drawn["sampling"]["temperature"] = 1.0
    drawn["runs"][0]["token_ids"][0] += 1
    same, sentence = compare_expected(document, drawn)
    assert not same and "drawn" in sentence


def test_a_batch_is_compared_step_by_step(measure):
    batch = measure(prompt_tokens=5, new_tokens=4, batch=2)
    other = copy.deepcopy(batch)
    other["runs"][0]["token_ids"][1][2] += 1
    assert compare_expected(expected_of(batch), batch)[0]
    same, sentence = compare_expected(expected_of(batch), other)
    assert not same and sentence.startswith("new token 3 is ")


def test_pins_are_found_by_the_same_work_and_replaced(document, tmp_path, monkeypatch):
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path))
    assert pinned(key_of(document)) is None
    pin(key_of(document), {"text": "an earlier one"})
    pin(dict(reversed(key_of(document).items())), expected_of(document))
    assert pinned(key_of(ComparisonSpec(**SPEC))) == expected_of(document)
    assert pinned({**key_of(document), "model": "gpt3"}) is None
    (file,) = (tmp_path / "expected").iterdir()
    file.write_text("[]")
    with pytest.raises(KvvizError, match="pin again"):
        pinned(key_of(document))


@pytest.mark.parametrize(("exact", "alike"), [(True, False), (False, True)])
def test_every_mode_is_held_against_the_reference(document, exact, alike):
    assert compare_modes(document) == (True, [])
    runs = [*document["runs"], {"mode": "sinks", "exact": exact, "identical": False, "first_divergence": 46}]
    same, (sentence,) = compare_modes({**document, "runs": runs})
    assert same is alike and "sinks" in sentence and "from new token 47 on" in sentence
