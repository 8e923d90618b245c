// The navigation as a menu, where the screen is too narrow for its row (`pages.css`). The button names the
// page that is open.

import { element, put } from "../shared/dom.js"

const OPEN = document.documentElement.dataset

export class Menu {
  constructor() {
    this.page = element("span", {}, "Menu")
    this.button = element("button", { type: "button", class: "kv-menu", "aria-label": "Menu", "data-testid": "kv-menu" }, "☰ ", this.page)
    this.button.onclick = () => this.show(OPEN.kvMenu === undefined)
    this.nodes = [this.button]
    this.show(false)
    document.addEventListener("click", (event) => this.clicked(event))
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.show(false))
  }

  show(open) {
    if (open) OPEN.kvMenu = ""
    else delete OPEN.kvMenu
    this.button.setAttribute("aria-expanded", String(open))
    const ground = getComputedStyle(this.button).backgroundColor
    document.documentElement.style.setProperty("--kv-menu-ground", ground)
  }

  clicked({ target }) {
    if (this.button.contains(target)) return
    this.show(false)
    const link = target.closest?.(".st-key-nav a")
    if (link) this.name(link)
  }

  look() {
    const link = document.querySelector('.st-key-nav a[aria-current="page"]')
    if (link) this.name(link)
  }

  name(link) {
    put(this.page, link.textContent)
    this.button.setAttribute("aria-label", `Menu, at ${link.textContent}`)
  }
}
