// Multi-head latent attention: what one token leaves in either cache, and one head's product, first with keys and then without.

import { element, put } from "../shared/dom.js"
import { bytes, count, small } from "../shared/format.js"
import { mounted } from "../shared/mounted.js"
import { Grid, label, labels } from "./grid.js"
import { formula, name, number, sign, unit, upper } from "./maths.js"
import { inkOn, largest, scales } from "./matrix.js"
import { signedBar } from "./state.js"
import { dataTable, drawCode, folded, isDark, nameByRead, section, shown, Walkthrough } from "./walkthrough.js"

const SCENES = [ // `of`: the only listing whose lines are lit
  { key: "enter", stages: ["enter", "query"] },
  { key: "compress", stages: ["compress"] },
  { key: "append", stages: ["expand", "append"] },
  { key: "score", stages: ["expand", "score"], of: "expanded" },
  { key: "absorb", stages: ["absorb", "score"], of: "absorbed" },
  { key: "mix", stages: ["softmax", "mix", "unfold"] },
  { key: "next", stages: ["output"] },
]
const ways = {
  expanded: { title: "Expanded", keeps: "Keys and values", says: "Each head makes its key and value when a token comes, and caches both." },
  absorbed: { title: "Absorbed", keeps: "Latent rows", says: "The matrix that would make the keys is multiplied into the query once per step; the cache keeps the rows from which keys would be made." },
}
const ROW = 14, LOW = 9, ONE = 20 // CSS pixels of a head's row, and of the one row of all heads
const CELL = 20 // CSS pixels of a number, at most
const LINE = 15 // CSS pixels of a row of one head's product
const ACROSS = [6, 7], THIN = 10 // CSS pixels of a number in the boxes, at most, on a low screen and on others, and of the thinnest box
const SIGNS = 240, FEW = 60 // CSS pixels of the signs, gaps and frames between the boxes, and of those between the ones that share the widest row of a narrow page
const NARROW = 700, LABEL = 64 // CSS pixels
const times = (more, less) => (more / less).toFixed(1)

