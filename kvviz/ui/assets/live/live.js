// The live component: puts socket, state and views together. One instance per element that Streamlit gives.

import { dataButton } from "../shared/chart_table.js"
import { element, put, styled } from "../shared/dom.js"
import { Feed } from "../shared/feed.js"
import { bytes, count, ms, rate, rough } from "../shared/format.js"
import { mounted } from "../shared/mounted.js"
import { Repaint } from "../shared/repaint.js"
import { isDark } from "../shared/theme.js"
import { apply, cacheBytes, curve, deviceName, emptyState, ended, firstLookOnly, headline, mark, median, named, onlyDisturbed, partly, told, watched, withStatus } from "../shared/state.js"
import { BrowserRun } from "./browser_run.js"
import { Changes } from "./changes.js"
import { CurveChart, MANY_PASSES, strays } from "./chart.js"
import { ClassRun } from "./class_run.js"
import { ClassDrawings } from "./drawings.js"
import { checked, Figures, reason } from "./figures.js"
import { Guess } from "./guess.js"
import { LayerTable } from "./layers.js"
import { Race } from "./race.js"
import { RecordedGain, Replay } from "./replay.js"
import { ends } from "./shapes.js"
import { StepSlider } from "./slider.js"
import { StatusBar } from "./status.js"
import { Texts } from "./texts.js"
import { Viewpoint } from "./viewpoint.js"

const DRAW_EVERY_MS = 150
const FLAT = 0.1 // of the first tenth's median, by which the last tenth's may differ
const MISSED = 0.15 // of a measured step
const SETTLED_MS = 2000 // after which a slow browser too has mounted the page's widgets

class Live {
  constructor(root, data) {
    this.root = root
    this.data = data
    this.state = emptyState(null)
    this.linked = true
    this.born = performance.now()
    this.repaint = new Repaint(() => this.draw(), DRAW_EVERY_MS)
    const look = this.look()
    styled(`${data.assets}/live/live.css`)
    this.replay = new Replay(data.recording, () => this.redraw())
    this.status = new StatusBar()
    const recorded = new RecordedGain(data.recording, () => this.redraw())
    this.figures = new Figures(look, (state) => recorded.of(state))
    this.texts = new Texts(look)
    this.layers = new LayerTable(look, () => this.redraw())
    this.slider = new StepSlider(() => {
      this.viewpoint.movedByHand()
      this.redraw()
    })
    this.viewpoint = new Viewpoint(root, this.slider, this.layers, () => this.redraw())
    this.race = new Race(() => this.write(), () => { this.slider.at = null })
    this.node = element("div", { class: "kv-chart", "data-testid": "kv-chart" })
    this.chart = new CurveChart(this.node, look)
    this.guess = new Guess(this.node, look, () => this.redraw())
    this.chart.under = () => this.guess.traces(this.state)
    this.drawings = new ClassDrawings(this.guess.box, look, () => this.data.guess?.modes ?? [])
    this.everyone = new ClassRun(data.assets, look, () => this.data.everyone)
    this.changes = new Changes(look)
    this.title = element("h2", {}, "Time per token")
    this.key = element("p", { class: "kv-note kv-key", "data-testid": "kv-key" })
    this.keyed = ""
    this.why = element("p", { class: "kv-note kv-same", "data-testid": "kv-same" })
    this.noise = element("p", { class: "kv-words" })
    this.environment = element("p", { "data-testid": "kv-environment" })
    this.proof = element("p", { "data-testid": "kv-proof" })
    this.folds = [
      new Fold("The figures of each mode", "TTFT is the prefill alone, as no request waits here; ITL is the median decode step. Point at a column's name to read what it means.", this.figures.node),
      new Fold("The cache, layer by layer", "Look at the third number of each shape, the tokens held: it is the only one that changes, by one for " +
        "each new token, and stops where a window is full. After N new tokens it is P + N - 1, P being the prompt's: the newest token is " +
        "chosen, but nothing has read it yet.", this.layers.node),
      new Fold("How it was measured", "", this.environment, this.proof),
    ]
    root.dataset.opening = String(Boolean(data.opening)) // the first page, where nothing is asked for
    root.replaceChildren(
      this.everyone.node,
      this.status.node,
      this.figures.call,
      element("div", { class: "kv-first" },
        element("div", { class: "kv-firstchart" }, head(this.title, this.controls()), this.guess.box, this.key, this.guess.caption, this.drawings.node),
        element("div", { class: "kv-firsttexts" }, head("What is written", element("span", { class: "kv-hint" }, "bold: prompt; shades separate tokens"), this.race.node), this.texts.node, this.why),
        element("div", { class: "kv-firstchanges" }, this.changes.node)),
      element("div", { class: "kv-firstcache" }, head("The KV cache", ...(data.opening ? [element("span", { class: "kv-hint" }, "each new token adds a column: its key and its value in every layer")] : [this.layers.tabs, this.slider.node])), this.layers.picture),
      this.noise,
      element("div", { class: "kv-folds" }, ...this.folds.map((fold) => fold.node)),
    )
    root.kvState = () => this.state // for the curious, and for tests
    root.kvFeed = () => this.feed
    this.resizer = new ResizeObserver(() => {
      this.chart.resize()
      this.everyone.resize()
      this.layers.grid.redraw()
    })
    this.resizer.observe(root)
  }

