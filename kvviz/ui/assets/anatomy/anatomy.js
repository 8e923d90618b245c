// One attention layer while it happens: a walk of scenes over matrices of real numbers, beside the code that runs.

import { element, scrolled } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { mounted } from "../shared/mounted.js"
import { Matrix, ROW, scales, usual } from "./matrix.js"
import { idle, origin, said, SCENES, whence } from "./scenes.js"
import { drawCode, isDark, nameByRead, shown, Walkthrough } from "./walkthrough.js"

const ASIDE = 380 // CSS pixels of the labels, the gaps and the borders beside the matrices
const NARROW = 640, BESIDE = 240, SPARE = 12 // CSS pixels: below the first the matrices wrap, and one stands beside the labels; the third is left beside two of them

class Anatomy extends Walkthrough {
  constructor(root, data) {
    super(root, data, SCENES, 1) // a new token looks at what is kept: there is something to see
    this.again = false
    this.head = 0 // place among the heads that were sent
    root.style.setProperty("--kv-row", `${ROW}px`)
    root.kvState = () => ({ at: this.at, again: this.again, head: this.head, look: this.look })
  }

  get sheets() { return [] }
  get record() { return "anatomy" }

  modes() {
    this.ways = [["No cache", true], ["KV cache", false]].map(([words, again]) => {
      const way = element("button", { type: "button", "data-way": again ? "again" : "kept", "data-testid": again ? "kv-again" : "kv-cached" }, words)
      way.onclick = () => { this.again = again; this.moved({ own: true }) }
      return way
    })
    return element("div", { class: "kv-tabs", role: "group", "aria-label": "Mode" }, ...this.ways)
  }

  build() {
    this.heads = element("div", { class: "kv-tabs", role: "group", "aria-label": "Heads" })
    this.labels = element("div", { class: "kv-labels" })
    this.matrices = {
      Q: new Matrix("Q", "queries: what each token looks for", "each was used once, earlier"),
      K: new Matrix("K", "keys: by what a token is found"),
      V: new Matrix("V", "values: what it hands over"),
      A: new Matrix("A", "a row for each query, a column for each key: who looks at whom, and how much"),
      out: new Matrix("out", "what each query gets: a mixture of values"),
    }
    this.tip = element("div", { class: "kv-tip", hidden: "" })
    const board = element("div", { class: "kv-board" }, this.labels, ...["Q", "K", "V", "A", "out"].map((m) => this.matrices[m].node))
    this.board = element("div", { class: "kv-gridbox" }, scrolled("The matrices of this head", "kv-scroll", board), this.tip)
    const cells = this.matrices.A.cells
    cells.onmousemove = (event) => this.hover(event)
    cells.onmouseleave = () => this.unhover()
    this.guess = element("div", { class: "kv-counts", "data-testid": "kv-next-tokens" })
    this.code = element("pre", { class: "kv-code", "data-testid": "kv-code", tabindex: "0" })
    this.counts = element("div", { class: "kv-counts", "data-testid": "kv-counts" })
    return [
      element("div", { class: "kv-choices" }, this.modes(), this.heads),
      this.board,
      element("div", { class: "kv-under kv-walking" },
              section("The code that runs", "The lit lines are at work in this scene; the grey tag shows each line's result shape in this step.", this.code),
              element("div", {},
                      section("The work so far", "Multiply-adds of the whole model, counted as they ran. A bar of full length is the whole walk without a cache.", this.counts),
                      section("The next token", "The likeliest pieces at the end of this step, and their shares: the first is taken.", this.guess))),
    ]
  }

  update(data, setTriggerValue) {
    this.ask = (head) => setTriggerValue("head", head)
    super.update(data)
  }

  came() {
    nameByRead(this.steps, this.look)
    this.head = Math.max(0, this.look.heads.indexOf(this.data.head))
    this.heads.replaceChildren(...Array.from({ length: this.look.design.heads }, (_, head) => {
      const tab = element("button", { type: "button" }, `head ${head}`)
      tab.onclick = () => this.choose(head)
      return tab
    }))
  }

  // A head whose numbers were not sent, because all would be too many, is asked for.
  choose(head) {
    const place = this.look.heads.indexOf(head)
    if (place < 0) return this.ask(head)
    this.head = place
    this.drawAll()
  }

