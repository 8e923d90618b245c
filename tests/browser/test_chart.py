"""The live page's chart and figures: the time so far, what is read from where, and how long is left.

One page is opened for all of them.
"""

import json

import pytest
from playwright.sync_api import expect

from kvviz.base.words import human, lasting, millis

pytestmark = pytest.mark.browser

# A run of two modes that has had its first look at three of eleven tokens, one second each.
LOOKED = """
const state = kv.emptyState("x")
const modes = ["uncached", "cached"].map((name) => ({ name, title: name, exact: true }))
const spec = { new_tokens: 11, warmup: 1, repeats: 2, batch: 1 }
kv.apply(state, { t: "started", spec, prompt: { tokens: 4 }, modes })
const row = { s: 1, ids: [1], text: "a", layers: [], where: "Some → layers[0].keys" }
const both = { uncached: row, cached: row }
for (let i = 0; i < 3; i++) kv.apply(state, { t: "first_look", i, at: 5 + 2 * i, modes: both })
"""


CHART = """
const look = { colour: () => "#000", faint: () => "#000", dash: () => "dash", marker: () => "cross", theme: () => ({}) }
const drawn = new chart.CurveChart(document.createElement("div"), look)
const pass = (mode, repeat, s) => kv.apply(state, { t: "times", mode, repeat, from: 0, s })
"""


def within(page, code):
    """The value of JavaScript that has the page's own modules: `kv` is the state, `figures` the table of figures."""
    return page.evaluate(
        """async (code) => {
          const at = new URL("..", document.querySelector('[href$="live.css"]').href).href
          const kv = await import(at + "shared/state.js")
          const figures = await import(at + "live/figures.js")
          const chart = await import(at + "live/chart.js")
          const status = await import(at + "live/status.js")
          const changes = await import(at + "live/changes.js")
          const replay = await import(at + "live/replay.js")
          const Code = (async () => {}).constructor
          const run = new Code("at", "kv", "figures", "chart", "status", "changes", "replay", code)
          return run(at, kv, figures, chart, status, changes, replay)
        }""",
        code,
    )


@pytest.fixture(scope="module")
def page(opening, measured):
    page = opening(measured("tiny-gpt2"))
    expect(page.get_by_test_id("kv-live")).to_have_attribute("data-state", "done", timeout=180_000)
    expect(page.locator(".js-plotly-plot .ytitle").first).to_have_text("ms for this token")
    return page


def test_the_time_so_far_is_the_sum_of_the_steps(page):
    for button in ("kv-views", "kv-total"):
        page.get_by_test_id(button).click()
    expect(page.locator(".js-plotly-plot .ytitle").first).to_have_text("seconds so far")
    expect(page.locator(".kv-firstchart h2")).to_have_text("Time so far")
    drawn, summed, words = page.evaluate(
        """() => {
          const node = document.querySelector(".kv-live .js-plotly-plot")
          const state = document.querySelector(".kv-live").kvState()
          const whole = state.figures.find((run) => run.mode === "uncached").total_s
          const line = node.data.find((trace) => trace.name === "No cache")
          return [line.y.at(-1), whole, node.layout.annotations.map((one) => one.text).join(" ")]
        }"""
    )
    assert drawn == pytest.approx(summed)
    assert "Twice the tokens: No cache " in words.replace("<br>", " ").replace("\u00a0", " ")
    for button in ("kv-views", "kv-total"):
        page.get_by_test_id(button).click()
    expect(page.locator(".js-plotly-plot .ytitle").first).to_have_text("ms for this token")


