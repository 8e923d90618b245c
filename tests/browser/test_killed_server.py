"""The server is killed under a page that watches a run: the page comes back to it by itself, on the next server."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server
from tests.browser.test_live import asked, in_state, live, many_passes, run

pytestmark = pytest.mark.browser


def test_a_page_finds_its_run_again_when_its_server_was_killed(chromium, tmp_path):
    first = Server(tmp_path)
    first.wait()
    page = chromium.new_context().new_page()
    page.set_default_timeout(60_000)
    page.goto(first.url + asked(new_tokens=128))
    many_passes(page)
    run(page)
    in_state(page, "measuring")
    own = live(page).get_attribute("data-comparison")
    page.wait_for_timeout(1500)  # what is measured is written twice a second, so the proof is on the disk
    first.process.kill()
    first.process.wait()
    expect(page.get_by_test_id("kv-status")).to_have_text("Connection lost: trying again")
    second = Server(tmp_path, first.port)
    try:
        in_state(page, "stopped", seconds=120)
        expect(page.get_by_test_id("kv-status")).to_contain_text("the server ended in the middle of this run")
        assert live(page).get_attribute("data-comparison") == own
        tokens, kept, sent = page.evaluate(
            """() => {
              const root = document.querySelector("[data-testid=kv-live]")
              const last = root.kvFeed()
              return [root.kvState().modes.map((m) => m.tokens.length), last.next, last.comparison]
            }"""
        )
        assert tokens == [128, 128] and sent == own, "the proof, each token once"
        assert kept > 256
    finally:
        page.context.close()
        second.close()
