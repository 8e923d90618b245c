"""On a fresh server a stranger sees the curves at once, before, during and after a run; and again if it was killed."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, serving
from tests.browser.test_live import asked, comes_to, in_state, live, many_passes, points, press, run

pytestmark = pytest.mark.browser

SHIFTS = """window.kvShifts = []
const named = (node) => (node?.nodeType === 1 ? node : node?.parentElement)?.closest("[class]")?.getAttribute("class")
const rounded = ({ x, y, width, height }) => [x, y, width, height].map(Math.round)
new PerformanceObserver((list) => {
  for (const { value, startTime, sources } of list.getEntries()) {
    const moved = sources.map((one) => [named(one.node), rounded(one.previousRect), rounded(one.currentRect)])
    window.kvShifts.push({ value, startTime, moved })
  }
}).observe({ type: 'layout-shift', buffered: true })"""
STILL = """() => {
  const now = performance.now()
  if (window.kvMoved?.count !== window.kvShifts.length) window.kvMoved = { count: window.kvShifts.length, at: now }
  return now - window.kvMoved.at > 1500
}"""
SIZES = ((1440, 900), (1280, 720), (1024, 768), (390, 844))


@pytest.fixture
def fresh(tmp_path):
    """A server that nobody has asked for anything, in each try of a test."""
    with serving(tmp_path) as server:
        yield server


def on_the_first_screen(page):
    """At each size the chart begins in the upper 60% of the window."""
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(200)
        box = page.get_by_test_id("kv-chart").bounding_box()
        assert box["y"] < 0.6 * height, (width, height)
        assert box["x"] + box["width"] <= width
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def shifts(page):
    """What was pushed since this was asked last: each shift's value, its time and the elements that moved.

    A busy browser reports a shift seconds late, so a shift from before the last call is left out.
    """
    return page.evaluate(
        """() => {
          const since = window.kvSince ?? 0
          window.kvSince = performance.now()
          return window.kvShifts.splice(0).filter(({ startTime }) => startTime >= since)
        }"""
    )


def opened(chromium, url, width, height):
    """A page in a window of this size, once the recording on it is drawn."""
    page = chromium.new_context(viewport={"width": width, "height": height}).new_page()
    page.set_default_timeout(60_000)
    page.add_init_script(SHIFTS)
    page.goto(url)
    expect(page.get_by_test_id("kv-status")).to_contain_text("recording")
    page.wait_for_function(
        "() => document.querySelector('[data-testid=kv-chart]').data?.some((line) => line.x.length === 192)"
    )
    return page


def test_nothing_is_pressed_and_the_curves_part_and_then_a_run_is_seen_from_its_first_step(chromium, fresh):
    url = fresh.url + asked("mini-gpt2", new_tokens=128)
    page = opened(chromium, url, 1440, 900)
    phone = opened(chromium, url, 390, 844)  # which watches the run
    try:
        expect(page.get_by_test_id("kv-speedup")).to_contain_text("times as fast")
        assert live(page).get_attribute("data-comparison") == "", "nothing has run"
        on_the_first_screen(page)

        page.set_viewport_size({"width": 1280, "height": 720})  # where a line of the status has least room
        page.wait_for_function(STILL)  # the new size is laid out, on a busy machine later than one thinks
        shifts(page), shifts(phone)
        press(page, "Run")
        page.wait_for_function(  # curves before anything is compared
            """() => {
                 const { state, modes } = document.querySelector('[data-testid=kv-live]').kvState()
                 return state === "looking" && modes.every((mode) => mode.look.length > 0 && mode.times.length === 0)
               }"""
        )
        for watching in (page, phone):
            in_state(watching, "done", seconds=300)
            seen = shifts(watching)
            assert sum(shift["value"] for shift in seen) < 0.05, [shift for shift in seen if shift["value"] > 0.005]
        assert points(page)["count"] == 256
        on_the_first_screen(page)
    finally:
        page.context.close()
        phone.context.close()


def test_a_page_finds_its_run_again_when_its_server_was_killed(chromium, fresh):
    """The page comes back to it by itself, on the next server."""
    page = chromium.new_context().new_page()
    page.set_default_timeout(60_000)
    page.goto(fresh.url + asked(new_tokens=128))
    many_passes(page)
    run(page)
    comes_to(page, "measuring")
    own = live(page).get_attribute("data-comparison")
    page.wait_for_timeout(1500)  # what is measured is written twice a second, so the proof is on the disk
    fresh.process.kill()
    fresh.process.wait()
    expect(page.get_by_test_id("kv-status")).to_have_text("Connection lost: trying again")
    second = Server(fresh.home, fresh.port)
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


def test_the_text_of_a_model_that_has_ended_is_not_shown_as_its_text(open_page):
    page = open_page(asked("mini-gpt2", new_tokens=160))
    press(page, "Run")
    comes_to(page, "measuring")  # the first look is over
    press(page, "Stop")
    state = "() => document.querySelector('[data-testid=kv-live]').kvState()"
    ends, ids = page.evaluate(
        f"() => {{ const s = ({state})(); return [s.model.end_ids, s.modes[1].tokens.map((t) => t.ids[0])] }}"
    )
    place = next((i for i, token in enumerate(ids) if token in ends), None)
    text = page.get_by_test_id("kv-text-cached")
    if place is None:
        assert text.locator(".kv-end").count() == 0
    else:
        assert text.locator(".kv-end").count() == 1
        assert text.locator(".kv-after").count() == len(ids) - place - 1
    assert "<|endoftext|>" not in text.inner_text()
