// The cache after a step, layer by layer, and three accounts of its bytes.

import { element, put, scrolled } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { ELSEWHERE, cacheBytes, reservedBytes, watched } from "../shared/state.js"
import { CacheGrid } from "./grid.js"

const LAYER_COLUMNS = [
  ["Layer", "counted from 0"], ["Kind", "full: keeps every token; sliding: only a window's"],
  ["K shape", "batch, KV heads, tokens held, head dim"], ["V shape", "batch, KV heads, tokens held, head dim"],
  ["Seen", "tokens that have passed"], ["Held", "tokens that are kept"],
  ["nbytes", "bytes of the tokens held"], ["per sequence", "bytes of the tokens held, of one sequence of the batch"],
  ["Allocated", "bytes of the storage that they lie in"],
  ["Weights on", "the device that holds the layer's weights"],
]

export class LayerTable {
  constructor(look, onPick) {
    this.colours = look
    this.onPick = onPick
    this.tabs = element("div", { class: "kv-tabs", role: "tablist", "aria-label": "Mode" })
    this.note = element("p", { class: "kv-note", "data-testid": "kv-layers-note" })
    this.body = element("tbody")
    const head = element("tr", {}, ...LAYER_COLUMNS.map(([title, tip]) => element("th", { title: tip }, title)))
    this.table = element("table", { class: "kv-layers", "data-testid": "kv-layers" }, element("thead", {}, head), this.body)
    this.memory = element("div", { class: "kv-memory", "data-testid": "kv-memory" })
    this.grid = new CacheGrid(look)
    this.picture = element("div", {}, this.grid.node, this.note)
    this.where = element("p", { class: "kv-note", "data-testid": "kv-layers-where" })
    this.node = element("div", {}, scrolled("The cache, layer by layer", "kv-scroll kv-tall", this.table), this.where, this.memory)
    this.cells = []
  }

  draw(state, upto) {
    if (this.shown !== state.id + state.modes.length) {
      this.shown = state.id + state.modes.length
      this.mode = state.modes.find((m) => m.name === "cached")?.name ?? state.modes[0]?.name
      this.tabs.replaceChildren(...state.modes.map((mode) => this.tab(mode)))
    }
    if (this.wish?.comparison === state.id && state.modes.some((m) => m.name === this.wish.mode)) {
      this.mode = this.wish.mode
      this.wish = null
    }
    this.state = state
    this.upto = upto
    this.fill()
  }

  tab(mode) {
    const tab = element("button", { type: "button", role: "tab", "data-mode": mode.name }, mode.title)
    tab.style.setProperty("--kv-mode", this.colours.colour(mode.name))
    tab.onclick = () => {
      this.mode = mode.name
      this.fill()
      this.onPick()
    }
    return tab
  }

  // A room's wish: the tab of this mode.
  look(wish) {
    this.wish = wish
  }

  fill() {
    for (const tab of this.tabs.children) tab.setAttribute("aria-selected", String(tab.dataset.mode === this.mode))
    const mode = this.state.modes.find((m) => m.name === this.mode)
    const step = Math.min(this.upto, mode?.rows.length ?? 0)
    const row = mode?.rows[step - 1]
    this.node.dataset.batch = String((this.state.spec?.batch ?? 1) > 1)
    this.node.dataset.split = String(new Set(this.state.model?.layer_devices).size > 1)
    put(this.note, row ? held(row, step, watched(this.state), mode.name) : "")
    put(this.where, row?.layers.length && mode.where ? `Read from: ${mode.where}.` : "")
    this.grid.draw(this.state, mode, step)
    this.memory.replaceChildren(...(mode?.memory && step === mode.rows.length ? threeFigures(mode) : []))
    const layers = row ? row.layers.flatMap((group) => group.indices.map((index) => ({ ...group, index }))).sort((a, b) => a.index - b.index) : []
    this.table.hidden = !layers.length
    while (this.cells.length < layers.length) this.add()
    while (this.cells.length > layers.length) this.cells.pop()[0].parentNode.remove()
    layers.forEach((layer, i) => this.update(this.cells[i], layer, mode.where))
  }

  add() {
    const cells = LAYER_COLUMNS.map(() => element("td"))
    this.body.append(element("tr", {}, ...cells))
    this.cells.push(cells)
  }

