// Cross-layer sharing: the upper layers keep nothing and read keys and values of a lower one, or the one cache of all.

import { element, put, svg } from "../shared/dom.js"
import { bytes, count, small } from "../shared/format.js"
import { mounted } from "../shared/mounted.js"
import { bytesOverTokens } from "./bytes.js"
import { formula, number } from "./maths.js"
import { codeOf } from "./state.js"
import { dataTable, folded, nameByToken, section, shown, Walkthrough } from "./walkthrough.js"

const SCENES = [{ key: "token", stages: [] }]
const NARROW = 640 // CSS pixels: below this, one chart stands below the other
const tall = 28, beside = 62 // CSS pixels: a layer's height, and the room for the arrows beside them
const COLOURS = { sliding: "light-dark(#56B4E9, #A9D8F5)", full: "light-dark(#0072B2, #56B4E9)" } // as in charts/palette.py

export const mount = mounted(class extends Walkthrough {
  constructor(root, data) {
    super(root, data, SCENES, 20, 0)
  }

  build() {
    this.boards = [0, 1].map(() => ({ title: element("b", {}), words: element("p", { class: "kv-note" }), layers: element("div", { class: "kv-sharing", "data-testid": "kv-sharing" }), sums: element("dl", { class: "kv-sums" }) }))
    this.lines = element("div", { class: "kv-beside" })
    this.early = element("p", { class: "kv-same", "data-testid": "kv-early" })
    this.code = codeOf("YOCO's forward pass, written here after the paper, because transformers has no such model. The grey tags are the shapes of the last step.")
    this.table = element("table", {})
    return [
      element("p", { class: "kv-note" }, "A bar is what a layer holds; an arrow leads to a layer that reads it too. The first layer is at the bottom. Both models read the same text."),
      element("div", { class: "kv-beside" }, ...this.boards.map(({ title, words, layers, sums }) => element("figure", { class: "kv-held" }, title, layers, sums, words))),
      element("div", { class: "kv-walking" },
              section("The more layers share, the flatter the line", "The cache of all layers over the tokens, and what it would be if each layer that reads kept a copy of its own.", this.lines),
              this.early, this.code.node, folded("All tokens as a table", this.table)),
    ]
  }

  came() {
    const { look } = this
    nameByToken(this.steps, look)
    const cell = ({ reads, names, bytes: held }, i) => reads.map((from, row) => (from === row ? bytes(held[i][row]) : `reads ${names[from]}`))
    dataTable(this.table, ["token", "tokens", ...look.models.flatMap(({ title, names }) => [...names.map((name) => `${title.replace("a tiny ", "")}, ${name}`), "all"])],
              look.steps.map((one, i) => [shown(look.tokens[i]), one.total, ...look.models.flatMap((model) => [...cell(model, i), bytes(sum(model.bytes[i]))])]))
  }

  said() {
    const { look, now, step } = this
    const [gemma, yoco] = look.models
    const after = `After ${now.total} token${now.total === 1 ? "" : "s"}`
    const keeps = look.models.map((model) => bytes(sum(model.bytes[step]))), would = look.models.map((model) => bytes(sum(own(model, model.bytes[step]))))
    const title = `${readers(gemma)} of ${layersOf(gemma)} layers keep nothing in this tiny Gemma 3n, ${readers(yoco)} of ${layersOf(yoco)} in this tiny YOCO`
    if (this.whole) return [title, `Upper layers can read the keys and values of a lower layer instead of keeping their own. So after ${now.total} tokens Gemma 3n keeps ${keeps[0]}, not ${would[0]}, and YOCO (“you only cache once”) ${keeps[1]}, not ${would[1]}. The price: they make do with keys and values made for another layer.`]
    return [title, `${after}, the caches take ${keeps[0]} and ${keeps[1]}. Gemma 3n's upper layers read the last layer of their own kind. YOCO's lower half writes one global cache for the whole upper half.`]
  }

  draw() {
    const { look, step } = this
    const most = Math.max(...look.models.flatMap((model) => model.bytes[model.bytes.length - 1]))
    for (const [i, model] of look.models.entries()) {
      const { title, words, layers, sums } = this.boards[i], held = model.bytes[step]
      put(title, titled(model))
      sums.replaceChildren(...[["shared", kept], ["each its own", own]].flatMap(([way, of]) => [element("dt", {}, way), element("dd", {}, summed(of(model, held)))]))
      const slides = `A sliding layer with a window of ${model.window} tokens holds at most ${model.window - 1} between steps`
      put(words, i ? `${slides}. The global cache belongs to no layer: it holds the keys and values of all tokens, made once from the output of layer ${model.names.indexOf("global") - 1}.`
                   : `${slides}: the step's own token completes it. The Memory page's formula counts all ${model.window}.`)
      this.drawLayers(layers, model, step, most)
    }
    if (!this.whole) this.drawLines()
    const yoco = look.models[1], { all, early } = yoco.prefill
    put(this.early, `A YOCO prefill can end early: above the global cache only the last token goes on, so this prompt takes ${count(early)} multiply-adds in place of ${count(all)}. Check: token by token, the logits are those of one pass over the text to within ${small(yoco.difference)}.`)
    this.code.draw(this.data.listings.yoco, this, yoco.shapes)
  }

  drawLines() {
    const lines = this.look.models.map((model) => [
      { way: "kept", name: "shared", bytes: model.bytes.map(sum) },
      { way: "other", name: "each its own", bytes: model.bytes.map((held) => sum(own(model, held))) }])
    const most = Math.max(...lines.flat().flatMap(({ bytes: held }) => held))
    const across = this.lines.clientWidth / (this.lines.clientWidth < NARROW ? 1 : 2) - 20
    this.lines.replaceChildren(...this.look.models.map((model, i) => element("figure", { class: "kv-held" }, element("b", {}, titled(model)), bytesOverTokens(lines[i], most, this.step, across))))
  }

  drawLayers(node, { names, kinds, reads, bytes: all, held: tokens }, step, most) {
    const held = all[step], rows = reads.length
    const middle = (row) => (rows - 1 - row) * tall + tall / 2
    const words = { cross: "full" } // the upper half reads all tokens
    const lines = reads.map((from, row) => {
      const kind = kinds[row]
      const fill = element("i", { class: "kv-layerfill" })
      fill.style.width = `${(100 * held[row]) / most}%`
      fill.style.background = COLOURS[kind]
      const track = from === row ? element("div", { class: "kv-track" }, fill) : element("div", { class: "kv-none" }, `nothing: reads ${names[from]}`)
      const some = tokens[step][row]
      return element("div", { class: "kv-sharerow", "data-global": String(names[row] === "global") }, element("span", {}, names[row]), element("span", {}, words[kind] ?? kind), track,
                     element("b", {}, bytes(held[row])), element("span", {}, from === row ? `${some} token${some === 1 ? "" : "s"}` : ""))
    })
    const depth = { sliding: 20, full: 40 }
    const arrows = [...new Set(reads)].map((from) => {
      const readers = reads.flatMap((read, row) => (read === from && row !== from ? [middle(row)] : []))
      return readers.length ? bracket(middle(from), readers, depth[kinds[from]] ?? 20, COLOURS[kinds[from]]) : []
    })
    const drawing = svg("svg", { width: beside, height: rows * tall, "aria-hidden": "true" })
    drawing.append(...arrows.flat())
    node.replaceChildren(drawing, element("div", {}, ...lines.reverse()))
  }
}, ".kv-shared")

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0)
const readers = ({ reads }) => reads.filter((from, row) => from !== row).length
const layersOf = ({ names }) => names.filter((name) => name !== "global").length
const titled = ({ title }) => title[0].toUpperCase() + title.slice(1)

