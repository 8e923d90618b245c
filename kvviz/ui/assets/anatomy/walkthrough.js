// What all walks through a layer share: the bar, the keys, the way of the records, a room that follows.

import { element, put, styled } from "../shared/dom.js"
import { Feed } from "../shared/feed.js"

const PLAY_MS = 1600
const SLIM = 640 // CSS pixels: below them the bar has no room for two words
const WHOLE = -1 // the place of the finished picture, before the first scene

export class Walkthrough {
  // `scenes`: what a step goes through, each a `key` and the `stages` of the code that it lights. A walk opens on the
  // finished picture of the step `opens`, and leads from there to the first scene of the step `begins`.
  constructor(root, data, scenes, opens, begins = opens) {
    this.root = root
    this.scenes = scenes
    this.opens = opens
    this.begins = begins
    this.at = WHOLE // scene, counted over all steps
    styled(...["live/live.css", "anatomy/anatomy.css", ...this.sheets].map((sheet) => `${data.assets}/${sheet}`))
    this.status = element("p", { class: "kv-status", role: "status", "data-testid": "kv-look-status" })
    this.back = button("◀ Back", "arrow left", () => this.go(this.before), "kv-back")
    this.next = button("Next ▶", "arrow right", () => this.go(this.after), "kv-next")
    this.next.classList.add("kv-onward")
    this.play = button("Play", "scene after scene", () => this.toggle(), "kv-play")
    this.overview = button("Overview", "the finished picture", () => this.go(WHOLE), "kv-overview")
    this.place = element("span", { class: "kv-place", "data-testid": "kv-place" })
    this.kept = element("span", { class: "kv-note kv-recorded", "data-testid": "kv-recorded" })
    this.steps = element("div", { class: "kv-steps", role: "group", "aria-label": "Steps of the decode" })
    this.title = element("h2", { "data-testid": "kv-scene" })
    this.words = element("p", { class: "kv-words", "aria-live": "polite" })
    const bar = element("div", { class: "kv-walkbar" }, this.back, this.next, this.place, this.play, this.overview, this.steps, this.kept)
    this.stage = element("div", { hidden: "" }, bar, element("div", { class: "kv-said" }, ...this.heading()), ...this.build())
    root.replaceChildren(this.status, this.stage)
    this.onKey = (event) => this.key(event)
    this.onLook = (event) => this.wish(event.detail)
    this.onSize = new ResizeObserver(() => this.look && this.drawAll())
    document.addEventListener("keydown", this.onKey)
    document.addEventListener("kv-look", this.onLook)
    this.onSize.observe(root)
    root.kvState = () => ({ at: this.at, look: this.look })
  }

  // What a walk may have of its own: sheets, the type of the record that brings it, its heading.
  get sheets() { return ["anatomy/walkthrough.css"] }
  get record() { return "architecture" }
  heading() { return [this.title, this.words] }

  update(data) {
    this.data = data
    if (data.records && !this.look) for (const record of data.records) this.take(record) // a page without a server has them
    if (this.follows !== data.look) {
      this.follows = data.look
      this.feed?.close()
      this.feed = data.look ? new Feed(data.look, (id, records) => records.forEach((record) => this.take(record)), (m) => this.waits(m), () => {}) : null
      this.tell(data.look ? "The walk is being made …" : "")
    }
    if (data.kept && !this.look) this.fetchKept(data.kept).catch(() => {}) // a browser without DecompressionStream waits for the walk
    if (this.look) this.drawAll()
  }

  // The recording of this walk, until the walk itself is there.
  async fetchKept({ address, words }) {
    const packed = (await fetch(address)).body.pipeThrough(new DecompressionStream("gzip"))
    const { records } = await new Response(packed).json()
    if (this.look) return
    const told = this.status.textContent
    this.arrived(records.find((record) => record.t === this.record), words)
    this.tell(told)
  }

  take(record) {
    if (record.t === "loading") this.tell("Loading the model …")
    else if (record.t === "look") this.tell("Decoding here …")
    else if (record.t === "failed" || record.t === "stopped") this.tell(record.message || "The walk was stopped.")
    else if (record.t === this.record) this.arrived(record)
  }

