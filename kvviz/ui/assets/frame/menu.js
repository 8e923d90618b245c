// The navigation: its links lead to a page without loading the document again, and where the screen is too narrow for
// its row it is a menu (`pages.css`), whose button names the page that is open.

import { element, put } from "../shared/dom.js"

const OPEN = document.documentElement.dataset
const LINKS = ".kv-nav a"

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

  clicked(event) {
    if (this.button.contains(event.target)) return
    this.show(false)
    const link = event.target.closest?.(LINKS)
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    for (const each of document.querySelectorAll(LINKS)) each.removeAttribute("aria-current")
    link.setAttribute("aria-current", "page")
    this.look()
    history.pushState({}, "", link.href)
    window.dispatchEvent(new PopStateEvent("popstate")) // upon which Streamlit draws the page that the address names
  }

  // The page's link: its name on the button, and in sight where the row is cut off.
  look() {
    const link = document.querySelector(`${LINKS}[aria-current="page"]`)
    if (!link || link === this.link) return
    this.link = link
    put(this.page, link.textContent)
    this.button.setAttribute("aria-label", `Menu, at ${link.textContent}`)
    link.scrollIntoView({ block: "nearest", inline: "center" })
  }
}
