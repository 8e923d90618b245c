"""The page stands alone, parses, and shows every text of a run as text."""

import base64
import copy
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from kvviz.base.errors import KvvizError
from kvviz.store.files import reading, webpage

pytestmark = pytest.mark.slow  # they decode with real models

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script>",
    "]]><svg/onload=alert(1)>",
    "</title></pre></table><a href=javascript:alert(1)>x</a>",
    "&lt;b&gt; {{7*7}} ${alert(1)} \0 \u202e",
    "https://example.org/<style>@import url(//example.org)</style>",
)


class Page(HTMLParser):
    """What a browser would find: elements with their attributes, and the content of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.inside, self.texts, self._open = [], [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside.append((tag, dict(attrs), ""))
        self._open = tag

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open in ("script", "style"):
            tag, attrs, before = self.inside[-1]
            self.inside[-1] = (tag, attrs, before + data)
        else:
            self.texts.append(data)

    def script(self, name):
        return json.loads(next(text for _, attrs, text in self.inside if attrs.get("id") == name))


@pytest.fixture(scope="module")
def benign(single):
    return Page(webpage.to_html(single.document, single.records))


def hostile(made, text):
    """Every text of the run replaced."""
    document, records = copy.deepcopy((made.document, made.records))
    for place, names in (
        (document, ("id", "model", "weights", "prompt")),
        (document["environment"], ("device", "device_name", "dtype", "platform", "torch", "attn_implementation")),
        *((run, ("text", "cache_class", "peak_kind", "mode")) for run in document["runs"][2:]),
        (records[1]["prompt"], ("text",)),
        (records[1]["model"], ("title", "note")),
        *((mode, ("title", "summary")) for mode in records[1]["modes"]),
    ):
        place.update(dict.fromkeys(names, text))
    return document, records


def test_it_refers_to_nothing(benign):
    attributes = [(tag, name, value) for tag, attrs in benign.elements for name, value in attrs.items()]
    assert not {name for _, name, _ in attributes} & {"src", "href", "action", "data", "srcset", "background", "poster"}
    assert not [name for _, name, _ in attributes if name.startswith("on")]
    assert not {tag for tag, _ in benign.elements} & {"link", "iframe", "img", "base", "object", "embed", "form"}
    style = next(text for tag, _, text in benign.inside if tag == "style")
    assert not re.search(r"url\(|@import|http", style)
    own = [text for tag, attrs, text in benign.inside if tag == "script" and not attrs][-1]
    assert not re.search(r"https?:|fetch\(|XMLHttp|import\b|WebSocket|sendBeacon", own)
    assert "http" not in " ".join(benign.texts)


def test_its_policy_allows_its_two_scripts_and_no_address(benign):
    policy = next(attrs["content"] for tag, attrs in benign.elements if attrs.get("http-equiv"))
    scripts = [text for tag, attrs, text in benign.inside if tag == "script" and "type" not in attrs]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts]
    assert len(scripts) == 2
    assert policy == (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data: blob:"
    )


def test_it_holds_the_whole_comparison(benign, single):
    found = reading.read(json.dumps(benign.script("comparison")))
    assert (found.document, found.records) == (single.document, single.records[1:])


def test_it_shows_the_figures(benign, single):
    words = " ".join(benign.texts)
    assert "All modes chose the same tokens." in words
    for expected in ("tiny-qwen3", "No cache", "Once upon a time", single.document["environment"]["device_name"]):
        assert expected in words
    figure = benign.script("figure")
    run = single.document["runs"][1]
    lines = [trace for trace in figure["traces"] if trace.get("name") == "KV cache"]
    assert lines[0]["y"] == [s * 1000 for s in run["step_s"]]
    assert len(lines) == 4 and {line["line"]["color"] for line in lines} == {"#0072B2"}
    assert "template" not in figure["layout"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_shown_as_text(benign, single, text):
    page = Page(webpage.to_html(*hostile(single, text)))
    assert [tag for tag, _ in page.elements] == [
        tag for tag, _ in Page(webpage.to_html(*hostile(single, "harmless"))).elements
    ], "no element more or less, whatever the texts say"
    shown = text.replace("\0", "\ufffd")
    assert "".join(page.texts).count(shown) >= 8
    assert page.script("comparison")["document"]["model"] == text
    allowed = {"lang", "charset", "http-equiv", "content", "name", "class", "style", "id", "type", "scope", "dir"}
    names = {name for _, attrs in page.elements for name in attrs}
    assert names <= allowed | {"role", "aria-label", "aria-pressed"}


def test_a_batch_and_a_difference_are_said(batch):
    document = copy.deepcopy(batch.document)
    document["runs"][1].update(first_divergence=2, identical=False, divergence_margin=0.0123)
    page = Page(webpage.to_html(document))
    words = " ".join(page.texts)
    assert "KV cache: another token at new token 3, where the two best logits lay 0.0123 apart." in words
    assert "batch 3" in words and "9 random tokens" in words


def test_without_plotly_there_is_a_sentence(single, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "kvviz.charts.curves", None)
    with pytest.raises(KvvizError, match="plotly"):
        webpage.to_html(single.document)
