"""The memory page in a real browser: it paints, its formula is typeset, a link restores it, nothing spills over."""

import json
import re
import struct
from pathlib import Path

import pytest
from playwright.sync_api import expect

from kvviz.models.catalog.rows import models
from tests.browser.navigation import go
from tests.models.gguf.writer import ARRAY, STRING, header, model, tensor, text

pytestmark = pytest.mark.browser


def total(nbytes):
    return re.compile(rf" takes {re.escape(nbytes)}\.$")


def figure(page):
    """The sentence that says the total."""
    return page.locator(".st-key-m_headline strong").first


def test_the_figure_its_formula_and_its_charts_at_any_width(open_page):
    page = open_page("/memory?models=qwen3-4b,gemma-3-27b&tokens=32768")
    expect(figure(page)).to_have_text(total("4.5 GiB"))
    expect(page.locator(".katex").first).to_contain_text("4,831,838,208")
    expect(page.get_by_text("num_key_value_heads").first).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    for tab in ("By layer", "On a GPU", "What if", "Look inside", "How we know"):
        page.get_by_role("radio", name=tab).click()
        expect(page.get_by_role("radio", name=tab, checked=True)).to_be_visible()
        expect(page.locator(".st-key-open_m_tab").get_by_test_id("stElementContainer").first).to_be_visible()
    expect(page.get_by_text(re.compile("agree within the rounding"))).to_be_visible()
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing spills over"


def test_the_address_bar_follows_and_restores_and_what_was_asked_comes_along_and_down(open_page):
    """A number of tokens, a config of one's own, another page and back, an example."""
    page = open_page("/memory")
    expect(figure(page)).to_have_text(total("1.0 GiB"))
    tokens = page.get_by_role("spinbutton", name="Tokens in the cache")
    tokens.fill("1024")
    tokens.press("Enter")
    expect(figure(page)).to_have_text(total("128.0 MiB"))
    page.wait_for_url(re.compile("tokens=1024"))
    page.reload()
    expect(figure(page)).to_have_text(total("128.0 MiB"))
    page.go_back()
    expect(figure(page)).to_have_text(total("1.0 GiB"))

    box = page.get_by_test_id("kv-given-text")
    box.fill(json.dumps(models()["deepseek-v3"].config))
    box.press("Enter")
    expect(page.get_by_text("Taken as the config of a model of type deepseek_v3.")).to_be_visible()
    expect(figure(page)).to_have_text(total("549.0 MiB"))
    page.wait_for_url(re.compile("models=z"))
    go(page, "Live")
    expect(page.get_by_role("heading", name="Watch the KV cache work")).to_be_visible()
    go(page, "Memory")
    expect(figure(page)).to_have_text(total("549.0 MiB"))
    page.get_by_role("button", name="Save").click()
    for name, starts in (("JSON", "["), ("CSV, a row per layer", "model,view")):
        with page.expect_download() as event:
            page.get_by_role("button", name=name).click()
        assert Path(event.value.path()).read_text(encoding="utf-8").startswith(starts)
    page.get_by_role("button", name="Examples").click()
    page.get_by_text("A cache to work out by hand", exact=True).click()
    expect(figure(page)).to_have_text(total("28.0 KiB"))
    expect(page.locator(".katex").first).to_contain_text("28,672")


def test_of_a_dropped_gguf_file_the_browser_sends_the_header_without_its_vocabulary(open_page, tmp_path):
    """The vocabulary alone is longer than what a server takes."""
    tokens = struct.pack("<IIQ", ARRAY, STRING, 150_000) + text("a token of the vocabulary") * 150_000
    metadata = header(model("llama", {"block_count": 32, "attention.head_count_kv": 2}), counts=(1, 7))
    weights = tensor("token_embd.weight", (64, 150_000), 1, 0)
    path = tmp_path / "small.gguf"
    path.write_bytes(metadata + text("tokenizer.ggml.tokens") + tokens + weights)
    page = open_page("/memory")
    expect(figure(page)).to_have_text(total("1.0 GiB"))
    chooser = page.get_by_test_id("kv-file-input")
    chooser.set_input_files(path)
    expect(page.get_by_text("Weights in the file: 18.3 MiB (19,200,000 B)")).to_be_visible()
    expect(figure(page)).to_have_text(total("32.0 MiB"))
    damaged = metadata + text("tokenizer.ggml.tokens") + struct.pack("<IIQ", ARRAY, ARRAY, 2**63)
    chooser.set_input_files({"name": "damaged.gguf", "mimeType": "", "buffer": damaged})
    expect(page.get_by_text("'tokenizer.ggml.tokens' is a list of lists")).to_be_visible()
