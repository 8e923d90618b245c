// The glossary's search: what is typed leaves only the terms of that name, or, if there are none, the definitions that
// have the words. The list itself is Streamlit's; a term that is left out is only hidden.

import { element, put } from "../shared/dom.js"
import { mounted } from "../shared/mounted.js"

class Search {
  constructor(root, { ways }) {
    this.ways = ways
    this.field = element("input", { type: "search", "data-testid": "kv-search-field", placeholder: "Search the terms", "aria-label": "Search the terms", autocomplete: "off" })
    this.said = element("span", { role: "status", "data-testid": "kv-search-said" })
    this.field.oninput = () => this.look()
    root.replaceChildren(this.field, this.said)
  }

  look() {
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean)
    const has = (text) => words.every((word) => text.toLowerCase().includes(word))
    const terms = [...document.querySelectorAll(".st-key-glossary_terms h3")].map((heading) => new Term(heading, this.ways))
    const named = terms.filter((term) => has(term.names))
    const found = new Set(named.length ? named : terms.filter((term) => has(term.text)))
    for (const term of terms) term.show(found.has(term))
    for (const heading of document.querySelectorAll(".st-key-glossary_terms h2")) {
      const section = heading.closest('[data-testid="stLayoutWrapper"]')
      const link = document.querySelector(`.st-key-glossary_topics a[href="#${heading.id}"]`) // the first block has none
      const none = ![...found].some((term) => section.contains(term.block))
      for (const node of [section, link]) node?.classList.toggle("kv-out", none)
    }
    put(this.said, words.length ? this.words(named.length, found.size, terms.length) : "")
  }

  words(named, found, all) {
    if (named) return `${named} of ${all} terms`
    return found ? `no term has this name; ${found === 1 ? "1 definition has" : `${found} definitions have`} it` : "no term and no definition has this"
  }
}

export const mount = mounted(Search, ".kv-search")

class Term {
  constructor(heading, ways) {
    this.block = heading.closest('[data-testid="stVerticalBlock"]')
    this.text = this.block.textContent
    this.names = ways[heading.id].join(" ")
  }

  show(shown) {
    this.block.parentElement.classList.toggle("kv-out", !shown)
  }
}