// What each layer holds, in bytes, and what it would hold if each one that reads kept its own; the global cache of YOCO
// belongs to no layer, so nobody would have it then.
const kept = ({ reads }, held) => held.filter((_, row) => reads[row] === row)
const own = ({ reads, names }, held) => reads.map((from) => held[from]).filter((_, row) => names[row] !== "global")

// A sum of layers' bytes with its result: as many of each size.
function summed(layers) {
  const sizes = [...new Set(layers)].sort((one, other) => other - one)
  const terms = sizes.flatMap((size) => ["+", number(String(layers.filter((one) => one === size).length)), "×", number(`${count(size)} B`)])
  return formula(...terms.slice(1), "=", number(bytes(sum(layers))))
}

// One bracket from the layer that keeps to all that read it, with a point at each of these.
function bracket(from, readers, depth, colour) {
  const left = beside - depth, ends = readers.map((to) => `M${left},${to} H${beside - 6}`)
  return [svg("path", { d: `M${beside},${from} H${left} V${Math.min(...readers)} ${ends.join(" ")}`, fill: "none", style: `stroke: ${colour}`, "stroke-width": 2.5, "stroke-linejoin": "round" }),
          ...readers.map((to) => svg("path", { d: `M${beside},${to} l-9,-5 l0,10 z`, style: `fill: ${colour}` }))]
}
