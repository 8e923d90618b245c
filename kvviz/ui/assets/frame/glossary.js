// Explains the field's words where they stand: the first of each in every section of the page becomes a small button
// with its definition, on hover, tap and focus. Only the first of the page is underlined, so that no text is all dots.
//
// The texts are React's. A text node of its is shortened and never moved, and what follows it is put behind it; where
// React changes or takes away such a node, what was put behind it goes as well.

import { element } from "../shared/dom.js"

const TEXTS = ':is([data-testid="stMarkdownContainer"], [data-testid="stCaptionContainer"]) :is(p, li, td, th), .kv-words, .kv-live thead th'
const HEADINGS = "h1, h2, h3"
const APART = 'a, button, label, summary, code, pre, [role="button"], [role="status"], [data-testid="stDialog"], .katex, h1, h2, h3, h4, h5, h6, .kv-definition, .st-key-glossary_terms'

const SETTLED_MS = 500 // after which the page above a heading has its final shape

export class Glossary {
  constructor({ pattern, names, terms }) {
    Object.assign(this, { pattern: new RegExp(pattern, "g"), names, terms, marks: new Map() })
    const described = Object.entries(terms).map(([name, [, says]]) => element("div", { id: `kv-says-${name}` }, says))
    this.says = element("span")
    this.link = element("a", { target: "_blank", rel: "noopener" }, "Glossary")
    this.box = element("div", { class: "kv-definition", role: "tooltip", "data-testid": "kv-definition", hidden: "" },
                       this.says, " ", this.link)
    this.nodes = [this.box, element("div", { hidden: "" }, ...described)]
    this.changed = new MutationObserver(() => this.mend())
    this.asked = location.hash.slice(1) // the term that the address leads to
    const over = (event) => event.target.closest?.(".kv-term, .kv-definition")
    document.addEventListener("pointerover", (event) => event.pointerType === "mouse" && this.hover(over(event)))
    document.addEventListener("focusin", (event) => this.point(over(event)))
    document.addEventListener("click", (event) => this.point(over(event)))
    document.addEventListener("keydown", (event) => this.key(event), true)
    document.addEventListener("scroll", () => this.place(), true)
  }

  // --- where the words stand -------------------------------------------------------------------------------------

  look(page) {
    this.mend()
    this.lead(page)
    let told = new Set()
    for (const node of page.querySelectorAll(`${HEADINGS}, ${TEXTS}`)) {
      if (node.matches(HEADINGS)) told = new Set()
      else this.read(node, told)
    }
    const met = new Set()
    for (const mark of page.querySelectorAll(".kv-term")) {
      const again = String(met.has(mark.dataset.term))
      if (mark.dataset.again !== again) mark.dataset.again = again
      met.add(mark.dataset.term)
    }
  }

  // Streamlit goes to a heading as soon as it is there, and the page above it has not got its columns then.
  lead(page) {
    const heading = this.asked && page.querySelector(`.st-key-glossary_terms [id="${CSS.escape(this.asked)}"]`)
    if (!heading) return
    setTimeout(() => heading.scrollIntoView(), SETTLED_MS)
    this.asked = ""
  }

  read(node, told) {
    for (const mark of node.querySelectorAll(".kv-term")) told.add(mark.dataset.term)
    if (node.kvRead === node.textContent) return
    if (node.closest(APART) || node.querySelector(TEXTS)) return
    node.kvRead = node.textContent
    const texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT)
    const found = []
    while (texts.nextNode()) if (!texts.currentNode.parentElement.closest(`${APART}, .kv-term`)) found.push(texts.currentNode)
    for (const text of found) this.mark(text, told)
    this.changed.observe(node, { childList: true, characterData: true, subtree: true })
  }

  mark(text, told) {
    const whole = text.data
    const behind = []
    let end = 0
    let kept = null
    for (const match of whole.matchAll(this.pattern)) {
      const name = this.named(match[0])
      if (told.has(name)) continue
      told.add(name)
      const before = whole.slice(end, match.index)
      if (kept === null) kept = before
      else if (before) behind.push(document.createTextNode(before))
      behind.push(this.term(name, match[0]))
      end = match.index + match[0].length
    }
    if (!behind.length) return
    if (end < whole.length) behind.push(document.createTextNode(whole.slice(end)))
    text.data = kept
    text.after(...behind)
    this.marks.set(text, { kept, behind, parent: text.parentNode })
    this.changed.takeRecords()
  }

  named(words) {
    const way = words.toLowerCase().replace(/\s+/g, " ")
    return this.names[way] ?? this.names[way.replace(/s$/, "")]
  }

  term(name, words) {
    return element("span", { class: "kv-term", role: "button", tabindex: "0", "data-term": name, "aria-expanded": "false",
                             "aria-describedby": `kv-says-${name}` }, words)
  }

  // Takes back what was put behind a text that is no longer what it was.
  mend() {
    for (const [text, { kept, behind, parent }] of this.marks) {
      if (text.data === kept && text.parentNode === parent && parent.isConnected) continue
      this.marks.delete(text)
      for (const node of behind) node.remove()
    }
    this.changed.takeRecords()
  }

  // --- what they mean --------------------------------------------------------------------------------------------

  // A pointer that leaves a word closes what it has opened, and nothing that a key or a tap has.
  hover(node) {
    if (!node && !this.hovered) return
    this.point(node)
    this.hovered = Boolean(node)
  }

  point(node) {
    if (node === this.box) return
    this.hovered = false
    this.shown?.setAttribute("aria-expanded", "false")
    this.shown = node
    this.box.hidden = !node
    if (!node) return
    node.setAttribute("aria-expanded", "true")
    this.says.textContent = this.terms[node.dataset.term][1]
    this.link.href = `/glossary#${node.dataset.term}`
    this.place()
  }

  // Right below the word, or above it where the window ends: no gap, so that the pointer can go from one to the other.
  place() {
    const at = this.shown?.getClientRects()[0]
    if (!at) return
    const width = this.box.offsetWidth
    const height = this.box.offsetHeight
    this.box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`
    this.box.style.top = `${at.bottom + height + 8 < innerHeight ? at.bottom : at.top - height}px`
  }

  key(event) {
    if (event.key === "Escape" && this.shown) this.point(null)
    if (["Enter", " "].includes(event.key) && event.target.matches?.(".kv-term")) {
      event.preventDefault()
      this.point(event.target === this.shown ? null : event.target)
    }
  }
}
