// What the frame adds to every page, whatever Streamlit mounts and unmounts: words explained, a menu on a
// narrow screen, a history that leads back.

import { element, idle, styled } from "../shared/dom.js"
import { rehearse } from "../shared/plotly.js"
import { Glossary } from "./glossary.js"
import { History } from "./history.js"
import { Menu } from "./menu.js"

const LOOK_MS = 1000
const PREPARE_MS = 200
const PLOT = "../shared/plot.js"
const DRAWN = '[data-test-script-state="notRunning"] [data-testid="stMain"]'
const RUNNING = '.kv-live:is([data-state="looking"], [data-state="proof"], [data-state="memory"], [data-state="measuring"])'

const SCROLLS = '.katex-display, .kv-source, [data-testid="stMarkdownContainer"]:has(> table)' // what may be wider than the screen, and is within reach of the keyboard then

const ALSO = ".kv-scroll, .kv-datascroll, .kv-steps, .kv-lanebox, .kv-code" // they make themselves reachable
const TABLE = '[data-testid="stDataFrame"] .dvn-scroller'
const FADE_PX = 48 // of the edge, as frame.css has it
const TABS = '[class*="st-key-tabs_"] [role="radiogroup"]'

let frame = null

export function mount({ data, parentElement }) {
  frame ??= new Frame(data)
  parentElement.querySelector(".kv-frame").append(...frame.nodes)
}

class Frame {
  constructor({ assets, glossary, later }) {
    Object.assign(this, { later, loaded: new Set() })
    for (const name of ["frame", "pages"]) styled(`${assets}/frame/${name}.css`)
    this.parts = [new Glossary(glossary), new Menu(), new History()]
    this.nodes = this.parts.flatMap((part) => part.nodes) // in the component's element, where the theme's colours are
    setInterval(() => this.look(), LOOK_MS)
    setInterval(() => this.prepare(), PREPARE_MS)
    this.look()
  }

  // While a run is on the page nothing is looked at: its figures are worth more than a word's definition.
  look() {
    const page = document.querySelector('[data-testid="stMain"]')
    if (!page || document.hidden || page.querySelector(RUNNING)) return
    for (const part of this.parts) part.look(page)
    for (const node of page.querySelectorAll(SCROLLS)) reachable(node)
    for (const node of page.querySelectorAll(`${SCROLLS}, ${ALSO}, ${TABLE}, ${TABS}`)) edge(node)
    for (const tab of page.querySelectorAll(`${TABS} [aria-checked="true"]`)) sighted(tab)
  }

  // Loads, one script after another, what a click on this page or the next page will need, once the page is drawn.
  prepare() {
    if (document.hidden || !document.querySelector(DRAWN) || document.querySelector(RUNNING)) return
    const needed = [PLOT, ...(this.later[location.pathname.slice(1)] ?? [])]
    const next = needed.find((url) => !this.loaded.has(url))
    if (!next) return
    this.loaded.add(next)
    idle(() => (next === PLOT ? import(PLOT).then(rehearse) : import(next)).catch(() => {})) // the click itself tries again
  }
}

// Says of what scrolls sideways whether more lies to the right, where its edge fades; of a table its frame, whose canvas
// lies beneath what scrolls.
function edge(node) {
  const framed = node.matches(TABLE) ? node.closest('[data-testid="stDataFrame"]') : node
  const more = node.scrollWidth - node.clientWidth - node.scrollLeft > 4
  if (framed.dataset.kvMore !== String(more)) framed.dataset.kvMore = String(more)
  node.onscroll ??= () => edge(node)
}

// Scrolls a row of tabs to the selected one, once for each selection: the reader may scroll on from there.
function sighted(tab) {
  const row = tab.closest('[role="radiogroup"]')
  if (row.kvSelected === tab) return
  row.kvSelected = tab
  const [room, box] = [row.getBoundingClientRect(), tab.getBoundingClientRect()]
  if (box.left < room.left || box.right > room.right - FADE_PX) row.scrollLeft += box.left - room.left - (room.width - box.width) / 2
}

function reachable(node) {
  if (node.scrollWidth > node.clientWidth) node.setAttribute("tabindex", "0")
  else node.removeAttribute("tabindex")
}
