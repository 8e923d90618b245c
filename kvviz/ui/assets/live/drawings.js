// What a class has drawn, over one another and without names: for the teacher of a room, and for the class once revealed.

import { element, put } from "../shared/dom.js"
import { ClassLink } from "../shared/classlink.js"
import { framed, line, surface } from "./sketch.js"

export class ClassDrawings {
  // `box` is the element that lies over the chart, `modes` gives [name, title] of the lines.
  constructor(box, look, modes) {
    Object.assign(this, { look, modes, shown: false, revealed: false })
    this.words = element("span", { "data-testid": "kv-class-drawings", role: "status" })
    this.look_ = pill("kv-class-look", () => { this.shown = !this.shown; this.draw() })
    this.reveal = pill("kv-class-reveal", () => this.link.reveal("drawings", !this.revealed))
    this.node = element("div", { class: "kv-guess-caption kv-classbar", hidden: "" }, this.words, element("div", { class: "kv-controls" }, this.look_, this.reveal))
    this.svg = surface("kv-class-area")
    this.names = element("p", { class: "kv-guess-words" })
    this.over = element("div", { class: "kv-guess", hidden: "" }, element("div", { class: "kv-guess-bar" }, this.names), ...framed(this.svg, element("span", {}, "last")))
    box.append(this.over)
    this.link = new ClassLink((said) => this.take(said))
  }

  take({ role, work }) {
    const revealed = work.revealed.includes("drawings")
    if (revealed !== this.revealed) this.shown = revealed
    Object.assign(this, { role, revealed, drawings: work.drawings })
    this.draw()
  }

  draw() {
    const leads = this.role === "lead"
    const count = this.drawings.length
    this.node.hidden = !count || !(leads || this.revealed)
    this.over.hidden = this.node.hidden || !this.shown
    this.reveal.hidden = !leads
    put(this.words, `${count} ${count === 1 ? "drawing" : "drawings"} of the class`)
    put(this.look_, this.shown ? "Hide the drawings" : "Look at the drawings")
    put(this.reveal, this.revealed ? "Hide from the class" : "Reveal to the class")
    if (this.over.hidden) return
    this.names.replaceChildren("What the class expects: ", ...this.modes().map(([name, title]) => element("b", { style: `border-bottom: 3px solid ${this.look.colour(name)}; margin-right: .6em` }, title)))
    const thin = { "stroke-width": 2, "stroke-dasharray": "none", "stroke-opacity": Math.max(0.2, 0.8 / Math.sqrt(count)) }
    const strokes = this.drawings.flatMap((drawing) => Object.entries(drawing))
    this.svg.replaceChildren(...strokes.map(([mode, heights]) => line(heights.map((h) => (h === null ? null : h / 100)), this.look.colour(mode), thin)))
  }

  close() {
    this.link.close()
  }
}

function pill(testid, pressed) {
  const button = element("button", { type: "button", class: "kv-pill", "data-testid": testid })
  button.onclick = pressed
  return button
}
