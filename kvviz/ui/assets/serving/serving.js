// A serving run, live or replayed: a strip of lanes for each policy, the blocks of one of them, and a request to look at.

import { tableButton } from "../shared/chart_table.js"
import { element, put, styled } from "../shared/dom.js"
import { Feed } from "../shared/feed.js"
import { mounted } from "../shared/mounted.js"
import { Repaint } from "../shared/repaint.js"
import { Blocks } from "./blocks.js"
import { Lanes } from "./lanes.js"
import { OneRequest } from "./request.js"
import { apply, emptyRun, endOf, figuresAt, fullest, pictureAt, takeDocument } from "./served.js"

const DRAW_EVERY_MS = 50
const SPEEDS = [0.25, 1, 4]
const SHORT_S = 3 // a run that takes no longer is first replayed at the least of the speeds
const AHEAD = 1.3 // while it runs, the axis grows by so much at a time

class Serving {
  constructor(root, data) {
    Object.assign(this, { root, data, run: emptyRun(), time: null, policy: null, request: null, speed: SPEEDS[0], playing: false, lanes: new Map() })
    styled(`${data.assets}/live/live.css`, `${data.assets}/serving/serving.css`)
    for (const [name, [, light, dark]] of Object.entries({ ...data.kinds, ...data.blocks })) root.style.setProperty(`--kv-${name}`, `light-dark(${light}, ${dark})`)
    this.repaint = new Repaint(() => this.draw(), DRAW_EVERY_MS)
    this.build()
    this.seen = new IntersectionObserver(([entry]) => entry.isIntersecting && this.cameIntoView())
    this.seen.observe(root)
    root.dataset.brief = String(data.waits) // its lanes have measures in place of figures
    root.kvRun = () => this.run // for the curious, and for tests
  }

  build() {
    const { data } = this
    this.play = element("button", { type: "button", class: "kv-pill", "data-testid": "kv-play" }, "Play")
    this.play.onclick = () => this.toggle()
    this.speeds = element("div", { class: "kv-tabs", role: "group", "aria-label": "Speed of the replay; 1× is as it was measured" }, ...SPEEDS.map((speed) => {
      const button = element("button", { type: "button" }, `${speed}×`)
      button.onclick = () => {
        this.speed = speed
        this.repaint.ask()
      }
      return button
    }))
    this.slider = element("input", { type: "range", min: 0, max: 1, value: 0, "aria-label": "Step", "data-testid": "kv-step" })
    this.slider.oninput = () => this.goTo(Number(this.slider.value))
    this.words = element("p", { class: "kv-moment", "data-testid": "kv-moment" })
    this.status = element("p", { class: "kv-status", role: "status", "data-testid": "kv-serving-status" })
    this.panels = element("div", { "data-testid": "kv-lanes" })
    this.axis = element("div", { class: "kv-axis", "aria-hidden": "true" })
    this.blocks = new Blocks((request) => this.choose(this.policy, request))
    this.one = new OneRequest((request) => this.choose(this.policy, request))
    this.whose = element("h3", {})
    this.legend = lifeOf(data.kinds)
    this.side = element("details", { class: "kv-servingside kv-fold" }, element("summary", {}, "The memory block by block, and one request"),
      element("div", { class: "kv-servingfold" }, element("div", {}, this.whose, this.words, this.blocks.node, key(data.blocks)), this.one.node))
    this.side.ontoggle = () => this.repaint.ask()
    this.stage = element("div", { class: "kv-servingstage", hidden: "" },
      element("div", { class: "kv-servingtime" }, this.legend, this.panels, this.axis),
      element("div", { class: "kv-transport" }, this.play, this.speeds, this.slider, tableButton(() => "What became of each request", () => this.tables())),
      this.side)
    this.root.replaceChildren(this.status, this.stage)
  }

  // --- what is shown: a run that the feed tells of, or the kept recording ------------------------------------------

  update(data) {
    this.data = data
    if (this.follows !== undefined && this.follows === data.job) return
    this.follows = data.job
    this.feed?.close()
    this.feed = null
    this.run = emptyRun()
    if (data.job) this.feed = new Feed(data.job, (id, records, first) => this.take(records, first), (message) => this.note(message), () => {})
    else this.fetchKept().catch(() => {}) // a browser without DecompressionStream sees no picture; the table below stays
    this.repaint.ask()
  }

