// The static edition: a few of kvviz's pages without a server. What they show is in data.json; the rest is computed here.

import { mount as anatomy } from "../anatomy/anatomy.js"
import { mount as live } from "../live/live.js"
import { element, put, scrolled } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"
import { memory, weightBytes } from "./calculator.js"
import { ending } from "./figures.js"

const ASSETS = "assets"
const MOST_NEW_TOKENS = 512
const LONGEST_PROMPT = 4000 // characters
const MOST_TOKENS = 10_000_000, MOST_SEQUENCES = 4096 // of the calculator: bytes stay whole numbers in JavaScript
const pages = { start: "Start", live: "Live", anatomy: "Anatomy", memory: "Memory" }

const OPENINGS = { // of pages that do less here
  anatomy: "Walk with **Next** through a few tokens that a model writes. Where does each row that the layer keeps come from? Press **No cache** and walk again.",
  memory: "For every token that a model has read, each layer keeps one **key** and one **value** per KV head. Pick a model, and see how much that is.",
}

const asked = new URLSearchParams(location.search)
const data = await (await fetch("data.json")).json()
const here = asked.get("page") in pages ? asked.get("page") : asked.has("prompt") || asked.has("embed") ? "live" : "start"
const page = document.querySelector("#page")

const link = (query, words, more = {}) => element("a", { href: `?${new URLSearchParams(query)}`, ...more }, words)
const marked = (text) => text.split("**").map((part, i) => (i % 2 ? element("b", {}, part) : part))
const titled = (name) => [element("h1", {}, data.pages[name].title), element("p", { class: "kv-words" }, ...marked(OPENINGS[name] ?? data.pages[name].opening))]
const place = (kind, wide = "") => element("div", {}, element("div", { class: `${kind} ${wide}`, "data-testid": kind }))
const field = (words, node) => element("label", { class: "kv-field" }, element("span", {}, words), node)
const options = (rows, chosen) => rows.map(([value, words]) => element("option", { value, ...(value === chosen ? { selected: "" } : {}) }, words))

// A whole number in the address; the usual one where there is none that fits.
function whole(name, usual, most) {
  const given = asked.get(name) ?? ""
  return /^\d{1,9}$/.test(given) && Number(given) >= 1 && Number(given) <= most ? Number(given) : usual
}

const DRAWN = {
  start() {
    page.append(...titled("start"), element("h2", { id: "tour" }, "A tour of this edition"),
      element("ol", { class: "kv-stops", "data-testid": "kv-stops" }, ...data.tour.map((stop, i) => element("li", {}, link({ ...stop.query, page: stop.page, tour: i + 1 }, stop.title), element("p", {}, stop.say)))),
      element("p", { class: "kv-words" }, `This edition measures in your own browser and asks no server: ${data.model.title} comes with it. kvviz itself, with a server, ` +
        "measures other models and devices, shows how engines serve many users, and leads a class."))
  },

  live() {
    const prompt = element("textarea", { rows: "2", maxlength: String(LONGEST_PROMPT), "aria-label": "Prompt" })
    prompt.value = (asked.get("prompt") ?? "").slice(0, LONGEST_PROMPT) || data.order.spec.prompt
    const tokens = element("input", { type: "number", min: "2", max: String(MOST_NEW_TOKENS), value: String(Math.max(2, whole("new_tokens", 64, MOST_NEW_TOKENS))), "aria-label": "New tokens" })
    const run = element("button", { type: "submit", class: "kv-start" }, "Run")
    const stop = element("button", { type: "button", class: "kv-pill", disabled: "" }, "Stop")
    const said = element("p", { class: "kv-problem", role: "alert" })
    const form = element("form", { class: "kv-form" }, field("Prompt", prompt), field("New tokens", tokens), element("div", { class: "kv-presses" }, run, stop))
    const view = place("kv-live")
    let last = {}
    const shown = (more = last) => live({ data: { ...data.look, assets: ASSETS, recording: `${ASSETS}/live/recording.json.gz`, takes: "", guess: { new_tokens: Number(tokens.value), modes: data.order.modes.map((m) => [m.name, m.title]) }, ends, ...(last = more) }, parentElement: view, setTriggerValue: () => {} })
    // What a run's end shows: the figures of its records, or why there are none.
    const ends = ({ records, failed }) => {
      stop.disabled = true
      return failed ? [] : ending(records, data.student)
    }
    form.onsubmit = (event) => {
      event.preventDefault()
      const newTokens = Number(tokens.value)
      const problem = !prompt.value ? "The prompt is empty; type at least one character." : !Number.isInteger(newTokens) || newTokens < 2 || newTokens > MOST_NEW_TOKENS ? `New tokens are a whole number from 2 to ${MOST_NEW_TOKENS}.` : ""
      put(said, problem)
      if (problem) return
      const id = String(performance.now())
      stop.disabled = false
      shown({ browser: { ...data.order, id, spec: { ...data.order.spec, prompt: prompt.value, new_tokens: newTokens } } })
    }
    stop.onclick = () => {
      stop.disabled = true
      shown({ kept: true })
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown()) // in the other colours
    page.append(...(embedded ? [] : titled("live")), form, said, view)
    shown({ kept: true })
  },

  anatomy() {
    page.append(...titled("anatomy"))
    if (asked.get("tour") === "1") page.append(letters())
    const view = place("kv-anatomy", "kv-live")
    page.append(view)
    anatomy({ data: { look: null, records: data.anatomy, head: 0, assets: ASSETS, listing: data.listing }, parentElement: view, setTriggerValue: () => {} })
  },

  memory: calculator,
}