  update(data, trigger) {
    if (data.predicts && !this.predicted) this.guess.offer()
    this.predicted = data.predicts
    this.data = data
    this.trigger = trigger
    this.root.dataset.kept = String(Boolean(data.kept)) // only the recording, whatever is measured
    this.chart.foretells = !data.kept
    this.chart.asked = data.guess?.new_tokens ?? this.chart.asked
    if (data.browser) {
      this.runHere(data.browser)
      return
    }
    this.here?.close()
    this.here = null
    if (data.kept || (this.feed && this.follows === data.comparison)) {
      this.redraw() // the theme may have changed
      return
    }
    this.follows = data.comparison
    this.feed?.close()
    this.feed = new Feed(data.comparison, (...all) => this.take(...all), (m) => this.note(m), (up) => this.link(up))
    this.redraw()
  }

  // Measures in this browser what the page asks for, once, and gives the page the records at the end.
  runHere(work) {
    if (this.here?.id !== work.id) {
      this.here?.close()
      this.feed?.close()
      this.feed = null
      this.linked = true
      this.state = emptyState(work.id)
      const over = (answer) => (this.data.ends ? this.take(work.id, this.data.ends(answer), false) // a page without a server
        : this.whenSettled(() => this.trigger("measured", JSON.stringify(answer))))
      this.here = new BrowserRun(this.data.assets, work, (id, record) => this.take(id, [record], false), over)
    }
    this.redraw()
  }

  take(id, records, first) {
    if (first || this.state.id !== id) this.state = emptyState(id)
    const was = ended(this.state)
    for (const record of records) apply(this.state, record)
    if (!was && ended(this.state) && !this.here) this.pageAgain(id)
    this.redraw()
  }

  // The rest of the page has to change when a run ends, unless it was drawn after that.
  pageAgain(id) {
    this.whenSettled(() => {
      if (this.state.id === id && this.data.over !== id) this.trigger("ended", id)
    })
  }

  // Tells the page something, but not before all its widgets are there: Streamlit takes what they don't say yet for
  // nothing, and the form would be emptied.
  whenSettled(tell) {
    setTimeout(() => {
      if (!this.repaint.closed) tell()
    }, Math.max(0, this.born + SETTLED_MS - performance.now()))
  }

  note(message) {
    this.queue = message.status
    this.state = withStatus(this.state, message, this.follows)
    this.shown() // so that a recording is fetched while plotly.js is
    this.redraw()
  }

