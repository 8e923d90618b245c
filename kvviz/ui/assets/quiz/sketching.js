// A question whose answer is drawn: a line for each mode; the answer is the shape of each.

import { element } from "../shared/dom.js"
import { isDark } from "../shared/theme.js"
import { ends, shape } from "../live/shapes.js"
import { Sketch } from "../live/sketch.js"

const instances = new WeakMap()

export function mount({ data, parentElement, setTriggerValue }) {
  let drawn = instances.get(parentElement)
  if (!drawn) {
    drawn = new Drawn(parentElement.querySelector(".kv-sketching"), data.assets)
    instances.set(parentElement, drawn)
  }
  drawn.update(data, setTriggerValue)
  return () => instances.delete(parentElement)
}

class Drawn {
  constructor(root, assets) {
    for (const sheet of ["live/live.css", "quiz/quiz.css"]) {
      const href = `${assets}/${sheet}`
      if (!document.querySelector(`link[href="${href}"]`)) document.head.append(element("link", { rel: "stylesheet", href }))
    }
    this.sketch = new Sketch("kv-sketch", (mode) => this.data.colours[isDark() ? "dark" : "light"][mode], () => this.changed(), "That is your answer.")
    this.again = element("button", { type: "button", class: "kv-pill", "data-testid": "kv-sketch-clear" }, "Clear")
    this.again.onclick = () => {
      this.sketch.clear()
      this.sketch.paint()
    }
    root.replaceChildren(element("div", { class: "kv-guess" }, element("div", { class: "kv-guess-bar" }, this.sketch.words, this.sketch.picks, this.again), ...this.sketch.parts))
  }

  update(data, trigger) {
    Object.assign(this, { data, trigger })
    this.sketch.modes = data.answer === null ? data.modes : [] // once it is answered nothing more is drawn
    this.again.hidden = data.answer !== null
    this.sketch.last.textContent = "last"
    this.sketch.paint()
  }

  changed() {
    this.sketch.paint()
    if (this.sketch.next()) return
    const lines = this.data.modes.map(([mode]) => this.sketch.strokes[mode].filter((h) => h !== null))
    const tallest = Math.max(...lines.flat())
    this.trigger("drawn", lines.map((heights) => shape(ends(heights), tallest)).join(","))
  }
}
