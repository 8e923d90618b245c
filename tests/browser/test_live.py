"""The live page in a real browser: it runs, grows, stops, and what it shows is what was measured."""

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import torch
from playwright.sync_api import TimeoutError, expect

from kvviz import compare, watch
from kvviz.store.files import reading

pytestmark = pytest.mark.browser


def asked(model="tiny-gpt2", **fields):
    """The address of a live page whose form asks for this."""
    return "/live?" + urlencode({"model": model, **fields})


def choose(page, choice, field="Model"):
    """Choose a model by hand, or what another field offers."""
    box = page.get_by_role("combobox", name=field)
    box.click()
    box.fill(choice)
    page.get_by_role("option").first.click()
    settled(page)


def many_passes(page, count="20"):
    """Ask for so many timed passes that the run goes on until it is stopped."""
    open_more(page)
    field = page.get_by_label("Timed passes of each mode")
    field.fill(count)
    field.press("Enter")
    page.keyboard.press("Escape")
    settled(page)


def handed_on(page, name):
    """The download that a button of "Share or save" starts; pressed again if the page was drawn anew beneath it."""
    button = page.get_by_role("button", name=name)
    for _ in range(4):
        settled(page)
        if not button.is_visible():
            page.get_by_text("Share or save", exact=True).click()
        with suppress(TimeoutError), page.expect_download(timeout=15_000) as event:
            button.click(timeout=5_000)
            return event.value
    raise AssertionError(f"{name} brings no file")


def open_more(page):
    """Open the part of the form that few need."""
    page.get_by_test_id("stPopover").get_by_text("More", exact=True).click()


def write_prompt(page, text):
    """Write a prompt by hand."""
    page.get_by_test_id("stPopover").get_by_text("Prompt:").first.click()
    page.get_by_label("Prompt", exact=True).fill(text)
    page.get_by_label("Prompt", exact=True).press("Control+Enter")
    page.keyboard.press("Escape")
    settled(page)


def settled(page):
    """Streamlit has taken in what was typed."""
    page.wait_for_timeout(300)
    expect(page.locator('[data-testid="stStatusWidget"]')).to_have_count(0)


def unfold(page, title):
    """Open one of the details under a run."""
    page.locator(".kv-fold summary").filter(has_text=title).click()


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def run(page):
    """Press Run, and wait until the page shows the new comparison, which its address names."""
    before = named(page)
    press(page, "Run")
    page.wait_for_url(lambda url: named(page) not in (None, before))
    expect(live(page)).to_have_attribute("data-comparison", named(page))


def named(page):
    """The comparison that a page's address names."""
    return parse_qs(urlsplit(page.url).query).get("comparison", [None])[0]


def live(page):
    return page.get_by_test_id("kv-live")


def in_state(page, state, seconds=60):
    """The run has come to rest in this state."""
    expect(live(page)).to_have_attribute("data-state", state, timeout=seconds * 1000)


def comes_to(page, state):
    """Wait for a state that passes by itself: it is looked for at every frame, because it may be over in a moment."""
    page.wait_for_function(
        "state => document.querySelector('[data-testid=kv-live]').dataset.state === state", arg=state
    )


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


def test_a_run_from_press_to_badge_and_back_to_a_step(open_page):
    page = open_page(asked(new_tokens=16))
    choose(page, "tiny Qwen3")
    run(page)
    in_state(page, "done")
    expect(page.get_by_test_id("kv-badge")).to_have_text("16 of 16 tokens identical")
    expect(page.get_by_test_id("kv-badge")).to_have_attribute("title", re.compile(r"by at most \d.*Δlogit"))
    expect(page.get_by_test_id("kv-speedup")).to_have_text(re.compile(r"\d(\.\d+)? times as fast"))
    rates = re.compile(r"^(≈ )?[\d.,]+ tokens/s instead of (≈ )?[\d.,]+$")
    expect(page.get_by_test_id("kv-rates")).to_have_text(rates)
    unfold(page, "The cache, layer by layer")
    uncached, cached = (page.get_by_test_id(f"kv-text-{mode}") for mode in ("uncached", "cached"))
    assert uncached.inner_text() == cached.inner_text()
    assert cached.locator(".kv-token").count() == 16
    rows = page.get_by_test_id("kv-layers").locator("tbody tr")
    assert rows.count() == 4
    assert rows.first.inner_text().split("\t")[1:4] == ["full", "[1, 2, 50, 32]", "[1, 2, 50, 32]"]
    page.get_by_role("tab", name="No cache").click()
    expect(page.get_by_test_id("kv-layers-note")).to_contain_text("0 B are still alive (observed")
    assert "comparison=" in page.url
    page.get_by_role("tab", name="KV cache").click()
    three_figures_for_the_memory_and_a_slider_takes_everything_back_to_a_step(page)


