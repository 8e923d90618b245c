// The cache as a picture: layers down, positions across. A few rectangles a layer, however many cells there are.

import { element } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { ELSEWHERE, watched } from "../shared/state.js"

const LEFT = 60
const BOTTOM = 20
const TALLEST = 120
const NARROWEST = 4 // pixels of what is new, which a phone would not show else

export class CacheGrid {
  constructor(look) {
    this.look = look
    this.canvas = element("canvas", { class: "kv-grid", "data-testid": "kv-grid", role: "img" })
    this.tip = element("div", { class: "kv-tip", hidden: "" })
    this.legend = element("div", { class: "kv-legend" })
    this.node = element("div", { class: "kv-gridbox" }, this.canvas, this.tip, this.legend)
    this.canvas.onmousemove = (event) => this.point(event)
    this.canvas.onmouseleave = () => { this.tip.hidden = true }
  }

  draw(state, mode, upto) {
    Object.assign(this, { state, mode, upto })
    // without a cache object, nobody saw what became of K and V: in a watched run, and on a server
    const unseen = (watched(state) || mode?.name === ELSEWHERE) && !mode?.rows[upto - 1]?.layers.length
    const waits = !mode || !upto || !state.prompt // a picture that has been drawn keeps its place until the next one
    this.node.hidden = unseen || (waits && !this.height)
    this.node.style.visibility = waits ? "hidden" : ""
    if (this.node.hidden || waits) return
    this.measure()
    const paint = this.canvas.getContext("2d")
    const scale = window.devicePixelRatio || 1
    paint.setTransform(scale, 0, 0, scale, 0, 0)
    paint.clearRect(0, 0, this.width, this.height)
    this.cells(paint)
    this.frame(paint)
    this.explain()
  }

  // The same again, after the page has got its width or another one.
  redraw() {
    if (this.mode && this.node.clientWidth !== this.width) this.draw(this.state, this.mode, this.upto)
  }

  // Sizes in CSS pixels; the canvas itself has the screen's own resolution.
  measure() {
    this.layers = this.state.model.layers
    this.positions = this.state.prompt.tokens + this.state.spec.new_tokens - 1
    this.width = Math.max(200, this.node.clientWidth)
    this.cell = Math.max(2, Math.min(window.innerHeight > 800 ? 18 : 14, Math.floor(TALLEST / this.layers)))
    this.step = (this.width - LEFT) / this.positions
    this.height = this.cell * this.layers + BOTTOM
    const scale = window.devicePixelRatio || 1
    const [w, h] = [Math.round(this.width * scale), Math.round(this.height * scale)]
    if (this.canvas.width !== w || this.canvas.height !== h) {
      Object.assign(this.canvas, { width: w, height: h })
      this.canvas.style.height = `${this.height}px`
    }
  }

  // What is where at this step: for each layer, the positions held, computed now, and those no longer kept.
  rows() {
    const seen = this.state.prompt.tokens + this.upto - 1
    const guesses = this.guesses()
    const fed = this.upto === 1 ? seen : guesses.fresh
    const groups = this.mode.rows[this.upto - 1].layers
    if (!groups.length) return Array.from({ length: this.layers }, () => ({ seen, held: 0, fresh: 1, again: seen }))
    const rows = []
    for (const group of groups) {
      for (const index of group.indices) rows[index] = { ...group, fresh: Math.min(fed, group.held), again: 0 }
    }
    return rows
  }

  // How many tokens this step's forward has read; the proposals that lie in the cache behind the text, and whether this
  // step has rejected them.
  guesses() {
    const { tokens } = this.mode
    const step = this.upto - 1
    const forward = tokens.slice(0, this.upto).findLastIndex((token) => token.proposed)
    if (forward < 0) return { fresh: 1, behind: [], rejected: false }
    const { proposed } = tokens[forward]
    const rejected = this.upto < tokens.length && tokens[this.upto].proposed !== null
    return { fresh: step === forward ? 1 + proposed.length : 0, behind: proposed.slice(step - forward), rejected }
  }

  cells(paint) {
    const { behind, rejected } = this.guesses()
    const { text } = this.look.theme()
    const gap = this.cell >= 5 ? 1 : 0
    this.rows().forEach((row, layer) => {
      if (!row) return
      const y = layer * this.cell
      const bar = (from, to, alpha, meaning) => {
        if (to <= from) return
        paint.globalAlpha = alpha
        paint.fillStyle = this.look.meaning(meaning)
        const width = Math.max(meaning === "new" ? NARROWEST : 1, (to - from) * this.step)
        paint.fillRect(LEFT + to * this.step - width, y, width, this.cell - gap)
      }
      if (row.again) {
        bar(0, row.seen - 1, 0.6, "again")
        bar(row.seen - 1, row.seen, 0.95, "new")
        return
      }
      const first = row.seen - row.held
      fade(first, (from, to, alpha) => bar(from, to, alpha, "gone"))
      const stand = row.seen - behind.length
      bar(first, Math.min(stand, row.seen - row.fresh), 0.75, "kept")
      bar(row.seen - row.fresh, stand, 1, "new")
      bar(stand, row.seen, 0.4, "new")
      if (!rejected) return
      paint.fillStyle = text
      paint.globalAlpha = 1
      paint.fillRect(LEFT + stand * this.step, y + (this.cell - gap) / 2 - 0.5, behind.length * this.step, 1)
    })
    paint.globalAlpha = 1
  }