def test_slow_first_steps_are_no_trend_and_the_first_token_stands_beside_the_later_ones(page):
    steps = {
        "uncached": [0.004, *(0.001 + 0.0001 * i for i in range(60))],
        "cached": [0.004, 0.009, 0.008, *[0.001] * 58],
    }
    told = f"""
      const pass = (repeat, timed) => {{
        for (const [mode, s] of Object.entries(timed)) kv.apply(state, {{ t: "times", mode, repeat, from: 0, s }})
      }}
      const timed = {json.dumps(steps)}
      const table = new changes.Changes({{ colour: () => "#000" }})
      const said = () => {{ table.draw(state); return [...table.node.rows].map((row) => row.textContent) }}
      const look = said()
      pass(0, timed)
      pass(1, timed)
      const open = said()
      kv.apply(state, {{ t: "figures", runs: [{{ mode: "cached", shape: "flat", ttft_s: 0.004, itl_s: 0.001 }}] }})
      const judged = said()
      for (const repeat of [2, 3, 4]) pass(repeat, {{ uncached: [0.009] }})
      kv.named(state, "uncached").times[0].splice(0, 2)
      return [look, open, judged, said()]
    """
    (early, once), (first, later), (_, judged), (apart, _) = within(page, LOOKED + told)
    assert "One pass so far: the difference may be noise" in early and "Not changed" not in early
    assert "the median step" in once and "→" not in once, "the ends of one pass are noise"
    assert "Apart in each pass" in apart and "Not changed" not in apart
    assert (
        "uncached 4.0 ms" in first
        and "cached 4.0 ms" in first
        and "Not changed: both compute 4 tokens; a run's first step is slower (cause not measured)" in first
    )
    assert (
        "uncached 1.3 → 6.7 ms" in later
        and "cached 1.0 ms at both ends" in later
        and "a step computes 1 token with it, 5 to 14 without it" in later
    )
    assert "cached 1.0 ms all along" in judged


def test_the_first_step_is_named_where_nothing_measured_lies_under_the_words(page):
    told = (
        CHART
        + """
      Object.defineProperty(drawn.node, "clientWidth", { value: 900 })
      const words = (labels) => labels.map((label) => label.text)
      const says = (first, later, reach = null, each = 0) => {
        const state = kv.emptyState("x")
        kv.apply(state, { t: "started", spec, prompt: { tokens: 4 }, modes: [...modes].reverse() })
        const pass = (mode, s) => kv.apply(state, { t: "times", mode, repeat: 0, from: 0, s })
        pass("cached", [0.009, 0.001, 0.001])
        pass("uncached", [first, later, later])
        return words(drawn.prefillLabel(state, reach, each))
      }
      const crowded = says(0.002, 0.0099, { top: 10 }, 0.05) // the later steps reach 198 of 200 pixels
      return [crowded, says(0.004, 0.002), words(drawn.prefillLabel(kv.emptyState("x"), null, 0))]
    """
    )
    crowded, named, nothing = within(page, LOOKED + told)
    assert named == ["TTFT: prefill of 4 tokens"]
    assert nothing == ["prefill"]
    assert crowded == [], "there is no room above the spikes even for the short word"


def test_the_title_says_what_both_curves_were_judged_to_do(page):
    told = """
      const { claim } = await import(at + "live/live.js")
      const says = (within, cached) => {
        const state = kv.emptyState("x")
        kv.apply(state, { t: "started", spec, prompt: { tokens: 4 }, modes: modes.slice(0, within ? 2 : 1) })
        kv.apply(state, { t: "times", mode: "uncached", repeat: 0, from: 0, s: Array(40).fill(0.001) })
        if (within) kv.apply(state, { t: "times", mode: "cached", repeat: 0, from: 0, s: cached })
        const judged = { uncached: "climb", ...(within && { cached: within }) }
        const runs = Object.entries(judged).map(([mode, shape]) => ({ mode, shape }))
        kv.apply(state, { t: "figures", runs })
        return claim(state)
      }
      const level = Array(40).fill(0.001), sinks = level.map((s, i) => s * (1.3 - 0.01 * i))
      const cases = [[null, []], ["climb", sinks], ["flat", level], ["fall", sinks], ["flat", sinks]]
      return cases.map(([within, s]) => says(within, s))
    """
    alone, climbs, flat, falls, sinks = within(page, LOOKED + told)
    assert alone == climbs == "Time per token: it climbs without the cache", (
        "without the cached mode nothing is said of it"
    )
    assert flat == "Time per token: it climbs without the cache, and is flat with it"
    assert falls == sinks == "Time per token: it climbs without the cache, not with it"


def test_the_cache_is_named_with_the_way_to_its_keys(page):
    expect(page.get_by_test_id("kv-layers-where")).to_have_text("Read from: DynamicCache → layers[0].keys.")
    second = page.get_by_test_id("kv-layers").locator("tbody tr").nth(1).locator("td").nth(2)
    expect(second).to_have_attribute("title", "DynamicCache → layers[1].keys, float32")


