// The page's moving parts, as DOM. Everything is updated in place; text from a model is only ever text.

import { element } from "../shared/dom.js"
import { bytes, count, duration, ms, rate, times } from "../shared/format.js"
import { CacheGrid } from "./grid.js"
import { cacheBytes, ended, headline, progress, reservedBytes, watched } from "../shared/state.js"

function put(node, text) {
  if (node.textContent !== text) node.textContent = text
}

// --- what is going on ---------------------------------------------------------------------------------------

export class StatusBar {
  constructor() {
    this.words = element("span", { "data-testid": "kv-status", role: "status" })
    this.left = element("span", { class: "kv-left" })
    this.fill = element("div", { class: "kv-fill" })
    this.bar = element("div", { class: "kv-bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill)
    this.node = element("div", { class: "kv-statusbar" }, element("div", { class: "kv-line" }, this.words, this.left), this.bar)
  }

  draw(state, linked, status) {
    put(this.words, linked ? sentence(state, status) : "Connection lost: trying again")
    const { share, left } = progress(state)
    put(this.left, state.spec && !ended(state) && left !== null ? `about ${duration(Math.max(left, 0.1))} left` : "")
    this.fill.style.width = `${Math.round(100 * (share ?? 0))}%`
    this.bar.setAttribute("aria-valuenow", String(Math.round(100 * (share ?? 0))))
    this.node.dataset.state = state.state
  }
}

function sentence(state, status) {
  const model = state.model ? `${state.model.title}, ${weightsWords(state.model)}` : ""
  if (state.state === "failed") return `Could not be done: ${state.message}`
  if (state.state === "waiting") return status?.worker && status.worker !== "ready" ? workerWords(status.worker) : "Nothing has run yet"
  if (state.state === "queued") {
    if (status?.worker !== "ready" && !status?.held) return workerWords(status?.worker)
    return status.words
  }
  if (state.state === "gone") return "This comparison is no longer here"
  if (state.state === "loading" && state.download) {
    const { bytes: got, of } = state.download
    return got < of ? `Downloading the weights: ${bytes(got)} of ${bytes(of)}` : "Loading the model"
  }
  if (state.state === "loading") return "Loading the model"
  if (state.state === "proof") return `${model} · checking that the modes agree, step ${state.proofSteps} of ${state.spec.new_tokens} (untimed)`
  if (state.state === "memory") return `${model} · asking the allocator what each mode takes (untimed)`
  if (state.state === "measuring") return `${model} · ${passWords(state)}`
  if (state.state === "stopped" && state.message) return `${model ? `${model} · ` : ""}stopped: ${state.message}`
  if (state.state === "stopped" && !model) return "Stopped before it began"
  if (state.state === "stopped") return `${model} · stopped; what was measured stands`
  if (watched(state)) return `${model} · watched from outside: one run, as it was`
  return `${model} · done: ${count(state.spec.repeats)} timed passes of each mode, ${count(state.spec.warmup)} warm-up`
}

export function weightsWords(model) {
  return { random: "random weights (real shapes and times, the text is noise)", bundled: "trained weights that come with kvviz",
           given: "a model of the user's own", local: "weights from a local folder", hub: "weights from the Hugging Face Hub" }[model.weights]
}

function workerWords(worker) {
  return { starting: "The measuring process is starting", restarting: "The measuring process ended; a new one is starting",
           down: "The measuring process can't be started; the server's log says why", off: "The measuring process is off" }[worker] ?? ""
}

function passWords(state) {
  const { mode, repeat } = state.running ?? {}
  const title = state.modes.find((m) => m.name === mode)?.title ?? ""
  return repeat < 0 ? `warm-up pass, ${title}` : `timed pass ${repeat + 1} of ${state.spec.repeats}, ${title}`
}

// --- headline figures ----------------------------------------------------------------------------------------

const COLUMNS = [
  ["Mode", "", ""],
  ["TTFT", "time to first token: the prefill, median of the repeats", "ttft"],
  ["ITL", "inter-token latency: median over the decode steps", "itl"],
  ["p99", "99th percentile of all single decode steps of all repeats", "p99"],
  ["Tokens/s", "new tokens of all sequences over the whole time, prefill included", "rate"],
  ["Per sequence", "tokens per second of one sequence of the batch", "each"],
  ["Whole run", "median over the repeats of the sum of all steps", "total"],
  ["Cache", "bytes of keys and values that the run holds", "cache"],
  ["Speed-up", "whole time of “No cache” over that of this mode", "speedup"],
]

export class Figures {
  constructor(look) {
    this.look = look
    this.badge = element("div", { class: "kv-badge", "data-testid": "kv-badge" })
    this.big = element("div", { class: "kv-big", "data-testid": "kv-speedup" })
    this.body = element("tbody")
    const head = element("tr", {}, ...COLUMNS.map(([title, tip, key]) => element("th", { title: tip, "data-figure": key }, title)))
    this.table = element("table", { class: "kv-figures", "data-testid": "kv-figures" }, element("thead", {}, head), this.body)
    this.node = element("div", { class: "kv-headline" }, element("div", { class: "kv-call" }, this.big, this.badge),
                        element("div", { class: "kv-scroll" }, this.table))
    this.rows = new Map()
  }

  draw(state) {
    if (this.shown !== state.id + state.modes.length) {
      this.shown = state.id + state.modes.length
      this.rows = new Map(state.modes.map((mode) => [mode.name, this.row(mode)]))
      this.body.replaceChildren(...[...this.rows.values()].map((row) => row.node))
    }
    this.node.dataset.batch = String((state.spec?.batch ?? 1) > 1)
    for (const mode of state.modes) this.fill(this.rows.get(mode.name), state, mode)
    this.call(state)
  }

  row(mode) {
    const cells = Object.fromEntries(COLUMNS.slice(1).map(([, , key]) => [key, element("td", { "data-figure": key })]))
    const name = element("th", { scope: "row", title: mode.summary }, element("i", { class: "kv-dot", style: `background:${this.look.colour(mode.name)}` }), mode.title)
    return { node: element("tr", { "data-mode": mode.name }, name, ...Object.values(cells)), cells }
  }

  fill({ cells }, state, mode) {
    const figures = headline(state, mode)
    const last = mode.rows.at(-1)
    put(cells.ttft, ms(figures?.ttft_s))
    put(cells.itl, ms(figures?.itl_s))
    put(cells.p99, ms(figures?.itl_p99_s))
    put(cells.rate, rate(figures?.tokens_per_s))
    put(cells.each, rate(figures?.tokens_per_s ? figures.tokens_per_s / state.spec.batch : null))
    put(cells.total, duration(figures?.total_s))
    put(cells.cache, last ? bytes(cacheBytes(last)) : "–")
    put(cells.speedup, times(figures?.speedup))
  }

  call(state) {
    const best = state.figures?.find((run) => run.mode === "cached" && run.speedup)
    put(this.big, best ? verdict(best.speedup) : "")
    const [words, good] = identity(state)
    put(this.badge, words)
    this.badge.dataset.good = String(good)
  }
}

function verdict(speedup) {
  if (speedup >= 1.05) return `${times(speedup)} faster with the cache`
  return `The cache brings nothing here: ${times(speedup)}`
}

// The proof's sentence: how many tokens agree, and how far the logits are apart; or where they part, and why.
function identity(state) {
  if (watched(state)) return ["watched: one run, nothing to compare with", true]
  const compared = state.modes.filter((m) => m.exact)
  if (compared.length < 2 || !state.proofSteps) return ["", ""]
  const total = ended(state) || state.running ? Math.max(...compared.map((m) => m.tokens.length)) : state.spec.new_tokens
  const delta = Math.max(...compared.map((m) => m.delta ?? 0))
  const size = `max |Δlogit| = ${delta.toExponential(1)}`
  const split = compared.find((m) => m.divergence !== null)
  if (split) return [`First different token: ${split.divergence + 1} of ${total} · ${size} · ${why(split, state)}`, false]
  const same = Math.min(...compared.map((m) => m.tokens.length))
  return [`${same} of ${total} tokens identical · ${size}`, true]
}

function why({ margin, delta }, state) {
  if (margin === null) return "this mode ended at another token"
  const gap = `the two best tokens lay ${margin.toPrecision(2)} apart`
  const precision = state.environment.dtype
  return margin <= 2 * delta ? `${gap}: a near-tie, decided by rounding in ${precision}` : `${gap}: more than rounding explains`
}

// --- the texts -----------------------------------------------------------------------------------------------

export class Texts {
  constructor(look) {
    this.look = look
    this.node = element("div", { class: "kv-texts" })
    this.panels = new Map()
  }

  // `shown` says how many tokens of a mode are to be seen: those of the step looked at, or of the race.
  draw(state, shown) {
    if (this.shown !== state.id + state.modes.length) {
      this.shown = state.id + state.modes.length
      this.panels = new Map(state.modes.map((mode) => [mode.name, this.panel(state, mode)]))
      this.node.replaceChildren(...[...this.panels.values()].map((panel) => panel.node))
    }
    for (const mode of state.modes) {
      const panel = this.panels.get(mode.name)
      this.extend(panel, state, mode)
      this.reveal(panel, Math.min(shown(mode), mode.tokens.length))
    }
  }

  panel(state, mode) {
    const body = element("div", { class: "kv-text", "data-testid": `kv-text-${mode.name}` },
                         element("span", { class: "kv-prompt", title: `prompt, ${state.prompt.tokens} tokens` }, state.prompt.text))
    const head = element("div", { class: "kv-panelhead", style: `border-color:${this.look.colour(mode.name)}` }, mode.title)
    return { node: element("div", { class: "kv-panel" }, head, body), body, done: 0, spans: [], seen: 0 }
  }

  extend(panel, state, mode) {
    for (; panel.done < mode.tokens.length; panel.done++) {
      const token = mode.tokens[panel.done]
      const place = `token ${panel.done + 1}, position ${state.prompt.tokens + panel.done + 1}, id ${token.ids[0]}`
      const span = element("span", { class: "kv-token", title: place }, token.text)
      panel.spans.push(span)
      panel.body.append(span)
      span.hidden = true
    }
  }

  reveal(panel, count) {
    if (panel.seen === count) return
    for (let i = Math.min(panel.seen, count); i < Math.max(panel.seen, count); i++) panel.spans[i].hidden = i >= count
    panel.seen = count
    panel.body.scrollTop = panel.body.scrollHeight
  }
}

// --- the layers ----------------------------------------------------------------------------------------------

const LAYER_COLUMNS = [
  ["Layer", "counted from 0"], ["Kind", "full: keeps every token; sliding: only a window's"],
  ["K shape", "batch, KV heads, tokens held, head dim"], ["V shape", "batch, KV heads, tokens held, head dim"],
  ["Seen", "tokens that have passed"], ["Held", "tokens that are kept"],
  ["nbytes", "bytes of the tokens held"], ["per sequence", "bytes of the tokens held, of one sequence of the batch"],
  ["Allocated", "bytes of the storage that they lie in"],
]

export class LayerTable {
  constructor(look, onPick) {
    this.colours = look
    this.onPick = onPick
    this.tabs = element("div", { class: "kv-tabs", role: "tablist" })
    this.note = element("p", { class: "kv-note", "data-testid": "kv-layers-note" })
    this.body = element("tbody")
    const head = element("tr", {}, ...LAYER_COLUMNS.map(([title, tip]) => element("th", { title: tip }, title)))
    this.table = element("table", { class: "kv-layers", "data-testid": "kv-layers" }, element("thead", {}, head), this.body)
    this.memory = element("div", { class: "kv-memory", "data-testid": "kv-memory" })
    this.grid = new CacheGrid(look)
    this.node = element("div", {}, this.tabs, this.note, this.grid.node, element("div", { class: "kv-scroll kv-tall" }, this.table), this.memory)
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
    put(this.note, row ? held(row, step, watched(this.state)) : "")
    this.grid.draw(this.state, mode, step)
    this.memory.replaceChildren(...(mode?.memory && step === mode.rows.length ? threeFigures(mode) : []))
    const layers = row ? row.layers.flatMap((group) => group.indices.map((index) => ({ ...group, index }))).sort((a, b) => a.index - b.index) : []
    this.table.hidden = !layers.length
    while (this.cells.length < layers.length) this.add()
    while (this.cells.length > layers.length) this.cells.pop()[0].parentNode.remove()
    layers.forEach((layer, i) => this.update(this.cells[i], layer))
  }

  add() {
    const cells = LAYER_COLUMNS.map(() => element("td"))
    this.body.append(element("tr", {}, ...cells))
    this.cells.push(cells)
  }

  update(cells, layer) {
    put(cells[0], String(layer.index))
    put(cells[1], layer.kind)
    shape(cells[2], layer.key_shape, layer.dtype)
    shape(cells[3], layer.value_shape, layer.dtype)
    put(cells[4], count(layer.seen))
    put(cells[5], count(layer.held))
    put(cells[6], bytes(layer.nbytes))
    put(cells[7], layer.key_shape.length ? bytes(layer.nbytes / layer.key_shape[0]) : "–")
    put(cells[8], bytes(layer.allocated))
  }
}

// The axis that grows, the third, stands out.
function shape(cell, sizes, dtype) {
  const text = `[${sizes.join(", ")}]`
  if (cell.textContent === text) return
  cell.title = dtype
  cell.replaceChildren(...sizes.flatMap((n, i) => [i ? ", " : "[", i === 2 ? element("b", {}, String(n)) : String(n)]), "]")
}

function held(row, step, watched) {
  if (!row.layers.length && watched) return `After step ${step}: the model returned no cache object.`
  if (!row.layers.length) {
    return `After step ${step}: no cache object, and of all tensors that the run has made, its logits apart, ${bytes(row.outliving)} are still alive (observed, not assumed).`
  }
  const used = cacheBytes(row)
  const reserved = reservedBytes(row)
  const slack = reserved === used ? "" : ` in storages of ${bytes(reserved)}: room for tokens to come, or the rest of a longer tensor`
  return `After step ${step}: ${bytes(used)} (${count(used)} bytes) of keys and values${slack}.`
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

function peakWords(allocator) {
  if (!allocator) return ""
  const reserved = allocator.reserved ? ` The allocator's reserve from the driver went from ${bytes(allocator.reserved[0])} to ${bytes(allocator.reserved[1])}.` : ""
  return `At most ${bytes(allocator.peak)} above the weights while it ran (${allocator.kind === "profiler" ? "torch.profiler, in an untimed pass" : "torch.cuda, in an untimed pass"}).${reserved}`
}

// --- the step that is looked at ---------------------------------------------------------------------------------

export class StepSlider {
  constructor(onMove) {
    this.slider = element("input", { type: "range", min: 1, max: 1, value: 1, "data-testid": "kv-step", "aria-label": "Step" })
    this.words = element("span", { class: "kv-stepwords" })
    this.node = element("label", { class: "kv-stepbar" }, element("span", {}, "Look at step"), this.slider, this.words)
    this.at = null // null: the newest, as it comes
    this.slider.oninput = () => {
      this.at = Number(this.slider.value) >= this.count ? null : Number(this.slider.value)
      onMove()
    }
  }

  draw(state) {
    if (this.shown !== state.id) {
      this.shown = state.id
      this.at = null
    }
    if (this.wish && this.wish.comparison === state.id) {
      this.at = this.wish.step
      this.wish = null
    }
    this.count = state.proofSteps
    this.node.hidden = !this.count
    this.slider.max = String(Math.max(1, this.count))
    this.slider.value = String(this.upto)
    put(this.words, this.at === null ? `${this.count}, the newest` : `${this.upto} of ${this.count}`)
  }

  // A room's wish: this step of that comparison, as soon as that comparison is shown and has got so far.
  look(wish) {
    this.wish = wish
  }

  get upto() {
    return Math.min(this.at ?? this.count, this.count)
  }
}
