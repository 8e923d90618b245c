// A matrix as it is: a row for each token, a column for each number, a coloured cell for each value.
// One pixel a value, drawn on a canvas that is stretched without smoothing.

import { element, put } from "../shared/dom.js"

export const ROW = 26 // CSS pixels
const WRITTEN = 14 // CSS pixels of the narrowest cell that bears its number
const USUAL = 0.98 // this part of the numbers spans the colours, so that no single large one makes the rest pale

export class Matrix {
  // `words` say what it holds, and stand where it is still to be computed; `gone` stands at rows of earlier steps.
  constructor(name, words, gone = "answered earlier") {
    this.title = element("div", { class: "kv-mtitle" })
    this.canvas = element("canvas", { role: "img", "data-testid": `kv-matrix-${name}` })
    this.origins = element("div", { class: "kv-origins" })
    this.blocks = element("div", { class: "kv-whole" })
    this.mark = element("div", { class: "kv-rowmark", hidden: "" })
    this.absent = element("span", { class: "kv-absent" }, gone)
    this.later = element("span", { class: "kv-later" })
    this.hidden = element("span", { class: "kv-masked" }, "masked")
    this.numbers = element("div", { class: "kv-numbersof", "aria-hidden": "true" })
    this.cells = element("div", { class: "kv-cells" }, this.canvas, this.numbers, this.absent, this.later, this.hidden, this.blocks, this.mark)
    this.under = element("div", { class: "kv-under-columns", "aria-hidden": "true" })
    this.scale = element("div", { class: "kv-scale" })
    this.formula = element("div", { class: "kv-formula" })
    this.node = element("figure", { class: "kv-matrix", "data-name": name, title: words }, this.title, this.formula,
                        element("div", { class: "kv-mrow" }, this.origins, this.cells), this.under, this.scale)
    Object.assign(this, { name, words })
  }

  // `rows`: arrays of numbers, null for a row that is not there; one that ends before its last column is masked from
  // there. `origins`: a word a row. `pending`: whether a row is yet to be computed. `formula`: what it is computed from.
  // `width`: CSS pixels. `range`: the values at both ends of the colours. `later`: none of it is there yet. `under`: a
  // word a column. `write`: turns the numbers, none of them below 0, into words that stand in wide cells.
  draw({ rows, origins, pending, columns, width, letters, formula, colour, most, masked, range, later, under = [], write = null }) {
    const shape = [rows.filter(Boolean).length, columns]
    this.title.replaceChildren(element("b", {}, this.name), ` ${letters} `, element("span", { class: "kv-shape" }, `${shape.join(" × ")}`))
    const written = write && width >= WRITTEN * columns
    put(this.formula, formula)
    const gone = rows.filter((row) => !row).length
    this.absent.hidden = !gone
    this.absent.style.height = `${gone * ROW}px`
    this.hidden.hidden = later || !rows[0] || columns - rows[0].length < 3
    this.foretell(rows.map((row, y) => Boolean(row) && pending[y]))
    this.surround(rows.map((row, y) => (row && !pending[y] ? origins[y] : "")))
    this.scale.replaceChildren(...(later || !shape[0] ? [] : [range[0], scaleBar(colour, write ? 0 : -1, 1), range[1] + (written ? ", rounded" : "")]))
    this.under.style.width = `${width}px`
    this.under.replaceChildren(...under.map((words) => element("span", {}, words)))
    this.canvas.width = Math.max(1, columns)
    this.canvas.height = Math.max(1, rows.length)
    this.canvas.style.width = `${width}px`
    this.canvas.style.height = `${rows.length * ROW}px`
    this.canvas.setAttribute("aria-label", `${this.name}, ${shape[0]} rows of ${shape[1]} numbers`)
    const paint = this.canvas.getContext("2d")
    const image = paint.createImageData(this.canvas.width, this.canvas.height)
    rows.forEach((row, y) => {
      if (!row || pending[y]) return
      for (let x = 0; x < columns; x++) {
        const [r, g, b] = x < row.length ? colour(row[x] / (most || 1)) : masked
        image.data.set([r, g, b, 255], 4 * (y * this.canvas.width + x))
      }
    })
    paint.putImageData(image, 0, 0)
    this.numbers.style.gridTemplate = `repeat(${rows.length}, ${ROW}px) / repeat(${columns}, 1fr)`
    this.numbers.replaceChildren(...(!written ? [] : rows.flatMap((row, y) => (row && !pending[y] ? row : []).map((value, x) => {
      const words = element("span", {}, write(value))
      Object.assign(words.style, { gridArea: `${y + 1} / ${x + 1}`, color: inkOn(colour(value / (most || 1))) })
      return words
    }))))
    this.origins.replaceChildren(...rows.map((row, y) => element("i", { "data-origin": row ? origins[y] : "none", "data-pending": String(pending[y]) })))
  }

