// One entry of the browser's history for each step of a visitor, so that Back leads to where one was.
//
// Streamlit makes more: a link to another page first puts that page's query on the page that is left, and a page that
// writes its address out in full adds an entry that nobody asked for. Back would lead to these.

export class History {
  constructor() {
    this.nodes = []
    this.touched = false // a hand has done something since this page came
    this.leaving = false // a link has been clicked, and the page has not changed yet
    this.halfway = false // the newest entry has this page's path with the next one's query
    const push = history.pushState.bind(history)
    const replace = history.replaceState.bind(history)
    history.pushState = (state, title, url) => (this.adds(new URL(url ?? "", location.href)) ? push : replace)(state, title, url)
    for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, () => Object.assign(this, { touched: true, leaving: false, halfway: false }), true)
    document.addEventListener("click", (event) => { this.leaving = Boolean(event.target.closest?.('[data-testid="stPageLink-NavLink"]')) }, true)
    window.addEventListener("popstate", () => Object.assign(this, { touched: false, leaving: false, halfway: false }))
  }

  look() {}

  // Whether an address gets an entry of its own, or takes the place of the newest one.
  adds(to) {
    if (to.pathname !== location.pathname) {
      const adds = !this.halfway
      Object.assign(this, { touched: false, leaving: false, halfway: false })
      return adds
    }
    if (this.leaving) {
      const adds = !this.halfway
      this.halfway = true
      return adds
    }
    return this.touched
  }
}
