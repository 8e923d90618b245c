// What the walks through layers with a state share: one head's matrix first, then the same after each token, bytes, code.

import { element, put, scrolled } from "../shared/dom.js"
import { bytes } from "../shared/format.js"
import { bytesOverTokens } from "./bytes.js"
import { Grid } from "./grid.js"
import { inkOn, largest, scaleBar, scales } from "./matrix.js"
import { formula, lower, number } from "./maths.js"
import { dataTable, drawCode, folded, isDark, nameByToken, section, shown, Walkthrough } from "./walkthrough.js"

const FILM = 5 // CSS pixels of a number in the small pictures

// A kind of layer says what its rows are called: `names` has the `matrix`, its `rows` and `columns`; the `sides`, two
// vectors that stand beside it with what they are called; `letters`, what each letter of the rules means; and the rows `above` and `below`, each with its title and the
// scene from which it is there. `said`, `looks`, `rules` and `rest` are its words; a step has `written` and `keep`.
export class StateWalk extends Walkthrough {
  heading() { return [] } // it stands beside the matrix

  build() {
    this.head = 0
    this.cell = null // row and column of the number whose sum is written out
    this.watch = element("p", { class: "kv-watch", "data-testid": "kv-watch" })
    this.heads = element("div", { class: "kv-tabs", role: "group", "aria-label": "Heads" })
    this.claim = element("h3", {})
    this.board = element("div", { class: "kv-state", "data-testid": "kv-state" })
    this.colours = element("div", { class: "kv-scale kv-statescale", "data-testid": "kv-statescale" })
    this.rule = element("div", { class: "kv-rule" })
    this.film = element("div", { class: "kv-film", role: "group", "aria-label": "The matrix after each token" })
    this.same = element("p", { class: "kv-same", "data-testid": "kv-same" })
    this.table = element("table", {})
    return [
      element("div", { class: "kv-first" },
              element("div", { class: "kv-said kv-firstsaid" }, this.title, this.words, this.watch, this.heads),
              element("section", { class: "kv-firstmatrix" }, this.claim, scrolled("The matrix", "kv-lanebox", this.board), this.colours),
              element("div", { class: "kv-firstrule" }, this.rule, this.same)),
      section("The same matrix after each token", "A square is all that the head remembers after that token. From left to right: the tokens. The colours are those above.", this.film),
      ...this.rest(),
      folded("All tokens as a table", this.table),
    ]
  }

  came() {
    const { look } = this
    this.heads.replaceChildren(...look.steps[0].keep.map((_, head) => {
      const tab = element("button", { type: "button" }, `head ${head}`)
      tab.onclick = () => { this.head = head; this.drawAll() }
      return tab
    }))
    nameByToken(this.steps, look)
    dataTable(this.table, ...this.tabled())
    this.film.replaceChildren(...look.steps.map((_, i) => {
      const grid = new Grid(`film-${i}`, `the matrix after token ${i}`)
      const node = element("button", { type: "button", title: `after token ${i}` }, grid.node, element("span", {}, shown(look.tokens[i])))
      node.onclick = () => this.go((i + 1) * this.scenes.length - 1)
      node.grid = grid
      return node
    }))
  }

  // One head's part of what a step recorded: a row, a matrix or a number.
  of(name, step = this.step) {
    const made = this.look.steps[step]?.[name]?.[this.head]
    return name === "written" ? made ?? this.look.steps[0].written[this.head].map((row) => row.map(() => 0)) : made?.length === 1 ? made[0] : made
  }

  get token() { return `“${shown(this.look.tokens[this.step])}”` }
  get size() { return this.of("written").length * this.of("written")[0].length }

  draw() {
    const { look, step } = this
    const scale = scales(isDark(this.root))
    for (const [i, tab] of [...this.heads.children].entries()) tab.setAttribute("aria-pressed", String(i === this.head))
    const most = Math.max(...look.steps.map((_, i) => largest(this.of("written", i))))
    put(this.claim, `Head ${this.head}: each token changes ${this.size} numbers and adds none`)
    put(this.watch, this.looks(this.scene.key))
    this.drawState(scale, most)
    this.drawRule()
    for (const [i, node] of [...this.film.children].entries()) {
      const there = i < step || (i === step && this.reached("write"))
      node.grid.draw({ rows: this.of("written", i), cell: [FILM, FILM], most, scale, there: () => there })
      node.setAttribute("aria-current", String(i === step))
    }
    this.drawRest(scale)
  }