def test_no_median_is_spoken_of_while_all_was_read_once(page):
    titles = """
      const look = { colour: () => "#000" }
      const table = new figures.Figures(look)
      const title = () => [table.big.textContent, ...[...table.head.children].map((head) => head.title)].join("; ")
      table.draw(state)
      const once = title()
      const timed = (mode) => {
        kv.apply(state, { t: "times", mode, repeat: 0, from: 0, s: [1, 1, 1] })
        table.draw(state)
      }
      timed("uncached")
      const half = title()
      timed("cached")
      return [once, half, title()]
    """
    once, half, later = within(page, LOOKED + titles)
    assert once.startswith("A median step so far: uncached 1.0 s, cached 1.0 s;")
    assert half.startswith("A median step so far: uncached 1.0 s, cached 1.0 s (first look);")
    assert later.startswith("3 tokens: uncached 3.0 s, cached 3.0 s;")
    assert "median of the repeats" not in once and "read once in the first look" in once
    assert "median of the repeats" in later and "first look" not in later


def test_a_status_says_what_is_done_what_is_drawn_and_what_comes_with_one_estimate(page):
    said = """
      const bar = new status.StatusBar()
      const told = (name) => {
        state.state = name
        bar.draw(state, true, null, "", "A run takes about 7 s")
        return [bar.words, bar.next, bar.left].map((node) => node.textContent)
      }
      kv.apply(state, { t: "predicted", step_s: {}, tracing_s: 0.5 })
      state.proofSteps = 2
      const passes = (...clean) => kv.apply(state, { t: "figures", runs: clean.map((n, i) => (
        { mode: state.modes[i].name, passes: { clean: n, disturbed: 4 - n } })) })
      passes(0, 1)
      const mixed = told("done")
      passes(4, 4)
      const more = told("done")[0]
      passes(0, 0)
      return [told("looking"), told("proof"), mixed, told("done"), more]
    """
    looking, proof, done, noisy, more = within(page, LOOKED + said)
    assert looking[0] == "stage 1 of 3, a first look: one pass of each mode, token 3 of 11."
    assert proof[0] == "stage 2 of 3, not timed: do the modes choose the same tokens? The count is below."
    assert (looking[1], proof[1], done[1]) == ("Each step is drawn as it is timed.", "The timed passes come next.", "")
    assert looking[2].endswith(" left") and proof[2].endswith(" left")
    assert done[2] == "A run takes about 7 s"
    quiet = "7 of 8 passes disturbed; quiet: uncached 0 of 4 (so all count, ≈), cached 1 of 4"
    assert done[0] == f"done, on a busy machine: {quiet}" and len(done[0]) < 110, (
        "a line of a small window has no room for more"
    )
    assert noisy[0].startswith("done, on a busy machine: all 4 passes of each mode were disturbed (≈)")
    assert more == "done: 4 timed passes of each mode, as 2 were not enough"


def test_beside_a_run_of_which_all_was_disturbed_stands_the_recording_of_the_same_work(page):
    code = """
      const recorded = new replay.RecordedGain(at + "live/recording.json.gz", () => {})
      await recorded.load()
      const kept = recorded.state
      const other = { ...kept, spec: { ...kept.spec, new_tokens: 11 } }
      const passes = (clean) => ({ speedup: 3, speedup_interval: [2.9, 3.1], passes: { clean, disturbed: 4 } })
      const told = (clean, asked) => {
        const table = new figures.Figures({ colour: () => "#000" }, () => recorded.of(asked))
        kv.apply(state, { t: "figures", runs: modes.map(({ name }) => ({ mode: name, ...passes(clean) })) })
        table.draw(state)
        return [table.sure.textContent, table.big.dataset.rough]
      }
      return [kept.figures.find((run) => run.mode === "cached").speedup, told(0, kept), told(0, other), told(4, kept)]
    """
    recorded, disturbed, elsewhere, quiet = within(page, LOOKED + code)
    assert disturbed == [f"a recording of a quiet machine: {recorded:.2g} times", "true"]
    assert elsewhere == ["95% interval of these passes 2.9 to 3.1", "true"]
    assert quiet == ["95% interval 2.9 to 3.1", "false"]


