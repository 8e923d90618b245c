// Replays the kept recording before anything has run: the first look step by step, then the rest.

import { apply, emptyState } from "../shared/state.js"
import { pace, paceWords } from "./pace.js"

const PAUSE_S = 1.5 // between the first look and the result
const FRAME_MS = 100

export class Replay {
  constructor(url, redraw) {
    Object.assign(this, { url, redraw, state: null, timer: null, asked: false })
  }

  // Starts it, at the first call.
  play() {
    if (this.asked) return
    this.asked = true
    this.start().catch(() => {}) // a browser without DecompressionStream sees the empty chart, which says what to press
  }

  async start() {
    const packed = (await fetch(this.url)).body.pipeThrough(new DecompressionStream("gzip"))
    const { made, records } = await new Response(packed).json()
    const looks = records.filter((record) => record.t === "first_look").map((record) => record.at)
    const speed = pace(looks.at(-1) - looks[0])
    const end = (looks.at(-1) - looks[0]) / speed + PAUSE_S
    const due = (record) => (record.at === undefined ? 0 : record.t === "first_look" ? (record.at - looks[0]) / speed : end)
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches
    this.waiting = records.map((record) => ({ record, due: still ? 0 : due(record) }))
    this.state = Object.assign(emptyState(""), { recorded: made, shown: still ? "" : paceWords(speed) })
    this.began = performance.now()
    this.tick()
  }

  // Applies the records whose time has come, in their order.
  tick() {
    const now = (performance.now() - this.began) / 1000
    while (this.waiting.length && this.waiting[0].due <= now) apply(this.state, this.waiting.shift().record)
    if (!this.waiting.length) this.state.shown = "" // all of it
    this.redraw()
    if (this.waiting.length) this.timer = setTimeout(() => this.tick(), FRAME_MS)
  }

  // Ends it at once: what stays on the screen, until a run has its first point, is the whole recording.
  stop() {
    clearTimeout(this.timer)
    for (const { record } of this.waiting?.splice(0) ?? []) apply(this.state, record)
    if (this.state) this.state.shown = ""
  }
}