  drawState(scale, most) {
    const { matrix: letter, rows: down, columns: across, sides, above, below } = this.names
    const before = this.of("written", this.step - 1), keep = this.of("keep")[0]
    const matrix = this.reached("write") ? this.of("written") : before.map((row) => row.map((value) => (this.reached("forget") ? keep * value : value)))
    const vectors = [...sides, ...above, ...below]
    const usual = largest(vectors.map(({ name }) => this.of(name)))
    const cell = (value, most, there) => {
      const node = element("div", { class: "kv-cell" }, there ? short(value) : "")
      if (there) {
        const colour = scale.signed(value / (most || 1))
        node.style.background = `rgb(${colour.join(" ")})`
        node.style.color = inkOn(colour)
      }
      return node
    }
    const lit = (scene) => this.scene.key === scene
    const word = (text, on = false) => element("div", { class: "kv-statename", "data-lit": String(on) }, text)
    const tick = (text) => element("div", { class: "kv-tick" }, text)
    const blank = () => element("div", {})
    const row = ({ title, name, from }) => [word(title, lit(from)), blank(), blank(), ...this.of(name).map((value) => cell(value, usual, this.reached(from))), blank()]
    const axis = element("div", { class: "kv-axis" }, element("b", { "data-lit": String(lit("forget") || lit("write")) }, `matrix ${letter}`), element("span", {}, `down: ${down}`))
    axis.style.gridRow = `span ${matrix.length}`
    const [left, right] = sides
    this.board.style.setProperty("--kv-columns", matrix[0].length)
    const span = element("div", { class: "kv-axis kv-across" }, `across: ${across}`)
    this.board.replaceChildren(
      blank(), blank(), blank(), span, blank(), ...above.flatMap(row),
      blank(), blank(), word(left.title, true), ...matrix[0].map((_, j) => tick(j + 1)), word(right.title, true),
      axis, ...matrix.flatMap((values, i) => [
        tick(i + 1), cell(this.of(left.name)[i], usual, this.reached(left.from)),
        ...values.map((value, j) => {
          const node = cell(value, most, true)
          node.dataset.at = `${i},${j}`
          node.onmouseenter = node.onclick = () => { this.cell = [i, j]; this.drawRule() }
          return node
        }),
        cell(this.of(right.name)[i], usual, this.reached(right.from)),
      ]),
      ...below.flatMap(row))
    this.colours.replaceChildren(signedBar("matrix ", most, scale), signedBar("rows around it ", usual, scale))
    put(this.same, this.reached("read") ? `From transformers, which reads the whole text at once in chunks: logits differ by at most ${small(this.now.difference)} here, the matrix after the last token by ${small(this.look.difference)}.` : "")
  }

  // The number that is written out: the one that was pointed at, else the one that this token changes most.
  get chosen() {
    if (this.cell) return this.cell
    const before = this.of("written", this.step - 1), after = this.of("written")
    let best = [0, 0], most = -1
    after.forEach((row, i) => row.forEach((value, j) => {
      if (Math.abs(value - before[i][j]) > most) [best, most] = [[i, j], Math.abs(value - before[i][j])]
    }))
    return best
  }

  drawRule() {
    const [i, j] = this.chosen
    for (const node of this.board.querySelectorAll("[data-at]")) node.dataset.chosen = String(node.dataset.at === `${i},${j}`)
    const { matrix } = this.names
    const at = {
      i, j, before: this.of("written", this.step - 1)[i][j], after: this.of("written")[i][j], keep: this.of("keep")[0],
      of: (name) => this.of(name), matrix: (when) => lower(matrix, when), cell: lower(matrix, number(`${i + 1},${j + 1}`)), // counted from 1, as the formulas do
    }
    const line = ([key, words, ...formulas]) => element("div", { class: "kv-ruleline", "data-lit": String(this.scene.key === key) }, element("span", {}, words), formula(...formulas[0]), this.reached(key) ? formula(...formulas[1]) : element("span", { class: "kv-note" }, "not yet"))
    this.rule.replaceChildren(element("p", { class: "kv-words" }, `The number in row ${i + 1}, column ${j + 1}, which is outlined. Point at another.`), ...this.rules(at).map(line), element("p", { class: "kv-note" }, this.names.letters))
  }
}

// The code as a section, whose `pre` bears one listing.
export const codeOf = (words) => {
  const pre = element("pre", { class: "kv-code", tabindex: "0", "aria-label": words })
  return { pre, node: section("The code that runs", words, pre), draw: (listing, walk, shapes) => drawCode(pre, listing, walk.scene.stages, shapes) }
}

// A part in which each of some models has a chart of its bytes over the tokens, and its layers with what each holds.
export class Stacks {
  constructor(title, words) {
    this.board = element("div", { class: "kv-stacks", "data-testid": "kv-stacks" })
    this.note = element("p", { class: "kv-note" })
    this.node = section(title, words, this.board, this.note)
  }

  // `stacks`: each a title, its `lines` of bytes after each token, and its `layers` with the bytes of each.
  draw(stacks, step) {
    const most = Math.max(...stacks.flatMap(({ lines }) => lines.flatMap((line) => line.bytes)))
    const top = Math.max(...stacks.flatMap(({ layers }) => layers.map(({ bytes: held }) => held[held.length - 1])))
    const wide = this.board.clientWidth, beside = wide < 800 ? 1 : stacks.length
    const across = (wide - 32 * (beside - 1)) / beside
    this.board.style.setProperty("--kv-stackcount", beside)
    this.board.replaceChildren(...stacks.map(({ title, lines, layers }) => element("figure", { class: "kv-stack" },
      element("figcaption", {}, element("b", {}, title)), bytesOverTokens(lines, most, step, across),
      element("div", { class: "kv-layerlist" }, ...[...layers.entries()].reverse().flatMap(([number, { way, words, bytes: held }]) => {
        const fill = element("i", { class: "kv-layerfill kv-swatchfill", "data-kind": way })
        fill.style.width = `${(100 * held[step]) / top}%`
        return [element("span", {}, `layer ${number}`), element("span", {}, words), element("div", { class: "kv-track" }, fill), element("b", {}, bytes(held[step]))]
      })))))
  }
}

export const strongest = (row) => row.reduce((best, value, i) => (Math.abs(value) > Math.abs(row[best]) ? i : best), 0)
export const signed = (value) => (value < 0 ? ["(", value, ")"] : [value])
export const small = (value) => (value ? value.toExponential(1) : "0")
// A legend's bar of signed colours from -most to most, with what it is of.
export const signedBar = (words, most, scale) => element("span", { class: "kv-scaleone" }, words, short(-most), scaleBar(scale.signed, -1, 1), short(most))
export const short = (value) => (Math.abs(value) < 0.005 ? "0" : value.toFixed(Math.abs(value) < 9.95 ? 2 : 1).replace(/^(-?)0\./, "$1.").replace("-", "−"))