def three_figures_for_the_memory_and_a_slider_takes_everything_back_to_a_step(page):
    look_at(page, 5)
    assert page.get_by_test_id("kv-text-uncached").locator(".kv-token:visible").count() == 5
    cells = page.get_by_test_id("kv-layers").locator("tbody tr").first.inner_text().split("\t")
    assert cells[2] == "[1, 2, 39, 32]", "35 tokens of the prompt and 4 that have been fed"
    assert page.evaluate("() => document.querySelector('[data-testid=kv-chart]').layout.shapes.map((s) => s.x0)") == [5]
    look_at(page, 16)
    assert page.get_by_test_id("kv-text-uncached").locator(".kv-token:visible").count() == 16
    assert page.evaluate("() => document.querySelector('[data-testid=kv-chart]').layout.shapes") == []
    memory = page.get_by_test_id("kv-memory")
    size = f"{4 * 2 * 50 * 64 * 4:,} B"
    expect(memory).to_contain_text(f"Formula {size} = Tensors {size} = Allocator {size}")
    expect(memory).to_contain_text("4 layers × 1 × 2 KV heads × 50 tokens × (32 + 32) × 4 B")
    unread = "(all but the newest, which nothing has read yet)"
    each = f"50 tokens {unread} × 2,048 bytes, each 4 layers × K and V × 2 KV heads × head dim 32 × 4 bytes"
    expect(page.get_by_test_id("kv-layers-note")).to_contain_text(each)


def test_figures_and_colours_of_the_curves_the_width_of_the_grid_and_the_winner_of_the_race(open_page, measured):
    """The browser's own medians, shown while measuring, are the server's at the end; then the grid, which is drawn
    before the page has a width where a finished comparison is opened by its address; then the race. The curves
    have the theme's colours.
    """
    page = open_page(measured("tiny-gpt2"), color_scheme="light")
    in_state(page, "done")
    in_colour(page, "#D55E00")
    page.emulate_media(color_scheme="dark")
    in_colour(page, "#F28E4B")
    mine, shown = page.evaluate(
        """async () => {
          const state = document.querySelector('[data-testid=kv-live]').kvState()
          const asset = document.querySelector('[href$="live.css"]').href.replace('live/live.css', 'shared/state.js')
          const { headline } = await import(asset)
          const own = state.modes.map((mode) => headline({ ...state, figures: null }, mode))
          return [own, state.figures]
        }"""
    )
    for own, final in zip(mine, shown, strict=True):
        for name in ("ttft_s", "itl_s", "total_s", "tokens_per_s"):
            assert own[name] == pytest.approx(final[name], rel=1e-6)
    grid = page.get_by_test_id("kv-grid")
    expect(grid).to_be_visible()
    page.wait_for_timeout(500)
    drawn, place = grid.evaluate("node => [node.width / devicePixelRatio, node.clientWidth]")
    assert abs(drawn - place) < 2
    uncached, cached = (page.get_by_test_id(f"kv-text-{mode}") for mode in ("uncached", "cached"))
    expect(cached).to_be_hidden()
    expect(page.get_by_text("No cache and KV cache: the same text").first).to_be_visible()
    page.get_by_test_id("kv-race").click()
    expect(cached).to_be_visible()
    expect(page.get_by_test_id("kv-race-clock")).to_have_text(re.compile(r"^0\.\d\d s, shown \d+ times slower"))
    tokens = [text.locator(".kv-token:visible") for text in (uncached, cached)]
    for each in tokens:
        expect(each.first).to_be_visible(timeout=15_000)  # a prefill that other work disturbed is a long one here too
    shown = [each.count() for each in tokens]
    assert 0 < min(shown) <= max(shown) < 16 or max(shown) == 16
    expect(page.get_by_test_id("kv-race-clock")).to_have_text(re.compile(r"was done after .* before"), timeout=15_000)
    assert uncached.locator(".kv-token:visible").count() == 16


