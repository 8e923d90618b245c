// One attention layer while it happens: a walk of scenes over matrices of real numbers, beside the code that runs.

import { element, put, scrolled } from "../shared/dom.js"
import { Feed } from "../shared/feed.js"
import { bytes, count } from "../shared/format.js"
import { Matrix, ROW, scales, usual } from "./matrix.js"
import { idle, origin, said, SCENES, whence } from "./scenes.js"

const PLAY_MS = 1600
const ASIDE = 470 // CSS pixels of the labels, the gaps and the borders beside the matrices
const NARROW = 640, BESIDE = 240 // CSS pixels: below the first the matrices wrap, and one stands beside the labels
const instances = new WeakMap()

export function mount({ data, parentElement, setTriggerValue }) {
  let anatomy = instances.get(parentElement)
  if (!anatomy) {
    anatomy = new Anatomy(parentElement.querySelector(".kv-anatomy"), data)
    instances.set(parentElement, anatomy)
  }
  anatomy.update(data, setTriggerValue)
  return () => {
    anatomy.close()
    instances.delete(parentElement)
  }
}

class Anatomy {
  constructor(root, data) {
    this.root = root
    this.at = 0 // scene, counted over all steps
    this.again = false
    this.head = 0 // place among the heads that were sent
    for (const sheet of ["live/live.css", "anatomy/anatomy.css"]) {
      const href = `${data.assets}/${sheet}`
      if (!document.querySelector(`link[href="${href}"]`)) document.head.append(element("link", { rel: "stylesheet", href }))
    }
    this.status = element("p", { class: "kv-status", role: "status", "data-testid": "kv-look-status" })
    this.build()
    root.replaceChildren(this.status, this.stage)
    root.style.setProperty("--kv-row", `${ROW}px`)
    this.onKey = (event) => this.key(event)
    this.onLook = (event) => this.wish(event.detail)
    this.onSize = new ResizeObserver(() => this.look && this.draw())
    document.addEventListener("keydown", this.onKey)
    document.addEventListener("kv-look", this.onLook)
    this.onSize.observe(root)
    root.kvState = () => ({ at: this.at, again: this.again, head: this.head, look: this.look })
  }

  build() {
    const button = (words, hint, act, id) => {
      const node = element("button", { type: "button", class: "kv-pill", title: hint, "data-testid": id }, words)
      node.onclick = act
      return node
    }
    this.back = button("◀ Back", "arrow left", () => this.go(this.at - 1), "kv-back")
    this.next = button("Next ▶", "arrow right", () => this.go(this.at + 1), "kv-next")
    this.play = button("Play", "scene after scene", () => this.toggle(), "kv-play")
    this.place = element("span", { class: "kv-place", "data-testid": "kv-place" })
    this.steps = element("div", { class: "kv-steps", role: "group", "aria-label": "Steps of the decode" })
    this.without = element("input", { type: "checkbox", "data-testid": "kv-again" })
    this.without.onchange = () => { this.again = this.without.checked; this.moved({ own: true }) }
    this.heads = element("div", { class: "kv-tabs", role: "group", "aria-label": "Heads" })
    this.title = element("h2", { "data-testid": "kv-scene" })
    this.words = element("p", { class: "kv-words", "aria-live": "polite" })
    this.labels = element("div", { class: "kv-labels" })
    this.matrices = {
      Q: new Matrix("Q", "queries: what each token looks for"),
      K: new Matrix("K", "keys: by what a token is found"),
      V: new Matrix("V", "values: what it hands over"),
      A: new Matrix("A", "a row for each query, a column for each key: who looks at whom, and how much"),
      out: new Matrix("out", "what each query gets: values, mixed by its shares"),
    }
    this.tip = element("div", { class: "kv-tip", hidden: "" })
    const board = element("div", { class: "kv-board" }, this.labels, ...["Q", "K", "V", "A", "out"].map((m) => this.matrices[m].node))
    this.board = element("div", { class: "kv-gridbox" }, scrolled("The matrices of this head", "kv-scroll", board), this.tip)
    const cells = this.matrices.A.cells
    cells.onmousemove = (event) => this.hover(event)
    cells.onmouseleave = () => this.unhover()
    this.guess = element("div", { class: "kv-counts", "data-testid": "kv-next-tokens" })
    this.code = element("pre", { class: "kv-code", "data-testid": "kv-code", tabindex: "0" })
    this.counts = element("div", { class: "kv-counts", "data-testid": "kv-counts" })
    const bar = element("div", { class: "kv-walkbar" }, this.back, this.next, this.place, this.play, this.steps,
                        element("label", { class: "kv-switch" }, this.without, " no cache"))
    this.stage = element("div", { hidden: "" }, bar, element("div", { class: "kv-said" }, element("div", {}, this.title, this.words), this.heads), this.board,
                         element("div", { class: "kv-under" },
                                 section("The code that runs", "The lit lines are at work in this scene; the grey tag shows each line's result shape in this step.", this.code),
                                 element("div", {},
                                         section("The work so far", "Multiply-adds of the whole model, counted as they ran. A bar of full length is the whole walk without a cache.", this.counts),
                                         section("The next token", "The likeliest pieces at the end of this step, and their shares: the first is taken.", this.guess))))
  }

