// A gated delta layer: a matrix of constant size that each token corrects, beside layers whose cache grows.

import { element, put } from "../shared/dom.js"
import { bytes, count, small } from "../shared/format.js"
import { mounted } from "../shared/mounted.js"
import { lower, name, number, root, upper } from "./maths.js"
import { codeOf, Layers, others, signed, StateWalk, strongest } from "./state.js"
import { shown } from "./walkthrough.js"

const SCENES = [
  { key: "enter", stages: ["enter", "convolve", "split", "pace"] },
  { key: "forget", stages: ["forget"] },
  { key: "recall", stages: ["recall"] },
  { key: "write", stages: ["write"] },
  { key: "read", stages: ["read", "gate", "output"] },
]

export const mount = mounted(class extends StateWalk {
  constructor(root, data) {
    super(root, data, SCENES, 15)
  }

  get names() {
    return {
      matrix: "S", rows: "numbers of the key", columns: "numbers of the value",
      sides: [{ title: "key k", name: "k", from: "enter" }, { title: "query q", name: "q", from: "enter" }],
      above: [{ title: "value v", name: "v", from: "enter" }, { title: "recalled r", name: "answer", from: "recall" }, { title: "correction δ", name: "delta", from: "write" }],
      below: [{ title: "output o", name: "read", from: "read" }],
      brings: "kvqαβ", uses: { forget: ["before"], recall: ["k", "matrix"], write: ["before", "k", "delta"], read: ["q", "matrix"] },
    }
  }

  get letters() {
    return {
      k: "key: under which the token is stored", v: "value: what is stored", q: "query: what is looked up",
      α: "kept share: how much of the matrix stays", β: "strength: how much of the error is corrected",
    }
  }

  get growth() {
    const [{ kinds, bytes: held }] = this.look.stacks
    const of = (kind) => held.map((row) => row[kinds.indexOf(kind)][0])
    return { stays: { name: "this layer", bytes: of("linear") }, grows: { name: "attention layer", bytes: of("full") } }
  }

  get origin() { return "One layer of each kind in this tiny model, float32, read off transformers' own cache." }

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
    return [["token", "tokens", "state of a delta layer", "cache of an attention layer", "multiply-adds, delta layer", "multiply-adds, attention layer", "largest Δ of logits"],
            look.steps.map((one, i) => [shown(look.tokens[i]), one.total, bytes(held[i][linear][0]), bytes(held[i][full][0]), count(one.multiply_adds[linear]), count(one.multiply_adds[full]), small(one.difference)])]
  }

  said(key) {
    const { key_dim: keys, value_dim: values } = this.look.design
    const keep = this.of("keep")[0], strength = this.of("strength")[0]
    switch (key) {
      case "whole":
        return [this.constant, `A gated delta layer, as in Qwen3-Next, keeps no keys and values: it writes every token into one matrix S per head, whose size never changes. An attention layer of this model would hold ${bytes(1e6 * this.each)} after a million tokens. The price is forgetting: each token first shrinks the whole matrix, and similar keys overwrite one another. The walk shows, number by number, how a token is written and read.`]
      case "enter":
        return [`${this.token} brings a query, a key, a value and two gates`, `The matrix has ${keys} × ${values} numbers and ${this.now.total > 1 ? `holds what is left of ${this.now.total - 1} tokens` : "is still empty"}. It is a memory: given a key, it returns a value.`]
      case "forget":
        return ["The gate lets old content fade", `This token's gate, α = ${keep.toFixed(3)}, is the kept share of the whole matrix: ${keep > 0.9 ? "nearly all of it stays" : keep > 0.5 ? "a good part of it stays" : "most of it goes"}. Fading makes room in a matrix that never grows.`]
      case "recall":
        return ["The matrix is asked what it holds for the new key", "Key times matrix is the value that the memory returns now. The token's own value minus this recalled one is the error."]
      case "write":
        return ["The layer writes the correction, not the value itself", `The error, times the strength β = ${strength.toFixed(3)}, is added to each row in proportion to the key. If the same key comes again, the matrix returns something closer to this value.`]
      default:
        return ["The matrix answers the query", `Query times matrix is the head's output. It takes ${keys} × ${values} multiply-adds after ${this.now.total} tokens, the same as after one; attention would read ${this.now.total} keys and values here.`]
    }
  }

  looks(key) {
    const at = 1 + strongest(this.of("k")), asked = 1 + strongest(this.of("q"))
    return {
      enter: `Changed: nothing in the matrix yet. Look at the column of k: its strongest number is in row ${at}, so this token will write most there.`,
      forget: this.changed(`every number of the matrix moved ${(100 * (1 - this.of("keep")[0])).toPrecision(2)}% closer to 0`),
      recall: "Changed: the row “recalled r” is new; the matrix is as it was. Where r differs from the value v, there is something to correct.",
      write: this.changed(`all ${this.size} numbers of the matrix`),
      read: `Changed: the row “output o” is new; the matrix is as it was. The output is a weighted sum of its rows, with the largest weight on row ${asked}.`,
    }[key]
  }

  rules({ j, i, before, after, keep, of, cell }) {
    const strength = of("strength")[0], [k, v, answer, delta] = ["k", "v", "answer", "delta"].map(of)
    const index = () => number(String(j + 1)), scale = () => root(String(this.look.design.key_dim)), across = (letter) => upper(name(letter), "⊤")
    const column = this.of("written", this.step - 1).map((row) => row[j])
    const [left, recalled] = others(k, column.map((value) => keep * value), i), [rest, products] = others(of("q"), of("written").map((row) => row[j]), i)
    return [
      ["forget", "forget", "matrix ← kept share × matrix", ["S", "←", "α", "S"], [cell(), "=", number(keep.toFixed(3)), "·", ...signed(before), "=", keep * before]],
      ["recall", "recall", "recalled = key × matrix", ["r", "=", across("k"), "S"], [lower("r", index()), "=", k[i], "·", ...signed(keep * before), "+", ...signed(left), "=", answer[j]], recalled],
      ["write", "correct", "correction = strength × (value − recalled)", ["δ", "=", "β", "(", "v", "−", "r", ")"], [lower("δ", index()), "=", strength, "·", "(", v[j], "−", ...signed(answer[j]), ")", "=", delta[j]]],
      ["write", "write", "matrix ← matrix + key × correction", ["S", "←", "S", "+", "k", across("δ")], [cell(), "=", keep * before, "+", ...signed(k[i]), "·", ...signed(delta[j]), "=", after]],
      ["read", "read", `output = query × matrix / √${this.look.design.key_dim}`, ["o", "=", across("q"), "S", "/", scale()], [lower("o", index()), "=", "(", of("q")[i], "·", ...signed(after), "+", ...signed(rest), ")", "/", scale(), "=", of("read")[j]], products],
    ]
  }

  drawRest() {
    this.layers.draw(this.look.stacks.map(hybrid), this.step)
    this.code.draw(this.data.listings.gateddelta, this, this.now.shapes)
  }
}, ".kv-delta")

// A hybrid model's layers with their bytes after each token: states stay as large as they are, keys and values grow.
function hybrid({ title, kinds, bytes: held }) {
  return { title: title[0].toUpperCase() + title.slice(1), layers: kinds.map((kind, i) => ({ way: kind === "linear" ? "kept" : "other", words: kind === "linear" ? "state" : "keys, values", bytes: held.map((row) => row[i][0]) })) }
}
