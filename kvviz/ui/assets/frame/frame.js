// What the frame adds to every page, whatever Streamlit mounts and unmounts: words explained, figures behind charts,
// a menu on a narrow screen, a history that leads back.

import { element, styled } from "../shared/dom.js"
import { ChartTables } from "./chart_table.js"
import { Glossary } from "./glossary.js"
import { History } from "./history.js"
import { Menu } from "./menu.js"

const LOOK_MS = 1000
const RUNNING = '.kv-live:is([data-state="looking"], [data-state="proof"], [data-state="memory"], [data-state="measuring"])'

const SCROLLS = `.katex-display, .kv-source, [class*="st-key-wide_"]` // what may be wider than the screen, and is within reach of the keyboard then

const TABLE = '[data-testid="stDataFrame"] .dvn-scroller'

let frame = null

export function mount({ data, parentElement }) {
  frame ??= new Frame(data)
  parentElement.querySelector(".kv-frame").append(...frame.nodes)
}

class Frame {
  constructor({ assets, glossary }) {
    for (const name of ["frame", "pages"]) styled(`${assets}/frame/${name}.css`)
    this.parts = [new Glossary(glossary), new ChartTables(), new Menu(), new History()]
    this.nodes = this.parts.flatMap((part) => part.nodes) // in the component's element, where the theme's colours are
    setInterval(() => this.look(), LOOK_MS)
    this.look()
  }

  // While a run is on the page nothing is looked at: its figures are worth more than a word's definition.
  look() {
    const page = document.querySelector('[data-testid="stMain"]')
    if (!page || document.hidden || page.querySelector(RUNNING)) return
    for (const part of this.parts) part.look(page)
    for (const node of page.querySelectorAll(SCROLLS)) reachable(node)
    for (const node of page.querySelectorAll(`${SCROLLS}, ${TABLE}`)) edge(node)
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

function reachable(node) {
  if (node.scrollWidth > node.clientWidth) node.setAttribute("tabindex", "0")
  else node.removeAttribute("tabindex")
}
