"""The document of each page is Streamlit's, with styles and scripts that exist."""

import re

import pytest

from kvviz.ui.folders import ASSETS, ASSETS_URL, PAGES
from kvviz.ui.frame.document import LATER, STATIC, documents, later, with_imports
from tests.draws import spread

DOCUMENTS = documents()


def test_every_page_has_one_that_loads_streamlit():
    assert len(DOCUMENTS) == len(list(PAGES.glob("*.py")))
    for text in DOCUMENTS.values():
        assert '<div id="root"></div>' in text
        assert text.index("</head>") < text.index(f"{ASSETS_URL}/frame/pages.css") < text.index('<div id="root">')


@pytest.mark.parametrize("path", spread(sorted(DOCUMENTS), 4))
def test_what_it_names_is_there_and_each_once(path):
    named = re.findall(r'<link rel="(?:modulepreload|stylesheet)"[^>]* href="([^"]+)"', DOCUMENTS[path])
    assert len(named) == len(set(named)) and sum(url.startswith(ASSETS_URL) for url in named) > 8
    for url in named:
        file = ASSETS / url.removeprefix(f"{ASSETS_URL}/") if url.startswith("/kv/") else STATIC / url
        assert file.is_file(), url


def test_the_live_page_names_every_script_that_its_component_imports():
    found = with_imports([ASSETS / "live" / "live.js"])
    written = {path.name for path in found}
    for path in found:
        named = re.findall(r'^import .* from "(?:\.{1,2}/)+(?:\w+/)?(\w+\.js)"', path.read_text("utf-8"), re.MULTILINE)
        assert written.issuperset(named), path
    assert {"live.js", "chart.js", "state.js", "hangup.js"} <= written
    for path in found:
        assert f"{ASSETS_URL}/{path.relative_to(ASSETS)}" in DOCUMENTS["/live"]


def test_a_page_that_begins_with_a_chart_names_what_draws_it():
    assert "shared/plot.js" in DOCUMENTS["/memory"] and "shared/plot.js" not in DOCUMENTS["/quiz"]


def test_what_a_click_needs_later_is_there_one_script_for_each_name():
    for page, urls in later().items():
        assert len(urls) == len(LATER[page]) and f"/{page}" in DOCUMENTS
        assert all((STATIC / url.removeprefix("/")).is_file() for url in urls), urls
