// Multi-head latent attention: the two caches to one scale, and one head's product in both orders.

import { element, put } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { Grid, label, labels } from "./grid.js"
import { formula, number, unit } from "./maths.js"
import { inkOn, largest, scales } from "./matrix.js"
import { signedBar, small } from "./state.js"
import { dataTable, drawCode, folded, isDark, mounting, section, shown, Walkthrough } from "./walkthrough.js"

const SCENES = [
  { key: "enter", stages: ["enter", "query"] },
  { key: "compress", stages: ["compress"] },
  { key: "append", stages: ["expand", "append"] },
  { key: "score", stages: ["absorb", "score"] },
  { key: "mix", stages: ["softmax", "mix", "unfold"] },
  { key: "next", stages: ["output"] },
]
const ways = {
  expanded: { title: "Expanded", keeps: "Keys and values", says: "Each head makes its key and value when a token comes, and caches both." },
  absorbed: { title: "Absorbed", keeps: "Latent rows", says: "The matrix that would make the keys is multiplied into the query once per step; the cache keeps the rows from which keys would be made." },
}
const ROW = 11, LOW = 8 // CSS pixels of a row of the caches
const LINE = 15 // CSS pixels of a row of one head's product
const ACROSS = 2.5, DOWN = 2, THIN = 10 // CSS pixels of a number in the boxes, and of the thinnest box
const NARROW = 700, LABEL = 64 // CSS pixels
const times = (more, less) => (more / less).toFixed(1)