export const mount = mounted(class extends Walkthrough {
  constructor(root, data) {
    super(root, data, SCENES, 1)
  }

  build() {
    this.head = 0
    this.caches = Object.fromEntries(Object.entries(ways).map(([way, { keeps }]) => {
      const cache = { labels: element("div", { class: "kv-gridlabels" }), head: element("div", { class: "kv-mtitle2" }), parts: element("div", { class: "kv-mparts", "aria-hidden": "true" }), foot: element("div", { class: "kv-gridfoot" }) }
      cache.grid = new Grid(`cache-${way}`, keeps)
      cache.node = element("figure", { class: "kv-held", "data-way": way }, cache.head, cache.parts, element("div", { class: "kv-row" }, ...(way === "expanded" ? [cache.labels] : []), cache.grid.node), cache.foot)
      return [way, cache]
    }))
    this.lanes = Object.fromEntries(Object.keys(ways).map((way) => [way, lane(way)]))
    this.heads = element("div", { class: "kv-tabs", role: "group", "aria-label": "Heads" })
    this.same = element("p", { class: "kv-same", "data-testid": "kv-same" })
    this.codes = Object.fromEntries(Object.keys(ways).map((way) => [way, element("pre", { class: "kv-code", tabindex: "0", "aria-label": `The code: ${way}` })]))
    this.held = element("div", { class: "kv-counts", "data-testid": "kv-held" })
    this.work = element("div", { class: "kv-counts", "data-testid": "kv-work" })
    this.table = element("table", {})
    this.ordered = element("h3", {})
    this.algebra = element("p", { class: "kv-algebra" })
    this.orders = element("div", { class: "kv-orders", "data-testid": "kv-orders" })
    this.product = element("section", {}, this.ordered, this.algebra, this.orders)
    this.kept = element("h3", {})
    this.colours = element("div", { class: "kv-scale kv-statescale" })
    this.pictures = element("div", { class: "kv-helds" }, this.caches.expanded.node,
                            element("div", { class: "kv-one" }, this.caches.absorbed.node, this.colours, this.kept, this.held))
    const beside = (nodes) => element("div", { class: "kv-beside" }, ...nodes)
    return [
      this.pictures,
      this.product,
      element("div", { class: "kv-walking" }, this.same, ...this.below(beside)),
    ]
  }

  // What stands below the picture while one walks.
  below(beside) {
    return [
      section("Work of attention in this step", "Multiply-adds of all layers, counted as they ran.", this.work),
      section("The code that runs", "The lit lines run in this scene; the grey tags are the shapes that they produce.",
              beside(Object.entries(ways).map(([way, { title }]) => element("div", {}, element("b", {}, title), this.codes[way])))),
      folded("One head with its numbers, with keys and without", element("div", {}, this.heads, beside(Object.values(this.lanes).map((one) => one.node)))),
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
    nameByRead(this.steps, this.look)
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
        return [`MLA caches ${slim} numbers per token instead of ${count(heads * wide)}`, `Multi-head latent attention, as in DeepSeek-V3, caches one short row for all heads, so the same memory holds ${times(heads * wide, slim)} times as many tokens. The price: for each cached token a head takes ${slim} (score) + ${latent} (mix) = ${slim + latent} multiply-adds, not ${plain + rotated} + ${value} = ${wide}.`]
      case "enter":
        return [this.step ? "Decode: one token enters" : "Prefill: the prompt enters", `${this.step ? `Only ${newest} enters.` : `${now.total} tokens enter at once; the pictures show the last one.`} Both pictures are still pale: this token has left nothing in a cache yet.`]
      case "compress":
        return ["MLA compresses the token to one short row", `Changed: the row on the right has its numbers. ${width} numbers became a latent row of ${latent}, shared by all ${heads} heads, and ${rotated} that carry the position (RoPE). That is all that MLA caches.`]
      case "append":
        return [`Multi-head attention would cache ${count(heads * wide)} numbers here`, `Changed: the picture on the left, drawn only to compare. In each of ${heads} heads, the latent row times a fixed matrix would give a key, and times another one a value. If it stored the position once for all heads, it would still be ${times(heads * (plain + value) + rotated, slim)} times as large as MLA's.`]
      case "score":
        return ["One way to score: make every key again", `Changed: the product below. A score is query times key, and a key is the head's key matrix times the latent row. Nothing but latent rows is cached, so this step would make ${now.total} keys in each of ${heads} heads.`]
      case "absorb":
        return ["The way of MLA: multiply the matrix into the query, once", `Changed: the frame has moved to the query. The key matrix is the same for every token, so each head multiplies it into its one query and reads the cached rows as they are.`]
      case "mix":
        return ["The values are avoided in the same way", `Changed: softmax has turned the scores into shares. A head adds up the cached rows by their shares, and multiplies that one sum by its value matrix. The ${rotated} position numbers have done their work.`]
      default:
        return [`The same logits from a cache ${times(heads * wide, slim)} times smaller`, `With keys and without, the result is the same but for rounding. The step computes more and reads less memory, and memory is what a decode step usually waits for.`]
    }
  }

  draw() {
    const { look, now, head } = this
    const scale = scales(isDark(this.root))
    const newest = now.total - 1, first = now.total - now.read
    const { heads, plain, rotated, value, latent: wide } = look.design
    const latent = look.latent.slice(0, now.total).map((row, i) => [...row, ...look.rotated[i]])
    const own = look.k.map((keys, h) => [...keys[newest], ...look.v[h][newest]])
    const most = largest([...own, latent[newest]])
    const full = this.root.clientWidth, narrow = full < NARROW, low = narrow || innerHeight < 800
    const across = Math.min(CELL, narrow ? (full - 4) / this.slim : (full - LABEL - 60) / (this.wide + this.slim))
    const parts = { score: [[0, plain + rotated], null], absorb: [null, [0, this.slim]], mix: [null, [0, wide]] } // what the words speak of
    const [framed, row] = parts[this.scene.key] ?? [null, null]
    const token = `“${shown(look.tokens[newest])}”`
    this.drawCache("expanded", own, { cell: [across, low ? LOW : ROW], scale, most, framed, there: () => this.reached("append"), cuts: [plain, plain + rotated] },
                   [`Multi-head attention: ${heads} keys and ${heads} values`, `${count(heads * this.wide)} numbers for the newest token, ${token}, in one layer`], [["key", plain], ["position", rotated], ["value", value]])
    this.drawCache("absorbed", [latent[newest]], { cell: [across, ONE], scale, most, framed: row, there: () => this.reached("compress"), cuts: [wide] },
                   [`MLA: one row for all ${heads} heads`, `${this.slim} numbers for the same token`], [["latent row", wide], ["position", rotated]])
    this.caches.expanded.labels.replaceChildren(...own.map((_, h) => {
      const one = element("div", {}, low && h % 2 ? "" : `head ${h}`), high = low ? LOW : ROW // every second where rows are low
      Object.assign(one.style, { height: `${high}px`, lineHeight: `${high}px`, fontSize: "12.5px" })
      return one
    }))
    this.colours.replaceChildren(signedBar("numbers in both pictures", most, scale))
    for (const [i, tab] of [...this.heads.children].entries()) tab.setAttribute("aria-pressed", String(i === head))
    this.drawLanes(scale, latent, first)
    for (const [way, node] of Object.entries(this.codes)) drawCode(node, this.data.listings[way], (this.scene.of ?? way) === way ? this.scene.stages : [], now[way].shapes)
    this.drawProduct()
    this.drawBars()
  }

  // What one token leaves in a cache: a row for each head, or one for all; above it the parts of a row.
  drawCache(way, rows, drawn, [title, said], parts) {
    const cache = this.caches[way]
    cache.head.replaceChildren(element("b", {}, title), element("span", {}, said))
    cache.grid.draw({ rows, ...drawn })
    cache.parts.replaceChildren(...parts.map(([words, numbers]) => {
      const part = element("span", {}, words, element("br", {}), String(numbers))
      part.style.width = `${numbers * drawn.cell[0]}px`
      return part
    }))
    const all = (value) => number(String(value)), sum = parts.flatMap(([, numbers], i) => [...(i ? ["+"] : []), all(numbers)])
    cache.foot.replaceChildren(formula(...(rows.length > 1 ? [all(rows.length), unit("heads"), "×"] : []), "(", ...sum, ")", "×", all("4 B"), "=", all(bytes(rows.length * rows[0].length * 4)), unit("per token in one layer")))
  }

  // One head's product as boxes: what is multiplied first, framed, and what that makes. The finished picture has the order that MLA takes.
  drawProduct() {
    const { heads, plain, rotated, value, latent } = this.look.design, { total, difference } = this.now
    const key = this.whole ? "absorb" : this.scene.key, mixes = key === "mix"
    this.product.hidden = !["score", "absorb", "mix"].includes(key)
    if (this.product.hidden) return
    if (this.whole) this.pictures.after(this.product)
    else this.pictures.before(this.product) // what is at work stands first
    const grouped = (way, words, ...nodes) => element("div", { class: "kv-ordergroup", "data-way": way }, element("small", {}, words), element("div", {}, ...nodes))
    const [times, plus, equals] = ["×", "+", "="].map((text) => () => element("span", {}, text))
    const last = this.look.tokens.length, full = this.root.clientWidth
    const [numbers, signs] = full < NARROW ? [latent + (key === "absorb" ? plain : last), FEW] : [mixes ? last + latent + 2 * value : plain + latent + 3 * last + rotated, SIGNS]
    const across = Math.min(ACROSS[Number(innerHeight >= 800)], (full - signs) / numbers) // the boxes fill the page's width in the last step
    const box = (...drawn) => boxed(across, ...drawn)
    const query = () => box("query q", 1, plain), matrix = () => box("key matrix W", plain, latent), rows = () => box("cached C: a column c for each token", latent, total, "absorbed")
    const scores = () => [plus(), box("position of q", 1, rotated), times(), box("cached positions", rotated, total, "absorbed"), equals(), box("scores", 1, total)]
    const q = () => upper(name("q"), "T"), open = () => sign("("), close = () => sign(")")
    const [title, algebra, nodes, note] = {
      score: ["A score is query times key", [formula(q(), "k", "=", q(), open(), "W", "c", close())],
              [query(), times(), grouped("expanded", `keys k, ${plain} × ${total}: made anew in every step`, matrix(), times(), rows()), ...scores()], `The framed product grows with the text, and each of ${heads} heads needs its own.`],
      absorb: ["MLA folds the key matrix into the query, so no head makes a key", [formula(q(), open(), "W", "c", close(), "=", open(), q(), "W", close(), "c"), ": the same product, bracketed the other way. W is one fixed matrix per head; only c changes from token to token."],
               [grouped("absorbed", `absorbed query, 1 × ${latent}: made once per step`, query(), times(), matrix()), times(), rows(), ...scores()],
               `Blue is read from the cache as it is. ${this.whole ? "Making values is skipped in the same way; the walk shows it." : `The ${rotated} position numbers stay apart: they are rotated by each token's own angle, which no fixed matrix can do. Largest difference from the scores with keys: ${small(difference.scores)}.`}`],
      mix: ["Why no value is needed: the matrix waits until the rows are added up", [formula("p", open(), "c", "U", close(), "=", open(), "p", "c", close(), "U"), ", where p are the shares and U is the head's value matrix"],
            [grouped("absorbed", `one mixed row, 1 × ${latent}`, box("shares p", 1, total), times(), box("cached C: a row c for each token", total, latent, "absorbed")), times(), box("value matrix U", latent, value), equals(), box("output", 1, value)],
            `Blue is read from the cache as it is. Largest difference from the output with values: ${small(difference.mixed)}.`],
    }[key]
    put(this.ordered, title)
    this.algebra.replaceChildren(...algebra)
    this.orders.dataset.lit = String(!this.whole)
    this.orders.replaceChildren(element("div", { class: "kv-order" }, ...nodes), element("p", { class: "kv-note" }, note))
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
    put(this.same, this.reached("next") ? `Check: in this step both ways give the same scores to within ${small(difference.scores)}, the same head outputs to within ${small(difference.mixed)} and the same logits to within ${small(difference.logits)}; transformers' own layer agrees to within ${small(difference.transformers)}.` : "")
  }

  drawBars() {
    const { now, look } = this
    const most = look.steps[look.steps.length - 1].expanded.cache_bytes
    const row = (words, value, share, way) => element("div", { class: "kv-countrow" }, element("span", {}, words),
      element("div", { class: "kv-track kv-ended" }, fill(share, way), element("b", {}, value)))
    const layers = now.absorbed.cache_bytes / (4 * now.total * this.slim)
    put(this.kept, `The whole cache: ${now.total} tokens in ${layers} layers`)
    this.held.replaceChildren(...Object.entries(ways).map(([way, { keeps }]) => row(keeps, bytes(now[way].cache_bytes), now[way].cache_bytes / most, way)))
    const work = { expanded: "Keys and values cached", absorbed: "Latent rows, no keys", transformers: "Latent rows, keys made anew" }
    const top = Math.max(...Object.keys(work).map((way) => now[way].multiply_adds))
    this.work.replaceChildren(...Object.entries(work).map(([way, words]) => row(words, count(now[way].multiply_adds), now[way].multiply_adds / top, way)),
      element("p", { class: "kv-note" }, "The last one is what transformers' own layer does: it makes all keys and values again from the latent rows in each step."))
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

// A matrix as a box, so many CSS pixels a number across and down, and thick enough to be seen if it is a single row.
function boxed(each, words, rows, columns, way = "") {
  const shape = element("i", way ? { "data-way": way } : {})
  Object.assign(shape.style, { width: `${Math.max(THIN, each * columns)}px`, height: `${Math.max(THIN, each * rows)}px` })
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
  node.style.setProperty("--kv-share", Math.max(0.005, share))
  return node
}
