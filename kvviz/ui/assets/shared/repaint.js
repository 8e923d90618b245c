// Calls `draw` at most once in `every` milliseconds, however often it is asked for, and never once it is closed.

export class Repaint {
  constructor(draw, every) {
    Object.assign(this, { draw, every, drawn: -every, timer: null, closed: false })
  }

  ask() {
    if (this.timer !== null || this.closed) return
    this.timer = setTimeout(() => {
      this.timer = null
      this.drawn = performance.now()
      this.draw()
    }, Math.max(0, this.every - (performance.now() - this.drawn)))
  }

  close() {
    this.closed = true
    clearTimeout(this.timer)
  }
}
