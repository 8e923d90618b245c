// The step and mode that the page shows, as a room sees them: a leader's page reports them with the event "kv-looked", a
// follower's page is led to them by "kv-look".

export class Viewpoint {
  constructor(root, slider, layers, redraw) {
    Object.assign(this, { root, slider, layers, byHand: false, reported: null, reportedOf: null })
    this.onLook = (event) => {
      slider.look(event.detail)
      layers.look(event.detail)
      redraw()
    }
    document.addEventListener("kv-look", this.onLook)
  }

  movedByHand() {
    this.byHand = true
  }

  // `own`: a hand has moved the slider; `fresh`: another comparison has just appeared.
  report(comparison) {
    const own = this.byHand
    this.byHand = false
    const step = this.slider.at === null ? "" : String(this.slider.at)
    const mode = this.layers.mode ?? ""
    const seen = `${comparison} ${step} ${mode}`
    if (this.reported === seen && !own) return
    const fresh = this.reportedOf !== comparison
    Object.assign(this, { reported: seen, reportedOf: comparison })
    Object.assign(this.root.dataset, { step, mode })
    document.dispatchEvent(new CustomEvent("kv-looked", { detail: { own, fresh } }))
  }

  close() {
    document.removeEventListener("kv-look", this.onLook)
  }
}