  frame(paint) {
    const { text, grid, paper, family } = this.look.theme()
    const bottom = this.cell * this.layers
    paint.fillStyle = paper
    if (this.step >= 5) for (let p = 1; p < this.positions; p++) paint.fillRect(LEFT + p * this.step - 0.5, 0, 1, bottom)
    paint.strokeStyle = grid
    paint.strokeRect(LEFT - 0.5, 0.5, this.width - LEFT, bottom - 0.5)
    paint.fillStyle = text
    const edge = LEFT + this.state.prompt.tokens * this.step
    paint.fillRect(edge - 0.5, 0, 1, bottom + 4)
    paint.font = `13.5px ${family}`
    paint.textBaseline = "top"
    paint.textAlign = "right"
    paint.fillText("layer 0", LEFT - 6, 0)
    if (this.layers > 1) paint.fillText(`layer ${this.layers - 1}`, LEFT - 6, Math.max(bottom - 13, 13))
    this.label(paint, "prompt", LEFT, edge, bottom + 5)
    this.label(paint, "new tokens", edge, this.width, bottom + 5)
  }

  // In the middle of its part; where that is too narrow, up to the line at which it ends.
  label(paint, words, from, to, y) {
    const fits = paint.measureText(words).width <= to - from - 6
    paint.textAlign = fits ? "center" : "right"
    paint.fillText(words, fits ? (from + to) / 2 : to - 1, y)
  }

  explain() {
    const again = !this.mode.rows[this.upto - 1].layers.length
    const slides = this.rows().some((row) => row && row.held < row.seen && !again)
    const { speculates } = this.mode
    const key = `${again} ${slides} ${speculates} ${this.look.meaning("kept")}`
    if (this.explained === key) return
    this.explained = key
    const items = again
      ? [["again", 0.6, "computed again at this step, kept nowhere"], ["new", 0.95, "the newest token"]]
      : [["kept", 0.75, "held in the cache"], ["new", 1, "written at this step"], ...(slides ? [["gone", 0.3, "slid out of the window"]] : []),
         ...(speculates ? [["new", 0.4, "proposed and read ahead; struck out: rejected, cropped before the next forward pass"]] : [])]
    this.legend.replaceChildren(element("span", {}, "A column is a token, a row a layer."), ...items.map(([meaning, alpha, words]) => {
      const swatch = element("i", { class: "kv-swatch" })
      Object.assign(swatch.style, { background: this.look.meaning(meaning), opacity: alpha })
      return element("span", {}, swatch, words)
    }))
    this.canvas.setAttribute("aria-label", `The cache of ${this.mode.title}: layers down, positions across`)
  }

  point(event) {
    const x = event.offsetX - LEFT
    const layer = Math.floor(event.offsetY / this.cell)
    const position = Math.floor(x / this.step)
    const row = this.rows()[layer]
    if (x < 0 || !row || position >= this.positions) {
      this.tip.hidden = true
      return
    }
    this.tip.replaceChildren(...this.describe(layer, position, row).map((line) => element("div", {}, line)))
    this.tip.hidden = false
    this.tip.style.left = `${Math.min(event.offsetX + 14, this.width - this.tip.offsetWidth - 4)}px`
    this.tip.style.top = `${event.offsetY + 16}px`
  }

  describe(layer, position, row) {
    const { behind, rejected } = this.guesses()
    const guess = behind[position - row.seen + behind.length]
    const lines = [`Layer ${layer} · position ${position + 1} · ${JSON.stringify(guess ?? this.token(position))}`]
    if (position >= row.seen) return [...lines, "not there yet"]
    if (row.again) return [...lines, "K and V computed again at this step, then dropped"]
    if (position < row.seen - row.held) return [...lines, `slid out: this layer holds the last ${count(row.held)} tokens`]
    if (guess !== undefined) lines.push(rejected ? "rejected: cropped before the next forward pass" : "proposed, and read ahead")
    const one = (shape) => `[${shape.map((n, i) => (i === 2 ? 1 : n)).join(", ")}]`
    return [...lines, `K ${one(row.key_shape)}, V ${one(row.value_shape)}, ${row.dtype}`, `${bytes(row.nbytes / row.held)} of ${bytes(row.nbytes)} in this layer`]
  }

  token(position) {
    const { pieces, tokens } = this.state.prompt
    return position < tokens ? pieces[position] : this.mode.tokens[position - tokens]?.piece ?? ""
  }
}

// What has slid out of a window grows fainter with its age, in a few bands.
function fade(first, bar) {
  const bands = 4
  for (let i = 0; i < bands; i++) bar(Math.floor((first * i) / bands), Math.floor((first * (i + 1)) / bands), 0.12 + 0.08 * i)
}
