// What a viewer expects, drawn by hand before a run; laid under the measured curves afterwards. It never leaves this
// browser's tab.

import { element } from "../shared/dom.js"
import { ms } from "../shared/format.js"
import { COLUMNS, compared, points, scale, unsteady } from "./shapes.js"
import { curve, ended } from "../shared/state.js"

const KEPT = "kvviz guess"
const LEAST = COLUMNS / 5 // columns; a shorter stroke is a slip of the hand
const SVG = "http://www.w3.org/2000/svg"

export class Guess {
  // `chart` is the node of the chart, `modes` [name, title] of the strokes in their order.
  constructor(chart, look, changed) {
    Object.assign(this, { look, changed, modes: [], strokes: {}, open: false, over: null, ...kept() })
    this.button = pill("kv-guess-draw", "Draw what you expect", () => this.begin())
    this.words = element("p", { class: "kv-guess-words", "data-testid": "kv-guess-words", role: "status" })
    this.svg = document.createElementNS(SVG, "svg")
    for (const [name, value] of Object.entries({ viewBox: "0 0 1 1", preserveAspectRatio: "none", "data-testid": "kv-guess-area" })) {
      this.svg.setAttribute(name, value)
    }
    this.last = element("span")
    this.surface = element("div", { class: "kv-guess", "data-testid": "kv-guess" },
      element("div", { class: "kv-guess-bar" }, this.words,
        element("div", { class: "kv-controls" }, pill("kv-guess-again", "Clear", () => this.clear(true)),
          pill("kv-guess-close", "Close", () => this.close()))),
      element("div", { class: "kv-guess-y" }, element("span", {}, "slow"), element("span", {}, "fast")),
      this.svg,
      element("div", { class: "kv-guess-x" }, element("span", {}, "1"), element("span", {}, "new token"), this.last))
    this.box = element("div", { class: "kv-chartbox" }, chart, this.surface)
    this.said = element("p")
    this.how = element("p", { class: "kv-guess-how" })
    this.caption = element("div", { class: "kv-guess-caption", "data-testid": "kv-guess-caption" },
      element("div", { "data-testid": "kv-guess-said" }, this.said, this.how),
      pill("kv-guess-clear", "Clear my guess", () => this.clear(false)))
    this.svg.addEventListener("pointerdown", (event) => this.down(event))
    this.svg.addEventListener("pointermove", (event) => this.move(event))
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, (event) => this.up(event))
  }

  // --- drawing ---------------------------------------------------------------------------------------------

  begin() {
    this.strokes = {}
    this.over = this.state?.id ?? null // what is on the screen now is no longer guessed at
    this.open = true
    this.keep()
  }

  clear(open) {
    this.strokes = {}
    this.open = open
    this.keep()
  }

  close() {
    this.open = false
    this.keep()
  }

  keep() {
    try {
      sessionStorage.setItem(KEPT, JSON.stringify({ strokes: this.strokes, over: this.over }))
    } catch { /* a browser that keeps nothing: the guess lasts as long as the page */ }
    this.changed()
  }

  // The mode whose turn it is; null when all are drawn.
  next() {
    return this.modes.find(([name]) => !this.strokes[name]) ?? null
  }

  down(event) {
    if (this.pointer !== undefined || event.button !== 0 || !this.next()) return
    this.pointer = event.pointerId
    this.svg.setPointerCapture(event.pointerId)
    this.stroke = Array(COLUMNS).fill(null)
    this.from = null
    this.move(event)
    event.preventDefault()
  }

  move(event) {
    if (event.pointerId !== this.pointer) return
    const each = event.getCoalescedEvents?.() ?? []
    for (const one of each.length ? each : [event]) this.reach(...this.place(one))
    this.paint()
  }

  up(event) {
    if (event.pointerId !== this.pointer) return
    this.pointer = undefined
    const drawn = this.stroke.filter((h) => h !== null).length
    this.short = drawn < LEAST
    if (!this.short) this.strokes[this.next()[0]] = this.stroke
    this.stroke = null
    this.keep()
  }

  // Where the pointer is: a column from the first token to the last, and a height between 0 and 1.
  place(event) {
    const box = this.svg.getBoundingClientRect()
    const within = (share) => Math.min(1, Math.max(0, share))
    const x = within((event.clientX - box.left) / box.width)
    return [Math.round(x * (COLUMNS - 1)), Math.max(0.005, 1 - within((event.clientY - box.top) / box.height))]
  }

  // From the last place to this one in a straight line; where the hand goes back, the newer line stands.
  reach(column, height) {
    const [from, was] = this.from ?? [column, height]
    const way = column === from ? [] : Array.from({ length: Math.abs(column - from) }, (_, i) => i + 1)
    for (const i of way) {
      const share = i / Math.abs(column - from)
      this.stroke[from + i * Math.sign(column - from)] = was + share * (height - was)
    }
    this.stroke[column] = height
    this.from = [column, height]
  }

  // --- showing ---------------------------------------------------------------------------------------------

  follow(state, guess) {
    this.state = state
    this.modes = guess?.modes ?? []
    const measured = state.modes.some((mode) => curve(mode).length)
    if (this.open && measured && state.id !== this.over) {
      if (ended(state) && !Object.keys(this.strokes).length) this.over = state.id // it was over before, and came late
      else this.open = false
    }
    const idle = ended(state) || ["waiting", "gone"].includes(state.state)
    this.button.hidden = this.open || !idle
    this.surface.hidden = !this.open
    this.last.textContent = String(guess?.new_tokens ?? state.spec?.new_tokens ?? "last")
    this.paint()
    const scaled = this.scaled(state)
    const [said, how] = scaled ? this.verdict(state, scaled) : [this.waits(state), ""]
    if (this.said.textContent !== said) this.said.textContent = said
    if (this.how.textContent !== how) this.how.textContent = how
    this.caption.hidden = this.open || !(said || how)
  }

  waits(state) {
    if (!Object.keys(this.strokes).length) return ""
    return state.id === this.over || !state.id ? "Your guess is kept: press Run, and the measured curves are laid over it." : ""
  }

  paint() {
    if (!this.open) return
    const strokes = Object.entries(this.strokes)
    const next = this.next()
    if (this.stroke && next) strokes.push([next[0], this.stroke])
    this.svg.replaceChildren(...strokes.map(([name, stroke]) => this.line(name, stroke)))
    const words = next ? `${this.short ? "That was short. " : ""}Draw from left to right how the time of a token goes: ` : ""
    const who = next ? element("b", { style: `color:${this.look.colour(next[0])}` }, next[1]) : "Now press Run: the measured curves will be laid over your guess."
    if (this.words.textContent !== words + (next ? next[1] : who)) this.words.replaceChildren(words, who)
  }

  line(name, stroke) {
    const line = document.createElementNS(SVG, "polyline")
    const places = stroke.flatMap((h, i) => (h === null ? [] : [`${i / (COLUMNS - 1)},${1 - h}`]))
    const marks = { points: places.join(" "), fill: "none", stroke: this.look.colour(name), "stroke-width": 3,
                    "stroke-dasharray": "8 6", "stroke-linecap": "round", "vector-effect": "non-scaling-stroke" }
    for (const [key, value] of Object.entries(marks)) line.setAttribute(key, value)
    return line
  }

  // What was drawn, as milliseconds: null where there is nothing to lay it under.
  scaled(state) {
    if (this.open || !state.id || state.id === this.over) return null
    const curves = Object.fromEntries(state.modes.map((mode) => [mode.name, curve(mode).map((p) => p.mid * 1000)]))
    const perHeight = scale(this.strokes, curves)
    const modes = state.modes.filter((mode) => this.strokes[mode.name] && curve(mode).length)
    return perHeight === null ? null : { perHeight, curves, modes }
  }

  // Lines for the chart, below the measured ones.
  traces(state) {
    const scaled = this.scaled(state)
    return (scaled?.modes ?? []).map((mode) => ({
      type: "scatter", mode: "lines", hoverinfo: "skip", name: "your guess", meta: `guess ${mode.name}`, showlegend: false,
      ...points(this.strokes[mode.name], state.spec?.new_tokens ?? mode.tokens.length, scaled.perHeight),
      line: { color: this.look.colour(mode.name), width: 3, dash: "8px,6px" }, opacity: 0.55,
    }))
  }

  verdict(state, { curves, modes }) {
    const tallest = Math.max(...modes.flatMap((mode) => curves[mode.name]))
    const how = `Dashed: what you drew, all on one scale; your highest point is put at the highest measured median (${ms(tallest / 1000)}).`
    if (!ended(state)) return ["", how]
    const perHeight = scale(this.strokes, curves)
    const said = modes.filter((mode) => curves[mode.name].length > 3).map((mode) => {
      const drawn = this.strokes[mode.name].filter((h) => h !== null).map((h) => h * perHeight)
      return compared(mode.title, drawn, curves[mode.name], tallest)
    })
    if (modes.some((mode) => unsteady(curve(mode)))) said.push(BUSY)
    return [said.join(" "), `${how} ${RULE}`]
  }
}

const BUSY = "The passes differ widely, as on a device that is busy with something else: run it again before you trust the shape."

const RULE = "Each line's ends are the medians of its first and last tenth, the prefill left out; it is called flat where " +
  "they differ by less than a tenth of the tallest point."

function pill(testid, words, pressed) {
  const button = element("button", { type: "button", class: "kv-pill", "data-testid": testid }, words)
  button.onclick = pressed
  return button
}

// What this tab has kept over a reload; whatever is no guess counts as none.
function kept() {
  try {
    const { strokes, over } = JSON.parse(sessionStorage.getItem(KEPT))
    const fine = (stroke) => Array.isArray(stroke) && stroke.length === COLUMNS && stroke.every((h) => h === null || (h > 0 && h <= 1))
    return Object.values(strokes).every(fine) ? { strokes, over } : {}
  } catch {
    return {}
  }
}