  async fetchKept() {
    const packed = (await fetch(this.data.kept)).body.pipeThrough(new DecompressionStream("gzip"))
    const { document: kept } = await new Response(packed).json()
    if (this.data.job) return
    takeDocument(this.run, kept)
    this.begin()
    if (this.inView) this.cameIntoView()
  }

  take(records, first) {
    if (first) {
      this.run = emptyRun()
      this.begin()
    }
    for (const record of records) apply(this.run, record)
    this.repaint.ask()
  }

  note({ status }) {
    this.queue = status?.words ?? ""
    this.repaint.ask()
  }

  begin() {
    Object.assign(this, { time: null, playing: false, chosen: false, queue: "", reach: 0.5 })
    this.repaint.ask()
  }

  // A kept recording plays once by itself, where somebody sees it.
  cameIntoView() {
    this.inView = true
    if (this.data.job || !this.over || this.played) return
    this.played = true
    this.speed = this.end <= SHORT_S ? SPEEDS[0] : 1
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.toggle()
  }

  // --- the moment and what is chosen -------------------------------------------------------------------------------

  get over() { return this.run.rows.length > 0 && ["done", "stopped", "failed"].includes(this.run.state) }
  get end() { return Math.max(0, ...this.run.rows.map(endOf)) }
  // The moment whose memory is drawn; after the end that is not the empty one, but the fullest.
  get shown() { return this.time ?? (this.over ? fullest(this.row) : null) }
  get row() { return this.run.rows.find((row) => row.policy === this.policy) }

  choose(policy, request = this.request) {
    Object.assign(this, { chosen: true, policy, request })
    this.side.open = true
    this.repaint.ask()
  }

  goTo(step) {
    this.playing = false
    const seconds = this.row.steps.ended_s
    this.time = step >= seconds.length && !this.over ? null : step ? seconds[step - 1] : 0
    this.repaint.ask()
  }

  toggle() {
    this.playing = !this.playing
    if (this.playing) {
      if (this.time === null || this.time >= this.end) this.time = 0
      this.frame = performance.now()
      requestAnimationFrame(() => this.tick())
    }
    this.repaint.ask()
  }

  tick() {
    if (!this.playing || this.repaint.closed) return
    const now = performance.now()
    this.time += ((now - this.frame) / 1000) * this.speed
    this.frame = now
    if (this.time >= this.end) Object.assign(this, { playing: false, time: null })
    else requestAnimationFrame(() => this.tick())
    this.repaint.ask()
  }

  // --- the picture -------------------------------------------------------------------------------------------------

  draw() {
    const { run } = this
    put(this.status, this.said())
    this.root.dataset.state = run.state
    this.stage.dataset.old = String(!run.rows.length) // what was there before stays, so that nothing moves
    if (!run.rows.length) return
    if (this.drawn !== run) {
      this.panels.replaceChildren()
      this.lanes.clear()
      const tones = this.data.requests
      run.spec.arrivals_s.forEach((_, i) => this.root.style.setProperty(`--kv-request-${i}`, `light-dark(${tones[i % tones.length].join()})`))
    }
    this.drawn = run
    this.stage.hidden = false
    if (!this.chosen || !this.row) this.policy = ((this.over ? run.rows.find((row) => row.policy === "continuous") : run.now) ?? run.rows[0]).policy
    const range = this.range()
    const requests = run.spec.arrivals_s.length
    for (const row of run.rows) {
      if (!this.lanes.has(row.policy)) {
        this.lanes.set(row.policy, new Lanes(row, this.data.titles[row.policy] ?? row.policy, this.data, (...all) => this.choose(...all)))
        this.panels.append(this.lanes.get(row.policy).node)
      }
      this.lanes.get(row.policy).draw(row, { range, time: this.time, shown: this.side.open ? this.shown : null, requests, chosen: this.side.open && row.policy === this.policy, request: this.request, found: figuresAt(row, this.time ?? Infinity) })
    }
    this.drawAxis(range)
    this.drawTransport()
    this.drawSide()
  }

