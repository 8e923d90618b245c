// A run on every machine of a class: whoever leads the room asks for it, each pupil runs it or not, and all see the curves.

import { element, put } from "../shared/dom.js"
import { times } from "../shared/format.js"
import { ClassLink } from "../shared/classlink.js"
import { isDark } from "../shared/theme.js"
import { apply, curve, emptyState, keptPasses, quantile } from "../shared/state.js"
import { dataButton } from "../shared/chart_table.js"
import { BrowserRun } from "./browser_run.js"
import { loadPlotly } from "../shared/plotly.js"
import { ends, smooth } from "./shapes.js"

export const CURVES = ["uncached", "cached"]
const NAMES = { uncached: "No cache", cached: "KV cache" }
const DIGITS = 4 // of a step's milliseconds

export class ClassRun {
  // `asked` gives what the form asks for: { work } that a class can run, or { problem }.
  constructor(assets, look, asked) {
    Object.assign(this, { assets, look, asked, log: false, answered: null, words: "" })
    this.said = element("p", { class: "kv-classsaid", "data-testid": "kv-everyone-words", role: "status" })
    this.actions = element("div", { class: "kv-controls" })
    this.charts = CURVES.map((_, i) => element("div", { class: "kv-chart", "data-testid": i ? "kv-everyone-ratios" : "kv-everyone-curves" }))
    this.claim = element("p", { class: "kv-claim", "data-testid": "kv-everyone-claim" })
    const titled = (title, i, ...parts) => element("div", {}, element("div", { class: "kv-sectionhead" }, element("h2", {}, title), element("div", { class: "kv-controls" }, ...parts, dataButton(this.charts[i]))), this.charts[i])
    this.scale = button("kv-everyone-scale", "log scale", () => {
      this.log = !this.log
      put(this.scale, this.log ? "linear scale" : "log scale")
      this.paint()
    })
    this.picture = element("div", {}, element("div", { class: "kv-everyone" }, titled("Time per token, every browser", 0, this.scale), titled("Speed-up of each token", 1)), this.claim,
      element("p", { class: "kv-note" }, "Thin: a line for each browser, of a long run its running median of 9 steps. Bold: the median of all browsers. Shaded: the middle half of them."))
    this.node = element("section", { class: "kv-classrun", "aria-label": "A run on every machine of the class", "data-testid": "kv-everyone", hidden: "" },
      element("div", { class: "kv-guess-caption" }, this.said, this.actions), this.picture)
    this.link = new ClassLink((said) => this.hear(said))
  }

  hear({ role, code, run, curves, refusal }) {
    if (run?.number !== this.run?.number) {
      this.stop()
      this.answered = null
      this.words = ""
    }
    if (refusal && !this.refusal && this.answered === "sent" && curves.mine === null) { // what was sent is not there: it may be sent anew
      this.answered = null
      this.words = "Your two curves were not taken. You can run it again."
    }
    Object.assign(this, { role, code, run, curves, refusal })
    this.draw()
    this.paint()
  }

  draw() {
    const leads = this.role === "lead"
    const { problem, work } = this.asked() ?? {}
    this.node.hidden = !(leads || (this.role === "follow" && this.run))
    if (this.node.hidden) return
    const { rows, mine } = this.curves
    this.picture.hidden = !rows.length
    if (this.dark !== isDark()) { // the theme has changed
      this.dark = isDark()
      this.paint()
    }
    put(this.said, [leads ? this.leaders(problem) : this.pupils(mine), this.refusal ? `Refused: ${this.refusal}.` : ""].filter(Boolean).join(" "))
    const key = `${leads} ${problem} ${this.run?.number} ${rows.length > 0} ${mine === null} ${this.answered} ${Boolean(this.here)} ${JSON.stringify(work)}`
    if (this.key === key) return // a button under a finger is not exchanged for its like
    this.key = key
    this.actions.replaceChildren(...(leads ? this.leadersButtons(work) : this.pupilsButtons(mine)))
  }