def test_a_page_opened_on_a_run_that_is_over_is_drawn_once(open_page, measured, server):
    """A second drawing would be asked for before the form is there, and empty it."""
    link = measured("tiny-gpt2")
    page = open_page("/healthz")
    for path in ("/live", link):
        asked = []

        def note(socket, asked=asked):
            if "_stcore" in socket.url:
                socket.on("framesent", lambda frame: asked.append(frame))

        page.on("websocket", note)
        page.goto(server.url + path)
        in_state(page, "done")
        page.wait_for_timeout(2000)
        assert len(asked) == 1
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
        expect(page.get_by_text("What the curves say")).to_be_visible()


def test_a_form_is_not_emptied_by_who_changes_it_before_it_is_all_there(open_page, server):
    page = open_page("/healthz")
    held = []
    page.route("**/ButtonGroup.*.js", lambda route: held.append(route))
    page.goto(server.url + asked("tiny-qwen3", new_tokens=8))
    open_more(page)
    page.get_by_label("Batch", exact=True).wait_for()
    page.keyboard.press("Escape")
    box = page.get_by_role("combobox", name="Model")
    for name in ("tiny LLaMA", "tiny GPT-2"):
        box.click()
        box.fill(name)
        page.get_by_role("option").first.click()
        settled(page)
    assert held
    for route in held:
        route.continue_()
    settled(page)
    run(page)
    in_state(page, "done")
    expect(page.get_by_test_id("kv-status")).to_contain_text("tiny GPT-2")
    assert page.get_by_test_id("kv-text-uncached").is_visible()