  // How the work goes on: above an empty page, or in the bar of a recording.
  tell(words) {
    put(this.status, this.recorded ? "" : words)
    put(this.kept, this.recorded ? `${this.recorded} ${words}` : "")
  }

  waits({ status }) {
    if (!this.look || this.recorded || this.shown !== this.follows) this.tell(status?.words ?? "")
  }

  // `recorded`: where and when, if it is a recording.
  arrived(look, recorded = "") {
    this.recorded = recorded
    const other = this.look?.steps.length !== look.steps.length
    this.look = look
    if (other) this.at = WHOLE
    this.shown = this.follows
    this.tell("")
    this.stage.hidden = false
    this.steps.replaceChildren(...look.steps.map((step, i) => {
      const chip = element("button", { type: "button", class: "kv-chip", title: i ? `decode step ${i}` : "prefill" }, i ? String(i) : "prefill")
      chip.onclick = () => this.go(i * this.scenes.length)
      return chip
    }))
    this.came?.()
    this.moved({ fresh: true })
  }

  get whole() { return this.at === WHOLE }
  get step() { return this.whole ? this.there(this.opens) : Math.floor(this.at / this.scenes.length) }
  get now() { return this.look.steps[this.step] }
  get scene() { return this.whole ? { key: "whole", stages: [] } : this.scenes[this.at % this.scenes.length] }
  get last() { return this.look.steps.length * this.scenes.length - 1 }
  get first() { return this.there(this.begins) * this.scenes.length }
  get before() { return this.at === this.entered ? WHOLE : this.at - 1 }
  get ends() { return this.scenes.length > 1 && this.at < this.last && (this.at + 1) % this.scenes.length === 0 } // the step, and the walk goes on
  get after() { return this.whole ? this.first : this.at + 1 }

  // A short decode may have no step of that number.
  there(step) { return Math.min(step, this.look.steps.length - 1) }

  // Whether the scene `key` of this step has been reached.
  reached(key) { return this.whole || this.at % this.scenes.length >= this.scenes.findIndex((scene) => scene.key === key) }

  go(at) {
    if (this.whole) this.entered = at // from there Back leads to the finished picture
    this.at = Math.max(WHOLE, Math.min(this.last, at))
    if (this.at === this.last) this.halt()
    this.moved({ own: true })
  }

  // Who leads a room tells it, the finished picture as step 1; who follows comes along. `own`: a hand has moved it; `fresh`: the walk has just come.
  moved({ own = false, fresh = false } = {}) {
    Object.assign(this.root.dataset, { comparison: this.follows ?? "", step: String(this.at - WHOLE + 1), mode: this.again ? "uncached" : "cached", scene: this.scene.key })
    this.drawAll()
    document.dispatchEvent(new CustomEvent("kv-looked", { detail: { own, fresh } }))
  }

  wish({ comparison, step }) {
    if (!this.look || comparison !== this.follows || step === null) return
    this.at = Math.max(WHOLE, Math.min(this.last, step + WHOLE - 1))
    this.moved()
  }

  toggle() {
    if (this.timer) { this.halt(); return }
    if (this.at === this.last) this.at = WHOLE
    this.timer = setInterval(() => this.go(this.after), PLAY_MS)
    this.play.textContent = "Pause"
  }

  halt() {
    clearInterval(this.timer)
    this.timer = null
    this.play.textContent = "Play"
  }

  key(event) {
    if (!this.look || event.target.closest?.("input, textarea, select, [role=slider], [role=combobox], [role=radiogroup], [contenteditable]")) return
    if (event.altKey || event.ctrlKey || event.metaKey) return
    const at = { ArrowRight: this.after, ArrowLeft: this.before }[event.key]
    if (at === undefined) return
    event.preventDefault()
    this.go(at)
  }