  leaders(problem) {
    const { rows } = this.curves
    if (this.run) return `${rows.length} ${rows.length === 1 ? "browser has" : "browsers have"} sent two curves: ${inWords(this.run.order)}.`
    return problem ? `Everyone in the room could run the same in their own browser, but not what the form asks for: ${problem}.`
      : "Everyone in the room can run what the form asks for in their own browser, and all curves come together here."
  }

  leadersButtons(work) {
    const ask = button("kv-everyone-run", "Everyone: run", () => tell("kv-everyone", work))
    ask.disabled = !work
    if (!this.run) return [ask]
    const table = element("a", { class: "kv-pill", href: `/kv/room/curves.csv?code=${this.code}`, download: "", "data-testid": "kv-everyone-csv" }, "Curves as CSV")
    return [ask, ...(this.curves.rows.length ? [table] : []), button("kv-everyone-end", "Put the picture away", () => tell("kv-everyone", null))]
  }

  pupils(mine) {
    if (mine !== null) return `Your browser is one of ${this.curves.rows.length}: dotted, and named “you”.`
    if (this.words) return this.words
    if (this.answered === "no") return "Your browser takes no part."
    return `The teacher asks everyone to run this in their own browser: ${inWords(this.run.order)}. What is sent are the two curves of ` +
      "milliseconds, nothing else, and the class sees them without a name. Keep this tab in front until it is done."
  }

  pupilsButtons(mine) {
    if (mine !== null || this.answered === "sent") return []
    if (this.here) return [button("kv-everyone-stop", "Stop my browser", () => { this.stop(); this.answer("no") })]
    return [button("kv-everyone-join", "Run and send", () => this.start()), ...(this.answered === "no" ? [] : [button("kv-everyone-not", "Not on my machine", () => this.answer("no"))])]
  }

  answer(said) {
    this.answered = said
    this.words = ""
    this.draw()
  }

  start() {
    const { order } = this.run
    const state = emptyState(order.id)
    let passes = 0
    const all = order.modes.length * (order.spec.repeats + order.spec.warmup - 1)
    this.here = new BrowserRun(this.assets, order, (_, record) => {
      apply(state, record)
      if (record.t === "pass") passes++
      if (this.here) this.tell(passes ? `Your browser is decoding: pass ${passes} of ${all}.` : "Your browser is decoding: first, it checks that both ways give the same tokens.")
    }, ({ failed }) => this.over(state, failed))
    this.tell("Your browser is fetching the model.")
  }

  over(state, failed) {
    this.here = null
    const hidden = state.modes.some((mode) => keptPasses(state, mode).length && Object.entries(state.clean).every(([key, clean]) => !key.startsWith(`${mode.name} `) || clean === false))
    if (failed) this.tell(`Your browser could not do it: ${failed}. Nothing was sent.`)
    else if (hidden) this.tell("This tab was hidden during all passes of a mode, so their times mean nothing, and nothing was sent. Run it again with the tab in front.")
    else {
      this.answered = "sent"
      this.refusal = "" // of what was sent before
      this.tell("Your two curves are on their way.")
      tell("kv-curves", { number: this.run.number, ...curvesOf(state) })
    }
  }

  tell(words) {
    this.words = words
    this.draw()
  }

  stop() {
    this.here?.close()
    this.here = null
  }

  // --- the picture -----------------------------------------------------------------------------------------

  async paint() {
    const { rows: sent, mine } = this.curves
    if (this.node.hidden || !sent.length) return
    put(this.claim, claim(sent))
    const rows = sent.map((row) => Object.fromEntries(CURVES.map((mode) => [mode, smooth(row[mode])])))
    const plotly = await loadPlotly()
    const lines = CURVES.flatMap((mode) => this.lines(rows.map((row) => row[mode]), mine, this.look.colour(mode), this.look.faint(mode), NAMES[mode]))
    const most = quantile(rows.flatMap((row) => row.uncached.slice(1)).sort((a, b) => a - b), 0.99)
    const top = this.log ? {} : { range: [0, 1.15 * most] }
    await plotly.react(this.charts[0], lines, this.layout("ms for this token", { type: this.log ? "log" : "linear", ...top }), QUIET)
    const [colour, faint] = [this.look.theme().text, "#8888882e"]
    await plotly.react(this.charts[1], this.lines(rows.map(ratios), mine, colour, faint, "speed-up"), this.layout("times faster with the cache", { rangemode: "tozero" }), QUIET)
  }

