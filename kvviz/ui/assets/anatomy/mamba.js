// A Mamba-2 layer: a matrix of constant size that fades and is added to, and the same read at once as a prefill does.

import { element, put, scrolled } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { hybrid } from "./delta.js"
import { Grid, label, labels } from "./grid.js"
import { lower, name, sign, upper } from "./maths.js"
import { largest, scaleBar } from "./matrix.js"
import { codeOf, short, signed, signedBar, small, Stacks, StateWalk, strongest } from "./state.js"
import { mounting, section, shown } from "./walkthrough.js"

const SCENES = [
  { key: "enter", stages: ["enter", "project", "convolve", "split", "pace", "decay"] },
  { key: "forget", stages: ["forget"] },
  { key: "write", stages: ["write", "leave"] },
  { key: "read", stages: ["weigh", "read", "gate", "output"] },
]
const ROW = 16, LABEL = 64, LEAST = 32768 // CSS pixels; tokens of a long text

export const mount = mounting(class extends StateWalk {
  constructor(root, data) {
    super(root, data, SCENES, { step: 8, scene: "write" })
  }

  get names() {
    return {
      matrix: "h", rows: "numbers of b and c", columns: "numbers of x",
      sides: [{ title: "b", name: "b", from: "enter" }, { title: "c", name: "c", from: "read" }],
      above: [{ title: "input x", name: "x", from: "enter" }, { title: "step Δ × x", name: "added", from: "write" }],
      below: [{ title: "answer cᵀh", name: "answer", from: "read" }, { title: "output + D x", name: "read", from: "read" }],
      letters: "h matrix, a what is left of it, r the head's rate of forgetting, Δ the token's step, x input, b where it is written, c where the output is read, y output, D how much of x goes straight there.",
    }
  }

  rest() {
    this.rates = element("p", { class: "kv-note" })
    this.stacks = new Stacks("The states stay as large as they are; a cache passes them", "Bytes of all layers, read off transformers' own caches: of this model, and of a tiny Llama that is as wide and as deep.")
    this.grid = new Grid("window", "the window")
    this.mixed = new Grid("mixed", "what the convolution makes of it")
    this.labels = labels()
    this.parts = element("div", { class: "kv-windowparts", "aria-hidden": "true" })
    this.made = labels()
    this.windowed = element("p", { class: "kv-note" })
    this.bar = element("div", { class: "kv-scale kv-statescale" })
    const row = (...nodes) => element("div", { class: "kv-row" }, ...nodes)
    this.box = scrolled("The window", "kv-lanebox", this.parts, row(this.labels, this.grid.node), row(this.made, this.mixed.node))
    this.pairs = { kept: pair("kept"), weights: pair("weights") }
    this.atOnce = element("p", { class: "kv-same", "data-testid": "kv-atonce" })
    this.codes = { recurrent: codeOf("A decode step reads one token."), chunked: codeOf("A prefill reads them at once, with the same weights.") }
    const two = (...nodes) => element("div", { class: "kv-beside" }, ...nodes)
    return [
      this.rates,
      two(this.stacks.node, section("The layer keeps a few last inputs too", "The convolution mixes each number with the same one of the tokens before. Its window moves on and does not grow either.", this.box, this.bar, this.windowed)),
      section("A prefill does all steps at once: attention with a decay in place of the softmax", "Down: the token that reads. Across: the token that is read. The bars say what the colours mean.",
              two(this.pairs.kept.node, this.pairs.weights.node), this.atOnce),
      two(this.codes.recurrent.node, this.codes.chunked.node),
    ]
  }

  tabled() {
    const { look } = this, [own, llama] = look.stacks
    put(this.rates, `The heads forget at different rates: ${look.rates.join(", ")}. These rates and each head's usual step were set by hand, so that there is something to see; all other weights are random.`)
    return [["token", "tokens", "state of a layer", "cache of a Llama's layer", "multiply-adds of a layer", "largest Δ of logits"],
            look.steps.map((one, i) => [shown(look.tokens[i]), one.total, bytes(own.bytes[i][0][0]), bytes(llama.bytes[i][0][0]), count(one.multiply_adds[0]), small(one.difference)])]
  }

  said(key) {
    const { rows, head_dim: columns, heads } = this.look.design
    const keep = this.of("keep")[0], step = this.of("step")[0]
    switch (key) {
      case "enter":
        return [`${this.token} enters: what to write, where, and where to read`, `The matrix has ${rows} × ${columns} numbers and ${this.now.total > 1 ? `holds all ${this.now.total - 1} tokens before` : "is still empty"}. x is to be remembered, b says in which rows, c from which rows to read: a value, a key and a query. All ${heads} heads share b and c.`]
      case "forget":
        return ["What was written fades", `This token makes the head take a step of Δ = ${step.toFixed(3)}, in which a = ${keep.toFixed(3)} of the whole matrix is left: ${keep > 0.9 ? "nearly all" : keep > 0.5 ? "a good part" : "not much"}.`]
      case "write":
        return ["The token is added to every row", "Each row takes Δ times x, as strongly as b says for that row. A gated delta layer would first ask what is there and write the difference; here what is alike piles up."]
      default:
        return ["The matrix answers c", `The answer takes ${rows} × ${columns} multiply-adds, after ${this.now.total} tokens as after one. A part of x goes past the matrix, straight to the output. Attention would read ${this.now.total} keys and values here.`]
    }
  }

  looks(key) {
    const at = 1 + strongest(this.of("b")), asked = 1 + strongest(this.of("c"))
    return {
      enter: `Look at the column of b: its strongest number is in row ${at}, and there this token will write most.`,
      forget: "Look at the whole matrix: every number comes nearer to 0 by the same factor.",
      write: `Look at row ${at}: b is strongest there, so it changes most. The number of rows and columns stays.`,
      read: `Look at the rows below the matrix: the answer is a sum of its rows, in which row ${asked} has the largest weight, from c.`,
    }[key]
  }

  rules({ i, j, before, after, keep, of, matrix, cell }) {
    const [x, b, added, answer, read] = ["x", "b", "added", "answer", "read"].map(of), step = of("step")[0]
    const index = String(j + 1)
    return [
      ["enter", "step", [lower("a", "t"), "=", upper(name("e"), "−r Δ")], [lower("a", "t"), "=", upper(name("e"), `−${this.look.rates[this.head]} · ${step.toPrecision(2)}`), "=", keep]],
      ["forget", "forget", [lower("a", "t"), matrix("t−1")], [keep, "·", ...signed(before), "=", keep * before]],
      ["write", "write", [matrix("t"), "=", lower("a", "t"), matrix("t−1"), "+", lower("b", "t"), "(", "Δ", lower("x", "t"), upper(sign(")"), "⊤")], [cell, "=", keep * before, "+", ...signed(b[i]), "·", ...signed(added[j]), "=", after]],
      ["read", "read", [lower("y", "t"), "=", upper(lower("c", "t"), "⊤"), matrix("t"), "+", "D", lower("x", "t")], [lower("y", index), "=", answer[j], "+", ...signed(read[j] - answer[j]), "=", read[j]]],
    ]
  }

  drawRest(scale) {
    const { look, now, step } = this
    const [own, llama] = look.stacks.map(hybrid), last = look.steps.length - 1
    this.stacks.draw([{ title: "", layers: [], lines: [{ ...own.lines[0] }, { ...llama.lines[0], name: "Llama’s cache" }] }], step)
    const layers = own.layers.length, state = own.lines[0].bytes[0] / layers
    const each = (llama.lines[0].bytes[last] - llama.lines[0].bytes[0]) / last / layers
    const { matrix, window } = now.state_bytes, { heads, rows, head_dim: columns, width, window: tokens, parts } = look.design
    const channels = parts.reduce((all, one) => all + one, 0)
    put(this.stacks.note, `A layer's state: ${heads} × ${rows} × ${columns} × 4 B = ${count(matrix)} B for the matrices and ${channels} × ${tokens} × 4 B = ${count(window)} B for the window. A layer of attention takes 2 × ${width} × 4 B = ${count(each)} B a token, more than the state from token ${Math.floor(state / each) + 1} on; after ${count(LEAST)} tokens it is ${count(Math.round((LEAST * each) / state))} times as much.`)
    this.drawWindow(scale)
    for (const [which, one] of Object.entries(this.pairs)) one.draw(look, this.head, step, which === "kept" ? { ...scale, signed: scale.share } : scale)
    const { out, matrix: left } = look.parallel.difference
    put(this.atOnce, `Read at once, the layer's outputs differ from those of token by token by at most ${small(out)}, and the matrices that it leaves behind by ${small(left)}.`)
    for (const [form, code] of Object.entries(this.codes)) code.draw(this.data.listings[form], this, form === "chunked" ? look.parallel.shapes : now.shapes)
  }

  // The last inputs of the convolution, a row each, the newest at the bottom, and what it makes of them.
  drawWindow(scale) {
    const { look, step } = this
    const { parts, head_dim: wide, heads } = look.design, [x, b] = parts
    const rows = look.steps[step].window, columns = rows[0].length
    const cell = [Math.max(5, Math.min(14, (this.box.clientWidth - LABEL) / columns)), ROW]
    const cuts = [...Array.from({ length: heads - 1 }, (_, i) => (i + 1) * wide), x, x + b]
    const most = largest(look.steps.flatMap((one) => one.window))
    this.grid.draw({ rows, cell, most, scale, cuts, framed: [this.head * wide, wide] })
    const top = largest(look.steps.flatMap((one) => one.mixed))
    this.mixed.draw({ rows: look.steps[step].mixed, cell, most: top, scale, cuts })
    this.bar.replaceChildren(signedBar("window ", most, scale), signedBar("mixed ", top, scale))
    label(this.labels, rows.map((_, i) => (step - rows.length + 1 + i < 0 ? "–" : look.tokens[step - rows.length + 1 + i])), rows.length - 1, ROW)
    label(this.made, ["mixed"], 0, ROW)
    this.parts.replaceChildren(...[[`x of ${heads} heads`, x], ["b", b], ["c", b]].map(([words, many]) => {
      const one = element("span", {}, words)
      one.style.width = `${many * cell[0]}px`
      return one
    }))
    put(this.windowed, `${rows.length} tokens × ${columns} numbers, the newest token's at the bottom; below them what the convolution makes of them. Head ${this.head}'s numbers are outlined.`)
  }
}, ".kv-mamba")

