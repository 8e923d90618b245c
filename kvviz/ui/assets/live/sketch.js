// Lines drawn by hand, one for each of some modes in their order, over a surface from the first new token to the last.

import { element } from "../shared/dom.js"
import { COLUMNS } from "./shapes.js"

const LEAST = COLUMNS / 5 // columns; a shorter stroke is a slip of the hand
export const PICKS = { climbs: [0.2, 0.8], "stays flat": [0.2, 0.2], falls: [0.8, 0.2] } // heights at the ends, for who can't draw
const SVG = "http://www.w3.org/2000/svg"

export function surface(testid) {
  const svg = document.createElementNS(SVG, "svg")
  for (const [name, value] of Object.entries({ viewBox: "0 0 1 1", preserveAspectRatio: "none", "data-testid": testid })) {
    svg.setAttribute(name, value)
  }
  return svg
}

// A drawn line: a height between 0 and 1 for each column, null where nothing was drawn.
export function line(stroke, colour, look = {}) {
  const node = document.createElementNS(SVG, "polyline")
  const places = stroke.flatMap((h, i) => (h === null ? [] : [`${i / (COLUMNS - 1)},${1 - h}`]))
  const marks = { points: places.join(" "), fill: "none", stroke: colour, "stroke-width": 3, "stroke-dasharray": "8 6",
                  "stroke-linecap": "round", "vector-effect": "non-scaling-stroke", ...look }
  for (const [key, value] of Object.entries(marks)) node.setAttribute(key, value)
  return node
}

export const straight = (from, to) => Array.from({ length: COLUMNS }, (_, i) => from + ((to - from) * i) / (COLUMNS - 1))

// The axes around a surface; `last` and `first` are the elements that name those tokens.
export function framed(svg, last, first = element("span", {}, "1")) {
  return [
    element("div", { class: "kv-guess-y" }, element("span", {}, "long"), element("span", {}, "time per token"), element("span", {}, "short")),
    svg,
    element("div", { class: "kv-guess-x" }, first, element("span", {}, "new token"), last),
  ]
}

export class Sketch {
  // `changed` is called when a line has been drawn, or was too short for one; `over`: what is said when all are drawn;
  // `name` begins the names by which tests find its parts.
  constructor(name, colour, changed, over, strokes = {}) {
    Object.assign(this, { colour, changed, over, strokes, modes: [] })
    this.words = element("p", { class: "kv-guess-words", "data-testid": `${name}-words`, role: "status" })
    this.picks = element("div", { class: "kv-controls", role: "group", "aria-label": "or pick" }, ...Object.entries(PICKS).map(([words, ends]) => {
      const node = element("button", { type: "button", class: "kv-pill" }, words)
      node.onclick = () => this.pick(...ends)
      return node
    }))
    this.svg = surface(`${name}-area`)
    this.last = element("span")
    this.first = element("span", {}, "1")
    this.hint = element("span", { class: "kv-guess-hint" }, "draw here, from left to right")
    this.parts = [...framed(this.svg, this.last, this.first), this.hint]
    this.svg.addEventListener("pointerdown", (event) => this.down(event))
    this.svg.addEventListener("pointermove", (event) => this.move(event))
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, (event) => this.up(event))
  }

  // The mode whose turn it is; null when all are drawn.
  next() {
    return this.modes.find(([name]) => !this.strokes[name]) ?? null
  }

  get empty() {
    return !Object.keys(this.strokes).length
  }

  clear() {
    this.strokes = {}
    this.short = false
  }

  // In place of a drawing, a straight line.
  pick(from, to) {
    this.strokes[this.next()[0]] = straight(from, to)
    this.short = false
    this.changed()
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
    this.changed()
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

  paint() {
    const strokes = Object.entries(this.strokes)
    const next = this.next()
    if (this.stroke && next) strokes.push([next[0], this.stroke])
    this.svg.replaceChildren(...strokes.map(([name, stroke]) => line(stroke, this.colour(name))))
    this.picks.hidden = !next
    this.hint.hidden = strokes.length > 0
    const turn = this.modes.length > 1 ? ` (${this.modes.indexOf(next) + 1} of ${this.modes.length})` : ""
    const words = next ? `${turn}: draw its time per token, or pick a shape.${this.short ? " That was short." : ""}` : ""
    const who = next ? element("b", { style: `border-bottom: 3px solid ${this.colour(next[0])}` }, next[1]) : this.over
    if (this.words.textContent !== (next ? next[1] : who) + words) this.words.replaceChildren(who, words)
  }
}
