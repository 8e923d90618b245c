"""The tour: six stops on real pages, and what stands in bold in their words is there to be pressed."""

import re

import pytest

from kvviz.ui.folders import ASSETS
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.frame.tour import STOPS, read_stop


def test_there_are_six_stops_of_one_sentence_each():
    assert [stop.number for stop in STOPS] == [1, 2, 3, 4, 5, 6]
    for stop in STOPS:
        assert stop.page in TEXTS and stop.link["tour"] == str(stop.number)
        for words in (stop.say, stop.notice):
            assert words.endswith(".") and words.count(". ") == 0, "one sentence"
        assert max(len(stop.title + stop.say), len(stop.press + stop.notice)) < 140, "two lines of a slim bar"
        assert "**" in stop.press


@pytest.mark.parametrize("text", [None, "", "0", "7", "x", "²", "01"])
def test_what_is_no_stop_is_none(text):
    assert read_stop(text) is None


def labels(app):
    """Everything on a page that has a name: its widgets, and whatever our scripts write."""
    scripts = " ".join(path.read_text(encoding="utf-8") for path in ASSETS.rglob("*.js") if "vendor" not in path.parts)
    kinds = ("button", "number_input", "text_input", "selectbox", "slider")
    return {widget.label for kind in kinds for widget in app.get(kind)}, scripts


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.title)
def test_a_stop_stands_on_its_page_with_what_it_asks_to_press(stop, open_page):
    app = open_page(stop.page, **stop.link)
    assert app.title[0].value == TEXTS[stop.page]["title"]
    bar = app.markdown[0].value
    assert all(words in bar for words in (stop.title, stop.say, stop.press, stop.notice))
    names, scripts = labels(app)
    for name in re.findall(r"\*\*(.+?)\*\*", stop.press):
        assert name in names or name in scripts, name
    assert app.query_params["tour"] in (str(stop.number), [str(stop.number)]), "pages keep it in the address"
    ways = [link.proto.label for link in app.get("page_link") if link.proto.label in ("Back", "Next", "Leave")]
    assert ways == [
        *(["Back"] if stop.number > 1 else []),
        *(["Next"] if stop.number < len(STOPS) else []),
        "Leave",
    ]


@pytest.mark.slow
def test_the_letters_are_open_at_their_stop_and_closed_otherwise(open_page):
    assert open_page("anatomy", tour="1").expander[0].proto.expanded
    assert not open_page("anatomy", tour="4").expander[0].proto.expanded


@pytest.mark.slow
def test_who_leaves_comes_back_to_the_stop(open_page):
    def ways(app):
        return {link.proto.label: link.proto.query_string for link in app.get("page_link")}

    assert ways(open_page("start"))["Begin the tour"] == "tour=1"
    assert ways(open_page("live", tour="3"))["Leave"] == "stop=3"
    assert ways(open_page("start", stop="3"))["Go on with stop 3"] == "tour=3"
    app = open_page("start", stop="9")
    assert "Begin the tour" in ways(app), "what is no stop is passed over"
