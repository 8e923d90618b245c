// Both texts once more, at the speeds that were measured, with the clock running.

import { curve } from "../shared/state.js"
import { element } from "../shared/dom.js"
import { duration } from "../shared/format.js"
import { pace, paceWords } from "./pace.js"

export class Race {
  constructor(redraw, onStart) {
    this.redraw = redraw
    this.onStart = onStart
    this.button = element("button", { type: "button", class: "kv-pill", "data-testid": "kv-race" }, "▶ Race")
    this.words = element("span", { class: "kv-clock", "data-testid": "kv-race-clock" })
    this.node = element("div", { class: "kv-racebar" }, this.words, this.button)
    this.button.onclick = () => (this.running ? this.stop() : this.start())
  }

  follow(state) {
    const other = this.state?.id !== state.id
    this.state = state
    if (other) this.clear()
    const ready = state.modes.length > 1 && state.modes.every((m) => m.times.length && m.times.length === m.tokens.length)
    this.node.hidden = !ready
  }

  start() {
    this.finish = this.state.modes.map((mode) => {
      let at = 0
      return { mode, at: curve(mode).map((point) => (at += point.mid)) }
    })
    this.speed = pace(Math.max(...this.finish.map((lane) => lane.at.at(-1))))
    this.onStart()
    this.began = performance.now()
    this.running = true
    this.over = false
    this.button.textContent = "■ End the race"
    this.tick()
  }

  tick() {
    if (!this.running) return
    this.clock = ((performance.now() - this.began) / 1000) * this.speed
    const last = Math.max(...this.finish.map((lane) => lane.at.at(-1)))
    if (this.clock >= last) {
      this.clock = last
      this.running = false
      this.over = true
      this.button.textContent = "▶ Race again"
    }
    this.words.textContent = this.sentence()
    this.redraw()
    if (this.running) this.frame = requestAnimationFrame(() => this.tick())
  }

  sentence() {
    const order = [...this.finish].sort((a, b) => a.at.at(-1) - b.at.at(-1))
    const [first, last] = [order[0], order.at(-1)]
    if (this.over) {
      const lead = last.at.at(-1) - first.at.at(-1)
      return `${first.mode.title} was done after ${duration(first.at.at(-1))}, ${duration(lead)} before ${last.mode.title}`
    }
    const done = this.clock >= first.at.at(-1) ? ` · ${first.mode.title} is done` : ""
    return `${[`${this.clock.toFixed(2)} s`, paceWords(this.speed)].filter(Boolean).join(", ")}${done}`
  }

  stop() {
    this.clear()
    this.redraw()
  }

  clear() {
    this.running = this.over = false
    cancelAnimationFrame(this.frame)
    this.button.textContent = "▶ Race"
    this.words.textContent = ""
    this.finish = null
  }

  // How many tokens of a mode the race has shown; null while there is no race.
  shown(mode) {
    const lane = this.running ? this.finish?.find((l) => l.mode.name === mode.name) : null
    return lane ? lane.at.filter((at) => at <= this.clock).length : null
  }
}
