// Numbers as coloured cells, a row a token and a column a number: as wide as the numbers are many.

import { element } from "../shared/dom.js"
import { shown } from "./walkthrough.js"

const PALE = 0.16 // how strongly a row is drawn that is not there yet

export class Grid {
  // `name` and `words` say what it holds.
  constructor(name, words) {
    this.canvas = element("canvas", { role: "img", "data-testid": `kv-grid-${name}` })
    this.frame = element("i", { class: "kv-gridframe", hidden: "" })
    this.cuts = element("div", {})
    this.node = element("div", { class: "kv-grid", "data-name": name, title: words }, this.canvas, this.cuts, this.frame)
    this.words = words
  }

  // `cell`: width and height of a number, in CSS pixels. `there(row)`: whether it has been computed. `framed`: first
  // column and number of columns that are outlined. `cuts`: columns before which a line stands.
  draw({ rows, cell: [width, height], most, scale, there = () => true, framed = null, cuts = [] }) {
    const columns = rows[0]?.length ?? 0
    const { canvas } = this
    canvas.width = Math.max(1, columns)
    canvas.height = Math.max(1, rows.length)
    canvas.style.width = `${columns * width}px`
    canvas.style.height = `${rows.length * height}px`
    canvas.setAttribute("aria-label", `${this.words}: ${rows.length} × ${columns} numbers`)
    const paint = canvas.getContext("2d")
    const image = paint.createImageData(canvas.width, canvas.height)
    rows.forEach((row, y) => row.forEach((value, x) => {
      const strong = scale.signed(value / (most || 1))
      const colour = there(y) ? strong : strong.map((part, i) => scale.ground[i] + (part - scale.ground[i]) * PALE)
      image.data.set([...colour, 255], 4 * (y * columns + x))
    }))
    paint.putImageData(image, 0, 0)
    this.cuts.replaceChildren(...cuts.map((column) => {
      const line = element("i", { class: "kv-cut" })
      line.style.left = `${column * width}px`
      return line
    }))
    this.frame.hidden = !framed
    if (framed) Object.assign(this.frame.style, { left: `${framed[0] * width}px`, width: `${framed[1] * width}px` })
  }
}

// The tokens beside a grid's rows, those from row `first` on as new ones, `height` CSS pixels each.
export const labels = () => element("div", { class: "kv-gridlabels" })

export function label(node, tokens, first, height) {
  node.replaceChildren(...tokens.map((text, row) => {
    const one = element("div", { "data-origin": row < first ? "kept" : "now", title: `position ${row}` }, shown(text))
    one.style.height = one.style.lineHeight = `${height}px`
    one.style.fontSize = `${Math.min(12, height)}px`
    return one
  }))
}