  // While it runs, the axis grows a good deal at a time, so that the bars stay where they are for a while.
  range() {
    if (this.over) return 1.01 * this.end || 1
    if (this.end > this.reach) this.reach = AHEAD * this.end
    return this.reach
  }

  drawAxis(range) {
    const tick = [1, 2, 5].flatMap((n) => [0.01, 0.1, 1, 10, 100].map((size) => n * size)).sort((a, b) => a - b).find((tick) => range / tick <= 8) ?? 1000
    this.root.style.setProperty("--kv-tick", `${(100 * tick) / range}%`)
    this.axis.replaceChildren(...Array.from({ length: Math.ceil((0.98 * range) / tick) }, (_, i) => {
      const node = element("span", {}, `${Number((i * tick).toPrecision(6))}${i ? "" : " s"}`)
      node.style.left = `${(100 * i * tick) / range}%`
      return node
    }))
  }

  drawTransport() {
    this.play.disabled = !this.over
    put(this.play, this.playing ? "❚❚ Pause" : "▶ Replay")
    for (const [i, button] of [...this.speeds.children].entries()) button.setAttribute("aria-pressed", String(SPEEDS[i] === this.speed))
  }

  drawSide() {
    const { row, run } = this
    const found = figuresAt(row, this.shown ?? Infinity)
    const steps = row.steps.ended_s?.length ?? 0
    this.slider.max = String(steps)
    this.slider.value = String(this.over && this.time === null && !this.side.open ? steps : found.step) // all is drawn
    this.slider.disabled = !steps
    put(this.whose, `The memory${this.over && this.time === null ? " at its fullest" : ""}: ${(this.data.titles[row.policy] ?? row.policy).split(":")[0]}`)
    const at = found.step ? row.steps.ended_s[found.step - 1] : 0
    put(this.words, `Step ${found.step.toLocaleString("en-US")} of ${steps.toLocaleString("en-US")}, at ${at.toFixed(2)} s: ${found.running} run, ${found.waiting} wait`)
    const picture = pictureAt(row, found.step)
    const size = row.pictures[0]?.block ?? 16
    this.blocks.draw(picture, Math.floor(run.spec.slots / size), size, this.request)
    this.one.draw(run, this.policy, this.request, this.time, this.data.titles)
  }

  said() {
    const { run, data } = this
    if (run.state === "loading") return "Loading the model …"
    if (run.state === "look") return "Some requests are decoded alone first, to compare their tokens …"
    if (run.state === "serving") return `${data.titles[run.now.policy]}: policy ${run.rows.indexOf(run.now) + 1} of ${run.rows.length}`
    if (run.state === "waiting" && data.job) return this.queue ?? ""
    if (run.state === "done" && data.job) return "Served on this machine. Replay it, or click a request."
    return ""
  }

  tables() {
    const heads = ["request", "state", "arrived, s", "admitted, s", "first token, s", "ended, s", "prompt tokens", "new tokens", "hits", "preempted", "computed again"]
    return this.run.rows.map((row) => ({
      head: [`${this.data.titles[row.policy] ?? row.policy}: request`, ...heads.slice(1)],
      rows: row.each.map((one) => [one.number, one.state, one.arrival_s, one.admitted_s[0], one.token_s[0], one.ended_s, one.prompt_tokens, one.token_s.length,
                                   one.hit_tokens, one.preempted_s.length, one.recomputed_tokens]),
    }))
  }

  close() {
    this.playing = false
    this.repaint.close()
    this.seen.disconnect()
    this.feed?.close()
  }
}

export const mount = mounted(Serving, ".kv-serving")

// What a bar may be, in the order of a request's life.
const lifeOf = (kinds) => element("div", { class: "kv-life" }, "a row is a request:", ...Object.entries(kinds).map(([kind, [words]]) => element("span", { class: `kv-life-${kind}` }, words)))
const key = (states) => element("div", { class: "kv-legend" }, ...Object.entries(states).map(([state, [words]]) => {
  const cell = element("i", { class: "kv-swatch", "data-state": state })
  put(cell, { full: "7", shared: "×4" }[state] ?? "")
  return element("span", {}, cell, state === "full" ? `${words}, in its colour` : words)
}))
