"""What surrounds every page: its title and opening words, the room, and the three sentences at its foot."""

import json
import re

import pytest

from kvviz.ui.folders import PAGES
from kvviz.ui.frame.navigation import GROUPS
from kvviz.ui.frame.page import ALOUD, TEXTS

SAID = {
    name: [each for each in (row, *row.get("aloud", {}).values()) if "state" in each] for name, row in TEXTS.items()
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_page_has_its_frame(name, open_page, store):
    app = open_page(name)
    assert app.title[0].value == TEXTS[name]["title"] and app.markdown[0].value == TEXTS[name]["opening"]
    if SAID[name]:
        last = [words.value for words in app.markdown][-3:]
        assert last == [f"**{title}**  \n{SAID[name][0][part]}" for part, title in ALOUD.items()]
    assert [
        json.loads(part.proto.json)["join"] for part in app.get("bidi_component") if '"join"' in part.proto.json
    ] == [None]


def test_each_page_has_a_file_words_and_a_place_in_the_navigation():
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(TEXTS) == sorted(path.stem for path in PAGES.glob("*.py"))


def test_what_is_said_aloud_of_a_page_is_of_that_page():
    every = [each[part] for said in SAID.values() for each in said for part in ALOUD]
    assert len(set(every)) == len(every) >= 30
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in every), "one sentence each"


def test_the_navigation_is_read_from_left_to_right(open_page):
    app = open_page("quiz")
    (row,) = (each.proto.body for each in app.get("html") if "kv-nav" in each.proto.body)
    assert re.findall("<small>(.*?)</small>", row) == list(GROUPS)
    links = dict(re.findall('<a href="(.*?)".*?>(.*?)</a>', row))
    assert list(links.values()) == [TEXTS[name]["navigation"] for group in GROUPS.values() for name in group]
    assert [href for href in links if href != "."] == [name for group in GROUPS.values() for name in group][1:]
    assert re.findall('aria-current="page">(.*?)<', row) == [TEXTS["quiz"]["navigation"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "title"),
    [
        ({}, "start"),
        ({"stop": "3"}, "start"),
        ({"utm_source": "x"}, "start"),
        ({"model": "tiny-gpt2", "new_tokens": "8"}, "live"),
        ({"comparison": "abc"}, "live"),
    ],
)
def test_an_old_link_to_the_first_page_leads_to_the_live_page(query, title, open_page):
    app = open_page("start", **query)
    assert app.title[0].value == TEXTS[title]["title"]
    if "model" in query:
        assert app.selectbox(key="model").value == "tiny-gpt2" and app.selectbox(key="new_tokens").value == 8


@pytest.mark.slow
@pytest.mark.parametrize("built", [True, False])
def test_the_first_page_leads_to_the_documentation_where_it_was_built(open_page, monkeypatch, tmp_path, built):
    monkeypatch.setattr("kvviz.ui.start.stops.SITE", tmp_path if built else tmp_path / "none")
    links = [block.value for block in open_page("start").markdown if "](/docs/)" in block.value]
    assert len(links) == built
