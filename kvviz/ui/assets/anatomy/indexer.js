// Sparse attention: an indexer scores all tokens, and attention reads the few that it picks; they move with the text.

import { element, put, scrolled } from "../shared/dom.js"
import { count, small } from "../shared/format.js"
import { mounted } from "../shared/mounted.js"
import { dataTable, drawCode, folded, nameByToken, section, shown, Walkthrough } from "./walkthrough.js"

const SCENES = [
  { key: "enter", stages: ["enter", "query", "key", "append"] },
  { key: "score", stages: ["fit", "weigh"] },
  { key: "pick", stages: ["mask", "pick"] },
  { key: "attend", stages: [] },
]

const KEY = [["read", "read, by the token above too"], ["came", "read, not by the token above"], ["gone", "not read, but by the token above"], ["left", "kept, not read"]]
const SHORT = [["read", "read"], KEY.at(-1)] // of the finished picture

export const mount = mounted(class extends Walkthrough {
  constructor(root, data) {
    super(root, data, SCENES, 15)
  }

  heading() { return [] } // it stands beside the map

  build() {
    this.watch = element("p", { class: "kv-watch", "data-testid": "kv-watch" })
    this.map = element("div", { class: "kv-picks", role: "img", "data-testid": "kv-picks" })
    this.list = element("div", { class: "kv-picklist" })
    this.reads = element("div", { class: "kv-counts", "data-testid": "kv-reads" })
    this.code = element("pre", { class: "kv-code", tabindex: "0", "aria-label": "The code" })
    this.table = element("table", {})
    this.saved = element("h3", {})
    this.counted = element("h3", {})
    this.legend = element("div", { class: "kv-legend kv-pickkey" })
    return [
      element("div", { class: "kv-first" },
              element("div", { class: "kv-said kv-firstsaid" }, this.title, this.words, this.watch),
              element("section", { class: "kv-firstmatrix" }, element("h3", {}, "Which rows each token reads"), element("p", { class: "kv-note" }, "A row of the map is a token that reads; its columns are the tokens it could read."), this.legend, scrolled("The map", "kv-lanebox", this.map),
                      element("div", { class: "kv-numbersread" }, this.saved, this.reads)),
              element("div", { class: "kv-firstrule" }, this.counted, element("p", { class: "kv-note" }, "The indexer only picks: attention gives the picked rows shares of its own. A token need not even pick itself."), this.list)),
      element("div", { class: "kv-walking" },
              section("The code that runs", "The indexer, which runs before attention. The lit lines run in this scene.", this.code),
              folded("All tokens as a table", this.table)),
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
    const token = this.named
    switch (key) {
      case "whole":
        return [`Each token scores all rows and reads at most ${most}`, `A long text makes decode slow because every step reads the whole cache. In sparse attention, as in DeepSeek-V3.2, a small indexer scores all cached tokens and attention reads only the ${most} best. Scoring still grows with the text, but takes ${look.numbers.key} numbers per cached token, not ${look.numbers.latent}. All rows stay in the cache, because a later token may pick any of them, and the small keys are cached too: ${look.numbers.latent} + ${look.numbers.key} = ${look.numbers.latent + look.numbers.key} numbers per token.`]
      case "enter":
        return [`${token} enters`, `Besides its latent row of ${look.numbers.latent} numbers, the cache keeps one small key of ${dim} numbers for the indexer. Nothing is thrown away: a row that is not read now may be read later.`]
      case "score":
        return ["The indexer scores every token", `${heads} small heads compare their queries with the small keys of all ${now.total} tokens. That still touches every token, but reads only ${dim} numbers of each, not ${look.numbers.latent}.`]
      case "pick":
        return [now.total <= most ? `All ${now.total} rows are read: there are no more than ${most}` : `The best ${most} of ${now.total} rows are read`, step && now.total > most ? `The token before did not read ${this.changes.came} of them. Each token picks its own set.` : `After token ${most}, rows begin to be left out.`]
      default:
        return [now.total > most ? `${token} reads ${now.picked.length} of ${now.total} rows` : `${token} reads all ${now.total} rows: there are no more than ${most}`, now.total > most ? "The indexer's score only decides which rows are read. The best score need not have the largest share." : "As long as all rows are picked, this is ordinary attention."]
    }
  }

  // This step's token with its place, because a letter may stand in the text more than once.
  get named() {
    return `“${shown(this.look.tokens[this.step])}” (token ${this.step})`
  }

  // What the set of this token has more and less than that of the token before.
  get changes() {
    const { look, now, step } = this
    const before = step ? look.steps[step - 1].picked : []
    return { came: now.picked.filter((at) => at < step && !before.includes(at)).length, gone: before.filter((at) => !now.picked.includes(at)).length }
  }

  looks(key) {
    const { now, look, step } = this
    const row = `the row of ${this.named}`
    const { came, gone } = this.changes
    const full = now.total > look.design.most
    const turned = `${came} green cell${came === 1 ? " is" : "s are"} new since the row above, ${gone} hollow one${gone === 1 ? " was" : "s were"} dropped`
    return {
      enter: `Look at ${row} in the map: it is empty, because nothing has been picked yet.`,
      score: `Look at the bars: each of the ${now.total} tokens has a score, even those that will not be read.`,
      pick: full ? `Look at ${row}: ${turned}.` : `Look at ${row}: it is full, because it has no more than ${look.design.most} cells.`,
      attend: full ? `Look at the shares: only the ${now.picked.length} rows that were picked have one. In ${row}, ${turned}.` : "Look at the shares: every token has one.",
    }[key]
  }

  draw() {
    const { look, now, step } = this
    const size = look.steps.length
    put(this.watch, this.looks(this.scene.key) ?? "")
    this.watch.hidden = this.whole
    this.legend.replaceChildren(...(this.whole ? SHORT : KEY).map(([state, words]) => element("span", {}, element("i", { class: "kv-swatch", "data-state": state }), words)))
    this.map.style.setProperty("--kv-columns", size)
    const room = Math.min(innerHeight < 800 ? 250 : 400, this.root.clientWidth - 20)
    this.map.style.setProperty("--kv-cellsize", `${Math.max(9, Math.min(20, Math.floor(room / (size + 1.6)) - 1))}px`)
    this.map.setAttribute("aria-label", `Token ${step} reads the positions ${now.picked.join(", ")}`)
    const reached = this.reached("pick")
    const head = (text) => element("span", {}, shown(text))
    const column = (text) => element("span", { class: shown(text).length > 2 ? "kv-upright" : "" }, shown(text)) // a longer one would touch the next
    this.map.replaceChildren(element("span", {}), ...look.tokens.map(column), ...look.steps.flatMap((one, row) => [
      head(look.tokens[row]),
      ...look.tokens.map((_, at) => {
        const [now, above] = [one, look.steps[row - 1]].map((made) => made?.picked.includes(at) ?? false)
        const state = this.whole && at <= row ? (now ? "read" : "left") : at > row ? "later" : row > step || (row === step && !reached) ? "open" : now ? (above || at === row ? "read" : "came") : above ? "gone" : "left"
        return element("i", { "data-state": state, "data-now": String(row === step) })
      })]))
    const most = Math.max(...now.scores.map(Math.abs), 1e-9), top = Math.max(...now.shares)
    this.list.replaceChildren(element("b", {}, "token"), element("b", {}, "indexer's score"), element("b", {}, "attention's share"), ...now.scores.flatMap((score, at) => {
      const picked = now.picked.includes(at)
      const label = element("span", { "data-picked": String(reached && picked) }, `${at} ${shown(look.tokens[at])}`)
      return [label, bar(this.reached("score") ? score / most : 0, this.reached("score") ? score.toFixed(2) : "", reached && !picked, true),
              bar(this.reached("attend") ? now.shares[at] / top : 0, this.reached("attend") ? (picked ? `${(100 * now.shares[at]).toFixed(0)}%` : "not read") : "", !picked)]
    }))
    const token = this.named, left = now.total - now.picked.length
    put(this.counted, `For ${token}: ${now.total} rows kept, ${this.reached("score") ? `${now.total} scored` : "none scored yet"}${this.reached("pick") ? `, ${now.picked.length} read, ${left} skipped` : ""}`)
    const { all, index, rows } = this.read(now)
    put(this.saved, now.total > look.design.most ? `${token} reads ${count(index + rows)} numbers instead of ${count(all)}` : "As long as all rows are picked, the indexer only adds reads")
    const line = (words, value, ...parts) => element("div", { class: "kv-countrow" }, element("span", {}, words), element("div", { class: "kv-track kv-ended" }, ...parts, element("b", {}, count(value))))
    const widest = this.read(look.steps[size - 1]), scale = Math.max(widest.all, widest.index + widest.rows)
    this.reads.replaceChildren(line("All latent rows", all, part(all / scale, "expanded")),
                               line("Picked rows", index + rows, part(index / scale, "index", "the indexer's keys"), part(rows / scale, "absorbed", "the picked latent rows")),
                               element("p", { class: "kv-note" }, `All rows: ${now.total} × ${look.numbers.latent}. Blue: ${now.picked.length} rows × ${look.numbers.latent}. Light blue: the indexer's keys, ${now.total} × ${look.numbers.key}.`))
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
  node.style.setProperty("--kv-share", share)
  return node
}