const titles = { kept: "The decay: what the fading has left", weights: "The weights: how well c fits b, times what is left" }

// A square of tokens by tokens with the tokens at its sides.
function pair(which) {
  const title = titles[which]
  const grid = new Grid(`pair-${which}`, title), rows = labels(), columns = element("div", { class: "kv-paircolumns", "aria-hidden": "true" })
  const bar = element("div", { class: "kv-scale" })
  const box = scrolled(title, "kv-lanebox", element("div", { class: "kv-pairs" }, columns, rows, grid.node))
  return {
    node: element("figure", { class: "kv-held" }, element("b", {}, title), box, bar),
    draw: ({ parallel, tokens }, head, step, scale) => {
      const size = tokens.length, made = parallel[which][head]
      const cell = Math.max(6, Math.min(17, (box.clientWidth - 40) / size))
      const most = which === "kept" ? 1 : largest(made), least = which === "kept" ? 0 : -most
      const all = made.map((row) => [...row, ...Array(size - row.length).fill(0)])
      grid.draw({ rows: all, cell: [cell, cell], most, scale, there: (row) => row <= step })
      label(rows, tokens, step, cell)
      columns.replaceChildren(...tokens.map((text) => { const one = element("span", {}, shown(text)); one.style.width = `${cell}px`; return one }))
      bar.replaceChildren(short(least), scaleBar(scale.signed, least / most, 1), short(most))
    },
  }
}