  drawAll() {
    const [title, words] = this.said(this.scene.key)
    put(this.title, title)
    put(this.words, words)
    put(this.place, this.scenes.length === 1 ? `token ${this.at + 1} of ${this.last + 1}` : `scene ${(this.at % this.scenes.length) + 1} of ${this.scenes.length}`)
    put(this.next, this.whole ? "Walk through it ▶" : !this.ends ? "Next ▶" : this.root.clientWidth < SLIM ? "Token ▶" : "Next token ▶")
    this.back.hidden = this.place.hidden = this.overview.hidden = this.whole
    this.next.disabled = this.at === this.last
    for (const [i, chip] of [...this.steps.children].entries()) chip.setAttribute("aria-pressed", String(i === this.step))
    const chip = this.steps.children[this.step] // in sight where the row of chips scrolls
    this.steps.scrollLeft = chip.offsetLeft - (this.steps.clientWidth - chip.clientWidth) / 2
    this.draw()
  }

  close() {
    this.halt()
    this.feed?.close()
    this.onSize.disconnect()
    document.removeEventListener("keydown", this.onKey)
    document.removeEventListener("kv-look", this.onLook)
  }
}

// Chips that bear the token that a step reads; the first is the prefill, which reads the prompt.
export function nameByRead(chips, { tokens, steps }) {
  for (const [i, chip] of [...chips.children].entries()) if (i) put(chip, shown(tokens[steps[i].total - 1]))
}

// Chips that bear the tokens, for a walk whose steps are single tokens.
export function nameByToken(chips, { tokens, prompt_tokens: prompt }) {
  for (const [i, chip] of [...chips.children].entries()) {
    chip.textContent = shown(tokens[i])
    chip.title = `token ${i}${i < prompt ? ", of the prompt" : ", written"}`
    if (i === prompt) chip.dataset.first = "written"
  }
}

function button(words, hint, act, id) {
  const node = element("button", { type: "button", class: "kv-pill", title: hint, "data-testid": id }, words)
  node.onclick = act
  return node
}

// A part of the page with a heading and a sentence.
export const section = (title, words, ...rest) =>
  element("section", {}, element("h3", {}, title), element("p", { class: "kv-words" }, words), ...rest)

// The lines of a listing: those of the stages `lit` are lit, and each bears the shapes that it made in this step. `idle`
// says which stages do nothing in this model.
export function drawCode(node, { lines, start, stages }, lit, shapes, idle = () => false) {
  node.replaceChildren(...[...lines.entries()].filter(([, text]) => text.trim()).map(([i, text]) => {
    const number = start + i
    const stage = stages.find((one) => one.first - 1 <= number && number <= one.last) // its heading too
    const nothing = Boolean(stage && idle(stage.name))
    const made = stage && number === stage.last && !nothing ? Object.entries(shapes[stage.name] ?? {}) : []
    const code = text.replace(/(\S) {2}# .*$/, "$1").replace(/^ {4}/, "")
    const words = code.trim().startsWith("#")
    const line = element("span", { class: "kv-codeline", "data-lit": String(!nothing && lit.includes(i ? stage?.name : "enter")),
                                   "data-words": String(words || nothing) }, code)
    if (nothing && words) line.append(element("em", {}, "not in this model"))
    for (const [name, shape] of made) line.append(element("em", {}, `${name} [${shape.join(", ")}]`))
    return line
  }))
}

// A table of what is drawn, folded up: `rows` of cells below `titles`; the first cell names the row.
export function dataTable(node, titles, rows) {
  const cells = (tag, texts) => texts.map((text, i) => element(i ? tag : "th", { scope: i ? "col" : "row" }, String(text)))
  node.replaceChildren(element("thead", {}, element("tr", {}, ...cells("th", titles))),
                       element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row)))))
}

// All steps as a table, folded up.
export const folded = (title, table) =>
  element("details", { class: "kv-numbers kv-fold" }, element("summary", {}, title), element("div", { class: "kv-scroll", tabindex: "0" }, table))

export const shown = (text) => text.replace(/\n/g, "⏎").replace(/^ | $/g, "·") || "∅"

export function isDark(root) {
  const [r, g, b] = (getComputedStyle(root).color.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number)
  return r + g + b > 380 // light text
}
