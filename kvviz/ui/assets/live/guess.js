// What a viewer expects, drawn by hand before a run; laid under the measured curves afterwards. It leaves this browser's
// tab only for the room that the tab follows.

import { element, put } from "../shared/dom.js"
import { ms } from "../shared/format.js"
import { COLUMNS, compared, points, scale, unsteady } from "./shapes.js"
import { Sketch } from "./sketch.js"
import { curve, ended, headline } from "../shared/state.js"

const KEPT = "kvviz guess"

export class Guess {
  // `chart` is the node of the chart; the modes that are drawn come with `follow`, [name, title] in their order.
  constructor(chart, look, changed) {
    const { strokes, over } = kept()
    Object.assign(this, { look, changed, open: false, over: over ?? null })
    this.button = pill("kv-guess-draw", "Guess", () => this.begin())
    this.button.classList.add("kv-predict")
    this.button.title = "draw the curves that you expect; the measured ones are laid over them"
    this.sketch = new Sketch("kv-guess", look.colour, () => this.drawn(), "Now press Run: the measured curves will be laid over your guess.", strokes)
    this.surface = element("div", { class: "kv-guess", "data-testid": "kv-guess" },
      element("div", { class: "kv-guess-bar" }, this.sketch.words, this.sketch.picks,
        element("div", { class: "kv-controls" }, pill("kv-guess-again", "Clear", () => this.clear(true)),
          pill("kv-guess-close", "Close", () => this.close()))),
      ...this.sketch.parts)
    this.box = element("div", { class: "kv-chartbox" }, chart, this.surface)
    this.said = element("p")
    this.how = element("p", { class: "kv-guess-how" })
    this.caption = element("div", { class: "kv-guess-caption", "data-testid": "kv-guess-caption" },
      element("div", { "data-testid": "kv-guess-said" }, this.said, this.how),
      pill("kv-guess-clear", "Clear my guess", () => this.clear(false)))
  }

  get strokes() {
    return this.sketch.strokes
  }

  // --- drawing ---------------------------------------------------------------------------------------------

  begin() {
    this.sketch.clear()
    this.over = this.state?.id ?? null // what is on the screen now is no longer guessed at
    this.open = true
    this.keep()
  }

  // Opens by itself, for who has drawn nothing yet.
  offer() {
    if (this.sketch.empty) this.begin()
  }

  clear(open) {
    this.sketch.clear()
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

  // A room's teacher sees what a pupil has drawn to its end.
  drawn() {
    if (!this.sketch.next()) document.dispatchEvent(new CustomEvent("kv-drawn", { detail: this.strokes }))
    this.keep()
  }

  // --- showing ---------------------------------------------------------------------------------------------

  follow(state, guess) {
    this.state = state
    this.sketch.modes = guess?.modes ?? []
    const measured = state.modes.some((mode) => curve(mode).length)
    if (this.open && measured && state.id !== this.over) {
      if (ended(state) && this.sketch.empty) this.over = state.id // it was over before, and came late
      else this.open = false
    }
    const idle = ended(state) || ["waiting", "gone"].includes(state.state)
    this.button.hidden = this.open || !idle
    this.surface.hidden = !this.open
    this.sketch.last.textContent = String(guess?.new_tokens ?? state.spec?.new_tokens ?? "last")
    if (this.open) this.sketch.paint()
    const scaled = this.scaled(state)
    const [said, how] = scaled ? this.verdict(state, scaled) : [this.waits(state), ""]
    if (this.said.textContent !== said) this.said.textContent = said
    if (this.how.textContent !== how) this.how.textContent = how
    this.caption.hidden = this.open || !(said || how)
  }

  waits(state) {
    if (this.sketch.empty) return ""
    return state.id === this.over || !state.id ? "Your guess is kept: press Run, and the measured curves are laid over it." : ""
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
      return compared(mode.title, drawn, curves[mode.name], tallest, headline(state, mode)?.shape)
    })
    if (modes.some((mode) => unsteady(curve(mode)))) said.push(BUSY)
    return [said.join(" "), `${how} ${RULE}`]
  }
}

const BUSY = "The passes differ widely, as on a device that is busy with something else: run it again before you trust the shape."

const RULE = "Each line's ends are the medians of its first and last tenth, the prefill left out. A measured line is called " +
  "flat where it changes, with 95% certainty, by less than a tenth of its median; a drawn one, where its ends differ by " +
  "less than a tenth of the tallest point."

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
