// Replays the kept recording before anything has run: the first look step by step, then the rest. And tells what it came
// to beside a run of the same work that other programs disturbed.

import { known } from "../shared/format.js"
import { apply, emptyState } from "../shared/state.js"
import { pace, paceWords } from "./pace.js"

const PAUSE_S = 1.5 // between the first look and the result
const FRAME_MS = 100
const WORK = ["model", "prompt", "prompt_tokens", "new_tokens", "batch", "dtype", "attn", "modes", "sampling"] // of a spec

async function fetched(url) {
  const packed = (await fetch(url)).body.pipeThrough(new DecompressionStream("gzip"))
  return new Response(packed).json()
}

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
    const { made, records } = await fetched(this.url)
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

export class RecordedGain {
  constructor(url, redraw) {
    Object.assign(this, { url, redraw, state: null, asked: false })
  }

  // The recorded speed-up of the same work on a device of the same kind, in words; "" of other work and until it is known.
  of({ spec, environment }) {
    if (!this.asked) {
      this.asked = true
      this.load().catch(() => {}) // as for the replay
    }
    const same = this.state && environment.device === this.state.environment.device
    if (!same || WORK.some((field) => JSON.stringify(spec[field]) !== JSON.stringify(this.state.spec[field]))) return ""
    const { speedup, speedup_interval: interval } = this.state.figures.find((run) => run.mode === "cached")
    return known(speedup, interval).factor.replace("×", " times")
  }

  async load() {
    const state = emptyState("")
    for (const record of (await fetched(this.url)).records) apply(state, record)
    this.state = state
    this.redraw()
  }
}