// Four letters, no numbers: Back and Next through the lines, and the cache as boxes.
function letters() {
  let at = 0
  const code = element("pre", { class: "kv-code" })
  const words = element("p", { class: "kv-words", "aria-live": "polite", "data-testid": "kv-letters" })
  const [back, next] = [["Back", -1], ["Next", 1]].map(([name, by]) => {
    const button = element("button", { type: "button", class: "kv-pill" }, name)
    button.onclick = () => { at += by; draw() }
    return button
  })
  const draw = () => {
    const moment = data.letters[at]
    back.disabled = at === 0
    next.disabled = at === data.letters.length - 1
    put(code, data.letters.slice(0, at + 1).map((one) => one.line).join("\n"))
    const query = moment.query ? ` The query: ${moment.query}.` : ""
    put(words, `${moment.words[0].toUpperCase()}${moment.words.slice(1)}. The cache: ${moment.cache.join(" ") || "empty"}.${query}${moment.context ? ` What it makes of them: ${moment.context}.` : ""}`)
  }
  draw()
  return element("section", { class: "kv-box" }, element("h2", {}, "Four letters, no numbers"), element("div", { class: "kv-presses" }, back, next), code, words)
}

// --- the memory calculator -------------------------------------------------------------------------------------

function calculator() {
  const known = Object.fromEntries(data.models.map((model) => [model.id, model]))
  const first = (asked.get("models") ?? asked.get("model") ?? "").split(",")[0]
  const select = (rows, chosen, label) => element("select", { "aria-label": label }, ...options(rows, chosen))
  const number = (name, usual, most, label) => element("input", { type: "number", min: "1", max: String(most), value: String(whole(name, usual, most)), "aria-label": label })
  const model = select(data.models.map(({ id, title }) => [id, title]), first in known ? first : "llama-3.1-8b", "Model")
  const tokens = number("tokens", 8192, MOST_TOKENS, "Tokens in the cache")
  const batch = number("batch", 1, MOST_SEQUENCES, "Sequences")
  const dtype = select(Object.values(data.precisions).map(({ name, title }) => [name, title]), asked.get("dtype") ?? "bfloat16", "Stored as")
  const weights = select(Object.keys(data.weight_bits).map((name) => [name, name]), "bfloat16", "Weights")
  const view = select(Object.entries(data.views).map(([name, { title }]) => [name, title]), asked.get("view") ?? "architecture", "Whose bytes")
  const out = element("div", { "aria-live": "polite", "data-testid": "kv-answer" })
  const fields = [["Model", model], ["Tokens in the cache", tokens], ["Sequences", batch], ["The cache is stored as", dtype], ["Weights", weights], ["Whose bytes", view]]
  const draw = () => {
    const problem = fit(tokens, MOST_TOKENS, "Tokens in the cache") || fit(batch, MOST_SEQUENCES, "Sequences")
    if (problem) return out.replaceChildren(element("p", { class: "kv-problem", role: "alert" }, problem))
    const question = { tokens: Number(tokens.value), batch: Number(batch.value), dtype: dtype.value, view: view.value }
    out.replaceChildren(...answered(known[model.value], question, weights.value))
  }
  const form = element("form", { class: "kv-form" }, ...fields.map(([words, node]) => field(words, node)))
  form.oninput = draw
  form.onsubmit = (event) => event.preventDefault()
  page.append(...titled("memory"), form, out)
  draw()
}

