// What the walks through layers with a state share: one head's matrix first, then the same after each token, bytes, code.

import { element, put, scrolled } from "../shared/dom.js"
import { bytes, count, small } from "../shared/format.js"
import { bytesOverTokens } from "./bytes.js"
import { Grid } from "./grid.js"
import { inkOn, largest, scaleBar, scales } from "./matrix.js"
import { formula, lower, number, unit } from "./maths.js"
import { dataTable, drawCode, folded, isDark, nameByToken, section, shown, Walkthrough } from "./walkthrough.js"

const FILM = 5 // CSS pixels of a number in the small pictures

// A kind of layer says what its rows are called: `names` has the `matrix`, its `rows` and `columns`; the `sides`, two
// vectors that stand beside it with what they are called; the rows `above` and `below`, each with its title and the
// scene from which it is there; what a token `brings`, as letters; and which of all these the sum of a scene `uses`.
// `letters` says what each symbol that a token brings means. A rule has its scene, a name, and itself three times: in words,
// in letters and, as its last part, in numbers. `said`, `looks` and `rest` are its words; a step has `written` and `keep`. `growth` gives the two lines of the chart: a state's bytes and a cache's.
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
    this.rule = element("div", { class: "kv-rule kv-walking" })
    this.chart = element("div", {})
    this.sums = element("dl", { class: "kv-sums" })
    this.source = element("p", { class: "kv-note" })
    this.film = element("div", { class: "kv-film", role: "group", "aria-label": "The matrix after each token" })
    this.same = element("p", { class: "kv-same", "data-testid": "kv-same" })
    this.table = element("table", {})
    this.beside = element("div", { class: "kv-firstrule" }, element("div", { class: "kv-overview", "data-testid": "kv-growth" }, this.chart), this.rule, this.same)
    return [
      element("div", { class: "kv-first" },
              element("div", { class: "kv-said kv-firstsaid" }, this.title, this.words, this.watch, this.heads),
              element("section", { class: "kv-firstmatrix" }, this.claim, scrolled("The matrix", "kv-lanebox", this.board), this.colours,
                      element("div", { class: "kv-overview kv-counted" }, this.sums, this.source)),
              this.beside),
      element("div", { class: "kv-walking" },
              section("The same matrix after each token", "Each square is everything that this head remembers after that token.", this.film),
              ...this.rest(),
              folded("All tokens as a table", this.table)),
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

  // The largest change of one number by this scene, or by the whole step where its picture is finished: where it is, what it was and what it became.
  get mostChanged() {
    const { key } = this.scene, before = this.of("written", this.step - 1), keep = this.of("keep")[0]
    const faded = before.map((row) => row.map((value) => keep * value))
    const from = key === "write" ? faded : before, to = key === "forget" ? faded : this.of("written")
    const [i, j] = to.flatMap((row, i) => row.map((_, j) => [i, j])).reduce((best, at) => (change(from, to, at) > change(from, to, best) ? at : best))
    return { i, j, from: from[i][j], to: to[i][j] }
  }

  // What this scene did to the matrix, as a sentence.
  changed(words) {
    const { i, j, from, to } = this.mostChanged, [old, made] = [short(from), short(to)]
    if (from === to) return "Changed: nothing, because the matrix is still empty."
    return `Changed: ${words}; ${old === made ? "too little to be seen in two decimals" : `most of all row ${i + 1}, column ${j + 1}, from ${old} to ${made}`}.`
  }

  get token() { return `“${shown(this.look.tokens[this.step])}”` }
  get size() { return this.of("written").length * this.of("written")[0].length }

  draw() {
    const { look, step } = this
    const scale = scales(isDark(this.root))
    for (const [i, tab] of [...this.heads.children].entries()) tab.setAttribute("aria-pressed", String(i === this.head))
    const most = Math.max(...look.steps.map((_, i) => largest(this.of("written", i))))
    put(this.claim, this.whole ? `One of ${this.heads.children.length} heads: each token changes ${this.size} numbers and adds none` : `Head ${this.head}, ${this.reached("write") ? "after" : "before"} ${this.token} is written`)
    put(this.watch, this.looks(this.scene.key) ?? "")
    this.watch.hidden = this.heads.hidden = this.whole
    this.drawState(scale, most)
    this.drawRule()
    for (const [i, node] of [...this.film.children].entries()) {
      const there = i < step || (i === step && this.reached("write"))
      node.grid.draw({ rows: this.of("written", i), cell: [FILM, FILM], most, scale, there: () => there })
      node.setAttribute("aria-current", String(i === step))
    }
    if (this.whole) this.drawGrowth()
    else this.drawRest(scale)
  }

  // A state's bytes beside those of a cache, over the tokens: as high as what stands beside the chart leaves it.
  drawGrowth() {
    const { stays, grows } = this.growth
    this.drawSums()
    this.chart.replaceChildren()
    const least = innerHeight < 800 ? 170 : this.root.clientWidth < 900 ? 230 : 290, high = Math.max(least, this.beside.clientHeight - this.same.offsetHeight)
    this.chart.replaceChildren(bytesOverTokens([{ way: "kept", ...stays }, { way: "other", ...grows }], Math.max(...stays.bytes, ...grows.bytes), this.step, this.chart.clientWidth, high))
  }

  // The bytes of a layer's state and of a cache, as sums with their numbers.
  drawSums() {
    const { length: heads } = this.look.steps[0].keep, [rows, columns] = [this.of("written").length, this.of("written")[0].length]
    const { stays, grows } = this.growth, whole = stays.bytes[0], held = grows.bytes[this.step], all = (value) => number(String(value))
    const line = (words, ...parts) => [element("dt", {}, words), element("dd", {}, formula(...parts))]
    this.sums.replaceChildren(
      ...line(stays.name, all(heads), unit("heads"), "×", all(rows), "×", all(columns), "×", all("4 B"), "+", all(bytes(whole - 4 * heads * this.size)), "=", all(bytes(whole))),
      ...line(grows.name, all(this.now.total), unit(this.now.total === 1 ? "token" : "tokens"), "×", all(`${count(this.each)} B`), "=", all(bytes(held))))
    put(this.source, `The ${bytes(whole - 4 * heads * this.size)} are the last few inputs, which its short convolution reads once more. ${this.origin}`)
  }

  // How many bytes a token adds to the cache beside the state.
  get each() {
    const { bytes: held } = this.growth.grows
    return (held[held.length - 1] - held[0]) / (held.length - 1)
  }

  // The claim of the finished picture.
  get constant() { return `After ${this.now.total} tokens or a million, this layer keeps ${bytes(this.growth.stays.bytes[0])}` }

  drawState(scale, most) {
    const { matrix: letter, rows: down, columns: across, sides, above, below } = this.names
    const before = this.of("written", this.step - 1), keep = this.of("keep")[0]
    const matrix = this.reached("write") ? this.of("written") : before.map((row) => row.map((value) => (this.reached("forget") ? keep * value : value)))
    const vectors = [...sides, ...above, ...below], bare = this.whole // then without what a token brings
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
    const [i] = this.chosen, sum = lit("forget") || lit("write")
    const row = ({ title, name, from }) => [word(title, lit(from)), blank(), blank(), ...this.of(name).map((value, j) => {
      const node = cell(value, usual, this.reached(from))
      node.dataset.of = `${name},${j}`
      return node
    }), blank()]
    // the row of the matrix that holds the outlined number, as it was before this scene changed it
    const old = before[i].map((value) => (lit("write") ? keep * value : value))
    const earlier = [word(sum ? `row ${i + 1} before` : "", sum), blank(), blank(), ...old.map((value, j) => {
      const node = sum ? cell(value, most, true) : blank()
      if (sum) node.dataset.of = `before,${j}`
      else node.style.height = "1.4rem" // as a cell, so that nothing moves from scene to scene
      return node
    }), blank()]
    const axis = element("div", { class: "kv-axis" }, element("b", { "data-lit": String(lit("forget") || lit("write")) }, `matrix ${letter}`), element("span", {}, `down: ${down}`))
    axis.style.gridRow = `span ${matrix.length}`
    const [left, right] = sides
    const beside = ({ name, from }, i) => {
      const node = cell(this.of(name)[i], usual, this.reached(from))
      node.dataset.of = `${name},${i}`
      return node
    }
    this.board.style.setProperty("--kv-columns", matrix[0].length)
    const span = element("div", { class: "kv-axis kv-across" }, `across: ${across}`)
    this.board.replaceChildren(
      blank(), blank(), blank(), span, blank(), ...(bare ? [] : above.flatMap(row)),
      blank(), blank(), bare ? blank() : word(left.title, true), ...matrix[0].map((_, j) => tick(j + 1)), bare ? blank() : word(right.title, true),
      axis, ...matrix.flatMap((values, i) => [
        tick(i + 1), bare ? blank() : beside(left, i),
        ...values.map((value, j) => {
          const node = cell(value, most, true)
          node.dataset.at = `${i},${j}`
          node.onmouseenter = node.onclick = () => this.point([i, j], scale, most)
          return node
        }),
        bare ? blank() : beside(right, i),
      ]),
      ...(bare ? [] : [...earlier, ...below.flatMap(row)]))
    const { from, to } = this.mostChanged
    this.colours.replaceChildren(
      ...(bare ? [element("span", { class: "kv-outlined" }, `changed most by ${this.token}: ${short(from)} → ${short(to)}`)] : []),
      signedBar("matrix, largest at any token", most, scale), ...(bare ? [] : [signedBar("rows around it", usual, scale)]))
    put(this.same, this.reached("read") && !this.whole ? `Check: transformers' own layer, which reads the whole text in chunks, gives the same logits to within ${small(this.now.difference)} and the same last matrix to within ${small(this.look.difference)}.` : "")
  }

  // The number that is written out: the one that was pointed at, else the one into which this token writes most, or the one of that column from which it reads most.
  // In the finished picture, the one that this token changed most.
  get chosen() {
    if (this.whole) return [this.mostChanged.i, this.mostChanged.j]
    const { sides, above } = this.names
    return this.cell ?? [strongest(this.of(sides[Number(this.scene.key === "read")].name)), strongest(this.of(above[above.length - 1].name))]
  }

  // Write out another number; the board is drawn again where it shows that number's row as it was.
  point(cell, scale, most) {
    const other = this.cell?.[0] !== cell[0]
    this.cell = cell
    if (other && this.outlined === "matrix") this.drawState(scale, most)
    this.drawRule()
  }

  // Where the outlined number lies, whose sum a scene writes out: in the matrix or in a row beside it; null if it lies in none.
  get outlined() {
    const { above, below } = this.names, { key } = this.scene
    if (this.whole || key === "forget" || key === "write") return "matrix"
    return [...above, ...below].filter(({ from }) => from === key && from !== "enter").at(-1)?.name ?? null
  }

  drawRule() {
    const [i, j] = this.chosen
    const outlined = this.outlined
    const sides = this.names.sides.map(({ name }) => name)
    const used = this.whole ? [] : (this.names.uses[this.scene.key] ?? []).map((name) => (name === "matrix" ? `${i},${j}` : `${name},${sides.includes(name) ? i : j}`))
    for (const node of this.board.querySelectorAll("[data-at], [data-of]")) {
      const at = node.dataset.at ?? node.dataset.of
      node.dataset.chosen = String(at === `${outlined === "matrix" ? i : outlined},${j}`)
      node.dataset.used = String(used.includes(at))
    }
    const { matrix } = this.names
    const at = {
      i, j, before: this.of("written", this.step - 1)[i][j], after: this.of("written")[i][j], keep: this.of("keep")[0],
      of: (name) => this.of(name), cell: () => lower(matrix, number(`${i + 1},${j + 1}`)), // row and column, counted from 1
    }
    const line = ([key, name, words, letters, numbers, rest = ""]) => {
      const lit = this.scene.key === key
      return element("div", { class: "kv-ruleline", "data-lit": String(lit) }, element("span", {}, name), element("span", {}, words), ...(lit ? [formula(...letters), formula(...numbers), ...(rest ? [element("small", {}, rest)] : [])] : []))
    }
    const enters = this.scene.key === "enter"
    const meaning = [...this.names.brings].flatMap((letter) => [element("dt", {}, formula(letter)), element("dd", {}, this.letters[letter])])
    const which = outlined === "matrix" ? `in row ${i + 1}, column ${j + 1}` : `in column ${j + 1}`
    const note = outlined ? `This is the number with the solid outline, ${which}; dashed outlines show what it is made of. All are rounded. Point at another number of the matrix to see how that is made.` : ""
    this.rule.replaceChildren(...(enters ? [element("dl", { class: "kv-letters" }, ...meaning)] : []), ...this.rules(at).map(line), element("p", { class: "kv-note" }, note))
  }
}

