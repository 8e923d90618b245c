"""Every page ends with its three sentences."""

from dataclasses import astuple

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.server import persister as keeping
from kvviz.store.db.store import Store
from kvviz.ui.folders import MAIN, PAGES
from kvviz.ui.frame.aloud import ALOUD

NAMES = sorted(path.stem for path in PAGES.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_ends_with_how_to_say_it(name, scheduler_without_worker, tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    keeping.use(store)
    try:
        app = AppTest.from_file(str(MAIN), default_timeout=60).run()
        app.switch_page(str(PAGES / f"{name}.py")).run()
        assert not app.exception
        last = [words.value for words in app.markdown][-3:]
    finally:
        keeping.use(None)
        store.close()
    parts = astuple(ALOUD[name])
    assert len(last) == 3
    for words, title, sentence in zip(last, ("state", "axis", "trade-off"), parts, strict=True):
        assert title in words and sentence in words


def test_each_page_has_words_of_its_own():
    sentences = [sentence for said in ALOUD.values() for sentence in astuple(said)]
    assert len(set(sentences)) == 3 * len(ALOUD)
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in sentences), "one sentence each"