  update(cells, layer, where) {
    put(cells[0], String(layer.index))
    put(cells[1], layer.kind)
    shape(cells[2], layer.key_shape, [where?.replace(/\[\d+\]/, `[${layer.index}]`), layer.dtype].filter(Boolean).join(", "))
    shape(cells[3], layer.value_shape, layer.dtype)
    put(cells[4], count(layer.seen))
    put(cells[5], count(layer.held))
    put(cells[6], bytes(layer.nbytes))
    put(cells[7], layer.key_shape.length ? bytes(layer.nbytes / layer.key_shape[0]) : "–")
    put(cells[8], bytes(layer.allocated))
    put(cells[9], this.state.model?.layer_devices?.[layer.index] || "–")
  }
}

// The axis that grows, the third, stands out.
function shape(cell, sizes, title) {
  const text = `[${sizes.join(", ")}]`
  if (cell.textContent === text && cell.title === title) return
  cell.title = title
  cell.replaceChildren(...sizes.flatMap((n, i) => [i ? ", " : "[", i === 2 ? element("b", {}, String(n)) : String(n)]), "]")
}

function held(row, step, watched, name) {
  if (name === ELSEWHERE) return "A server decodes this mode: its cache is not seen from here."
  if (!row.layers.length && row.outliving === null && !watched) return `After step ${step}: this mode hands no cache to its next step. What else stays alive is observed at some steps, and this is none of them.`
  if (!row.layers.length && watched) return `After step ${step}: the model returned no cache object.`
  if (!row.layers.length) {
    return `After step ${step}: no cache object, and of all tensors that the run has made, its logits apart, ${bytes(row.outliving)} are still alive (observed, not assumed).`
  }
  const used = cacheBytes(row)
  const reserved = reservedBytes(row)
  const slack = reserved === used ? "" : ` in storages of ${bytes(reserved)}: room for tokens to come, or the rest of a longer tensor`
  return `After step ${step}: ${bytes(used)} (${count(used)} bytes) of keys and values${shared(row.layers, used)}${slack}.`
}

// How many bytes each token takes and of what, where all layers hold all tokens, and each of them as many bytes.
function shared(groups, used) {
  const tokens = groups[0].held * (groups[0].key_shape[0] ?? 1)
  const alike = groups.every((group) => group.kind === "full" && group.held === groups[0].held)
  if (!alike || !tokens || used % tokens) return ""
  const layers = groups.reduce((all, group) => all + group.indices.length, 0)
  const [, heads, , width] = groups[0].key_shape
  const each = used / tokens / (layers * 2 * heads * width) // bytes of a number, where all keys and values have one shape
  const same = groups.every((group) => [group.key_shape, group.value_shape].every((sizes) => String(sizes) === String(groups[0].key_shape)))
  const factors = same && Number.isInteger(each) ? `, each ${layers} layers × K and V × ${heads} KV heads × head dim ${width} × ${each} bytes` : ""
  return `: ${count(tokens)} tokens (all but the newest, which nothing has read yet) × ${count(used / tokens)} bytes${factors}`
}

// Formula, tensors, allocator: three accounts that know nothing of one another.
function threeFigures(mode) {
  const { formula, tensors, storages, allocator } = mode.memory
  const kept = allocator?.kept ?? null
  const agree = formula === tensors && tensors === storages && (kept === null || kept === storages)
  const figures = [["Formula", formula], ["Tensors", tensors], ["Allocator", kept]]
  const words = figures.map(([name, n]) => `${name} ${n === null ? "not known here" : `${count(n)} B`}`).join(agree ? " = " : " · ")
  const head = element("p", { class: "kv-three", "data-agree": String(agree) }, words)
  const lines = [...(mode.memory.reasons ?? []), peakWords(allocator)]
  return [head, ...lines.filter(Boolean).map((line) => element("p", {}, line))]
}

const WHO_TELLS = { profiler: "torch.profiler", heap: "the engine's own heap" }

function peakWords(allocator) {
  if (!allocator) return ""
  const reserved = allocator.reserved ? ` The allocator's reserve from the driver went from ${bytes(allocator.reserved[0])} to ${bytes(allocator.reserved[1])}.` : ""
  return `At most ${bytes(allocator.peak)} above the weights while it ran (${WHO_TELLS[allocator.kind] ?? "torch.cuda"}, in an untimed pass).${reserved}`
}
