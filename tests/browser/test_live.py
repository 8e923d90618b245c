"""The live page in a real browser: it runs, grows, stops, and what it shows is what was measured."""

import os
import re
import signal
from pathlib import Path

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def choose(page, model, new_tokens=None, repeats=None):
    box = page.get_by_role("combobox", name="Model")
    box.click()
    box.fill(model)
    page.get_by_role("option").first.click()
    if new_tokens is not None:
        slider = page.get_by_role("slider", name="New tokens")
        value = int(slider.get_attribute("aria-valuenow") or slider.input_value())
        slider.focus()
        if new_tokens == 512:
            slider.press("End")
        else:
            for _ in range(abs(new_tokens - value) // 8):
                slider.press("ArrowRight" if new_tokens > value else "ArrowLeft")
    if repeats is not None:
        page.get_by_text("Settings", exact=True).click()
        field = page.get_by_label("Timed passes of each mode")
        field.fill(str(repeats))
        field.press("Enter")
    settled(page)


def settled(page):
    """Streamlit has taken in what was typed."""
    page.wait_for_timeout(300)
    expect(page.locator('[data-testid="stStatusWidget"]')).to_have_count(0)


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def run(page):
    """Press Run, and wait until the page shows the new comparison."""
    before = live(page).get_attribute("data-comparison") or ""
    press(page, "Run")
    expect(live(page)).not_to_have_attribute("data-comparison", before)


def live(page):
    return page.get_by_test_id("kv-live")


def in_state(page, state, seconds=60):
    expect(live(page)).to_have_attribute("data-state", state, timeout=seconds * 1000)


def points(page):
    """How many points the curves have, and whether the chart's node is the one marked before."""
    return page.evaluate(
        """() => {
          const node = document.querySelector('[data-testid=kv-chart]')
          const lines = (node.data ?? []).filter((t) => t.hoverinfo === 'text')
          const count = lines.reduce((n, t) => n + t.x.length, 0)
          return { count, mark: node.kvMark, plot: node.querySelector('.main-svg')?.kvMark }
        }"""
    )


def mark(page):
    page.evaluate(
        """() => {
          const node = document.querySelector('[data-testid=kv-chart]')
          node.kvMark = 'same'
          node.querySelector('.main-svg').kvMark = 'same'
        }"""
    )


def test_a_run_from_press_to_badge(open_page):
    page = open_page()
    choose(page, "tiny Qwen3", new_tokens=16)
    run(page)
    in_state(page, "done")
    expect(page.get_by_test_id("kv-badge")).to_have_text(re.compile(r"16 of 16 tokens identical · max \|Δlogit\| = \d"))
    expect(page.get_by_test_id("kv-speedup")).to_have_text(re.compile(r"faster with the cache"))
    uncached, cached = (page.get_by_test_id(f"kv-text-{mode}") for mode in ("uncached", "cached"))
    assert uncached.inner_text() == cached.inner_text()
    assert cached.locator(".kv-token").count() == 16
    rows = page.get_by_test_id("kv-layers").locator("tbody tr")
    assert rows.count() == 4
    assert rows.first.inner_text().split("\t")[1:4] == ["full", "[1, 2, 50, 32]", "[1, 2, 50, 32]"]
    page.get_by_role("tab", name="No cache").click()
    expect(page.get_by_test_id("kv-layers-note")).to_contain_text("0 B of keys and values outlived it")
    assert "comparison=" in page.url


def test_figures_on_the_page_are_those_of_the_curves(open_page):
    """The browser's own medians, shown while measuring, are the server's at the end."""
    page = open_page()
    choose(page, "tiny GPT-2", new_tokens=24)
    run(page)
    in_state(page, "done")
    mine, shown = page.evaluate(
        """async () => {
          const state = document.querySelector('[data-testid=kv-live]').kvState()
          const asset = document.querySelector('link[data-kv]').href.replace('live.css', 'state.js')
          const { headline } = await import(asset)
          const own = state.modes.map((mode) => headline({ ...state, figures: null }, mode))
          return [own, state.figures]
        }"""
    )
    for own, final in zip(mine, shown, strict=True):
        for name in ("ttft_s", "itl_s", "total_s", "tokens_per_s"):
            assert own[name] == pytest.approx(final[name], rel=1e-6)


def test_the_curve_grows_in_the_same_node_and_stop_stops(open_page):
    page = open_page()
    choose(page, "tiny Gemma", new_tokens=512, repeats=20)
    run(page)
    in_state(page, "measuring")
    page.wait_for_function("() => (document.querySelector('[data-testid=kv-chart]').data ?? []).length > 0")
    mark(page)
    counts = []
    for _ in range(4):
        counts.append(points(page)["count"])
        page.wait_for_timeout(500)
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert (points(page)["mark"], points(page)["plot"]) == ("same", "same")
    press(page, "Stop")
    in_state(page, "stopped", seconds=5)
    standing = points(page)["count"]
    page.wait_for_timeout(600)
    assert points(page)["count"] == standing > 0
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()


def test_zoom_survives_updates(open_page):
    page = open_page()
    choose(page, "tiny Gemma", new_tokens=512, repeats=20)
    run(page)
    in_state(page, "measuring")
    page.wait_for_function("() => (document.querySelector('[data-testid=kv-chart]').data ?? []).length > 0")
    box = page.get_by_test_id("kv-chart").locator(".nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 100, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, middle, steps=5)
    page.mouse.up()
    span = "() => document.querySelector('[data-testid=kv-chart]')._fullLayout.xaxis.range"
    zoomed = page.evaluate(span)
    assert zoomed[1] - zoomed[0] < 200
    before = points(page)["count"]
    page.wait_for_timeout(1000)
    assert points(page)["count"] > before
    assert page.evaluate(span) == zoomed
    press(page, "Stop")
    in_state(page, "stopped", seconds=5)


def test_two_viewers_of_one_run_and_one_who_comes_late(open_page):
    first, second = open_page(), open_page()
    choose(first, "tiny LLaMA", new_tokens=128, repeats=3)
    run(first)
    in_state(second, "done")  # who opened the page without a link follows the device
    late = open_page("/live?" + first.url.split("?")[1])
    in_state(late, "done")
    texts = {page.get_by_test_id("kv-text-cached").inner_text() for page in (first, second, late)}
    assert len(texts) == 1
    assert {points(page)["count"] for page in (first, second, late)} == {256}
    expect(late.get_by_role("button", name="Stop", exact=True)).to_be_disabled()


def test_a_dropped_connection_leaves_no_hole(open_page):
    page = open_page()
    choose(page, "tiny Gemma", new_tokens=512, repeats=1)
    run(page)
    in_state(page, "proof")
    for _ in range(3):
        page.evaluate("() => document.querySelector('[data-testid=kv-live]').kvFeed().socket.close()")
        page.wait_for_timeout(500)
    in_state(page, "done")
    steps = page.evaluate(
        """() => document.querySelector('[data-testid=kv-live]').kvState()
             .modes.map((m) => [m.tokens.length, m.times.length])"""
    )
    assert steps == [[512, 512], [512, 512]]


def test_bad_work_is_one_sentence_on_the_page(open_page):
    page = open_page()
    page.get_by_label("Prompt", exact=True).fill("x" * 1020)
    page.get_by_label("Prompt", exact=True).press("Control+Enter")
    choose(page, "tiny GPT-2")
    run(page)
    in_state(page, "failed")
    expect(page.get_by_test_id("kv-status")).to_contain_text("1,024 positions")


def test_script_in_a_prompt_is_text(open_page):
    page = open_page()
    page.get_by_label("Prompt", exact=True).fill("<img src=x onerror=alert(1)><b>bold</b>")
    page.get_by_label("Prompt", exact=True).press("Control+Enter")
    choose(page, "tiny GPT-2", new_tokens=8)
    run(page)
    in_state(page, "done")
    assert page.locator("[data-testid=kv-text-cached] img, [data-testid=kv-text-cached] b").count() == 0
    assert "<b>bold</b>" in page.get_by_test_id("kv-text-cached").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_theme(open_page, scheme):
    page = open_page(color_scheme=scheme)
    choose(page, "tiny GPT-2", new_tokens=8)
    run(page)
    in_state(page, "done")
    expected = {"light": "#D55E00", "dark": "#F28E4B"}[scheme]
    page.wait_for_function("() => (document.querySelector('[data-testid=kv-chart]').data ?? []).length > 0")
    assert page.evaluate("() => document.querySelector('[data-testid=kv-chart]').data[1].line.color") == expected


def test_the_front_door_leads_to_the_live_page(open_page):
    page = open_page("/")
    page.wait_for_url("**/live*")
    expect(page.get_by_role("heading", name="Watch the KV cache work")).to_be_visible()


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc to see what a process has mapped")
def test_torch_is_in_the_worker_and_not_in_the_server(open_page, server):
    page = open_page()
    expect(page.get_by_test_id("kv-status")).to_be_visible()
    assert "libtorch" not in Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" in Path(f"/proc/{worker_of(server)}/maps").read_text()


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc to find the worker")
def test_a_killed_worker_is_named_and_replaced(open_page, server):
    page = open_page()
    choose(page, "tiny Gemma", new_tokens=128, repeats=20)
    run(page)
    in_state(page, "measuring")
    os.kill(worker_of(server), signal.SIGKILL)
    in_state(page, "failed")
    expect(page.get_by_test_id("kv-status")).to_contain_text("killed")
    choose(page, "tiny GPT-2", new_tokens=8)
    run(page)
    in_state(page, "done")


def worker_of(server):
    """The process that the server started to measure, found by its command line."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = (path / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if int(parent) == server.process.pid and "kvviz.worker" in (path / "cmdline").read_text():
                return int(path.name)
        except OSError:
            continue  # a process that has ended meanwhile
    raise AssertionError("the server has no worker")