export const mount = mounting(class extends Walkthrough {
  constructor(root, data) {
    super(root, data, SCENES, 1)
  }

  build() {
    this.head = 0
    this.caches = Object.fromEntries(Object.entries(ways).map(([way, { keeps }]) => {
      const cache = { labels: labels(), head: element("div", { class: "kv-mtitle2" }), foot: element("div", { class: "kv-gridfoot" }) }
      cache.grid = new Grid(`cache-${way}`, keeps, way === "expanded" ? (column) => this.choose(Math.floor(column / this.wide)) : null)
      cache.node = element("figure", { class: "kv-held", "data-way": way }, cache.head, element("div", { class: "kv-row" }, cache.labels, cache.grid.node), cache.foot)
      return [way, cache]
    }))
    this.lanes = Object.fromEntries(Object.keys(ways).map((way) => [way, lane(way)]))
    this.heads = element("div", { class: "kv-tabs", role: "group", "aria-label": "Heads" })
    this.same = element("p", { class: "kv-same", "data-testid": "kv-same" })
    this.codes = Object.fromEntries(Object.keys(ways).map((way) => [way, element("pre", { class: "kv-code", tabindex: "0", "aria-label": `The code: ${way}` })]))
    this.held = element("div", { class: "kv-counts", "data-testid": "kv-held" })
    this.work = element("div", { class: "kv-counts", "data-testid": "kv-work" })
    this.table = element("table", {})
    this.ordered = element("span", {})
    this.orders = element("div", { class: "kv-beside", "data-testid": "kv-orders" })
    const beside = (nodes) => element("div", { class: "kv-beside" }, ...nodes)
    this.colours = element("div", { class: "kv-scale kv-statescale" })
    return [
            element("div", { class: "kv-helds" }, ...Object.values(this.caches).map((cache) => cache.node)), this.colours,
      element("h3", {}, this.ordered), this.orders,
      element("div", { class: "kv-walking" }, ...this.below(beside)),
    ]
  }

  // What stands below the picture while one walks.
  below(beside) {
    return [
      beside([section("Bytes of the cache", "All layers, read off the tensors.", this.held),
              section("Work of attention in this step", "Multiply-adds of all layers, counted as they ran.", this.work)]),
      section("One head: the same scores and shares, in two orders", "The newest token's query stands above; below it is a row for each cached token. Choose a head here or in the wide picture.", this.heads,
              beside(Object.values(this.lanes).map((one) => one.node)), this.same),
      section("The code that runs", "The lit lines run in this scene; the grey tags are the shapes that they produce.",
              beside(Object.entries(ways).map(([way, { title }]) => element("div", {}, element("b", {}, title), this.codes[way])))),
      folded("All steps as a table", this.table),
    ]
  }

  came() {
    const { design } = this.look
    this.heads.replaceChildren(...Array.from({ length: design.heads }, (_, head) => {
      const tab = element("button", { type: "button" }, String(head))
      tab.setAttribute("aria-label", `head ${head}`)
      tab.onclick = () => this.choose(head)
      return tab
    }))
    const { steps } = this.look
    dataTable(this.table, ["step", "tokens", "cache, expanded", "cache, latent", "work, expanded", "work, absorbed", "work, transformers", "largest Δ of logits"],
              steps.map((one, i) => [i ? i : "prefill", one.total, bytes(one.expanded.cache_bytes), bytes(one.absorbed.cache_bytes),
                                     count(one.expanded.multiply_adds), count(one.absorbed.multiply_adds), count(one.transformers.multiply_adds), small(one.difference.logits)]))
  }

  choose(head) {
    this.head = head
    this.drawAll()
  }

  // How many numbers of a token a head keeps for itself, and how many all share.
  get wide() { return this.look.design.plain + this.look.design.rotated + this.look.design.value }
  get slim() { return this.look.design.latent + this.look.design.rotated }

  said(key) {
    const { look, now, wide, slim } = this
    const { heads, plain, rotated, value, latent, width } = look.design
    const newest = `“${shown(look.tokens[now.total - 1])}”`
    switch (key) {
      case "whole":
        return [`MLA keeps ${slim} numbers per token where ${heads} heads would keep ${count(heads * wide)}`, `Multi-head latent attention, as in DeepSeek-V3, caches one short row per token, from which every head can make its key and value. The same memory holds ${times(heads * wide, slim)} times as many tokens; the price is more arithmetic: ${slim + latent} multiply-adds per head and cached token, not ${plain + rotated + value}.`]
      case "enter":
        return [this.step ? "Decode: one token enters" : "Prefill: the prompt enters", `${this.step ? `Only ${newest} enters.` : `${now.total} tokens enter at once.`} The picture on the left is the cache as keys and values of ${heads} heads, the one on the right the same tokens as latent rows.`]
      case "compress":
        return ["The token is compressed to one short row", `Its ${width} numbers become a latent row of ${latent}, shared by all ${heads} heads, and ${rotated} more that carry its position (RoPE). Those ${rotated} stay apart, because their rotation differs from token to token and no fixed matrix can absorb it.`]
      case "append":
        return [`The cache gets ${slim} numbers, or ${count(heads * wide)}`, `With keys and values, each head keeps a key of ${plain} + ${rotated} and a value of ${value} numbers: ${heads} × (${plain} + ${rotated} + ${value}) = ${count(heads * wide)}. MLA keeps ${latent} + ${rotated} = ${slim}.`]
      case "score":
        return ["The same scores, in another order", `A score is query × matrix × latent row. Expanded multiplies matrix and row first, which makes a key of ${plain} numbers per token; Absorbed multiplies query and matrix first, which makes one query of ${latent}. The ${rotated} rotated numbers carry the position (RoPE); both orders add their product.`]
      case "mix":
        return ["A head mixes values, or the latent rows behind them", `Softmax turns the scores into shares. Expanded, the head adds up its values of ${value} numbers by their shares. Absorbed, it adds up latent rows of ${latent} numbers, and the matrix that makes a value is used once, on the sum. The ${rotated} rotated numbers have done their work in the scores.`]
      default:
        return [`The same logits from a cache ${times(heads * wide, slim)} times smaller`, `The logits differ by at most ${small(now.difference.logits)}, which is rounding. For each cached token, a head pays ${slim} + ${latent} multiply-adds in place of ${plain + rotated} + ${value}; but the step reads less memory, which is what a decode step usually waits for.`]
    }
  }

  draw() {
    const { look, now, head } = this
    const scale = scales(isDark(this.root))
    const rows = (name) => look[name].slice(0, now.total)
    const first = now.total - now.read
    const there = (row) => row < first || this.reached("append")
    const latent = rows("latent").map((row, i) => [...row, ...look.rotated[i]])
    const all = latent.map((_, i) => look.k.flatMap((_, h) => [...look.k[h][i], ...look.v[h][i]]))
    const full = this.root.clientWidth, narrow = full < NARROW
    const cell = [narrow ? (full - LABEL) / (look.design.heads * this.wide) : (full - 2 * LABEL - 130) / (look.design.heads * this.wide + this.slim), narrow || innerHeight < 800 ? LOW : ROW]
    const { plain, rotated, value, latent: wide } = look.design, of = head * this.wide
    const parts = { append: [[of, this.wide], [0, this.slim]], score: [[of, plain + rotated], [0, this.slim]], mix: [[of + plain + rotated, value], [0, wide]] } // what the words speak of
    const [framed, row] = parts[this.scene.key] ?? [null, null]
    this.colours.replaceChildren(signedBar("keys and values ", largest(all), scale), signedBar("latent rows ", largest(latent), scale))
    this.drawCache("expanded", all, { cell, scale, there, framed, most: largest(all), first, cuts: Array.from({ length: look.design.heads - 1 }, (_, h) => (h + 1) * this.wide) })
    this.drawCache("absorbed", latent, { cell, scale, there: (row) => row < first || this.reached("compress"), framed: row, most: largest(latent), first, cuts: [look.design.latent] })
    for (const [i, tab] of [...this.heads.children].entries()) tab.setAttribute("aria-pressed", String(i === head))
    this.drawLanes(scale, latent, first)
    for (const [way, node] of Object.entries(this.codes)) drawCode(node, this.data.listings[way], this.scene.stages, now[way].shapes)
    this.drawOrders()
    this.drawBars()
  }

  drawCache(way, rows, { first, ...drawn }) {
    const cache = this.caches[way], { now } = this
    const numbers = rows[0].length
    const fresh = this.reached(way === "expanded" ? "append" : "compress")
    cache.head.replaceChildren(element("b", {}, way === "expanded" ? `Keys and values of ${this.look.design.heads} heads` : "Latent rows"), element("span", {}, `${count(numbers)} numbers a token${way === "expanded" ? " in one layer" : ""}`))
    cache.grid.draw({ rows, ...drawn })
    label(cache.labels, this.look.tokens.slice(0, now.total), first, drawn.cell[1])
    const { heads, plain, rotated, value, latent } = this.look.design, held = now.total - (fresh ? 0 : now.read), all = (value) => number(String(value))
    const each = way === "expanded" ? [all(heads), unit("heads"), "×", "(", all(plain), "+", all(rotated), "+", all(value), ")"] : ["(", all(latent), "+", all(rotated), ")"]
    cache.foot.replaceChildren(formula(all(held), unit(held === 1 ? "token" : "tokens"), "×", ...each, "×", all("4 B"), "=", all(bytes(held * numbers * 4))))
  }

  // The same product of three in both orders, as boxes: which two are multiplied first, and what that makes.
  drawOrders() {
    const { heads, plain, rotated, value, latent } = this.look.design, { total } = this.now
    const mixes = this.scene.key === "mix" || this.scene.key === "next"
    this.orders.dataset.lit = String(this.scene.key === "score" || this.scene.key === "mix")
    put(this.ordered, mixes ? "One head's output is a product of three, in either order" : "One head's scores are a product of three, in either order, plus a rotated part that is the same in both")
    const vector = mixes ? box("shares", 1, total) : box("query", 1, plain)
    const matrix = () => mixes ? box("value matrix", latent, value) : box("key matrix", plain, latent)
    const rows = () => box("latent rows", mixes ? total : latent, mixes ? latent : total, "absorbed")
    const inner = mixes ? [rows, matrix] : [matrix, rows]
    const grouped = (way, words, ...nodes) => element("div", { class: "kv-ordergroup", "data-way": way }, element("div", {}, ...nodes), element("small", {}, words))
    const [made, shape] = mixes ? ["values", `${total} × ${value}`] : ["keys", `${plain} × ${total}`]
    const short = mixes ? `mixed row, 1 × ${latent}` : `absorbed query, 1 × ${latent}`
    const order = (way, words, note, ...nodes) => element("div", { "data-way": way }, element("b", {}, ways[way].title), element("span", {}, ` ${words}`), element("div", { class: "kv-order" }, ...nodes), element("p", { class: "kv-note" }, note))
    const signs = () => element("span", {}, "×")
    const position = () => mixes ? [] : [element("span", {}, "+"), box("rotated query", 1, rotated), signs(), box("rotated keys", rotated, total, "absorbed")]
    const result = () => [...position(), element("span", {}, "="), mixes ? box("output", 1, value) : box("scores", 1, total)]
    const notes = mixes
      ? [`A value has ${value} numbers, and each of ${heads} heads has its own. MLA does not keep them.`, `The latent row has ${latent} numbers, the same for all ${heads} heads. MLA keeps it.`]
      : [`A key has ${plain} + ${rotated} = ${plain + rotated} numbers, and each of ${heads} heads has its own. MLA does not keep them.`, `A cached row has ${latent} + ${rotated} = ${latent + rotated} numbers, the same for all ${heads} heads. MLA keeps it.`]
    this.orders.replaceChildren(
      order("expanded", `makes ${made} first, of every token`, notes[0], vector, signs(), grouped("expanded", `${made}, ${shape}`, inner[0](), signs(), inner[1]()), ...result()),
      order("absorbed", "multiplies the latent rows as they are", notes[1], grouped("absorbed", short, vector.cloneNode(true), signs(), inner[0]()), signs(), inner[1](), ...result()))
  }

  drawLanes(scale, latent, first) {
    const { look, now, head } = this
    const { plain, rotated, value, latent: wide } = look.design
    const newest = now.total - 1
    const roomy = this.root.clientWidth >= NARROW ? (this.root.clientWidth - 60) / 2 : this.root.clientWidth
    const cell = [Math.max(1.5, Math.min(6, (roomy - 245) / (this.slim + wide))), LINE]
    const query = [...look.q[head][newest], ...look.q_rotated[head][newest]]
    const absorbed = [...look.q_latent[head][newest], ...look.q_rotated[head][newest]]
    const parts = {
      expanded: { keys: look.k[head].slice(0, now.total), values: look.v[head].slice(0, now.total), query: [query], mixed: [look.mixed[head][newest]] },
      absorbed: { keys: latent, values: latent.map((row) => row.slice(0, wide)), before: [query], query: [absorbed], mixed: [look.mixed_latent[head][newest]], after: [look.mixed[head][newest]] },
    }
    const says = {
      expanded: `A cached token costs this head ${plain + rotated} + ${value} = ${plain + rotated + value} multiply-adds a step.`,
      absorbed: `A cached token costs this head ${this.slim} + ${wide} = ${this.slim + wide} multiply-adds a step, but all heads read the same row.`,
    }
    const scores = look.scores[head][newest], weights = look.weights[head][newest]
    const most = largest([scores])
    for (const [way, one] of Object.entries(this.lanes)) {
      const there = (row) => row < first || this.reached("append")
      for (const [name, grid] of Object.entries(one.grids)) {
        const rows = parts[way][name] ?? []
        const single = name !== "keys" && name !== "values"
        grid.draw({ rows, cell, scale, most: largest(rows), there: single ? () => this.reached(name === "query" || name === "before" ? "score" : "mix") : there })
      }
      label(one.labels, look.tokens.slice(0, now.total), first, LINE)
      one.scores.replaceChildren(...scores.map((score) => tinted(this.reached("score") ? score.toPrecision(2) : "", scale.signed(score / most), this.reached("score"))))
      one.shares.replaceChildren(...weights.map((share) => bar(share, share / Math.max(...weights), this.reached("mix"))))
      put(one.says, says[way])
    }
    const { difference } = now
    put(this.same, this.reached("next") ? `Check: in this step the two orders give the same scores to within ${small(difference.scores)}, the same head outputs to within ${small(difference.mixed)} and the same logits to within ${small(difference.logits)}; transformers' own layer agrees to within ${small(difference.transformers)}.` : "")
  }

  drawBars() {
    const { now, look } = this
    const most = look.steps[look.steps.length - 1].expanded.cache_bytes
    const row = (words, value, share, way, hint = "") => element("div", { class: "kv-countrow", title: hint }, element("span", {}, words),
      element("div", { class: "kv-track" }, fill(share, way)), element("b", {}, value))
    this.held.replaceChildren(...Object.entries(ways).map(([way, { keeps }]) => row(keeps, bytes(now[way].cache_bytes), now[way].cache_bytes / most, way)))
    const work = { expanded: "Expanded", absorbed: "Absorbed", transformers: "Expanded each step" }
    const top = Math.max(...Object.keys(work).map((way) => now[way].multiply_adds))
    this.work.replaceChildren(...Object.entries(work).map(([way, words]) => row(words, count(now[way].multiply_adds), now[way].multiply_adds / top, way)),
      element("p", { class: "kv-note" }, "Expanded: keys and values lie in the cache. Absorbed: only latent rows do, multiplied as drawn above. Expanded each step: only latent rows do, and all keys and values are made from them again, as transformers' own layer does."))
  }
}, ".kv-latent")

