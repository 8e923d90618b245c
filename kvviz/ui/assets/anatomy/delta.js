// A gated delta layer: a matrix of constant size that each token corrects, beside layers whose cache grows.

import { element, put } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { lower, number, root, upper } from "./maths.js"
import { codeOf, Layers, signed, small, StateWalk, strongest } from "./state.js"
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
    super(root, data, SCENES, 15)
  }

  get names() {
    return {
      matrix: "S", rows: "numbers of the key", columns: "numbers of the value",
      sides: [{ title: "key k", name: "k", from: "enter" }, { title: "query q", name: "q", from: "enter" }],
      above: [{ title: "value v", name: "v", from: "enter" }, { title: "answer kᵀS", name: "answer", from: "recall" }, { title: "error × β", name: "delta", from: "write" }],
      below: [{ title: "output qᵀS", name: "read", from: "read" }],
      brings: "kvqαβ", uses: { forget: ["before"], recall: ["k", "matrix"], write: ["before", "k", "delta"], read: ["q", "matrix"] },
    }
  }

  get letters() {
    return {
      S: "the matrix, this head's memory", α: "the share of the matrix that the gate keeps", k: "the token's key", v: "the token's value",
      a: "what the matrix returns for the key", β: "how strongly the error is corrected", δ: "the correction: the error times β", q: "the token's query", o: "the head's output",
    }
  }

  get growth() {
    const [{ kinds, bytes: held }] = this.look.stacks
    const of = (kind) => held.map((row) => row[kinds.indexOf(kind)][0])
    return { stays: { name: "this layer", bytes: of("linear") }, grows: { name: "attention layer", bytes: of("full") } }
  }

  rest() {
    this.rates = element("p", { class: "kv-note" })
    this.layers = new Layers("What each layer of two hybrid models holds after this token")
    this.code = codeOf("It reads one token. The lit lines run in this scene; the grey tags are the shapes that they produce.")
    return [this.rates, this.code.node, this.layers.node]
  }

  tabled() {
    const { look } = this, [{ kinds, bytes: held }] = look.stacks
    const linear = kinds.indexOf("linear"), full = kinds.indexOf("full")
    put(this.rates, `The heads forget at different rates: ${look.rates.join(", ")}. These rates were set by hand to make the fading visible; all other weights are random.`)
    put(this.source, `One layer of each kind in this tiny model, float32, read off transformers' own cache. The last term of its sum is what its short convolution keeps.`)
    return [["token", "tokens", "state of a delta layer", "cache of an attention layer", "multiply-adds, delta layer", "multiply-adds, attention layer", "largest Δ of logits"],
            look.steps.map((one, i) => [shown(look.tokens[i]), one.total, bytes(held[i][linear][0]), bytes(held[i][full][0]), count(one.multiply_adds[linear]), count(one.multiply_adds[full]), small(one.difference)])]
  }

  said(key) {
    const { key_dim: keys, value_dim: values } = this.look.design
    const keep = this.of("keep")[0], strength = this.of("strength")[0]
    switch (key) {
      case "whole":
        return [this.constant, `A gated delta layer, as in Qwen3-Next, writes every token into one matrix per head and keeps no keys and values. An attention layer of this model would hold ${bytes(1e6 * this.each)} after a million tokens; here that memory is free for other requests. The price is forgetting: old content fades or is overwritten.`]
      case "enter":
        return [`${this.token} brings a query, a key, a value and two gates`, `The matrix has ${keys} × ${values} numbers and ${this.now.total > 1 ? `holds what is left of ${this.now.total - 1} tokens` : "is still empty"}. It is a memory: given a key, it returns a value.`]
      case "forget":
        return ["The gate lets old content fade", `This token's gate, α = ${keep.toFixed(3)}, multiplies the whole matrix: ${keep > 0.9 ? "nearly all of it stays" : keep > 0.5 ? "a good part of it stays" : "most of it goes"}. Fading makes room in a matrix that never grows.`]
      case "recall":
        return ["The matrix is asked what it holds for the new key", "Key times matrix is the value that the memory would return now. The token's own value minus this answer is the error."]
      case "write":
        return ["The layer writes the correction, not the value itself", `The error, scaled by β = ${strength.toFixed(3)}, is added to each row in proportion to the key. If the same key comes again, the matrix returns something closer to this value.`]
      default:
        return ["The matrix answers the query", `Query times matrix is the head's output. It takes ${keys} × ${values} multiply-adds after ${this.now.total} tokens, the same as after one; attention would read ${this.now.total} keys and values here.`]
    }
  }

  looks(key) {
    const at = 1 + strongest(this.of("k")), asked = 1 + strongest(this.of("q"))
    return {
      enter: `Look at the column of k: the strongest number is in row ${at}, so this token will write most into row ${at}.`,
      forget: "Look at the matrix: every number moves towards 0 by the same factor.",
      recall: "Look at the value and the answer, above the matrix: where they differ, there is something to correct.",
      write: `Look at row ${at}: the token writes most there, because the key is strongest.`,
      read: `Look at the row below the matrix: it is a weighted sum of the matrix's rows, with the largest weight on row ${asked}.`,
    }[key]
  }

  rules({ j, i, before, after, keep, of, matrix, cell }) {
    const strength = of("strength")[0], [k, v, answer, delta] = ["k", "v", "answer", "delta"].map(of)
    const index = String(j + 1)
    return [
      ["forget", "forget", ["α", matrix("t−1")], [number(keep.toFixed(3)), "·", ...signed(before), "=", keep * before], "αS"],
      ["recall", "recall", [lower("a", "t"), "=", upper(lower("k", "t"), "⊤"), "(", "α", matrix("t−1"), ")"], [lower("a", index), "=", "⋯", "+", ...signed(k[i]), "·", ...signed(keep * before), "+", "⋯", "=", answer[j]], "akαS"],
      ["write", "correct", [lower("δ", "t"), "=", "β", "(", lower("v", "t"), "−", lower("a", "t"), ")"], [lower("δ", index), "=", strength, "·", "(", v[j], "−", ...signed(answer[j]), ")", "=", delta[j]], "δβva"],
      ["write", "write", [matrix("t"), "=", "α", matrix("t−1"), "+", lower("k", "t"), upper(lower("δ", "t"), "⊤")], [cell, "=", keep * before, "+", ...signed(k[i]), "·", ...signed(delta[j]), "=", after], "Sαkδ"],
      ["read", "read", [lower("o", "t"), "=", upper(lower("q", "t"), "⊤"), matrix("t"), "/", root(String(this.look.design.key_dim))], [lower("o", index), "=", "(", "⋯", "+", ...signed(of("q")[i]), "·", ...signed(after), "+", "⋯", ")", "/", root(String(this.look.design.key_dim)), "=", of("read")[j]], "oqS"],
    ]
  }

  drawRest() {
    this.layers.draw(this.look.stacks.map(hybrid), this.step)
    this.code.draw(this.data.listings.gateddelta, this, this.now.shapes)
  }
}, ".kv-delta")

// A hybrid model's layers with their bytes after each token: states stay as large as they are, keys and values grow.
function hybrid({ title, kinds, bytes: held }) {
  return { title: title[0].toUpperCase() + title.slice(1), layers: kinds.map((kind, i) => ({ way: kind === "linear" ? "stays" : "grows", words: kind === "linear" ? "state" : "keys, values", bytes: held.map((row) => row[i][0]) })) }
}