def test_the_curve_grows_in_the_same_node_keeps_its_zoom_and_stops_and_a_killed_worker_is_replaced(open_page, server):
    page = open_page(asked(new_tokens=512))
    run(page)
    comes_to(page, "looking")
    page.wait_for_function("() => (document.querySelector('[data-testid=kv-chart]').data ?? []).length > 0")
    mark(page)
    box = page.get_by_test_id("kv-chart").locator(".nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 100, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, middle, steps=5)
    page.mouse.up()
    span = "() => document.querySelector('[data-testid=kv-chart]')._fullLayout.xaxis.range"
    zoomed = page.evaluate(span)
    assert zoomed[1] - zoomed[0] < 200
    counts = []
    for _ in range(4):
        counts.append(points(page)["count"])
        page.wait_for_timeout(500)
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert page.evaluate(span) == zoomed
    assert (points(page)["mark"], points(page)["plot"]) == ("same", "same")
    press(page, "Stop")
    in_state(page, "stopped", seconds=5)
    standing = points(page)["count"]
    page.wait_for_timeout(600)
    assert points(page)["count"] == standing > 0
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    if Path("/proc").exists():
        torch_is_in_the_worker_alone_which_is_named_and_replaced_when_killed(page, server)


def torch_is_in_the_worker_alone_which_is_named_and_replaced_when_killed(page, server):
    """The worker is found in /proc."""
    run(page)
    comes_to(page, "looking")
    assert "libtorch" not in Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" in Path(f"/proc/{worker_of(server)}/maps").read_text()
    os.kill(worker_of(server), signal.SIGKILL)
    in_state(page, "failed")
    expect(page.get_by_test_id("kv-status")).to_contain_text("killed")
    run(page)
    comes_to(page, "looking")
    press(page, "Stop")
    in_state(page, "stopped", seconds=5)


def test_a_dropped_connection_leaves_no_hole(open_page):
    page = open_page(asked(new_tokens=64))
    run(page)
    for _ in range(3):
        page.wait_for_function(  # a socket that is still opening would complain in the console if it were closed
            """() => {
                 const socket = document.querySelector('[data-testid=kv-live]').kvFeed()?.socket
                 if (socket?.readyState !== WebSocket.OPEN) return false
                 socket.close()
                 return true
               }"""
        )
        page.wait_for_timeout(300)
    in_state(page, "done", seconds=180)
    steps = page.evaluate(
        """() => document.querySelector('[data-testid=kv-live]').kvState()
             .modes.map((m) => [m.tokens.length, m.times.length])"""
    )
    assert steps == [[64, 64], [64, 64]]


def test_bad_work_is_one_sentence_on_the_page_and_script_in_a_prompt_is_text(open_page):
    page = open_page(asked(new_tokens=8, prompt="x" * 1020))
    run(page)
    in_state(page, "failed")
    expect(page.get_by_test_id("kv-status")).to_contain_text("1,024 positions")
    write_prompt(page, "<img src=x onerror=alert(1)><b>bold</b>")
    run(page)
    in_state(page, "done")
    assert page.locator("[data-testid=kv-text-cached] img, [data-testid=kv-text-cached] b").count() == 0
    assert "<b>bold</b>" in page.get_by_test_id("kv-text-cached").inner_text()


def in_colour(page, colour):
    """Wait until a curve has this colour; the charts' colours are those of the theme."""
    page.wait_for_function(
        "colour => document.querySelector('[data-testid=kv-chart]').data?.some((line) => line.line?.color === colour)",
        arg=colour,
    )


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


def look_at(page, step):
    page.get_by_test_id("kv-step").evaluate(
        "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')) }", step
    )
    page.wait_for_timeout(400)


def shade(page, layer, position):
    """How much of its colour a cell of the grid has: the alpha of the pixel in its middle."""
    return page.get_by_test_id("kv-grid").evaluate(
        """(canvas, [layer, position]) => {
          const live = document.querySelector('[data-testid=kv-live]').kvState()
          const positions = live.prompt.tokens + live.spec.new_tokens - 1
          const scale = window.devicePixelRatio
          const cell = Math.max(2, Math.min(18, Math.floor(300 / live.model.layers)))
          const x = 60 + ((position + 0.5) * (canvas.width / scale - 60)) / positions
          const y = (layer + 0.5) * cell
          const copy = document.createElement('canvas')
          Object.assign(copy, { width: canvas.width, height: canvas.height })
          const paint = copy.getContext('2d', { willReadFrequently: true })
          paint.drawImage(canvas, 0, 0)
          return paint.getImageData(Math.round(x * scale), Math.round(y * scale), 1, 1).data[3]
        }""",
        [layer, position],
    )


def test_the_grid_shows_what_is_held_written_and_gone(open_page):
    page = open_page(asked("tiny-gemma3", new_tokens=16))
    run(page)
    in_state(page, "done")
    look_at(page, 10)
    newest = 35 + 10 - 2
    full, sliding = 2, 0  # every third layer keeps everything
    assert shade(page, full, newest) == shade(page, sliding, newest) > 250
    assert shade(page, full, 3) == shade(page, sliding, newest - 5) > shade(page, sliding, 3) > 0
    assert shade(page, full, newest + 2) == 0
    page.get_by_test_id("kv-grid").hover(position={"x": 60, "y": 9})
    expect(page.locator(".kv-tip")).to_contain_text("slid out: this layer holds the last 15 tokens")
    page.get_by_test_id("kv-grid").hover(position={"x": 60, "y": 18 * 2 + 9})
    expect(page.locator(".kv-tip")).to_contain_text("K [1, 2, 1, 16], V [1, 2, 1, 16], float32")
    page.get_by_role("tab", name="No cache").click()
    page.wait_for_timeout(300)
    assert 255 > shade(page, full, newest) > shade(page, full, 3) == shade(page, sliding, 3) > 0


def open_file(page, path):
    open_more(page)
    page.locator("input[type=file]").set_input_files(path)


def open_recording(page, path):
    """Open it, and wait until the page shows it and no earlier comparison."""
    open_file(page, path)
    opened(page)


def opened(page):
    """Wait until the page shows the comparison of its address."""
    page.wait_for_function("() => location.search.includes('comparison=')")
    expect(live(page)).to_have_attribute("data-comparison", page.url.split("comparison=")[1], timeout=20_000)


def test_a_file_that_is_no_recording_gets_a_sentence_and_a_recording_opens_like_a_run(open_page, tmp_path):
    result = compare("tiny-llama", new_tokens=6, repeats=1)
    other = json.loads(json.dumps(result.records))
    for record in other:
        if record["t"] == "proof" and record["i"] >= 4:  # as a run in half precision reports it
            record["modes"]["cached"] |= {"divergence": 4, "delta": 0.5, "margin": 0.125}
    (tmp_path / "half.json").write_text(reading.to_json(other))
    (tmp_path / "other.json").write_text('{"a": 1}')
    page = open_page()
    open_file(page, tmp_path / "other.json")
    expect(page.get_by_text("this file is no comparison of kvviz")).to_be_visible()
    page.locator("input[type=file]").set_input_files(tmp_path / "half.json")
    opened(page)
    in_state(page, "done")
    expect(page.get_by_test_id("kv-badge")).to_have_text(
        "First different token: 5 of 6 · the two best tokens lay 0.13 apart: a near-tie, decided by rounding in float32"
    )
    expect(page.get_by_test_id("kv-proof")).to_contain_text("differ by at most 0.50 (max |Δlogit|), in float32")
    assert points(page)["count"] == 12


def test_a_watched_run_claims_nothing_that_nobody_observed_and_older_layers_are_shown_alike(open_page, tmp_path, load):
    model, ids = load("tiny-gpt2").model, torch.arange(12)[None]
    for use_cache, note in ((False, "After step 4: the model returned no cache object."), (True, "of keys and values")):
        with watch(model) as trace:
            model.generate(ids, max_new_tokens=4, do_sample=False, use_cache=use_cache)
        page = open_page()
        open_recording(page, trace.save(tmp_path / f"{use_cache}.json"))
        in_state(page, "done")
        expect(page.get_by_test_id("kv-badge")).to_have_text("watched: one run, nothing to compare with")
        expect(page.get_by_test_id("kv-layers-note")).to_contain_text(note)
        assert "observed" not in page.get_by_test_id("kv-layers-note").inner_text()
        assert page.get_by_test_id("kv-grid").is_visible() == use_cache
    layers_recorded_before_their_fields_had_names_are_shown_alike(page)


def layers_recorded_before_their_fields_had_names_are_shown_alike(page):
    records = json.loads(json.dumps(compare("tiny-gemma3", new_tokens=3, repeats=1).records))
    older = json.loads(json.dumps(records))
    for record in older:
        for step in record["modes"].values() if record["t"] == "proof" else ():
            step["layers"] = [list(group.values()) for group in step["layers"]]
    named, listed = page.evaluate(
        """async (both) => {
          const asset = document.querySelector('[href$="live.css"]').href.replace('live/live.css', 'shared/state.js')
          const { apply, cacheBytes, emptyState } = await import(asset)
          return both.map((records) => {
            const state = emptyState('x')
            records.forEach((record) => apply(state, record))
            return state.modes.map((mode) => [mode.rows, mode.rows.map(cacheBytes)])
          })
        }""",
        [records, older],
    )
    assert named == listed and named[1][1][2] > named[1][1][0] > 0 and named[1][0][0]["layers"][0]["kind"] == "sliding"


def test_an_old_link_to_the_front_door_leads_to_the_live_page_where_batches_have_columns_of_their_own(open_page):
    page = open_page("/?model=tiny-gpt2&new_tokens=16")
    page.wait_for_url("**/live*")
    expect(page.get_by_role("heading", name="Watch the KV cache work")).to_be_visible()
    expect(page.get_by_role("combobox", name="New tokens")).to_have_value("16 new tokens")
    open_more(page)
    field = page.get_by_label("Batch", exact=True)
    field.fill("4")
    field.press("Enter")
    page.keyboard.press("Escape")
    settled(page)
    run(page)
    in_state(page, "done")
    unfold(page, "The figures of each mode")
    unfold(page, "The cache, layer by layer")
    expect(page.locator("td[data-figure=each]").first).to_be_visible()
    assert page.get_by_test_id("kv-layers").locator("tbody tr").first.inner_text().split("\t")[2] == "[4, 4, 50, 16]"


def test_the_browser_measures_by_itself_and_a_changed_file_of_weights_is_refused(open_page):
    page = open_page("/live?on=browser&new_tokens=8")
    run = page.get_by_role("button", name="Run", exact=True)
    settled(page)
    run.click()
    page.wait_for_url("**/live?comparison=*")
    live = page.get_by_test_id("kv-live")
    expect(live).to_have_attribute("data-state", "done")
    expect(page.get_by_test_id("kv-status")).to_contain_text("decoded by Chrome")
    expect(page.get_by_test_id("kv-badge")).to_contain_text("8 of 8 tokens identical")
    page.route("**/model.safetensors*", lambda route: route.fulfill(body=route.fetch().body()[:-1] + b"x"))
    run.click()
    expect(page.get_by_test_id("kv-status")).to_contain_text("Could not be done: the file of weights is not the one")