def test_one_spike_does_not_press_the_curves_down_and_is_told(page):
    steps = "[" + ", ".join(["0.003", "0.9", *["0.002"] * 58]) + "]"
    timed = """
      for (const mode of ["uncached", "cached"]) kv.apply(state, { t: "times", mode, repeat: 0, from: 0, s: STEPS })
      return drawn.reach(state)
    """
    found = within(page, LOOKED.replace("s: 1,", "s: 0.001,") + CHART + timed.replace("STEPS", steps))
    assert found == {"top": pytest.approx(1.25 * 3), "above": pytest.approx(900)}


def test_a_prediction_is_drawn_however_far_it_missed_and_two_passes_have_no_quartiles(page):
    code = """
      const live = await import(at + "live/live.js")
      const key = () => live.lineWords(state, drawn).map(([, words]) => words).join("; ")
      const banded = () => drawn.measured(state).map((line) => line.visible).filter((visible) => visible !== undefined)
      kv.apply(state, { t: "predicted", step_s: { cached: STEPS } })
      for (const mode of state.modes) for (const i of [0, 1]) pass(mode.name, i, [1, 1, 1])
      const two = [key(), banded()]
      for (const mode of state.modes) pass(mode.name, 2, [1, 1, 1])
      kv.apply(state, { t: "figures", runs: [] })
      kv.apply(state, { t: "done" })
      return [two, [key(), banded()], drawn.predicted(state).map((line) => line.y)]
    """
    found = {s: within(page, LOOKED + CHART + code.replace("STEPS", f"[{s}, {s}, {s}]")) for s in (0.5, 0.95)}
    assert found[0.5][0] == ["median of the passes", [False, False]]
    assert found[0.5][1] == [
        "median of the passes; quartiles of 3 passes; predicted for an idle machine: cached off by 50%",
        [True, True],
    ]
    assert found[0.5][2] == [[None, 500, 500]]
    assert found[0.95][1][0] == "median of the passes; quartiles of 3 passes; predicted: within 5% in each tenth"


def test_two_texts_and_one_are_as_tall_as_the_chart(page):
    def tall(what):
        return page.locator(what).evaluate("(node) => node.offsetHeight")

    found = []
    for one in ("true", "false"):
        page.locator(".kv-texts").evaluate("(node, one) => { node.dataset.one = one }", one)
        found.append(tall(".kv-texts"))
    page.locator(".kv-texts").evaluate("(node) => { node.dataset.one = 'true' }")
    assert found == [tall("[data-testid=kv-chart]")] * 2


def test_spikes_are_told_where_the_running_median_leaves_out_a_visible_part_of_the_time(page):
    def weighed(passes, tokens=3):
        code = f"""
          for (const mode of state.modes) {{
            for (const [i, s] of {json.dumps(passes)}.entries()) pass(mode.name, i, s)
            mode.tokens = Array({tokens}).fill({{}})
          }}
          drawn.weigh(state)
          return [drawn.spikes, drawn.wide]
        """
        return within(page, LOOKED + CHART + code)

    def once(*slow, steps=60):
        return [0.02 if i in slow else 0.002 for i in range(steps)]

    assert weighed([once(0, 30)]) == [None, 9], "one spike of 18 ms is 13% of 136 ms, and the prefill is none"
    found, wide = weighed([once(20, 40)])
    share = 36 / (59 * 2 + 36)
    assert wide == 25 and found == [{"title": mode, "share": pytest.approx(share)} for mode in ("uncached", "cached")]
    assert weighed([once(10, 20, steps=40)]) == [None, 9], "a short line is drawn as it is"
    apart = [once(10, 20), once(30, 40), once(45, 55)]
    assert weighed(apart)[0] is None, "the medians of the steps have no spike"
    found, _ = weighed(apart, tokens=60)
    assert [one["share"] for one in found] == [pytest.approx(share)] * 2, "but each whole pass has two of them"


def test_the_first_look_stands_where_no_timed_pass_has_come_yet(page):
    code = """
      const uncached = state.modes.find((mode) => mode.name === "uncached")
      const now = () => [kv.curve(uncached).map((point) => point.mid), kv.partly(uncached), kv.soFar(state).timed]
      const found = [now()]
      pass("cached", 0, [0.9, 0.9, 0.9])
      for (const s of [[0.8, 0.8], [0.6, 0.6, 0.6]]) {
        pass("uncached", found.length - 1, s)
        found.push(now())
      }
      return found
    """
    once, under_way, over = within(page, LOOKED + CHART + code)
    assert once == [[1, 1, 1], False, False]
    assert under_way == [[0.8, 0.8, 1], True, False], "the line stays whole"
    assert over == [pytest.approx([0.7, 0.7, 0.6]), False, True]


