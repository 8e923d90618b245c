// A Mamba-2 layer: a matrix of constant size that fades and is added to, and the same read at once as a prefill does.

import { element, put, scrolled } from "../shared/dom.js"
import { bytes, count, small } from "../shared/format.js"
import { mounted } from "../shared/mounted.js"
import { Grid, label, labels } from "./grid.js"
import { lower, name, number, sign, upper } from "./maths.js"
import { largest, scaleBar } from "./matrix.js"
import { codeOf, others, short, signed, signedBar, StateWalk, strongest } from "./state.js"
import { section, shown } from "./walkthrough.js"

const SCENES = [
  { key: "enter", stages: ["enter", "project", "convolve", "split", "pace", "decay"] },
  { key: "forget", stages: ["forget"] },
  { key: "write", stages: ["write", "leave"] },
  { key: "read", stages: ["weigh", "read", "gate", "output"] },
]
const ROW = 16, LABEL = 64 // CSS pixels

export const mount = mounted(class extends StateWalk {
  constructor(root, data) {
    super(root, data, SCENES, 15)
  }

  get names() {
    return {
      matrix: "h", rows: "numbers of b and c", columns: "numbers of x",
      sides: [{ title: "write b", name: "b", from: "enter" }, { title: "read c", name: "c", from: "enter" }],
      above: [{ title: "input x", name: "x", from: "enter" }, { title: "scaled Δ x", name: "added", from: "write" }],
      below: [{ title: "recalled r", name: "answer", from: "read" }, { title: "output y", name: "read", from: "read" }],
      brings: "xbcΔ", uses: { forget: ["before"], write: ["before", "b", "added"], read: ["c", "matrix", "answer", "x"] },
    }
  }

  get letters() {
    return {
      x: "input: what is written, like a value", b: "write address: into which rows, like a key", c: "read address: from which rows, like a query",
      Δ: `step size: how much this token counts, here ${this.of("step")[0].toPrecision(2)}`,
    }
  }

  get growth() {
    const [own, llama] = this.look.stacks.map(({ bytes: held }) => held.map((row) => row[0][0]))
    return { stays: { name: "this layer", bytes: own }, grows: { name: "attention layer", bytes: llama } }
  }

  get origin() { return "One layer of this tiny model and one of a tiny Llama of the same width, float32, read off transformers' own caches." }

  rest() {
    this.rates = element("p", { class: "kv-note" })
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
      section("The layer also keeps its last few inputs", "A short convolution mixes each number with the same number of the tokens before. Its window moves on and does not grow either.", this.box, this.bar, this.windowed),
      section("A prefill does all steps at once: attention with a decay instead of the softmax", "Rows are the tokens that read, columns the tokens that are read.",
              two(this.pairs.kept.node, this.pairs.weights.node), this.atOnce),
      two(this.codes.recurrent.node, this.codes.chunked.node),
    ]
  }

  tabled() {
    const { look } = this, [own, llama] = look.stacks
    put(this.rates, `The heads forget at different rates: ${look.rates.join(", ")}. These rates and each head's usual step were set by hand to make the fading visible; all other weights are random.`)
    return [["token", "tokens", "state of a layer", "cache of a Llama's layer", "multiply-adds of a layer", "largest Δ of logits"],
            look.steps.map((one, i) => [shown(look.tokens[i]), one.total, bytes(own.bytes[i][0][0]), bytes(llama.bytes[i][0][0]), count(one.multiply_adds[0]), small(one.difference)])]
  }

  said(key) {
    const { rows, head_dim: columns } = this.look.design
    const keep = this.of("keep")[0]
    switch (key) {
      case "whole":
        return [this.constant, `A Mamba-2 layer adds every token to one matrix h per head and keeps no keys and values. From each token it computes an input x and two short vectors: b says how strongly x is written into each row, c how strongly each row is read. An attention layer of the same width would hold ${bytes(1e6 * this.each)} after a million tokens. The price is forgetting: old content fades, and similar tokens pile up in the same rows.`]
      case "enter":
        return [`${this.token} brings what to write, where to write it, and where to read`, `The matrix has ${rows} rows of ${columns} numbers each, a row for each number of b and c, and ${this.now.total > 1 ? `holds what is left of ${this.now.total - 1} tokens` : "is still empty"}. The input x plays the part of a value, b of a key, c of a query.`]
      case "forget":
        return ["Old content fades", `Before the token is written, the whole matrix is multiplied by the kept share α = ${keep.toFixed(3)}, so ${keep > 0.9 ? "nearly all" : keep > 0.5 ? "a good part" : "not much"} of it stays. Fading makes room in a matrix that never grows.`]
      case "write":
        return ["The token is added to every row", `Every row receives the input x, times the step size Δ, times that row's number in the write address b. A gated delta layer would first look up what is there and write only the difference; here similar tokens pile up.`]
      default:
        return ["c reads the matrix, as a query would", `Each row is multiplied by its number in the read address c, and the rows are added up. That takes ${rows} × ${columns} multiply-adds after ${this.now.total} tokens, the same as after one; attention would read ${this.now.total} keys and values here. The input itself bypasses the matrix, times D = ${this.bypass.toFixed(2)}${this.bypass.toFixed(2) === "1.00" ? ": all of it" : ""}.`]
    }
  }

  looks(key) {
    const at = 1 + strongest(this.of("b")), asked = 1 + strongest(this.of("c"))
    return {
      enter: `Changed: nothing in the matrix yet. Look at the column of b: its strongest number is in row ${at}, so this token will write most there.`,
      forget: this.changed(`every number of the matrix moved ${(100 * (1 - this.of("keep")[0])).toPrecision(2)}% closer to 0`),
      write: this.changed(`all ${this.size} numbers of the matrix`),
      read: `Changed: the rows “recalled r” and “output y” are new; the matrix is as it was. Row ${asked} counts most, because its number in c is the largest.`,
    }[key]
  }

  rules({ i, j, before, after, keep, of, cell }) {
    const [x, b, added, answer, read] = ["x", "b", "added", "answer", "read"].map(of), step = of("step")[0]
    const index = () => number(String(j + 1)), across = (base) => upper(base, "⊤")
    const [rest, products] = others(of("c"), of("written").map((row) => row[j]), i)
    return [
      ["forget", "decay", "kept share = e to the power of rate × step size", ["α", "=", upper(name("e"), "AΔ")], ["α", "=", upper(name("e"), `−${this.look.rates[this.head]} · ${step.toPrecision(2)}`), "=", number(keep.toFixed(3))]],
      ["forget", "forget", "matrix ← kept share × matrix", ["h", "←", "α", "h"], [cell(), "=", number(keep.toFixed(3)), "·", ...signed(before), "=", keep * before]],
      ["write", "write", "matrix ← matrix + write address × step size × input", ["h", "←", "h", "+", "b", "(", "Δ", "x", across(sign(")"))], [cell(), "=", keep * before, "+", ...signed(b[i]), "·", ...signed(added[j]), "=", after]],
      ["read", "recall", "recalled = read address × matrix", ["r", "=", across(name("c")), "h"], [lower("r", index()), "=", of("c")[i], "·", ...signed(after), "+", ...signed(rest), "=", answer[j]], products],
      ["read", "output", "output = recalled + bypass × input", ["y", "=", "r", "+", "D", "x"], [lower("y", index()), "=", answer[j], "+", ...signed(this.bypass), "·", ...signed(x[j]), "=", read[j]]],
    ]
  }

  // D, read off where rounding shows least.
  get bypass() {
    const [x, answer, read] = ["x", "answer", "read"].map((name) => this.of(name)), most = strongest(x)
    return (read[most] - answer[most]) / x[most]
  }

  drawRest(scale) {
    const { look, now, step } = this
    this.drawWindow(scale)
    for (const [which, one] of Object.entries(this.pairs)) one.draw(look, this.head, step, which === "kept" ? { ...scale, signed: scale.share } : scale)
    const { out, matrix: left } = look.parallel.difference
    put(this.atOnce, `Check: reading all tokens at once gives the same outputs as reading them one by one to within ${small(out)}, and the same matrices to within ${small(left)}.`)
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
    this.bar.replaceChildren(signedBar("window", most, scale), signedBar("mixed", top, scale))
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
