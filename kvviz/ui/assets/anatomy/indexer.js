// Sparse attention: an indexer scores all tokens, and attention reads the few that it picks; they move with the text.

import { element, put, scrolled } from "../shared/dom.js"
import { count } from "../shared/format.js"
import { small } from "./state.js"
import { dataTable, drawCode, folded, mounting, nameByToken, section, shown, Walkthrough } from "./walkthrough.js"

const SCENES = [
  { key: "enter", stages: ["enter", "query", "key", "append"] },
  { key: "score", stages: ["fit", "weigh"] },
  { key: "pick", stages: ["mask", "pick"] },
  { key: "attend", stages: [] },
]

export const mount = mounting(class extends Walkthrough {
  constructor(root, data) {
    super(root, data, SCENES, { step: 12, scene: "attend" })
  }

  heading() { return [] } // it stands beside the map

  build() {
    this.watch = element("p", { class: "kv-watch", "data-testid": "kv-watch" })
    this.map = element("div", { class: "kv-picks", role: "img", "data-testid": "kv-picks" })
    this.list = element("div", { class: "kv-picklist" })
    this.reads = element("div", { class: "kv-counts", "data-testid": "kv-reads" })
    this.code = element("pre", { class: "kv-code", tabindex: "0", "aria-label": "The code" })
    this.table = element("table", {})
    this.claim = element("span", {})
    this.saved = element("span", {})
    const key = (state, words) => element("span", {}, element("i", { class: "kv-swatch", "data-state": state }), words)
    const legend = element("div", { class: "kv-legend kv-pickkey" }, key("read", "read, by the token above too"), key("came", "read, not by the token above"), key("gone", "only the token above read it"), key("left", "kept, not read"))
    return [
      element("div", { class: "kv-first" },
              element("div", { class: "kv-said kv-firstsaid" }, this.title, this.words, this.watch),
              element("section", { class: "kv-firstmatrix" }, element("h3", {}, this.claim), element("p", { class: "kv-note" }, "Down: the token that reads. Across: the tokens that it could read."), legend, scrolled("The map", "kv-lanebox", this.map)),
              element("div", { class: "kv-firstrule" }, element("h3", {}, "The indexer's scores choose, attention's weights share"), this.list)),
      section(this.saved, "What has to come from memory for one new token, in each layer.", this.reads),
      section("The code that runs", "The indexer, which stands before the attention. The lit lines are at work in this scene.", this.code),
      folded("All tokens as a table", this.table),
    ]
  }

  came() {
    const { look } = this
    nameByToken(this.steps, look)
    dataTable(this.table, ["token", "position", "reads the positions", "numbers read, all rows", "numbers read, picked rows", "largest Δ of logits"],
              look.steps.map((one, i) => [shown(look.tokens[i]), i, one.picked.join(", "), count(this.read(one).all), count(this.read(one).index + this.read(one).rows), small(one.difference)]))
  }

  // The numbers that a step reads: all latent rows, or the indexer's keys and the rows that were picked.
  read({ total, picked }) {
    const { latent, key } = this.look.numbers
    return { all: total * latent, index: total * key, rows: picked.length * latent }
  }

  said(key) {
    const { now, look, step } = this
    const { heads, dim, most } = look.design
    const token = `“${shown(look.tokens[step])}”`
    switch (key) {
      case "enter":
        return [`${token} enters`, `Beside its latent row of ${look.numbers.latent} numbers, the cache keeps one small key of ${dim} for the indexer. Nothing is thrown away: what is not read now may be read later.`]
      case "score":
        return ["The indexer scores every token", `${heads} small heads compare their queries with the small keys of all ${now.total} tokens. That is still a product with every token, but a narrow one: ${dim} numbers a token, not ${look.numbers.latent}.`]
      case "pick":
        return [now.total <= most ? `All ${now.total} are read: there are no more than ${most}` : `The best ${most} of ${now.total} are read`, step && now.total > most ? `${this.changes.came} of them the token before left out. The set moves: each token picks anew.` : `From the token after the ${most}th on, some are left out.`]
      default:
        return [now.total > most ? `${token} reads ${now.picked.length} of ${now.total} rows; all ${now.total} stay in the cache` : `${token} reads all ${now.total}: there are no more than ${most}`, now.total > most ? `A score is the indexer's and only decides what is read. A share is attention's own weight, from other products: the best score need not have the largest share. The shares of the picked ${now.picked.length} add up to 1; the other ${now.total - now.picked.length} get nothing in this step, but may be picked by a later one.` : "As long as all are picked, this is attention as it always was."]
    }
  }

  // What the set of this token has more and less than that of the token before.
  get changes() {
    const { look, now, step } = this
    const before = step ? look.steps[step - 1].picked : []
    return { came: now.picked.filter((at) => at < step && !before.includes(at)).length, gone: before.filter((at) => !now.picked.includes(at)).length }
  }

  looks(key) {
    const { now, look, step } = this
    const row = `the row of “${shown(look.tokens[step])}”`
    const { came, gone } = this.changes
    const full = now.total > look.design.most
    return {
      enter: `Look at ${row} in the map: it is empty, nothing has been picked yet.`,
      score: `Look at the bars: each of the ${now.total} tokens has a score, also those that will not be read.`,
      pick: full ? `Look at ${row}: ${came} green cell${came === 1 ? " has" : "s have"} come since the row above, ${gone} hollow one${gone === 1 ? " has" : "s have"} gone.` : `Look at ${row}: it is whole, because it has no more than ${look.design.most} cells.`,
      attend: full ? `Look at the shares: only the ${now.picked.length} bold tokens have one. In ${row}, ${came} green cell${came === 1 ? " has" : "s have"} come and ${gone} hollow one${gone === 1 ? " has" : "s have"} gone.` : "Look at the shares: every token has one.",
    }[key]
  }

  draw() {
    const { look, now, step } = this
    const size = look.steps.length
    put(this.watch, this.looks(this.scene.key))
    this.map.style.setProperty("--kv-columns", size)
    const room = Math.min(innerHeight < 800 ? 290 : 430, this.root.clientWidth - 20)
    this.map.style.setProperty("--kv-cellsize", `${Math.max(9, Math.min(20, Math.floor(room / (size + 1.6)) - 1))}px`)
    this.map.setAttribute("aria-label", `Token ${step} reads the positions ${now.picked.join(", ")}`)
    const reached = this.reached("pick")
    const head = (text) => element("span", {}, shown(text))
    this.map.replaceChildren(element("span", {}), ...look.tokens.map(head), ...look.steps.flatMap((one, row) => [
      head(look.tokens[row]),
      ...look.tokens.map((_, at) => {
        const [now, above] = [one, look.steps[row - 1]].map((made) => made?.picked.includes(at) ?? false)
        const state = at > row ? "later" : row > step || (row === step && !reached) ? "open" : now ? (above || at === row ? "read" : "came") : above ? "gone" : "left"
        return element("i", { "data-state": state, "data-now": String(row === step) })
      })]))
    const most = Math.max(...now.scores.map(Math.abs), 1e-9), top = Math.max(...now.shares)
    this.list.replaceChildren(element("b", {}, "token"), element("b", {}, "indexer's score"), element("b", {}, "attention's share"), ...now.scores.flatMap((score, at) => {
      const picked = now.picked.includes(at)
      const label = element("span", { "data-picked": String(reached && picked) }, `${at} ${shown(look.tokens[at])}`)
      return [label, bar(this.reached("score") ? score / most : 0, this.reached("score") ? score.toFixed(2) : "", reached && !picked, true),
              bar(this.reached("attend") ? now.shares[at] / top : 0, this.reached("attend") ? (picked ? `${(100 * now.shares[at]).toFixed(0)} %` : "not read") : "", !picked)]
    }))
    const { all, index, rows } = this.read(now)
    put(this.claim, `No token reads more than ${look.design.most} rows, and each picks anew`)
    put(this.saved, now.total > look.design.most ? `The step reads ${count(index + rows)} numbers in place of ${count(all)}` : "As long as all rows are picked, the indexer only adds to the reading")
    const line = (words, value, ...parts) => element("div", { class: "kv-countrow" }, element("span", {}, words), element("div", { class: "kv-track kv-stacked" }, ...parts), element("b", {}, count(value)))
    const widest = this.read(look.steps[size - 1]), scale = Math.max(widest.all, widest.index + widest.rows)
    this.reads.replaceChildren(line("All latent rows", all, part(all / scale, "expanded")),
                               line("Picked rows", index + rows, part(index / scale, "transformers", "the indexer's keys"), part(rows / scale, "absorbed", "the picked latent rows")),
                               element("p", { class: "kv-note" }, `All: ${now.total} × ${look.numbers.latent} = ${count(all)}. Picked: ${now.total} × ${look.numbers.key} for the indexer's keys (grey) + ${now.picked.length} × ${look.numbers.latent} (blue) = ${count(index + rows)}. The blue part stops growing at ${look.design.most} rows; the cache itself does not shrink.`))
    drawCode(this.code, this.data.listings.indexer, this.scene.stages, now.shapes)
  }
}, ".kv-indexer")


function bar(share, text, dim, signed = false) {
  const fill = element("i", {})
  fill.style.width = `${(signed ? 50 : 100) * Math.abs(share)}%`
  if (signed) fill.style.left = share < 0 ? `${50 - 50 * Math.abs(share)}%` : "50%"
  return element("div", { class: "kv-pickbar", "data-dim": String(dim), "data-signed": String(signed) }, fill, element("span", {}, text.replace("-", "−")))
}

function part(share, way, hint = "") {
  const node = element("div", { class: "kv-countfill", "data-way": way, title: hint })
  node.style.width = `${100 * share}%`
  return node
}