  update(data, setTriggerValue) {
    this.data = data
    this.ask = (head) => setTriggerValue("head", head)
    if (this.follows !== data.look) {
      this.follows = data.look
      this.feed?.close()
      this.feed = data.look ? new Feed(data.look, (id, records) => this.take(records), (m) => this.waits(m), () => {}) : null
      this.status.textContent = ""
    }
    if (this.look) this.draw()
  }

  take(records) {
    for (const record of records) {
      if (record.t === "loading") this.status.textContent = "Loading the model"
      else if (record.t === "look") this.status.textContent = "Decoding …"
      else if (record.t === "failed" || record.t === "stopped") this.status.textContent = record.message || "The anatomy was stopped."
      else if (record.t === "anatomy") this.arrived(record)
    }
  }

  waits({ status }) {
    if (this.look && this.shown === this.follows) return
    this.status.textContent = status?.words ?? ""
  }

  arrived(look) {
    const same = this.look && this.look.steps.length === look.steps.length
    this.look = look
    this.shown = this.follows
    this.head = Math.max(0, look.heads.indexOf(this.data.head))
    this.at = same ? this.at : 0
    this.status.textContent = ""
    this.stage.hidden = false
    this.heads.replaceChildren(...Array.from({ length: look.design.heads }, (_, head) => {
      const tab = element("button", { type: "button" }, `head ${head}`)
      tab.onclick = () => this.choose(head)
      return tab
    }))
    this.steps.replaceChildren(...look.steps.map((step, i) => {
      const chip = element("button", { type: "button", class: "kv-chip", title: i ? `decode step ${i}` : "prefill" }, i ? String(i) : "prefill")
      chip.onclick = () => this.go(i * SCENES.length)
      return chip
    }))
    this.moved({ fresh: true })
  }

  // A head whose numbers were not sent, because all would be too many, is asked for.
  choose(head) {
    const place = this.look.heads.indexOf(head)
    if (place < 0) return this.ask(head)
    this.head = place
    this.draw()
  }

  // --- the walk --------------------------------------------------------------------------------------------------

  get step() { return Math.floor(this.at / SCENES.length) }
  get scene() { return SCENES[this.at % SCENES.length] }
  get last() { return this.look.steps.length * SCENES.length - 1 }

  go(at) {
    this.at = Math.max(0, Math.min(this.last, at))
    if (this.at === this.last) this.halt()
    this.moved({ own: true })
  }

  // Who leads a room tells it. Who follows stops where a hand has moved something (`own`), and where a walk has just
  // come (`fresh`) goes to the room's scene; a scene that the room asked for is neither.
  moved({ own = false, fresh = false } = {}) {
    Object.assign(this.root.dataset, { comparison: this.follows ?? "", step: String(this.at + 1), mode: this.again ? "uncached" : "cached" })
    this.draw()
    document.dispatchEvent(new CustomEvent("kv-looked", { detail: { own, fresh } }))
  }

  wish({ comparison, step, mode }) {
    if (!this.look || comparison !== this.follows || step === null) return
    this.again = this.without.checked = mode === "uncached"
    this.at = Math.max(0, Math.min(this.last, step - 1))
    this.moved()
  }

  toggle() {
    if (this.timer) { this.halt(); return }
    if (this.at === this.last) this.at = 0
    this.timer = setInterval(() => this.go(this.at + 1), PLAY_MS)
    this.play.textContent = "Pause"
  }

  halt() {
    clearInterval(this.timer)
    this.timer = null
    this.play.textContent = "Play"
  }

  key(event) {
    if (!this.look || event.target.closest?.("input, textarea, select, [role=slider], [role=combobox], [contenteditable]")) return
    if (event.altKey || event.ctrlKey || event.metaKey) return
    const act = { ArrowRight: () => this.go(this.at + 1), ArrowLeft: () => this.go(this.at - 1) }[event.key]
    if (!act) return
    event.preventDefault()
    act()
  }

  // --- the picture -----------------------------------------------------------------------------------------------