  // An empty frame where rows are still to be computed; they stand together.
  foretell(rows) {
    const many = rows.filter(Boolean).length
    this.later.hidden = !many
    put(this.later, many > 2 ? this.words : "not yet")
    Object.assign(this.later.style, { top: `${rows.indexOf(true) * ROW}px`, height: `${many * ROW}px` })
  }

  // A frame around the rows that come from the same place.
  surround(origins) {
    const key = origins.join(" ")
    if (this.surrounded === key) return
    this.surrounded = key
    const starts = [...origins.keys()].filter((y) => origins[y] && origins[y] !== origins[y - 1])
    this.blocks.replaceChildren(...starts.map((from) => {
      const rest = origins.slice(from)
      const many = rest.findIndex((origin) => origin !== rest[0])
      const block = element("i", { "data-origin": rest[0] })
      Object.assign(block.style, { top: `${from * ROW}px`, height: `${(many < 0 ? rest.length : many) * ROW}px` })
      return block
    }))
  }

  point(row) {
    this.mark.hidden = row === null
    if (row !== null) this.mark.style.top = `${row * ROW}px`
  }
}

export const largest = (rows) => rows.reduce((most, row) => row ? row.reduce((m, v) => Math.max(m, Math.abs(v)), most) : most, 0)

// How far from 0 nearly all of the numbers lie.
export function usual(rows) {
  const sizes = rows.flatMap((row) => row ?? []).map(Math.abs).sort((a, b) => a - b)
  return sizes[Math.floor(USUAL * (sizes.length - 1))] ?? 0
}

const mix = (a, b, share) => a.map((from, i) => Math.round(from + (b[i] - from) * share))

// Negative to positive, through the page's own background; from nothing to all; and what is masked. None of these
// hues is one of the legend's, which say where a row comes from.
export function scales(dark) {
  const ground = dark ? [44, 54, 66] : [248, 249, 251]
  const [low, high] = dark ? [[245, 143, 216], [225, 230, 236]] : [[176, 50, 143], [40, 50, 61]]
  const full = dark ? [238, 230, 255] : [86, 52, 143]
  const signed = (v) => mix(ground, v < 0 ? low : high, Math.min(1, Math.abs(v)) ** (dark ? 0.7 : 0.75))
  const half = [124, 77, 220] // on a dark ground, so that shares differ in hue and not only in grey
  const share = (v) => {
    const at = Math.min(1, v) ** (dark ? 0.55 : 0.7)
    if (!dark) return mix(ground, full, at)
    return at < 0.5 ? mix(ground, half, 2 * at) : mix(half, full, 2 * at - 1)
  }
  return { signed, share, ground, masked: dark ? [20, 26, 33] : [205, 212, 220] }
}

// Black or white, whichever can be read better on a colour: by WCAG's relative luminance, at least 4.58 to 1.
export function inkOn(colour) {
  const [r, g, b] = colour.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff"
}

// A bar of the colours from one value to another, for the legend.
export function scaleBar(colour, from, to) {
  const stops = Array.from({ length: 9 }, (_, i) => `rgb(${colour(from + ((to - from) * i) / 8).join(" ")})`)
  const bar = element("i", { class: "kv-scalebar" })
  bar.style.background = `linear-gradient(90deg, ${stops.join(", ")})`
  return bar
}
