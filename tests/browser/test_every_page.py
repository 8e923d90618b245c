"""Every page in one walk: who can't see it, who uses the keyboard, who has a phone, and who doesn't know a word."""

import json
from contextlib import suppress

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import TimeoutError, expect

from kvviz.ui.frame.glossary import FIRST, TERMS, TOPICS
from kvviz.ui.frame.page import TEXTS

pytestmark = pytest.mark.browser

GRAVE = {"serious", "critical"}
HELD = ["heading-order"]  # what axe calls moderate, and is held all the same
AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
APART = [".js-plotly-plot", ".katex", ".kv-token:nth-child(n+40)"]  # drawn by others, or like those before
WAITS = {"anatomy": "kv-scene", "mistakes": "kv-source"}  # what a page shows once it has measured on arrival


def violations(page, rules=AA):
    """What axe finds of weight on the page as it is, in a line each."""
    run = {"resultTypes": ["violations"], "runOnly": rules, "rules": {name: {"enabled": True} for name in HELD}}
    where, what = json.dumps({"exclude": APART}), json.dumps(run)
    found = page.evaluate(f"() => axe.run({where}, {what})")["violations"]
    return [
        f"{page.url} {one['id']}: {node['target'][0]} {node['failureSummary']}"
        for one in found
        if one["impact"] in GRAVE or one["id"] in HELD
        for node in one["nodes"]
    ]


def settled(page, more_ms=1300):
    """Streamlit has drawn the page, and the frame has looked at it: what is wider than its place takes the focus."""
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    page.wait_for_timeout(more_ms)
    page.wait_for_function(
        """() => [...document.querySelectorAll('.katex-display, .kv-source')]
             .every((node) => node.scrollWidth <= node.clientWidth || node.tabIndex === 0)"""
    )


def explains(page):
    """Whether the frame marks a word of the field, once it has looked at the page."""
    with suppress(TimeoutError):
        page.locator(".kv-term").first.wait_for(state="attached")
        return True
    return False


def both_lights(page):
    """What axe finds on a page as it is, and of its contrasts in the other light, in which it stays."""
    found = violations(page)
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    page.emulate_media(color_scheme="light" if dark else "dark")
    page.wait_for_timeout(500)
    return found + violations(page, ["color-contrast"])


def explained(page):
    """A word of the field says what it means to the keyboard and to the pointer, and is quiet otherwise."""
    term, definition = page.locator(".kv-term").first, page.get_by_test_id("kv-definition")
    term.focus()
    expect(definition).to_contain_text(TERMS[term.get_attribute("data-term")].says)
    page.keyboard.press("Escape")
    expect(definition).to_be_hidden()
    term.hover()
    expect(definition).to_be_visible()
    page.mouse.move(2, 2)
    expect(definition).to_be_hidden()


def searched(page):
    """What is typed leaves the terms of that name, or else the definitions that have the words."""
    field, said = page.get_by_test_id("kv-search-field"), page.get_by_test_id("kv-search-said")
    field.fill("kv hea")
    expect(said).to_have_text(f"1 of {len(TERMS)} terms")
    expect(page.locator(".st-key-glossary_terms h3:visible")).to_have_text("KV head")
    expect(page.locator(".st-key-glossary_topics a:visible")).to_have_count(0)
    field.fill("evicting")
    expect(page.locator(".st-key-glossary_terms h3:visible")).to_have_text("eviction")
    field.fill("angle grows")
    expect(said).to_have_text("no term has this name; 1 definition has it")
    expect(page.locator(".st-key-glossary_topics a:visible")).to_have_text("Attention")
    field.fill("")
    expect(page.locator(".st-key-glossary_terms h3:visible")).to_have_count(len(TERMS))
    expect(page.locator(".st-key-glossary_topics a:visible")).to_have_text(list(TOPICS))


def counted(page):
    """Behind a chart stand the figures that it draws: those of the page's first curve."""
    page.get_by_test_id("kv-data").nth(1).click()
    table = page.get_by_test_id("kv-datatable")
    drawn = page.evaluate("() => [...document.querySelectorAll('.js-plotly-plot')[1]._fullData[0].y]")
    shown = [float(cell.replace(",", "")) for cell in table.locator("td:nth-child(2)").all_inner_texts()]
    assert shown == pytest.approx(drawn, rel=1e-5) and len(shown) > 20
    page.keyboard.press("Escape")
    expect(table).to_have_count(0)


def unchanged_by_a_rerun(page):
    """Words that are marked stay whole when Streamlit writes others in their place, and back again."""
    texts = "[data-testid=stMarkdownContainer], [data-testid=stCaptionContainer]"
    text = f"""() => [...document.querySelectorAll('{texts}')].map((node) => node.innerText).join("\\n")"""
    before, field = page.evaluate(text), page.get_by_role("spinbutton", name="New tokens N")
    usual = field.input_value()
    for value in ("77", usual):
        field.fill(value)
        field.press("Enter")
        settled(page)
        assert (page.evaluate(text) == before) == (value == usual)


def test_no_page_shuts_anybody_out(open_page):
    page = open_page("/live", color_scheme="light")
    page.evaluate(AXE_SCRIPT)
    grave, wide, silent = [], [], []
    for name, row in TEXTS.items():
        page.get_by_role("link", name=row["navigation"], exact=True).first.click()
        expect(page.get_by_role("heading", name=row["title"], exact=True)).to_be_visible()
        if name in WAITS:
            expect(page.get_by_test_id(WAITS[name]).first).to_be_visible(timeout=60_000)
        if name != "glossary" and not explains(page):
            silent.append(name)
        settled(page, 400)
        grave += both_lights(page)
        if name == "cost":
            explained(page)
            counted(page)
            unchanged_by_a_rerun(page)
        if name == "glossary":
            assert page.locator(".st-key-glossary_terms h3").evaluate_all(
                "(headings) => headings.map((h) => h.id)"
            ) == [*FIRST, *(name for names in TOPICS.values() for name in names if name not in FIRST)]
            searched(page)
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_timeout(300)
        if page.evaluate("document.documentElement.scrollWidth") > 390:
            wide.append(name)
        page.set_viewport_size({"width": 1280, "height": 900})
    assert (wide, silent) == ([], [])
    assert grave == []


def test_what_a_run_has_left_shuts_nobody_out(open_page, measured):
    path = measured("tiny-gpt2")
    page = open_page(path, color_scheme="light")
    expect(page.get_by_test_id("kv-live")).to_have_attribute("data-state", "done")
    page.evaluate(AXE_SCRIPT)
    settled(page)
    grave = both_lights(page)
    run = path.partition("=")[2]
    page.goto(page.url.partition("/live")[0] + f"/compare?runs={run}-uncached,{run}-cached")
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    page.evaluate(AXE_SCRIPT)
    settled(page)
    assert grave + both_lights(page) == []
    expect(page.get_by_test_id("kv-data")).to_have_count(2)