  // Each browser's line, in one trace; the middle half, the median; and a pupil's own.
  lines(all, mine, colour, faint, name) {
    const steps = all[0].length
    const x = Array.from({ length: steps }, (_, i) => i + 1)
    const at = (share) => x.map((_, i) => quantile(all.map((line) => line[i]).filter((v) => v !== null).sort((a, b) => a - b), share))
    const line = (more) => ({ type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, ...more })
    const each = all.flatMap((values) => [...values, null])
    return [
      line({ x: all.flatMap(() => [...x, null]), y: each, name: `${name}, each browser`, opacity: Math.max(0.15, 0.8 / Math.sqrt(all.length)), line: { color: colour, width: 1 } }),
      line({ x: [...x, ...x.toReversed()], y: [...at(0.75), ...at(0.25).toReversed()], fill: "toself", fillcolor: faint, line: { width: 0 } }),
      line({ x, y: at(0.5), name: `${name}, median`, showlegend: true, line: { color: colour, width: 3 }, hoverinfo: "x+y+name" }),
      ...(mine === null ? [] : [line({ x, y: all[mine], name: `${name}, you`, showlegend: true, line: { color: colour, width: 2, dash: "dot" } })]),
    ]
  }

  layout(title, yaxis) {
    const { text, grid, family } = this.look.theme()
    const axis = { gridcolor: grid, linecolor: grid, zeroline: false, automargin: true, tickfont: { size: 13 }, separatethousands: true }
    return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family, size: 14, color: text }, margin: { l: 56, r: 10, t: 8, b: 44 },
             height: this.charts[0].clientHeight || 320, hovermode: "closest", legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
             xaxis: { ...axis, title: { text: "new token" }, tickformat: ",d" }, yaxis: { ...axis, title: { text: title }, ...yaxis } }
  }

  resize() {
    for (const chart of this.charts) if (chart.data && chart.clientWidth) window.Plotly.Plots.resize(chart)
  }

  close() {
    this.stop()
    this.link.close()
    for (const chart of this.charts) if (chart.data) window.Plotly.purge(chart)
  }
}

const QUIET = { displayModeBar: false, responsive: true }

const tell = (kind, detail) => document.dispatchEvent(new CustomEvent(kind, { detail }))

// The two curves of a finished run: each step's median over its passes, in milliseconds.
export function curvesOf(state) {
  const rounded = (seconds) => Number((seconds * 1000).toPrecision(DIGITS))
  return Object.fromEntries(state.modes.map((mode) => [mode.name, curve(mode).map((point) => rounded(point.mid))]))
}

const ratios = ({ uncached, cached }) => uncached.map((ms, i) => (cached[i] ? ms / cached[i] : null))

// How much faster the last tenth of the tokens came with the cache: the middle browser and the middle half of them.
export function claim(rows) {
  const found = rows.map(({ uncached, cached }) => ends(uncached)[1] / ends(cached)[1]).filter(Number.isFinite).sort((a, b) => a - b)
  if (!found.length) return ""
  const [low, mid, high] = [0.25, 0.5, 0.75].map((share) => times(quantile(found, share)))
  if (found.length < 4) return `The last tenth of the tokens came ${mid} as fast with the cache (the median of ${found.length}).`
  return `The last tenth of the tokens came ${mid} as fast with the cache in the median of ${found.length} browsers; in half of them ${low} to ${high}, in all ${times(found[0])} to ${times(found.at(-1))}.`
}

function inWords({ model, spec }) {
  const prompt = spec.prompt === null ? `${spec.prompt_tokens.toLocaleString("en-US")} tokens of a book` : `“${spec.prompt.length > 60 ? `${spec.prompt.slice(0, 60)}…` : spec.prompt}”`
  return `${model.title}, ${spec.new_tokens} new tokens after ${prompt}`
}

function button(testid, words, pressed) {
  const node = element("button", { type: "button", class: "kv-pill", "data-testid": testid }, words)
  node.onclick = pressed
  return node
}
