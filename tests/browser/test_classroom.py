"""Three real browsers follow one run: what is on their screens is the same, and is what the document says."""

import pytest
from playwright.sync_api import expect

from tests.browser.test_live import asked, in_state, live, points, run

pytestmark = pytest.mark.browser

FIGURES = ("ttft_s", "itl_s", "tokens_per_s", "total_s")
SHOWN = """() => {
  const state = document.querySelector('[data-testid=kv-live]').kvState()
  const node = document.querySelector('[data-testid=kv-chart]')
  const text = (mode) => document.querySelector(`[data-testid=kv-text-${mode}]`).innerText
  const cells = [...document.querySelectorAll('td[data-figure]')].map((cell) => cell.innerText)
  return {
    figures: state.figures,
    texts: state.modes.map((mode) => text(mode.name)),
    curves: node.data.filter((t) => t.hoverinfo === 'text').map((t) => [t.name, t.x, t.y]),
    cells,
  }
}"""


def test_three_screens_show_the_same_and_what_the_document_says(open_page, server):
    """Who asked, who opened the page without a link and so follows the device, and who comes late by the link."""
    asking, following = open_page(asked("tiny-llama", new_tokens=24)), open_page()
    run(asking)
    comparison = live(asking).get_attribute("data-comparison")
    expect(live(following)).to_have_attribute("data-comparison", comparison)
    in_state(following, "done")
    late = open_page("/live?" + asking.url.split("?")[1])
    pages = asking, following, late
    for page in pages:
        in_state(page, "done")
        page.wait_for_timeout(400)  # the last drawing
    assert {live(page).get_attribute("data-comparison") for page in pages} == {comparison}
    for page in (following, late):
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    assert [points(page)["count"] for page in pages] == [48, 48, 48]
    first, *others = [page.evaluate(SHOWN) for page in pages]
    assert others == [first, first]
    assert len(first["cells"]) >= 8
    document = document_of(server, comparison)
    for shown, measured, text in zip(first["figures"], document["runs"], first["texts"], strict=True):
        assert {name: shown[name] for name in FIGURES} == {name: measured[name] for name in FIGURES}
        assert "".join(text.split()).endswith("".join(measured["text"].split()))  # behind the prompt
    steps = [len(measured["step_s"]) for measured in document["runs"]]
    assert [len(x) for _, x, _ in first["curves"]] == steps


def document_of(server, comparison):
    """What was kept of it."""
    from kvviz.store.db.store import Store

    store = Store(server.home / "kvviz.sqlite")
    try:
        return store.document(comparison)
    finally:
        store.close()
