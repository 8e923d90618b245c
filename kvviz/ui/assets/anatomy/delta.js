// A gated delta layer: a matrix of constant size that each token corrects, beside layers whose cache grows.

import { element, put, svg } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { Grid } from "./grid.js"
import { largest, scales } from "./matrix.js"
import { formula, lower, number, root, upper } from "./maths.js"
import { dataTable, drawCode, folded, isDark, mounting, nameByToken, section, shown, Walkthrough } from "./walkthrough.js"

const SCENES = [
  { key: "enter", stages: ["enter", "convolve", "split", "pace"] },
  { key: "forget", stages: ["forget"] },
  { key: "recall", stages: ["recall"] },
  { key: "write", stages: ["write"] },
  { key: "read", stages: ["read", "gate", "output"] },
]

export const mount = mounting(class extends Walkthrough {
  constructor(root, data) {
    super(root, data, SCENES, { step: 8, scene: "write" })
  }

  build() {
    this.head = 0
    this.cell = null // row and column of the number whose sum is written out
    this.stacks = element("div", { class: "kv-stacks" })
    this.heads = element("div", { class: "kv-tabs", role: "group", "aria-label": "Heads" })
    this.board = element("div", { class: "kv-state", "data-testid": "kv-state" })
    this.rule = element("div", { class: "kv-rule" })
    this.film = element("div", { class: "kv-film", role: "group", "aria-label": "The matrix after each token" })
    this.rates = element("p", { class: "kv-note" })
    this.same = element("p", { class: "kv-same", "data-testid": "kv-same" })
    this.code = element("pre", { class: "kv-code", tabindex: "0", "aria-label": "The code" })
    this.table = element("table", {})
    return [
      section("Attention's cache grows with each token; a state stays as large as it was", "Bytes of all layers of a kind in two hybrid models, read off transformers' own cache. To the right: the tokens; one scale for both.", this.stacks),
      section("One head's matrix: every token changes its cells, none adds one", "Choose a head, and point at a number to see how it came about.", this.heads,
              element("div", { class: "kv-beside kv-statebeside" }, element("div", { class: "kv-lanebox", tabindex: "0", role: "region", "aria-label": "The matrix" }, this.board), this.rule), this.same, this.rates),
      section("The same matrix after each token", "Each square is the whole memory of all tokens up to that one.", this.film),
      section("The code that runs", "It reads one token. The lit lines are at work in this scene; the grey tags are the shapes that they made.", this.code),
      folded("All tokens as a table", this.table),
    ]
  }

  came() {
    const { look } = this
    this.heads.replaceChildren(...look.steps[0].keep.map((_, head) => {
      const tab = element("button", { type: "button" }, `head ${head}`)
      tab.onclick = () => { this.head = head; this.drawAll() }
      return tab
    }))
    nameByToken(this.steps, look)
    put(this.rates, `How fast a head forgets is set here, at rates of ${look.rates.join(", ")}, so that there is something to see; the other weights are drawn.`)
    const linear = look.stacks[0].kinds.indexOf("linear"), full = look.stacks[0].kinds.indexOf("full")
    dataTable(this.table, ["token", "tokens", "state of a delta layer", "cache of an attention layer", "multiply-adds, delta layer", "multiply-adds, attention layer", "largest Δ of logits"],
              look.steps.map((one, i) => [shown(look.tokens[i]), one.total, bytes(look.stacks[0].bytes[i][linear][0]), bytes(look.stacks[0].bytes[i][full][0]),
                                          count(one.multiply_adds[linear]), count(one.multiply_adds[full]), small(one.difference)]))
    this.film.replaceChildren(...look.steps.map((_, i) => {
      const grid = new Grid(`film-${i}`, `the matrix after token ${i}`)
      const node = element("button", { type: "button", title: `after token ${i}` }, grid.node, element("span", {}, shown(look.tokens[i])))
      node.onclick = () => this.go((i + 1) * SCENES.length - 1)
      node.grid = grid
      return node
    }))
  }

  // One head's part of what a step recorded: a row, a matrix or a number.
  of(name, step = this.step) {
    const made = this.look.steps[step]?.[name]?.[this.head]
    return name === "written" ? made ?? this.look.steps[0].written[this.head].map((row) => row.map(() => 0)) : made?.length === 1 ? made[0] : made
  }

  said(key) {
    const token = `“${shown(this.look.tokens[this.step])}”`
    const { key_dim: keys, value_dim: values } = this.look.design
    const keep = this.of("keep")[0], strength = this.of("strength")[0]
    switch (key) {
      case "enter":
        return [`${token} enters: a query, a key, a value and two gates`, `The matrix has ${keys} × ${values} numbers and ${this.now.total > 1 ? `holds all ${this.now.total - 1} tokens before` : "is still empty"}. It is a memory that answers a key with a value. No list of tokens is kept beside it.`]
      case "forget":
        return ["What was written fades", `The gate α = ${keep.toFixed(3)} of this token multiplies the whole matrix: ${keep > 0.9 ? "nearly all stays" : keep > 0.5 ? "a good part stays" : "most of it goes"}. This is where a constant size is paid for.`]
      case "recall":
        return ["The matrix is asked for the new key", "The key times the matrix is what the memory would answer now. Compare it with the value: the difference is the error."]
      case "write":
        return ["Only the error is written", `Key times error, with the strength β = ${strength.toFixed(3)}, is added: asked for this key again, the matrix answers nearer to the value. Every cell changes, none is added.`]
      default:
        return ["The matrix answers the query", `The query times the matrix is the head's output: ${keys} × ${values} multiply-adds, after ${this.now.total} tokens as after one. Attention would read ${this.now.total} keys and values here.`]
    }
  }

  draw() {
    const { look } = this
    const dark = isDark(this.root), scale = scales(dark)
    this.drawStacks()
    for (const [i, tab] of [...this.heads.children].entries()) tab.setAttribute("aria-pressed", String(i === this.head))
    const most = Math.max(...look.steps.map((_, i) => largest(this.of("written", i))))
    this.drawState(scale, dark, most)
    this.drawRule()
    for (const [i, node] of [...this.film.children].entries()) {
      const there = i < this.step || (i === this.step && this.reached("write"))
      node.grid.draw({ rows: this.of("written", i), cell: [5, 5], most, scale, there: () => there })
      node.setAttribute("aria-current", String(i === this.step))
    }
    drawCode(this.code, this.data.listing, this.scene.stages, this.now.shapes)
    put(this.same, this.reached("read") ? `From transformers, which reads the whole text at once in chunks: logits differ by at most ${small(this.now.difference)} here, the matrix after the last token by ${small(look.difference)}.` : "")
  }

  // Two lines for each model, over the tokens: its states, which stay, and its keys and values, which become more.
  drawStacks() {
    const { look } = this
    const kinds = look.stacks.map(({ kinds, bytes: held }) => [["stays", kinds.map((kind) => kind === "linear")], ["grows", kinds.map((kind) => kind !== "linear")]].map(
      ([way, mine]) => ({ way, layers: mine.filter(Boolean).length, bytes: held.map((row) => row.reduce((sum, [all], i) => sum + (mine[i] ? all : 0), 0)) })))
    const most = Math.max(...kinds.flat().flatMap((line) => line.bytes))
    this.stacks.replaceChildren(...look.stacks.map(({ title }, i) => element("figure", { class: "kv-stack" },
      element("figcaption", {}, element("b", {}, title[0].toUpperCase() + title.slice(1))), this.lines(kinds[i], most), ...kinds[i].map((line) => this.named(line)))))
  }

  // What a line of the chart is, and where it is now.
  named({ way, layers, bytes: held }) {
    const words = way === "stays" ? `state${layers === 1 ? "" : "s"}, after every token` : `attention layer${layers === 1 ? "" : "s"}, after ${this.now.total}`
    return element("div", { class: "kv-stackrow" }, element("i", { class: "kv-swatch", "data-kind": way }), element("span", {}, `${layers} ${words}`), element("b", {}, bytes(held[this.step])))
  }

  lines(drawn, most) {
    const across = 560, high = 120, edge = 6
    const x = (i) => edge + (i / Math.max(1, this.look.steps.length - 1)) * (across - 2 * edge)
    const y = (value) => high - edge - (value / most) * (high - 2 * edge)
    const board = svg("svg", { class: "kv-lines", viewBox: `0 0 ${across} ${high}`, role: "img", "aria-label": "Bytes over the tokens; the figures stand below, and all of them in the table at the end" })
    board.append(svg("line", { class: "kv-ground", x1: edge, x2: across - edge, y1: y(0), y2: y(0) }), svg("line", { class: "kv-nowline", x1: x(this.step), x2: x(this.step), y1: 0, y2: y(0) }))
    for (const { way, bytes: held } of drawn) {
      board.append(svg("polyline", { "data-kind": way, points: held.map((value, i) => `${x(i)},${y(value)}`).join(" ") }),
                   svg("circle", { "data-kind": way, cx: x(this.step), cy: y(held[this.step]), r: 4.5 }))
    }
    return board
  }

  drawState(scale, dark, most) {
    const before = this.of("written", this.step - 1), keep = this.of("keep")[0]
    const matrix = this.reached("write") ? this.of("written") : before.map((row) => row.map((value) => (this.reached("forget") ? keep * value : value)))
    const beside = Math.max(largest([this.of("q"), this.of("k")]))
    const above = largest([this.of("v"), this.of("answer"), this.of("delta"), this.of("read")])
    const cell = (value, most, there, note = "") => {
      const node = element("div", { class: "kv-cell", title: note }, there ? short(value) : "")
      if (there) {
        const strength = value / (most || 1)
        node.style.background = `rgb(${scale.signed(strength).join(" ")})`
        node.style.color = Math.abs(strength) > 0.45 === dark ? "#16202b" : "#f7f8fa"
      }
      return node
    }
    const word = (text, lit) => element("div", { class: "kv-statename", "data-lit": String(lit) }, text)
    const blank = () => element("div", {})
    const row = (title, values, there, lit) => [word(title, lit), blank(), ...values.map((value) => cell(value, above, there)), blank()]
    const here = (key) => this.scene.key === key
    this.board.style.setProperty("--kv-columns", matrix[0].length)
    this.board.replaceChildren(
      ...row("value v", this.of("v"), true, here("enter")),
      ...row("answer kᵀS", this.of("answer"), this.reached("recall"), here("recall")),
      ...row("error × β", this.of("delta"), this.reached("write"), here("write")),
      blank(), word("k", true), ...matrix[0].map(blank), word("q", true),
      ...matrix.flatMap((values, i) => [
        i ? blank() : word("matrix S", here("forget") || here("write")),
        cell(this.of("k")[i], beside, true),
        ...values.map((value, j) => {
          const node = cell(value, most, true)
          node.dataset.at = `${i},${j}`
          node.dataset.chosen = String(this.chosen[0] === i && this.chosen[1] === j)
          node.onmouseenter = node.onclick = () => { this.cell = [i, j]; this.drawRule() }
          return node
        }),
        cell(this.of("q")[i], beside, this.reached("read")),
      ]),
      ...row("output qᵀS", this.of("read"), this.reached("read"), here("read")))
  }

  // The number that is written out: the one that was pointed at, else the one that this token changes most.
  get chosen() {
    if (this.cell) return this.cell
    const before = this.of("written", this.step - 1), after = this.of("written")
    let best = [0, 0], most = -1
    after.forEach((row, i) => row.forEach((value, j) => {
      if (Math.abs(value - before[i][j]) > most) [best, most] = [[i, j], Math.abs(value - before[i][j])]
    }))
    return best
  }

  drawRule() {
    const [i, j] = this.chosen
    for (const node of this.board.querySelectorAll("[data-at]")) node.dataset.chosen = String(node.dataset.at === `${i},${j}`)
    const before = this.of("written", this.step - 1)[i][j], after = this.of("written")[i][j]
    const keep = this.of("keep")[0], strength = this.of("strength")[0]
    const [k, v, answer, delta] = ["k", "v", "answer", "delta"].map((name) => this.of(name))
    const s = (at) => lower("S", at)
    const where = `${i + 1},${j + 1}` // counted from 1, as the formulas do
    const line = (key, words, ...formulas) => element("div", { class: "kv-ruleline", "data-lit": String(this.scene.key === key) }, element("span", {}, words), ...formulas)
    this.rule.replaceChildren(
      element("p", { class: "kv-words" }, `For the number in row ${i + 1}, column ${j + 1}, outlined in the matrix:`),
      line("forget", "forget", formula("α", s("t−1")), formula(keep, "·", ...signed(before), "=", keep * before)),
      line("recall", "recall", formula(upper(lower("k", "t"), "⊤"), "(", "α", s("t−1"), ")"), formula(lower("a", String(j + 1)), "=", answer[j])),
      line("write", "correct", formula(lower("δ", "t"), "=", "β", "(", lower("v", "t"), "−", lower("a", "t"), ")"),
           formula(strength, "·", "(", v[j], "−", ...signed(answer[j]), ")", "=", delta[j])),
      line("write", "write", formula(s("t"), "=", "α", s("t−1"), "+", lower("k", "t"), upper(lower("δ", "t"), "⊤")),
           formula(lower("S", number(where)), "=", keep * before, "+", ...signed(k[i]), "·", ...signed(delta[j]), "=", after)),
      line("read", "read", formula(lower("o", "t"), "=", upper(lower("q", "t"), "⊤"), s("t"), "/", root(String(this.look.design.key_dim))),
           formula(lower("o", String(j + 1)), "=", this.of("read")[j])))
  }
}, ".kv-delta")

const signed = (value) => (value < 0 ? ["(", value, ")"] : [value])
const small = (value) => (value ? value.toExponential(1) : "0")
const short = (value) => (Math.abs(value) < 0.005 ? "0" : value.toFixed(Math.abs(value) < 9.95 ? 2 : 1).replace(/^(-?)0\./, "$1.").replace("-", "−"))