// The code as a section, whose `pre` bears one listing.
export const codeOf = (words) => {
  const pre = element("pre", { class: "kv-code", tabindex: "0", "aria-label": words })
  return { pre, node: section("The code that runs", words, pre), draw: (listing, walk, shapes) => drawCode(pre, listing, walk.scene.stages, shapes) }
}

// The layers of some models, folded up, each with a bar of what it holds.
export class Layers {
  constructor(title) {
    this.board = element("div", { class: "kv-stacks" })
    this.node = folded(title, this.board)
  }

  // `models`: each a title, and its `layers` with the bytes of each after each token.
  draw(models, step) {
    const top = Math.max(...models.flatMap(({ layers }) => layers.map(({ bytes: held }) => held[held.length - 1])))
    this.board.replaceChildren(...models.map(({ title, layers }) => element("figure", { class: "kv-stack" },
      element("figcaption", {}, element("b", {}, title)),
      element("div", { class: "kv-layerlist" }, ...[...layers.entries()].reverse().flatMap(([number, { way, words, bytes: held }]) => {
        const fill = element("i", { class: "kv-layerfill kv-swatchfill", "data-kind": way })
        fill.style.width = `${(100 * held[step]) / top}%`
        return [element("span", {}, `layer ${number}`), element("span", {}, words), element("div", { class: "kv-track" }, fill), element("b", {}, bytes(held[step]))]
      })))))
  }
}