def test_the_names_of_lines_that_end_close_to_one_another_stand_one_above_the_other(page):
    code = """
      const names = (wanted, most) => chart.apart(wanted, wanted.map(() => 40), most)
      pass("uncached", 0, Array.from({ length: 11 }, (_, i) => 0.02 + 0.01 * i))
      pass("cached", 0, Array(11).fill(0.001))
      drawn.weigh(state)
      const said = drawn.layout(state).annotations.map(({ text }) => text)
      return [names([100, 200], 300), names([100, 110], 300), names([5, 8], 300), names([280, 290], 300), said]
    """
    far, near, low, high, said = within(page, LOOKED + CHART + code)
    assert (far, near, low, high) == ([100, 200], [100, 140], [20, 60], [240, 280])
    ends = [text for text in said if text.startswith("<b>")]
    assert len(ends) == 2 and "all<br>tokens again" in ends[1] and "only<br>the newest" in ends[0]


def test_what_is_left_is_added_up_by_its_parts(page):
    """Eight more tokens to look at, 2 s each; a traced pass of the mode with a cache; two timed passes of each."""
    left = within(page, LOOKED + "return kv.progress(state).left")
    assert left is None, "nobody has said how long tracing takes"
    told = 'kv.apply(state, { t: "predicted", step_s: {}, tracing_s: 0.5 }); state.state = "looking";'
    told += 'kv.named(state, "cached").rows.at(-1).layers.push({ nbytes: 8 });'
    assert within(page, LOOKED + told + "return kv.progress(state).left") == 8 * 2 + (11 + 0.5 * 22) + 2 * 22


BYTES = (0, 512, 1023, 1024, 28_672, 1_048_575, 1_048_576, 5_242_880, 1_610_612_736, 2**41)
SECONDS = (0.000_012_3, 0.001_234, 0.012_34, 0.1, 0.9996, 1.0, 9.96, 25.0, 89.0, 91.0, 200.0, 5_400.0)


def test_scripts_and_server_write_quantities_alike(page):
    sizes, short, long = page.evaluate(
        """async ([sizes, seconds]) => {
          const at = new URL("..", document.querySelector('[href$="live.css"]').href).href
          const { bytes, ms, duration } = await import(at + "shared/format.js")
          return [sizes.map(bytes), seconds.map(ms), seconds.map(duration)]
        }""",
        [BYTES, SECONDS],
    )
    assert sizes == [human(n) for n in BYTES]
    assert short == [millis(s) for s in SECONDS]
    assert long == [millis(s) if s < 1 else lasting(s) for s in SECONDS]


def test_a_run_that_waits_has_the_width_of_the_tokens_asked_for_until_it_says_how_many(page):
    widths = f"""
      const waiting = kv.emptyState("x")
      {LOOKED}
      {CHART}
      drawn.asked = 192
      return [waiting, state].map((each) => drawn.layout(each).xaxis.range[1])
    """
    waiting, running = within(page, widths)
    assert waiting >= 192 > 20 > running >= 11


def test_one_text_of_all_modes_is_headed_by_all_of_them_in_the_next_run_too(page):
    heads = page.evaluate(
        """async () => {
          const at = new URL("..", document.querySelector('[href$="live.css"]').href).href
          const kv = await import(at + "shared/state.js"), { Texts } = await import(at + "live/texts.js")
          const texts = new Texts({ colour: () => "#000" })
          return ["a", "b"].map((id) => {
            const state = kv.emptyState(id), row = { ids: [1], text: "x", layers: [], s: 1 }
            const modes = ["uncached", "cached"].map((name) => ({ name, title: name }))
            const prompt = { tokens: 1, text: "" }
            kv.apply(state, { t: "started", spec: { new_tokens: 1 }, model: {}, prompt, modes })
            kv.apply(state, { t: "first_look", i: 0, modes: { uncached: row, cached: row } })
            kv.apply(state, { t: "done" })
            texts.draw(state, () => 1, false)
            return [texts.node.dataset.one, texts.node.querySelector(".kv-panelhead").textContent]
          })
        }"""
    )
    assert heads == [["true", "uncached and cached: the same text"]] * 2