  draw() {
    const { look } = this
    const now = look.steps[this.step]
    const key = this.scene.key
    const [title, words] = said(look, this.step, key, this.again)
    put(this.title, title)
    put(this.words, words)
    put(this.place, `scene ${(this.at % SCENES.length) + 1} of ${SCENES.length}`)
    this.back.disabled = this.at === 0
    this.next.disabled = this.at === this.last
    for (const [i, chip] of [...this.steps.children].entries()) chip.setAttribute("aria-pressed", String(i === this.step))
    for (const [head, tab] of [...this.heads.children].entries()) tab.setAttribute("aria-pressed", String(head === look.heads[this.head]))
    this.heads.hidden = look.design.heads < 2
    this.drawBoard(now, key)
    this.drawNext(now)
    this.drawCode(now)
    this.drawCounts()
    this.root.dataset.scene = key
  }

  drawBoard(now, key) {
    const { look } = this
    const { head_dim: dim, heads, kv_heads: kvHeads } = look.design
    const scale = scales(dark(this.root))
    const kv = look.kv_heads.indexOf(Math.floor(look.heads[this.head] / (heads / kvHeads)))
    const origins = Array.from({ length: now.total }, (_, row) => origin(this.step, row, now, this.again))
    const first = now.total - now.read
    const asks = (row) => this.again || row >= first // rows of Q, scores and outputs that are computed in this step
    const reached = SCENES.findIndex((s) => s.key === key)
    const from = (name) => reached >= SCENES.findIndex((s) => s.key === name)
    const asked = (rows) => rows.slice(0, now.total).map((row, i) => (asks(i) ? row : null))
    const askedOrigins = origins.map((kind) => (kind === "kept" ? "now" : kind))
    const side = now.total * ROW
    const wide = this.root.clientWidth
    const width = Math.round(Math.max(96, Math.min(dim * 7, wide < NARROW ? wide - BESIDE : (wide - side - ASIDE) / 4)))
    // what the cache holds is there from the start of a step, what enters once it is computed
    const held = (row) => row < first && !this.again
    const attention = from("softmax") ? look.weights : look.scores
    const values = { Q: asked(look.q[this.head]), K: look.k[kv].slice(0, now.total), V: look.v[kv].slice(0, now.total),
                     A: asked(attention[this.head]), out: asked(look.mixed[this.head]) }
    const there = { Q: from("project"), K: from("project"), V: from("project"), A: from("score"), out: from("mix") }
    for (const [name, matrix] of Object.entries(this.matrices)) {
      const square = name === "A"
      const kept = name === "K" || name === "V"
      matrix.draw({
        rows: values[name],
        origins: kept ? origins : askedOrigins,
        pending: values[name].map((_, row) => !(there[name] || (kept && held(row)))),
        columns: square ? now.total : dim,
        width: square ? side : width,
        letters: square ? (from("softmax") ? "shares" : "scores") : HOLDS[name],
        formula: square ? (from("softmax") ? "softmax of each row" : `q · k / √${dim}`) : MADE[name],
        ...(square && from("softmax") ? { colour: scale.share, most: 1, range: ["0", "1"] } : signed(scale, values[name])),
        later: !(there[name] || (kept && values[name].some((_, row) => held(row)))),
        masked: scale.masked,
        under: square ? Array.from({ length: now.total }, (_, at) => String(at)) : [],
      })
      matrix.node.dataset.there = String(there[name])
      matrix.node.dataset.lit = String(LIT[key]?.includes(name) ?? false)
    }
    this.labels.replaceChildren(element("div", { class: "kv-mtitle" }, "positions, tokens"), element("div", { class: "kv-formula" }), ...look.tokens.slice(0, now.total).map((text, row) =>
      element("div", { class: "kv-label", "data-origin": this.again || row >= first ? origins[row] : "kept", title: text },
              element("span", { class: "kv-position" }, String(row)), shown(text),
              element("span", { class: "kv-whence" }, origins[row] === origins[row - 1] ? "" : whence(origins[row], key, wide < NARROW)))))
  }

  drawNext(now) {
    const most = now.next[0][1]
    this.guess.replaceChildren(...now.next.map(([text, share]) => element("div", { class: "kv-countrow" }, element("b", {}, shown(text)),
      element("div", { class: "kv-track" }, fill(share / most, "now")), element("span", {}, `${share < 0.001 ? "<0.1" : (100 * share).toFixed(share < 0.1 ? 1 : 0)} %`))))
  }

