// A gated delta layer: a matrix of constant size that each token corrects, beside layers whose cache grows.

import { element, put } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { lower, root, upper } from "./maths.js"
import { codeOf, signed, small, Stacks, StateWalk, strongest } from "./state.js"
import { mounting, shown } from "./walkthrough.js"

const SCENES = [
  { key: "enter", stages: ["enter", "convolve", "split", "pace"] },
  { key: "forget", stages: ["forget"] },
  { key: "recall", stages: ["recall"] },
  { key: "write", stages: ["write"] },
  { key: "read", stages: ["read", "gate", "output"] },
]

export const mount = mounting(class extends StateWalk {
  constructor(root, data) {
    super(root, data, SCENES, { step: 8, scene: "write" })
  }

  get names() {
    return {
      matrix: "S", rows: "numbers of the key", columns: "numbers of the value",
      sides: [{ title: "key k", name: "k", from: "enter" }, { title: "query q", name: "q", from: "read" }],
      above: [{ title: "value v", name: "v", from: "enter" }, { title: "answer kᵀS", name: "answer", from: "recall" }, { title: "error × β", name: "delta", from: "write" }],
      below: [{ title: "output qᵀS", name: "read", from: "read" }],
      letters: "S matrix, α what the gate leaves of it, k key, v value, a the matrix's answer to the key, δ error times its strength β, q query, o output.",
    }
  }

  rest() {
    this.rates = element("p", { class: "kv-note" })
    this.stacks = new Stacks("Attention's cache grows with each token; a state stays as large as it was", "Two hybrid models, with both kinds of layers in one stack: their bytes, read off transformers' own cache. One scale for both models. The first layer is at the bottom.")
    this.code = codeOf("It reads one token. The lit lines are at work in this scene; the grey tags are the shapes that they made.")
    return [this.rates, this.stacks.node, this.code.node]
  }

  tabled() {
    const { look } = this, [{ kinds, bytes: held }] = look.stacks
    const linear = kinds.indexOf("linear"), full = kinds.indexOf("full")
    put(this.rates, `The heads forget at different rates: ${look.rates.join(", ")}. These rates were set by hand, so that there is something to see; all other weights are random.`)
    return [["token", "tokens", "state of a delta layer", "cache of an attention layer", "multiply-adds, delta layer", "multiply-adds, attention layer", "largest Δ of logits"],
            look.steps.map((one, i) => [shown(look.tokens[i]), one.total, bytes(held[i][linear][0]), bytes(held[i][full][0]), count(one.multiply_adds[linear]), count(one.multiply_adds[full]), small(one.difference)])]
  }

  said(key) {
    const { key_dim: keys, value_dim: values } = this.look.design
    const keep = this.of("keep")[0], strength = this.of("strength")[0]
    switch (key) {
      case "enter":
        return [`${this.token} enters: a query, a key, a value and two gates`, `The matrix has ${keys} × ${values} numbers and ${this.now.total > 1 ? `holds all ${this.now.total - 1} tokens before` : "is still empty"}. It is a memory that answers a key with a value. No list of tokens is kept beside it.`]
      case "forget":
        return ["What was written fades", `The gate α = ${keep.toFixed(3)} of this token multiplies the whole matrix: ${keep > 0.9 ? "nearly all stays" : keep > 0.5 ? "a good part stays" : "most of it goes"}. This is where a constant size is paid for.`]
      case "recall":
        return ["The matrix is asked for the new key", "The key times the matrix is what the memory would answer now. The value less this answer is the error."]
      case "write":
        return ["Only the error is written", `Key times error, with the strength β = ${strength.toFixed(3)}, is added: asked for this key again, the matrix answers nearer to the value.`]
      default:
        return ["The matrix answers the query", `The query times the matrix is the head's output: ${keys} × ${values} multiply-adds, after ${this.now.total} tokens as after one. Attention would read ${this.now.total} keys and values here.`]
    }
  }

  looks(key) {
    const at = 1 + strongest(this.of("k")), asked = 1 + strongest(this.of("q"))
    return {
      enter: `Look at the column of k: its strongest number is in row ${at}, and there this token will write most.`,
      forget: "Look at the whole matrix: every number comes a little nearer to 0, none stands still.",
      recall: "Compare the two rows above the matrix: where the answer differs from the value, something is left to write.",
      write: `Look at row ${at}: the key is strongest there, so it changes most. The number of rows and columns stays.`,
      read: `Look at the row below the matrix: a sum of all rows of the matrix, in which row ${asked} has the largest weight, from the query.`,
    }[key]
  }

  rules({ j, i, before, after, keep, of, matrix, cell }) {
    const strength = of("strength")[0], [k, v, answer, delta] = ["k", "v", "answer", "delta"].map(of)
    const index = String(j + 1)
    return [
      ["forget", "forget", ["α", matrix("t−1")], [keep, "·", ...signed(before), "=", keep * before]],
      ["recall", "recall", [upper(lower("k", "t"), "⊤"), "(", "α", matrix("t−1"), ")"], [lower("a", index), "=", answer[j]]],
      ["write", "correct", [lower("δ", "t"), "=", "β", "(", lower("v", "t"), "−", lower("a", "t"), ")"], [strength, "·", "(", v[j], "−", ...signed(answer[j]), ")", "=", delta[j]]],
      ["write", "write", [matrix("t"), "=", "α", matrix("t−1"), "+", lower("k", "t"), upper(lower("δ", "t"), "⊤")], [cell, "=", keep * before, "+", ...signed(k[i]), "·", ...signed(delta[j]), "=", after]],
      ["read", "read", [lower("o", "t"), "=", upper(lower("q", "t"), "⊤"), matrix("t"), "/", root(String(this.look.design.key_dim))], [lower("o", index), "=", of("read")[j]]],
    ]
  }

  drawRest() {
    const { look } = this
    this.stacks.draw(look.stacks.map(hybrid), this.step)
    const [{ kinds, bytes: held }] = look.stacks, last = look.steps.length - 1
    const full = kinds.indexOf("full"), each = (held[last][full][0] - held[0][full][0]) / last
    const state = held[0][kinds.indexOf("linear")][0]
    put(this.stacks.note, `One state of the first model (${bytes(state)}) is as large as the keys and values of ${count(Math.round(state / each))} tokens in one of its attention layers (${bytes(each)} a token). A longer text makes only those longer.`)
    this.code.draw(this.data.listings.gateddelta, this, this.now.shapes)
  }
}, ".kv-delta")

// The bytes of a hybrid model's layers, by what becomes of them: states stay, keys and values grow.
export function hybrid({ title, kinds, bytes: held }) {
  const layers = kinds.map((kind, i) => ({ way: kind === "linear" ? "stays" : "grows", words: kind === "linear" ? "state" : "keys, values", bytes: held.map((row) => row[i][0]) }))
  const lines = ["stays", "grows"].map((way) => {
    const mine = layers.filter((layer) => layer.way === way)
    const one = mine.length === 1 ? "" : "s"
    return { way, name: way === "stays" ? `${mine.length} state${one}` : `${mine.length} attention layer${one}`, bytes: held.map((_, i) => mine.reduce((sum, layer) => sum + layer.bytes[i], 0)), some: mine.length }
  })
  return { title: title[0].toUpperCase() + title.slice(1), layers, lines: lines.filter(({ some }) => some) }
}