// The sum of the products of a row and a column but one, and these products as a sentence.
export function others(row, column, one) {
  const products = row.flatMap((value, i) => (i === one ? [] : [value * column[i]]))
  const sum = products.reduce((all, product) => all + product, 0)
  const terms = products.map((product) => product.toFixed(2).replace("-0.00", "0.00").replace("-", "−"))
  return [sum, `The other ${products.length} products: ${terms.join(" + ").replaceAll("+ −", "− ")}. They add up to ${sum.toFixed(2).replace("-0.00", "0.00").replace("-", "−")}.`]
}

const change = (from, to, [i, j]) => Math.abs(to[i][j] - from[i][j])
export const strongest = (row) => row.reduce((best, value, i) => (Math.abs(value) > Math.abs(row[best]) ? i : best), 0)
export const signed = (value) => (value < 0 ? ["(", value, ")"] : [value])
// A legend's bar of signed colours from -most to most, with what it is of.
export const signedBar = (words, most, scale) => element("span", { class: "kv-scaleone" }, `${words}: `, short(-most), scaleBar(scale.signed, -1, 1), short(most))
export const short = (value) => (Math.abs(value) < 0.005 ? "0" : value.toFixed(Math.abs(value) < 9.95 ? 2 : 1).replace(/^(-?)0\./, "$1.").replace("-", "−"))