  wish(asked) {
    if (this.look && asked.comparison === this.follows && asked.step !== null) this.again = asked.mode === "uncached"
    super.wish(asked)
  }

  said(key) { return said(this.look, this.step, key, this.again) }

  // --- the picture -----------------------------------------------------------------------------------------------

  draw() {
    const { look, now } = this
    for (const [head, tab] of [...this.heads.children].entries()) tab.setAttribute("aria-pressed", String(head === look.heads[this.head]))
    this.heads.hidden = look.design.heads < 2
    for (const [i, way] of this.ways.entries()) way.setAttribute("aria-pressed", String(this.again === !i))
    this.drawBoard(now, this.scene.key)
    this.drawNext(now)
    drawCode(this.code, this.data.listing, this.scene.stages, this.again ? now.again.shapes : now.shapes, (stage) => idle(stage, look.design))
    this.drawCounts()
  }

  drawBoard(now, key) {
    const { look } = this
    const { head_dim: dim, heads, kv_heads: kvHeads } = look.design
    const scale = scales(isDark(this.root))
    const kv = look.kv_heads.indexOf(Math.floor(look.heads[this.head] / (heads / kvHeads)))
    const origins = Array.from({ length: now.total }, (_, row) => origin(this.step, row, now, this.again))
    const first = now.total - now.read
    const asks = (row) => this.again || row >= first // rows of Q, scores and outputs that are computed in this step
    const from = (name) => this.reached(name)
    const asked = (rows) => rows.slice(0, now.total).map((row, i) => (asks(i) ? row : null))
    const askedOrigins = origins.map((kind) => (kind === "kept" ? "now" : kind))
    const side = now.total * ROW
    const wide = this.root.clientWidth
    const across = wide < NARROW && key === "whole" ? Math.min(side, wide - BESIDE + SPARE) : side // A has room beside out
    const width = Math.floor(Math.max(96, wide < NARROW ? Math.min(dim * 7, wide - BESIDE) : (wide - side - ASIDE) / 4))
    // what the cache holds is there from the start of a step, what enters once it is computed
    const held = (row) => row < first && !this.again
    const scored = `Q × Kᵀ / √${dim}${look.design.positions === "alibi" ? " + ALiBi" : ""}`
    const attention = from("softmax") ? look.weights : look.scores
    const values = { Q: asked(look.q[this.head]), K: look.k[kv].slice(0, now.total), V: look.v[kv].slice(0, now.total),
                     A: asked(attention[this.head]), out: asked(look.mixed[this.head]) }
    const there = { Q: from("project"), K: from("project"), V: from("project"), A: from("score"), out: from("mix") }
    for (const [name, matrix] of Object.entries(this.matrices)) {
      const square = name === "A"
      const kept = name === "K" || name === "V"
      matrix.draw({
        rows: values[name],
        origins: kept ? origins : askedOrigins,
        pending: values[name].map((_, row) => !(there[name] || (kept && held(row)))),
        columns: square ? now.total : dim,
        width: square ? across : width,
        letters: square ? (from("softmax") ? "shares (%)" : "scores") : HOLDS[name],
        formula: square ? (from("softmax") ? `softmax of ${scored}` : scored) : name === "out" && !from("softmax") ? "from A and V" : MADE[name],
        ...(square && from("softmax") ? { colour: scale.share, most: 1, range: ["0", "100%"], write: percent } : signed(scale, values[name])),
        later: !(there[name] || (kept && values[name].some((_, row) => held(row)))),
        masked: scale.masked,
        under: square && across >= 12 * now.total ? Array.from({ length: now.total }, (_, at) => String(at)) : [],
      })
      matrix.node.dataset.there = String(there[name])
      matrix.node.dataset.lit = String(LIT[key]?.includes(name) ?? false)
    }
    this.labels.replaceChildren(element("div", { class: "kv-mtitle" }, "positions, tokens"), element("div", { class: "kv-formula" }, "each token enters as a vector"), ...look.tokens.slice(0, now.total).map((text, row) =>
      element("div", { class: "kv-label", "data-origin": this.again || row >= first ? origins[row] : "kept", title: text },
              element("span", { class: "kv-position" }, String(row)), shown(text),
              element("span", { class: "kv-whence" }, origins[row] === origins[row - 1] ? "" : whence(origins[row], key, wide < NARROW)))))
  }

