// Cross-layer sharing: the upper layers keep nothing and read the keys and values of a lower one.

import { element, put, svg } from "../shared/dom.js"
import { bytes } from "../shared/format.js"
import { dataTable, folded, mounting, nameByToken, section, shown, Walkthrough } from "./walkthrough.js"

const SCENES = [{ key: "token", stages: [] }]
const tall = 32, beside = 74 // CSS pixels: a layer's height, and the room for the arrows beside them
const COLOURS = { sliding: "light-dark(#56B4E9, #A9D8F5)", full: "light-dark(#0072B2, #56B4E9)" } // as in charts/palette.py

export const mount = mounting(class extends Walkthrough {
  constructor(root, data) {
    super(root, data, SCENES, { step: 20, scene: "token" })
  }

  build() {
    this.layers = element("div", { class: "kv-sharing", "data-testid": "kv-sharing" })
    this.table = element("table", {})
    this.claim = element("span", {})
    return [
      section(this.claim, "The first layer is at the bottom. A bar is what a layer holds. An arrow leads from the layer whose keys and values are read to those that read them too.", this.layers),
      folded("All tokens as a table", this.table),
    ]
  }

  came() {
    const { look } = this
    nameByToken(this.steps, look)
    dataTable(this.table, ["token", "tokens", ...look.kinds.map((kind, i) => `layer ${i}, ${kind}`), "all"],
              look.steps.map((one, i) => [shown(look.tokens[i]), one.total, ...one.bytes.map((held, layer) => (look.reads[layer] === layer ? bytes(held) : `reads ${look.reads[layer]}`)), bytes(sum(one.bytes))]))
  }

  said() {
    const { look, now } = this
    const own = look.reads.filter((layer, i) => layer === i).length
    const spared = sum(look.reads.map((from, layer) => (from === layer ? 0 : now.bytes[from])))
    const all = sum(now.bytes)
    return [`${look.reads.length - own} of ${look.reads.length} layers keep nothing`,
            `After ${now.total} token${now.total === 1 ? "" : "s"} the cache takes ${bytes(all)}. With keys and values of their own in every layer it would be ${bytes(all + spared)}. A layer shares with the last one of its own kind: sliding layers hold at most ${look.window - 1} tokens between steps, full ones hold all.`]
  }

  draw() {
    const { look, now } = this
    const most = Math.max(...look.steps[look.steps.length - 1].bytes)
    put(this.claim, `The upper ${look.reads.filter((from, i) => from !== i).length} read the rows of a lower layer of their kind`)
    const layers = look.reads.length
    const middle = (layer) => (layers - 1 - layer) * tall + tall / 2
    const rows = look.reads.map((from, layer) => {
      const kind = look.kinds[layer]
      const fill = element("i", { class: "kv-layerfill" })
      fill.style.width = `${(100 * now.bytes[layer]) / most}%`
      fill.style.background = COLOURS[kind]
      const track = from === layer ? element("div", { class: "kv-track" }, fill) : element("div", { class: "kv-none" }, `nothing: reads layer ${from}`)
      return element("div", { class: "kv-sharerow" }, element("span", {}, `layer ${layer}`), element("span", {}, kind), track,
                     element("b", {}, from === layer ? `${bytes(now.bytes[layer])}` : "0 B"), element("span", {}, from === layer ? `${now.held[layer]} token${now.held[layer] === 1 ? "" : "s"}` : ""))
    })
    const depth = { sliding: 22, full: 50 }
    const arrows = look.reads.map((from, layer) => (from === layer ? "" : arrow(middle(from), middle(layer), depth[look.kinds[layer]] + 5 * (layer - from - 2), COLOURS[look.kinds[layer]])))
    const drawing = svg("svg", { width: beside, height: layers * tall, "aria-hidden": "true" })
    drawing.append(...arrows.filter(Boolean).flat())
    this.layers.replaceChildren(drawing, element("div", {}, ...rows.reverse()))
  }
}, ".kv-shared")

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0)

// From the layer that keeps to the one that reads, to the left and back, with a point at its end.
function arrow(from, to, depth, colour) {
  const left = Math.max(2, beside - depth)
  return [svg("path", { d: `M${beside},${from} C${left},${from} ${left},${to} ${beside - 6},${to}`, fill: "none", style: `stroke: ${colour}`, "stroke-width": 2.5 }),
          svg("path", { d: `M${beside},${to} l-9,-5 l0,10 z`, style: `fill: ${colour}` })]
}
