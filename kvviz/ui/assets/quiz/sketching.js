// A question whose answer is drawn: a line for each mode; the answer is the shape of each.

import { element, styled } from "../shared/dom.js"
import { mounted } from "../shared/mounted.js"
import { isDark } from "../shared/theme.js"
import { ends, shape } from "../live/shapes.js"
import { PICKS, Sketch, straight } from "../live/sketch.js"

class Drawn {
  constructor(root, { assets }) {
    this.root = root
    styled(`${assets}/live/live.css`, `${assets}/quiz/quiz.css`)
    this.sketch = new Sketch("kv-sketch", (mode) => this.data.colours[isDark() ? "dark" : "light"][mode], () => this.changed())
    this.again = element("button", { type: "button", class: "kv-pill", "data-testid": "kv-sketch-clear" }, "Clear")
    this.again.onclick = () => {
      this.sketch.clear()
      this.changed()
    }
    root.replaceChildren(element("div", { class: "kv-guess" }, element("div", { class: "kv-guess-bar" }, this.sketch.words, this.sketch.picks, this.again), ...this.sketch.parts))
  }

  update(data, _, tell) {
    Object.assign(this, { data, tell })
    this.sketch.over = data.answer === null ? "Press Check, or Clear and draw again." : "Your answer, as straight lines."
    if (data.answer !== null && this.sketch.empty) this.recall(data.answer.split(","))
    this.sketch.modes = data.answer === null ? data.modes : [] // once it is answered nothing more is drawn
    this.root.dataset.answered = String(data.answer !== null)
    this.again.hidden = data.answer !== null
    this.sketch.first.textContent = "2" // the first comes from the prefill, whose time stands apart
    this.sketch.last.textContent = "last"
    this.sketch.paint()
  }

  // Of an answer that was checked, only the shapes are kept: they are drawn as straight lines.
  recall(shapes) {
    const lines = { climb: PICKS.climbs, flat: PICKS["stays flat"], fall: PICKS.falls }
    shapes.forEach((each, i) => {
      this.sketch.strokes[this.data.modes[i][0]] = straight(...lines[each])
    })
  }

  // The lines' shapes are told when all are drawn, and taken back when they are cleared.
  changed() {
    this.sketch.paint()
    const lines = this.data.modes.map(([mode]) => this.sketch.strokes[mode]?.filter((h) => h !== null))
    const tallest = Math.max(...lines.flat())
    this.tell("drawn", this.sketch.next() ? null : lines.map((heights) => shape(ends(heights), tallest)).join(","))
  }
}

export const mount = mounted(Drawn, ".kv-sketching")