  link(up) {
    this.linked = up
    this.redraw()
  }

  redraw() {
    this.repaint.ask()
  }

  draw() {
    const state = this.shown()
    const now = this.current()
    const held = state !== now
    this.colours()
    this.status.draw(this.state, this.linked, this.queue, held || now === this.state ? "" : keptWords(now, this.data.kept), this.data.takes, held)
    this.root.dataset.held = String(held)
    this.figures.draw(state)
    this.slider.draw(state)
    this.race.follow(state)
    this.write()
    this.layers.draw(state, this.slider.upto)
    this.changes.draw(state)
    put(this.title, this.chart.total ? "Time so far" : claim(state))
    this.explain(lineWords(state, this.chart))
    put(this.noise, state.model?.note ?? "")
    put(this.environment, environment(state))
    put(this.proof, checked(state))
    put(this.why, reason(state))
    for (const [i, words] of [ratesWords(state), layersWords(state), deviceWords(state)].entries()) this.folds[i].tell(words)
    this.root.dataset.state = this.state.state
    this.root.dataset.comparison = this.state.id ?? ""
    this.root.dataset.empty = String(!state.modes.length)
    this.guess.follow(this.state, this.data.guess)
    this.everyone.draw()
    this.viewpoint.report(this.state.id)
    return this.chart.draw(state, this.slider.at)
  }

  // What the chart's lines are: each with a sample of it.
  explain(lines) {
    const key = JSON.stringify(lines)
    if (this.keyed === key) return
    this.keyed = key
    this.key.replaceChildren(...lines.map(([sample, words]) => element("span", {}, ...(sample ? [element("i", { class: `kv-sample kv-${sample}` })] : []), words)))
  }

  // What is on the screen: until a run has its first point, what was there before, in grey.
  shown() {
    const now = this.current()
    if (now.modes.some((mode) => curve(mode).length)) this.last = now
    return this.last && ["waiting", "queued", "loading", "started"].includes(now.state) ? this.last : now
  }

  // The run, or a kept recording of the page's first run once the server has said that it has none to show.
  current() {
    if (!this.data.kept && (this.here || !this.queue || this.state.state !== "waiting" || this.state.id)) {
      this.replay.stop()
      return this.state
    }
    this.replay.play()
    return this.replay.state ?? this.state
  }

  write() {
    this.texts.draw(this.shown(), (mode) => this.race.shown(mode) ?? this.slider.upto, Boolean(this.race.finish))
  }

  controls() {
    const views = [this.pill("total", "kv-total", "time so far", "time per token"), this.pill("log", "kv-scale", "log scale", "linear scale"), dataButton(this.node)]
    const menu = element("details", { class: "kv-views" }, element("summary", { class: "kv-pill", "data-testid": "kv-views" }, "Views"), element("div", {}, ...views))
    menu.onclick = ({ target }) => { if (target.closest("button")) menu.open = false }
    menu.onkeydown = ({ key }) => { if (key === "Escape") menu.open = false }
    return element("div", { class: "kv-controls" }, this.guess.button, menu)
  }

  // A button that switches one of the chart's two views; it names the view that a press leads to.
  pill(what, testid, on, off) {
    const button = element("button", { type: "button", class: "kv-pill", "data-testid": testid }, on)
    button.onclick = () => {
      this.chart[what] = !this.chart[what]
      button.textContent = this.chart[what] ? off : on
      this.redraw()
    }
    return button
  }

  colours() {
    const dark = isDark()
    for (const [mode, colour] of Object.entries(this.data.colours[dark ? "dark" : "light"])) {
      this.root.style.setProperty(`--kv-${mode}`, colour)
    }
  }