function fit({ value }, most, name) {
  return /^\d+$/.test(value) && Number(value) >= 1 && Number(value) <= most ? "" : `${name}: take a whole number from 1 to ${count(most)}.`
}

function answered(model, question, weights) {
  const found = memory(model, question, data)
  if (found.problem) return [element("p", { class: "kv-problem", role: "alert" }, `No answer for ${model.title}: ${found.problem}.`)]
  const held = model.params === null ? null : weightBytes(model.params, data.weight_bits[weights])
  const facts = [["KV cache", bytes(found.total_bytes), `${count(found.total_bytes)} bytes`], ["one more token", bytes(found.per_token_bytes), "over all layers and sequences"],
    ...(held === null ? [] : [["weights", bytes(held), `${count(model.params)} parameters in ${weights}`]]),
    ...(found.reserved_bytes === found.total_bytes ? [] : [["reserved", bytes(found.reserved_bytes), "what is allocated"]])]
  return [
    element("dl", { class: "kv-facts" }, ...facts.map(([name, value, more]) => element("div", {}, element("dt", {}, name), element("dd", {}, value), element("small", {}, more)))),
    ...found.notes.map((note) => element("p", { class: "kv-words" }, note)),
    element("p", { class: "kv-words" }, `${data.views[question.view].title}. ${data.views[question.view].rule}`),
    element("h2", {}, "Layer by layer"), table(["layers", "kind", "KV heads", "key dim", "value dim", "window", "tokens held", "bytes of each"], groups(found.layers)),
    element("h2", {}, "All models of the catalog, at as many tokens"),
    table(["model", "KV cache", "one more token", "weights"], everyModel(question, weights)),
  ]
}

// Layers that are alike, in one row.
function groups(layers) {
  const found = new Map()
  for (const layer of layers) {
    const { index, kind, kv_heads: heads, key_dim: key, value_dim: value, window, held, nbytes } = layer
    const row = [kind, heads, key, value, window ?? "–", count(held), bytes(nbytes)]
    const group = found.get(row.join()) ?? { row, indices: [] }
    group.indices.push(index)
    found.set(row.join(), group)
  }
  return [...found.values()].map(({ row, indices }) => [indices.length === 1 ? String(indices[0]) : `${indices.length}: ${indices[0]} … ${indices.at(-1)}`, ...row])
}

function everyModel(question, weights) {
  const rows = data.models.map((model) => [model, memory(model, question, data)]).filter(([, found]) => !found.problem)
  rows.sort(([, one], [, other]) => other.total_bytes - one.total_bytes)
  return rows.map(([model, found]) => [model.title, bytes(found.total_bytes), bytes(found.per_token_bytes), model.params === null ? "–" : bytes(weightBytes(model.params, data.weight_bits[weights]))])
}

function table(head, rows) {
  return scrolled(head.join(", "), "kv-datascroll", element("table", { class: "kv-table" },
    element("thead", {}, element("tr", {}, ...head.map((words) => element("th", { scope: "col" }, words)))),
    element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells.map((cell, i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, String(cell))))))))
}

// --- the frame ---------------------------------------------------------------------------------------------------

function tourBar(number) {
  const stop = data.tour[number - 1]
  const way = (to, words) => link({ ...data.tour[to - 1].query, page: data.tour[to - 1].page, tour: to }, words, { class: "kv-pill" })
  return element("aside", { class: "kv-box kv-tour", "data-testid": "kv-tour" },
    element("p", {}, element("b", {}, `${number} of ${data.tour.length} · ${stop.title}. `), stop.say, element("br"), ...marked(stop.press), " ", stop.notice),
    element("div", { class: "kv-presses" }, ...(number > 1 ? [way(number - 1, "Back")] : []), ...(number < data.tour.length ? [way(number + 1, "Next")] : []), link({ page: "start" }, "Leave", { class: "kv-pill" })))
}

const embedded = asked.has("embed")
const nav = document.querySelector("#nav")
nav.hidden = embedded
nav.append(element("b", {}, "kvviz"), ...Object.entries(pages).map(([name, words]) => link({ page: name }, words, name === here ? { "aria-current": "page" } : {})))
const stop = whole("tour", 0, data.tour.length)
page.replaceChildren(...(stop ? [tourBar(stop)] : []))
DRAWN[here]()
