// Calls `draw` at most once in `every` milliseconds, however often it is asked for, and never once it is closed. A drawing that
// took long is followed by a longer pause, so that a slow machine keeps most of its time for what it measures.

const REST = 3 // a pause is at least this many times as long as the drawing before it,
const LONGEST_MS = 400 // but no longer than this

export class Repaint {
  constructor(draw, every) {
    Object.assign(this, { draw, every, next: 0, timer: null, drawing: false, again: false, closed: false })
  }

  ask() {
    this.again = this.drawing
    if (this.timer !== null || this.drawing || this.closed) return
    this.timer = setTimeout(() => this.paint(), Math.max(0, this.next - performance.now()))
  }

  // `draw` may return a promise, which is waited for.
  async paint() {
    Object.assign(this, { timer: null, drawing: true, again: false })
    const began = performance.now()
    try {
      await this.draw()
    } finally {
      const ended = performance.now()
      this.next = Math.max(began + this.every, ended + Math.min(REST * (ended - began), LONGEST_MS))
      this.drawing = false
      if (this.again) this.ask()
    }
  }

  close() {
    this.closed = true
    clearTimeout(this.timer)
  }
}