  // What the views ask of the palette; colours as CSS variables where CSS reads them.
  look() {
    const set = () => this.data.colours[isDark() ? "dark" : "light"]
    const css = (name) => getComputedStyle(this.root).getPropertyValue(name).trim()
    return {
      colour: (mode) => set()[mode] ?? css("--st-text-color"),
      meaning: (name) => this.data.meanings[isDark() ? "dark" : "light"][name],
      faint: (mode) => `${set()[mode] ?? "#888888"}2e`,
      dash: (mode) => this.data.dash[mode] ?? "dash",
      marker: (mode) => this.data.marker[mode] ?? "cross",
      theme: () => ({ text: css("--st-text-color"), grid: isDark() ? "#33404d" : "#dfe5ea",
                      paper: css("--st-background-color"), family: css("--st-font") || "sans-serif" }),
    }
  }

  close() {
    this.repaint.close()
    this.replay.stop()
    this.race.clear()
    this.feed?.close()
    this.here?.close()
    this.viewpoint.close()
    this.drawings.close()
    this.everyone.close()
    this.resizer.disconnect()
    this.chart.purge()
  }
}

export const mount = mounted(Live, ".kv-live")

const head = (title, ...parts) => element("div", { class: "kv-sectionhead" }, typeof title === "string" ? element("h2", {}, title) : title, ...parts.filter(Boolean))

// Details that open where somebody wants them; closed, they say the most of it in a few words.
class Fold {
  constructor(title, words, ...parts) {
    this.short = element("span", { class: "kv-hint" })
    this.node = element("details", { class: "kv-fold" }, element("summary", {}, element("b", {}, title), this.short),
      ...(words ? [element("p", { class: "kv-words" }, words)] : []), ...parts)
  }

  tell(words) {
    put(this.short, words)
  }
}

function keptWords(state, alone) {
  const how = alone ? "" : " Press Run to measure this machine."
  const clean = Math.min(...(state.figures ?? []).map((run) => run.passes?.clean ?? 0))
  const of = firstLookOnly(state) ? ": one pass" : clean > 0 && clean < Infinity ? `: ${clean} passes` : ""
  const shown = state.shown && `, ${state.shown}`
  const size = alone && state.model.params ? ` (${Number((state.model.params / 1e6).toPrecision(3))}M weights)` : ""
  return `A recording of ${state.model.title}${size} on ${deviceName(state.environment)}, made on ${state.recorded}${of}${shown}.${how}`
}

// What the key says of the bands, which are of the modes with enough passes.
function bandWords(state) {
  const banded = state.modes.filter((mode) => mode.times[0]?.length >= MANY_PASSES)
  if (!banded.length) return []
  const of = ` of ${[...new Set(banded.map((mode) => mode.times[0].length))].join(" and ")} passes`
  const whose = banded.length < state.modes.length ? ` (${banded.map((mode) => mode.title).join(", ")})` : ""
  return [["band", `quartiles${of}${whose}`]]
}

// What the lines of the chart are, each with the sample that shows it; and how far those go that are cut off at its edge.
export function lineWords(state, chart) {
  if (!state.modes.some((mode) => curve(mode).length) || watched(state)) return []
  const once = firstLookOnly(state)
  chart.weigh(state)
  const above = chart.reach(state)?.above
  const several = state.modes.some((mode) => mode.speculates) ? ", the mean where tokens come several at a time" : ""
  const smooth = chart.smooths(state)
  const lines = smooth ? [["bold", `running median of ${chart.wide} steps${several}`]] : []
  lines.push(once ? ["thin", "each step, timed once"]
    : [smooth ? "thin" : "bold", `median of ${medianOf(state, chart)}${state.modes.some(partly) ? ", or the first look before the first" : ""}`], ...(once || chart.spikes ? [] : bandWords(state)))
  const others = chart.disturbed(state).length
  if (others) lines.push(["faint", `${others} disturbed ${others === 1 ? "pass" : "passes"}`])
  const most = above && ms(rough(above / 1000))
  if (chart.spikes) {
    const shares = chart.spikes.map(({ title, share }, i) => `${Math.round(100 * Math.max(0, share))}% ${i ? "" : "of the time "}(${title})`).join(", ")
    lines.push(["", `spikes${most ? ` of up to ${most}` : ""} are left out of the bold lines: ${shares}`])
  } else if (most) lines.push(["", `spikes above the frame, to ${most}`])
  if (ended(state) && chart.foretells && !chart.spikes && state.modes.some((mode) => mode.predicted)) lines.push(predictionWords(strays(state))) // the longest comes last, so that a phone's key grows by no line
  return lines
}

