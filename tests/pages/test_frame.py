"""What surrounds every page: its title and opening words, the room, and the three sentences at its foot."""

import json

import pytest

from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import ALOUD, TEXTS

SAID = [name for name, row in TEXTS.items() if any(part in row for part in ALOUD)]


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_page_has_its_frame(name, open_page, store):
    app = open_page(name)
    assert app.title[0].value == TEXTS[name]["title"] and app.markdown[0].value == TEXTS[name]["opening"]
    if name in SAID:
        last = [words.value for words in app.markdown][-3:]
        assert last == [f"**{title}**  \n{TEXTS[name][part]}" for part, title in ALOUD.items()]
    assert [json.loads(part.proto.json)["join"] for part in app.get("bidi_component") if "join" in part.proto.json] == [
        None
    ]


def test_each_page_has_a_file_and_words_of_its_own():
    assert set(TEXTS) == {path.stem for path in PAGES.glob("*.py")}
    every = [TEXTS[name][part] for name in SAID for part in ALOUD]
    assert len(set(every)) == 3 * len(SAID) >= 30
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in every), "one sentence each"
