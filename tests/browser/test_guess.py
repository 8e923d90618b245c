"""What a viewer draws beforehand is laid under what is measured, on one scale, and compared in words."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.test_live import asked, in_state, live, run

pytestmark = pytest.mark.browser

LAID = """() => {
  const node = document.querySelector('[data-testid=kv-chart]')
  const state = document.querySelector('[data-testid=kv-live]').kvState()
  const lines = (node.data ?? []).filter((trace) => trace.hoverinfo === 'text')
  return {
    guess: (node.data ?? []).filter((trace) => (trace.meta ?? '').startsWith('guess '))
      .map(({ meta, x, y, line, yaxis }) => ({ meta, x: [...x], y: [...y], dash: line.dash, colour: line.color })),
    first: (node.data ?? []).findIndex((trace) => trace.hoverinfo === 'text'),
    colours: lines.map((trace) => trace.line.color),
    tallest: Math.max(...lines.flatMap((trace) => trace.y)),
    count: lines.reduce((all, trace) => all + trace.x.length, 0),
    mark: node.kvMark,
    modes: state.modes.map((mode) => mode.name),
  }
}"""


def stroke(page, places, surface="kv-guess-area"):
    """Draw with the mouse through places given as shares of the surface, from its lower left corner."""
    expect(page.get_by_test_id(surface)).to_be_visible()
    box = page.get_by_test_id(surface).bounding_box()
    spots = [(box["x"] + x * box["width"], box["y"] + (1 - y) * box["height"]) for x, y in places]
    page.mouse.move(*spots[0])
    page.mouse.down()
    for spot in spots[1:]:
        page.mouse.move(*spot, steps=6)
    page.mouse.up()


def test_a_guess_is_laid_under_the_measured_curve(open_page):
    page = open_page(asked(new_tokens=24))
    sent = []
    page.on("request", lambda request: sent.append(request.post_data or "") if request.method == "POST" else None)
    page.get_by_test_id("kv-guess-draw").click()
    words = page.get_by_test_id("kv-guess-words")
    expect(words).to_contain_text("No cache")
    stroke(page, [(0.0, 0.5), (0.05, 0.5)])
    expect(words).to_contain_text("That was short")
    page.evaluate("() => { document.querySelector('[data-testid=kv-chart]').kvMark = 'same' }")
    stroke(page, [(0.0, 0.2), (1.0, 0.8)])
    expect(words).to_contain_text("KV cache")
    stroke(page, [(0.0, 0.1), (1.0, 0.1)])
    expect(words).to_contain_text("Now press Run")

    run(page)
    in_state(page, "done")
    expect(page.get_by_test_id("kv-guess")).to_be_hidden()
    expect(page.get_by_test_id("kv-guess-said")).to_contain_text("called flat")
    laid = page.evaluate(LAID)
    assert [line["meta"] for line in laid["guess"]] == [f"guess {mode}" for mode in laid["modes"]]
    assert laid["first"] > len(laid["guess"]) - 1, "the guess lies below"
    assert [line["colour"] for line in laid["guess"]] == laid["colours"]
    assert laid["count"] == 48 and laid["mark"] == "same"
    for line in laid["guess"]:
        assert (line["x"][0], line["x"][-1]) == (1, 24)
        assert line["dash"] != "solid"
    uncached, cached = (line["y"] for line in laid["guess"])
    assert max(uncached) == pytest.approx(laid["tallest"], rel=1e-9), "the highest point drawn is the highest measured"
    assert uncached[0] / uncached[-1] == pytest.approx(0.25, abs=0.03), "shapes stay as drawn"
    assert cached[0] / uncached[-1] == pytest.approx(0.125, abs=0.02), "one scale for both strokes"

    said = page.get_by_test_id("kv-guess-said").inner_text()
    assert re.search(
        r"No cache: you drew the last step at 3\.\d× the first; measured: \d+\.\d×, from [\d.]+ ms to", said
    )
    assert re.search(r"KV cache: you drew the last step at 1\.0× the first; measured: \d+\.\d×", said)
    assert all("strokes" not in body for body in sent), "it stays on this screen"

    page.reload()
    in_state(page, "done")
    expect(page.get_by_test_id("kv-guess-caption")).to_be_visible()
    page.get_by_test_id("kv-guess-clear").click()
    expect(page.get_by_test_id("kv-guess-caption")).to_be_hidden()
    page.wait_for_function("() => document.querySelector('[data-testid=kv-chart]').data.every((t) => !t.meta)")
    shapes = page.evaluate(
        """async () => {
          const asset = document.querySelector('[href$="live.css"]').href.replace('live.css', 'shapes.js')
          const { compared, gain, inRatio, scale, unsteady } = await import(asset)
          const line = (from, to) => Array.from({ length: 41 }, (_, i) => from + (i / 40) * (to - from))
          return [
            compared('A', line(1, 9), [50, ...line(2, 10).slice(1)], 10, 'climb'),
            compared('A', line(5, 5), [1, ...line(2, 10).slice(1)], 10, 'climb'),
            compared('A', line(1, 9), [9, ...line(5, 5.2).slice(1)], 10, 'flat'),
            compared('A', line(9, 1), line(8, 2), 10, 'fall'),
            compared('A', line(1, 1), line(1, 1.3), 10, 'climb'),
            compared('A', line(1, 1), line(1, 1.3), 10, null),
            scale({ a: [0.2, null, 0.5], gone: [1] }, { a: [3, 10], b: [99] }),
            scale({ gone: [1] }, { a: [3] }),
            gain(3, [2.5, 3.5]), gain(3, [2.5, 3.5], '≈ '), gain(3, null, '≈ ', 'high'), gain(5.52, [4.4, 6.7]),
            gain(1.2, [0.9, 1.6]), gain(2.6, [1.02, 6.1], '≈ '), gain(0.8, [0.7, 0.9]),
            gain(1.04, null, '≈ '), gain(1.06, null),
            unsteady([{ q1: 1, mid: 2, q3: 3 }]), unsteady([{ q1: 2, mid: 2, q3: 2.5 }]),
            inRatio(1837, 343.2, '5.4×', 3), inRatio(24.38, 10.61, '2.3×', 2), inRatio(130.6, 53.34, '2.4×', 2),
          ]
        }"""
    )
    start = "A: you drew the last step at"
    assert shapes[0] == (
        f"{start} 5.5× the first; measured: 3.8×, from 2.6 ms to 9.8 ms. "
        "It climbed, as you expected, but your factor is 1.5 times too large."
    )
    assert shapes[1].startswith(f"{start} 1.0× the first; measured: 3.8×")
    assert shapes[1].endswith("You expected it to stay flat, but it climbed.")
    assert shapes[2].endswith("You expected it to climb, but it stayed flat.")
    assert shapes[3].startswith(f"{start} 0.2× the first; measured: 0.3×") and "It fell, as you expected" in shapes[3]
    assert shapes[4].endswith("but it climbed, by too little to see beside the highest point.")
    assert shapes[5].endswith("its steps are too few or too unlike to tell what it did.")
    assert shapes[6:8] == [20, None], "strokes of modes that did not run count for nothing"
    assert shapes[8:17] == [
        ["3 times as fast with the cache", "95% interval 2.5 to 3.5"],
        ["≈ 3 times as fast with the cache", "95% interval of these passes 2.5 to 3.5"],
        ["≈ 3 times as fast with the cache", "may be too high: every pass without it was disturbed"],
        ["5.5 times as fast with the cache", "95% interval 4.4 to 6.7"],
        ["Not certain: 1.2 times as fast", "95% interval 0.9 to 1.6"],
        ["Not certain: ≈ 2.6 times as fast", "95% interval of these passes 1 to 6.1"],
        ["Slower with the cache: 0.8 times as fast", "95% interval 0.7 to 0.9"],
        ["Not certain: ≈ 1 times as fast", "no interval: too few quiet passes"],
        ["≈ 1.1 times as fast with the cache", "no interval: too few quiet passes"],
    ]
    assert shapes[17:19] == [True, False]
    assert shapes[19:] == [[1840, 343], [24.4, 10.6], [130.6, 53.34]], "as many digits as the factor beside them needs"
    expect(live(page)).to_be_visible()


def test_the_tours_race_asks_for_a_drawing_before_it_shows_a_curve(open_page):
    page = open_page("/live?tour=2")
    expect(page.get_by_test_id("kv-guess")).to_be_visible()
    for answer in (".kv-call", ".kv-changes", ".kv-firstchart h2"):
        expect(page.locator(answer).first).to_be_hidden()
    page.get_by_test_id("kv-guess-close").click()
    expect(page.locator(".kv-firstchart h2")).to_be_visible()