// One head's product: the query above the keys, a score and a share beside each, the result below the values.
function lane(way) {
  const grids = {
    before: new Grid(`${way}-before`, "the query"), query: new Grid(`${way}-query`, way === "expanded" ? "the query" : "the query times the matrix of keys"),
    keys: new Grid(`${way}-keys`, way === "expanded" ? "the keys of this head" : "latent rows and rotated keys"),
    values: new Grid(`${way}-values`, way === "expanded" ? "the values of this head" : "latent rows"),
    mixed: new Grid(`${way}-mixed`, way === "expanded" ? "shares of the values" : "shares of the latent rows"), after: new Grid(`${way}-after`, "the mixture times the matrix of values"),
  }
  const part = (area, ...nodes) => { const node = element("div", {}, ...nodes); node.style.gridArea = area; return node }
  const words = (text) => element("small", {}, text)
  const [labelled, scores, shares, says] = [labels(), element("div", { class: "kv-scores" }), element("div", { class: "kv-shares" }), element("p", { class: "kv-note" })]
  const absorbed = way === "absorbed"
  const board = element("div", { class: "kv-lane" },
    part("before", ...(absorbed ? [words("query"), grids.before.node, words("× matrix of keys ↓")] : [])),
    part("query", words(absorbed ? "absorbed query" : "query"), grids.query.node),
    part("labels", labelled), part("keys", grids.keys.node), part("scores", scores), part("shares", shares), part("values", grids.values.node),
    part("heads", words("scores")), part("headt", words("shares")), part("headv", words(absorbed ? "latent rows" : "values")),
    part("mixed", grids.mixed.node, words("mixed")),
    part("after", ...(absorbed ? [words("↓ × matrix of values"), grids.after.node] : [])))
  return { node: element("div", { "data-way": way }, element("b", {}, ways[way].title), element("p", { class: "kv-words" }, ways[way].says), element("div", { class: "kv-lanebox", tabindex: "0", role: "region", "aria-label": `One head, ${way}` }, board), says),
           grids, labels: labelled, scores, shares, says }
}

// A matrix as a box, so many CSS pixels a number, and thick enough to be seen if it is a single row.
function box(words, rows, columns, way = "") {
  const shape = element("i", way ? { "data-way": way } : {})
  Object.assign(shape.style, { width: `${Math.max(THIN, ACROSS * columns)}px`, height: `${Math.max(THIN, DOWN * rows)}px` })
  return element("div", { class: "kv-orderbox" }, shape, element("small", {}, words, element("br", {}), `${rows} × ${columns}`))
}

function tinted(text, colour, there) {
  const cell = element("div", {}, text)
  if (there) {
    cell.style.background = `rgb(${colour.join(" ")})`
    cell.style.color = inkOn(colour)
  }
  return cell
}

function bar(share, length, there) {
  const cell = element("div", {}, element("i", {}), element("span", {}, there ? `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%` : ""))
  cell.firstChild.style.width = there ? `${100 * length}%` : "0"
  return cell
}

function fill(share, way) {
  const node = element("div", { class: "kv-countfill", "data-way": way })
  node.style.width = `${Math.max(0.5, 100 * share)}%`
  return node
}