  drawNext(now) {
    const most = now.next[0][1]
    this.guess.replaceChildren(...now.next.map(([text, share]) => element("div", { class: "kv-countrow" }, element("b", {}, shown(text)),
      element("div", { class: "kv-track" }, fill(share / most, "now")), element("span", {}, `${share < 0.001 ? "<0.1" : (100 * share).toFixed(share < 0.1 ? 1 : 0)}%`))))
  }

  drawCounts() {
    const upto = this.look.steps.slice(0, this.step + 1)
    const kept = upto.reduce((sum, step) => sum + step.multiply_adds, 0)
    const again = upto.reduce((sum, step) => sum + step.again.multiply_adds, 0)
    const all = this.look.steps.reduce((sum, step) => sum + step.again.multiply_adds, 0)
    const row = (words, value, mode) => element("div", { class: "kv-countrow" }, element("span", {}, words),
      element("div", { class: "kv-track" }, fill(value / all, mode)), element("b", {}, count(value)))
    const now = this.look.steps[this.step]
    const { heads, kv_heads: kvHeads, layers } = this.look.design
    this.counts.replaceChildren(
      row("KV cache", kept, "kept"), row("No cache", again, "again"),
      element("p", { class: "kv-note" }, `The cache after this step: ${bytes(now.cache_bytes)}, all ${layers} layers. ` +
        (kvHeads === heads ? "Each query head has its own KV head." : `${heads} query heads share ${kvHeads} KV heads, ${heads / kvHeads} to each.`)))
  }

  // --- pointing --------------------------------------------------------------------------------------------------

  hover(event) {
    const box = this.matrices.A.canvas.getBoundingClientRect()
    const row = Math.floor((event.clientY - box.top) / ROW)
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.look.steps[this.step].total)
    const { look } = this
    const now = look.steps[this.step]
    if (row < 0 || column < 0 || row >= now.total || column >= now.total || this.matrices.A.node.dataset.there !== "true") {
      this.unhover()
      return
    }
    this.matrices.Q.point(row)
    this.matrices.K.point(column)
    this.matrices.V.point(column)
    this.tip.hidden = false
    this.tip.textContent = this.cellWords(row, column, now)
    const frame = this.board.getBoundingClientRect()
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - frame.left + 14, frame.width - 260))}px`
    this.tip.style.top = `${event.clientY - frame.top + 16}px`
  }

  cellWords(row, column, now) {
    const { look } = this
    const [query, key] = [shown(look.tokens[row]), shown(look.tokens[column])]
    if (column > row) return `${key} comes after ${query}:\nmasked, its share is 0`
    if (!this.again && row < now.total - now.read) return `${query} was asked in an earlier step.\nIts answer is not needed any more.`
    const score = look.scores[this.head][row][column]
    const share = look.weights[this.head][row][column]
    const value = look.v[look.kv_heads.indexOf(Math.floor(look.heads[this.head] / (look.design.heads / look.design.kv_heads)))][column]
    const length = share * Math.hypot(...value)
    return `${query} asks ${key}\nq·k / √${look.design.head_dim} = ${score.toPrecision(3)}\nshare = ${(100 * share).toPrecision(3)}%\n` +
      `adds share × v, of length ${length.toPrecision(3)}`
  }

  unhover() {
    this.tip.hidden = true
    for (const name of ["Q", "K", "V"]) this.matrices[name].point(null)
  }
}

export const mount = mounted(Anatomy, ".kv-anatomy")

function signed(scale, rows) {
  const most = usual(rows)
  const end = most.toPrecision(2)
  return { colour: scale.signed, most, range: [`≤ −${end}`, `≥ ${end}`] }
}

const percent = (share) => String(Math.round(100 * share))

const HOLDS = { Q: "queries", K: "keys", V: "values", out: "mixed values" }
const MADE = { Q: "vector × query weights", K: "vector × key weights", V: "vector × value weights", out: "shares × V" }
const LIT = { project: ["Q", "K", "V"], append: ["K", "V"], score: ["Q", "K", "A"], softmax: ["A"], mix: ["A", "V", "out"], next: ["out"], whole: ["K", "V"] }

function fill(share, kind) {
  const node = element("div", { class: "kv-countfill", "data-origin": kind })
  node.style.width = `${Math.max(0.5, 100 * share)}%`
  return node
}

function section(title, words, ...rest) {
  return element("section", {}, element("h2", {}, title), element("p", { class: "kv-words" }, words), ...rest)
}