// The passes of which the lines are medians: without the disturbed ones in a mode that has others.
function medianOf(state, chart) {
  if (!chart.disturbed(state).length) return "the passes"
  const without = state.modes.some((mode) => onlyDisturbed(headline(state, mode)))
  return `quiet passes${without ? ", or of all where none was quiet" : ""}`
}

// What the key says of the predictions, and how far they missed; in which mode, where that is more than the server's own
// bar (MISSED in the comparison).
function predictionWords([missed, title]) {
  const off = Math.round(100 * missed)
  return ["dashed", missed > MISSED ? `predicted for an idle machine: ${title} off by ${off}%` : `predicted: within ${off}% in each tenth`]
}

// The chart's message, where the server's judgement of both shapes bears it out, and the ends that stand below the chart.
export function claim(state) {
  const [without, within] = ["uncached", "cached"].map((name) => state.figures?.find((run) => run.mode === name)?.shape)
  if (without !== "climb") return "Time per token"
  const climbs = "Time per token: it climbs without the cache"
  if (!within || within === "climb") return climbs
  const [from, to] = ends(curve(named(state, "cached")).map(({ mid }) => mid))
  if (within === "flat" && Math.abs(to - from) < FLAT * from) return `${climbs}, and is flat with it`
  return to < from ? `${climbs}, not with it` : climbs // the first steps of a run can be slower than all later ones
}

function ratesWords(state) {
  if (!ended(state) || state.modes.length > 3) return ""
  const each = state.modes.map((mode) => [mode.title, headline(state, mode)]).filter(([, found]) => found?.tokens_per_s)
  return each.map(([title, found]) => `${title} ${mark(found)}${rate(told(found.tokens_per_s, found))}`).join(", ")
}

function deviceWords({ environment }) {
  return environment ? `${environment.device_name} (${environment.device}), ${environment.dtype}` : ""
}

// The device by its name; of a processor also how many threads computed.
function layersWords(state) {
  const last = named(state, "cached")?.rows.at(-1)
  return last?.layers.length ? `${state.model.layers} layers, ${bytes(cacheBytes(last))} in all` : ""
}

function environment(state) {
  const env = state.environment
  if (!env) return ""
  if (env.device === "browser") {
    return `Measured in ${env.device_name} on ${env.platform}, which tells of ${count(env.cores)} cores and used one: ${env.attn_implementation}, ` +
      `${env.dtype}. Modes take turns (A B, B A, …). Another machine, browser or tab beside it gives other figures.`
  }
  const threads = `${env.threads} ${env.threads === 1 ? "thread" : "threads"}`
  return `Measured on ${env.device_name} (${env.device}, ${threads}), ${env.dtype}, attention ${env.attn_implementation}, ` +
    `torch ${env.torch}, transformers ${env.transformers}, Python ${env.python}. Modes take turns (A B, B A, …). ` +
    "Start and end of the run: the medians of the first and of the last tenth of the decode steps. " +
    "A pass is disturbed if it lost more than 5% of its time: it waited for a core, or a small piece of work between its steps ran slowly. A pass that took much longer than a disturbed one counts as disturbed, too. " +
    "A disturbed pass is left out where the mode has others. For the 95% interval each pass is held against the one beside it: Student's t, from the logarithms of these ratios. " +
    "A prediction is made before the timed passes, for a machine that does nothing else; its error is the median over the tenth of the steps that it missed most. " +
    "A speed-up holds for this machine, model and length: another machine, or other work beside the run, gives another."
}
