// How a part of a page hears of its class: the room answers by an event, when there is news and when it is asked.

export class ClassLink {
  // `hear` is given { role, code, work }: the tab's role in its room, and what of the class's work it may show.
  constructor(hear) {
    this.heard = (event) => hear(event.detail)
    document.addEventListener("kv-class", this.heard)
    document.dispatchEvent(new CustomEvent("kv-class-asked"))
  }

  reveal(what, shown) {
    document.dispatchEvent(new CustomEvent("kv-reveal", { detail: { what, shown } }))
  }

  close() {
    document.removeEventListener("kv-class", this.heard)
  }
}
