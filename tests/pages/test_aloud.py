"""Every page ends with its three sentences."""

import ast

import pytest

from kvviz.ui.folders import PAGES

NAMES = sorted(path.stem for path in PAGES.glob("*.py"))


def sentences(name):
    """What a page's file hands to `say_aloud`, by what it is."""
    tree = ast.parse((PAGES / f"{name}.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    (call,) = (node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "say_aloud")
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_page_ends_with_how_to_say_it(name, open_page, store):
    last = [words.value for words in open_page(name).markdown][-3:]
    assert len(last) == 3
    for words, title, sentence in zip(last, ("state", "axis", "trade-off"), sentences(name).values(), strict=True):
        assert title in words and sentence in words


def test_each_page_has_words_of_its_own():
    every = [sentence for name in NAMES for sentence in sentences(name).values()]
    assert len(set(every)) == 3 * len(NAMES)
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in every), "one sentence each"