  drawCode(now) {
    const { lines, start, stages } = this.data.listing
    const shapes = this.again ? now.again.shapes : now.shapes
    const stageAt = (number) => stages.find((stage) => stage.first - 1 <= number && number <= stage.last) // its heading too
    this.code.replaceChildren(...[...lines.entries()].filter(([, text]) => text.trim()).map(([i, text]) => {
      const number = start + i
      const stage = stageAt(number)
      const nothing = Boolean(stage && idle(stage.name, this.look.design))
      const lit = !nothing && this.scene.stages.includes(i ? stage?.name : "enter")
      const made = stage && number === stage.last && !nothing ? Object.entries(shapes[stage.name] ?? {}) : []
      const code = text.replace(/(\S) {2}# .*$/, "$1").replace(/^ {4}/, "")
      const words = code.trim().startsWith("#")
      const line = element("span", { class: "kv-codeline", "data-lit": String(Boolean(lit)), "data-words": String(words || nothing) }, code)
      if (nothing && words) line.append(element("em", {}, "not in this model"))
      for (const [name, shape] of made) line.append(element("em", {}, `${name} [${shape.join(", ")}]`))
      return line
    }))
  }

  drawCounts() {
    const upto = this.look.steps.slice(0, this.step + 1)
    const kept = upto.reduce((sum, step) => sum + step.multiply_adds, 0)
    const again = upto.reduce((sum, step) => sum + step.again.multiply_adds, 0)
    const all = this.look.steps.reduce((sum, step) => sum + step.again.multiply_adds, 0)
    const row = (words, value, mode) => element("div", { class: "kv-countrow" }, element("span", {}, words),
      element("div", { class: "kv-track" }, fill(value / all, mode)), element("b", {}, count(value)))
    const now = this.look.steps[this.step]
    const { heads, kv_heads: kvHeads, layers } = this.look.design
    this.counts.replaceChildren(
      row("KV cache", kept, "kept"), row("No cache", again, "again"),
      element("p", { class: "kv-note" }, `The cache after this step: ${bytes(now.cache_bytes)}, all ${layers} layers. ` +
        (kvHeads === heads ? "Each query head has its own KV head." : `${heads} query heads share ${kvHeads} KV heads, ${heads / kvHeads} to each.`)))
  }

  // --- pointing --------------------------------------------------------------------------------------------------

  hover(event) {
    const box = this.matrices.A.canvas.getBoundingClientRect()
    const row = Math.floor((event.clientY - box.top) / ROW)
    const column = Math.floor((event.clientX - box.left) / ROW)
    const { look } = this
    const now = look.steps[this.step]
    if (row < 0 || column < 0 || row >= now.total || column >= now.total || this.matrices.A.node.dataset.there !== "true") {
      this.unhover()
      return
    }
    this.matrices.Q.point(row)
    this.matrices.K.point(column)
    this.matrices.V.point(column)
    this.tip.hidden = false
    this.tip.textContent = this.cellWords(row, column, now)
    const frame = this.board.getBoundingClientRect()
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - frame.left + 14, frame.width - 260))}px`
    this.tip.style.top = `${event.clientY - frame.top + 16}px`
  }

  cellWords(row, column, now) {
    const { look } = this
    const [query, key] = [shown(look.tokens[row]), shown(look.tokens[column])]
    if (column > row) return `${key} comes after ${query}:\nmasked, its share is 0`
    if (!this.again && row < now.total - now.read) return `${query} was asked in an earlier step.\nIts answer is not needed any more.`
    const score = look.scores[this.head][row][column]
    const share = look.weights[this.head][row][column]
    const value = look.v[look.kv_heads.indexOf(Math.floor(look.heads[this.head] / (look.design.heads / look.design.kv_heads)))][column]
    const length = share * Math.hypot(...value)
    return `${query} asks ${key}\nq·k / √${look.design.head_dim} = ${score.toPrecision(3)}\nshare = ${(100 * share).toPrecision(3)} %\n` +
      `adds share × v, of length ${length.toPrecision(3)}`
  }

  unhover() {
    this.tip.hidden = true
    for (const name of ["Q", "K", "V"]) this.matrices[name].point(null)
  }

  close() {
    this.halt()
    this.feed?.close()
    this.onSize.disconnect()
    document.removeEventListener("keydown", this.onKey)
    document.removeEventListener("kv-look", this.onLook)
  }
}

function signed(scale, rows) {
  const most = usual(rows)
  const end = most.toPrecision(2)
  return { colour: scale.signed, most, range: [`≤ −${end}`, `≥ ${end}`] }
}

const HOLDS = { Q: "queries", K: "keys", V: "values", out: "mixed values" }
const MADE = { Q: "token × query weights", K: "token × key weights", V: "token × value weights", out: "shares × V" }
const LIT = { project: ["Q", "K", "V"], append: ["K", "V"], score: ["Q", "K", "A"], softmax: ["A"], mix: ["A", "V", "out"], next: ["out"] }

const shown = (text) => text.replace(/\n/g, "⏎").replace(/^ | $/g, "·") || "∅"

function fill(share, kind) {
  const node = element("div", { class: "kv-countfill", "data-origin": kind })
  node.style.width = `${Math.max(0.5, 100 * share)}%`
  return node
}

function section(title, words, ...rest) {
  return element("section", {}, element("h2", {}, title), element("p", { class: "kv-words" }, words), ...rest)
}

function dark(root) {
  const [r, g, b] = (getComputedStyle(root).color.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number)
  return r + g + b > 380 // light text
}
