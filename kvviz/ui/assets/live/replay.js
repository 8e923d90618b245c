// The kept recording that is shown before anything has run: the first look goes at the speed at which it was measured.

import { apply, emptyState } from "../shared/state.js"

const PAUSE_MS = 1500 // between the first look and the result
const FRAME_MS = 100

export class Replay {
  constructor(url, redraw) {
    Object.assign(this, { url, redraw, state: null, timer: null, asked: false })
  }

  // Only an empty page shows it: nothing was asked for, and nothing runs.
  wanted(state) {
    if (!this.url || state.state !== "waiting" || state.id) return false
    if (!this.asked) this.start()
    return true
  }

  async start() {
    this.asked = true
    try {
      const packed = (await fetch(this.url)).body.pipeThrough(new DecompressionStream("gzip"))
      const { made, records } = await new Response(packed).json()
      this.records = records
      this.made = made
    } catch {
      return // a browser without DecompressionStream sees the empty chart, which says what to press
    }
    this.state = Object.assign(emptyState(""), { recorded: this.made })
    this.began = performance.now()
    this.next = 0
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches
    this.tick()
  }

  // A record is due when its `at` has come; what follows the first look is due after a pause, all at once.
  tick() {
    const now = (performance.now() - this.began) / 1000
    for (; this.next < this.records.length; this.next++) {
      const record = this.records[this.next]
      if (record.t === "first_look") this.looked = record.at
      const due = record.t === "first_look" ? record.at - this.first() : this.looked === undefined ? 0 : this.looked - this.first() + PAUSE_MS / 1000
      if (due > now && !this.still) break
      apply(this.state, record)
    }
    this.redraw()
    if (this.next < this.records.length) this.timer = setTimeout(() => this.tick(), FRAME_MS)
  }

  first() {
    return (this.start_at ??= this.records.find((record) => record.t === "first_look")?.at ?? 0)
  }

  stop() {
    clearTimeout(this.timer)
  }
}
