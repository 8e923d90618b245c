// The memory of one policy at a moment: a cell a block, with the request that has it, and how much of it is filled.

import { element, put } from "../shared/dom.js"
import { blocksOf, colourOf } from "./served.js"

export class Blocks {
  // `choose(request)`: somebody wants to see the owner of a block.
  constructor(choose) {
    this.choose = choose
    this.node = element("div", { class: "kv-blocks", "data-testid": "kv-blocks", role: "img" })
  }

  draw(picture, count, size, request) {
    if (this.node.children.length !== count) {
      this.node.replaceChildren(...Array.from({ length: count }, () => element("span", {})))
    }
    const held = blocksOf(picture)
    for (const [block, cell] of [...this.node.children].entries()) this.cell(cell, block, held.get(block), size, request)
    const used = [...held.values()].filter(({ owners }) => owners.length).length
    this.node.setAttribute("aria-label", `${used} of ${count} blocks are in use`)
  }

  cell(cell, block, held, size, request) {
    const owners = held?.owners ?? []
    const state = !held ? "free" : !owners.length ? "kept" : owners.length > 1 ? "shared" : "full"
    put(cell, owners.length > 1 ? `×${owners.length}` : owners.length ? String(owners[0]) : "")
    Object.assign(cell.dataset, { state, low: String(owners.length > 0 && 2 * held.filled <= size), picked: String(request !== null && owners.includes(request)) })
    cell.style.setProperty("--kv-colour", state === "full" ? colourOf(owners[0]) : `var(--kv-${state})`)
    cell.style.setProperty("--kv-filled", `${owners.length ? (100 * held.filled) / size : 100}%`)
    const whose = { free: "free", kept: "free, and the same prefix would hit it again", full: `request ${owners[0]}'s`, shared: `shared by requests ${owners.join(", ")}` }
    cell.title = `block ${block}: ${whose[state]}${owners.length ? `, ${held.filled} of ${size} slots filled` : ""}`
    cell.onclick = owners.length ? () => this.choose(owners.at(-1)) : null
  }
}
