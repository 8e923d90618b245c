// The step that the page shows.

import { element, put } from "../shared/dom.js"

export class StepSlider {
  constructor(onMove) {
    this.slider = element("input", { type: "range", min: 1, max: 1, value: 1, "data-testid": "kv-step", "aria-label": "Step" })
    this.words = element("span", { class: "kv-stepwords" })
    this.node = element("label", { class: "kv-stepbar" }, element("span", {}, "Look at step"), this.slider, this.words)
    this.at = null // null: the newest, as it comes
    this.slider.oninput = () => {
      this.at = Number(this.slider.value) >= this.count ? null : Number(this.slider.value)
      onMove()
    }
  }

  draw(state) {
    if (this.shown !== state.id) {
      this.shown = state.id
      this.at = null
    }
    if (this.wish && this.wish.comparison === state.id) {
      this.at = this.wish.step
      this.wish = null
    }
    this.count = state.steps
    this.node.hidden = !this.count
    this.slider.max = String(Math.max(1, this.count))
    this.slider.value = String(this.upto)
    put(this.words, this.at === null ? `${this.count}, the newest` : `${this.upto} of ${this.count}`)
  }

  // A room's wish: this step of that comparison, as soon as that comparison is shown and has got so far.
  look(wish) {
    this.wish = wish
  }

  get upto() {
    return Math.min(this.at ?? this.count, this.count)
  }
}
