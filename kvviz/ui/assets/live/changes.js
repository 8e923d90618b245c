// What the cache changes and what it leaves as it was: the first token, the later ones and the memory, the modes side by side.

import { element } from "../shared/dom.js"
import { bytes, count, ms, rough, unitOf } from "../shared/format.js"
import { cacheBytes, curve, ended, headline, mark, median } from "../shared/state.js"
import { ends, FEWEST, nearly } from "./shapes.js"

const MANY_UNITS = 1e5 // of a unit, beyond which a larger one is easier to read
const MOST = 3 // modes that stand side by side
const ALIKE = 1.25 // times: first tokens whose medians differ by less are no news

export class Changes {
  constructor(look) {
    this.look = look
    this.body = element("tbody")
    this.node = element("table", { class: "kv-changes", "data-testid": "kv-claim", "aria-label": "What the cache changes" }, this.body)
    this.drawn = ""
  }

  draw(state) {
    const found = rows(state)
    const key = JSON.stringify([found, found.length && state.modes.map((mode) => this.look.colour(mode.name))])
    if (this.drawn === key) return
    this.drawn = key
    this.body.replaceChildren(...found.map(({ title, rule, cells, why }) => element("tr", {},
      element("th", { scope: "row" }, title, " ", element("small", {}, rule)),
      ...cells.map(([name, mode, figure]) => element("td", {}, element("i", { class: "kv-dot", style: `background:${this.look.colour(name)}` }), mode, " ", element("b", {}, figure))),
      element("td", { class: "kv-why" }, ...(why ? [element("b", {}, why[0]), ` ${why[1]}`] : [])))))
  }
}

// The rows, as texts; none where more modes were measured than fit.
function rows(state) {
  const modes = state.modes.filter((mode) => !mode.speculates)
  if (!modes.length || modes.length > MOST) return []
  const pair = ["uncached", "cached"].map((name) => modes.find((mode) => mode.name === name))
  const both = state.prompt && pair.every(Boolean)
  const steps = Math.max(...modes.map((mode) => curve(mode).length)) - 1
  const tokens = Math.min(steps + 1, state.spec?.new_tokens ?? Infinity)
  const so = ended(state) || tokens === state.spec?.new_tokens ? "" : " so far" // fewer than asked for where it stopped early
  const [prompt, last] = both ? [state.prompt.tokens, state.prompt.tokens + tokens - 1] : []
  const once = Math.min(...modes.map((mode) => mode.times[0]?.length ?? 0)) < 2 // timed passes, the first look not counted
  const few = steps < FEWEST || !modes.every((mode) => mode.times[0]?.length) // or none but the first look
  const over = few ? "ms/token, the median step" : "ms/token, first → last tenth"
  const together = state.spec?.batch > 1 ? `, ${count(state.spec.batch)} sequences at once` : ""
  return [
    { title: "First token", rule: `TTFT: prompt in, token 1 out${together}`, cells: modes.map((mode) => [mode.name, mode.title, first(state, mode)]),
      why: both && prefills(state, pair, once, prompt) },
    { title: "Later tokens", rule: over + together,
      cells: modes.map((mode) => [mode.name, mode.title, later(state, mode, few)]),
      why: both && last > prompt && [once ? "The work changes:" : "Changed:", `a step computes 1 token with it, ${last > prompt + 1 ? `${count(prompt + 1)} to ${count(last)}` : count(last)}${so} without it.`] },
    ...(both ? memory(state, modes, pair) : []),
  ]
}

// What each mode holds after its newest step, and the most that it took while it ran; none where nobody saw a cache.
function memory(state, modes, [without, within]) {
  const held = modes.map((mode) => cacheBytes(mode.rows.at(-1)))
  const [before, now] = [-2, -1].map((n) => cacheBytes(within.rows.at(n)))
  if (!now || held.includes(null)) return []
  const peaks = modes.map((mode) => mode.memory?.allocator?.peak)
  const [most, least] = [within, without].map((mode) => peaks[modes.indexOf(mode)])
  const why = least > most ? `smaller here: intermediate results of all tokens outweigh K and V of ${state.model.layers} layers.` : "what is kept adds to a step's own data."
  const row = (title, figures, why) => ({ title, rule: "beyond the weights", why,
                                              cells: alike(figures).map((figure, i) => [modes[i].name, modes[i].title, figure]) })
  const told = peaks.every(Boolean)
  return [row("Memory kept", held, ["Changed:", `${bytes(now - before)} more per token.`]),
          ...(told || !ended(state) ? [row("Peak memory", peaks, told ? ["Changed:", why] : ["Not known yet:", "it is measured after the first look."])] : [])]
}

// Bytes in the unit of the least of them, so that they can be held against one another.
function alike(figures) {
  const [unit, size] = unitOf(Math.min(...figures.filter(Boolean)))
  return figures.map((n) => (n && n / size < MANY_UNITS ? `${n / size < 100 ? (n / size).toFixed(1) : count(Math.round(n / size))} ${unit}` : bytes(n)))
}

const lastDigit = (seconds) => 10 ** (Math.floor(Math.log10(seconds)) - 1) // what one more in the second digit stands for
const two = (seconds, figures) => mark(figures) + ms(rough(seconds))

// Whether the cache has left the first token as it was. One pass can't tell that, nor passes that are all apart.
function prefills(state, pair, once, prompt) {
  if (!pair.every((mode) => curve(mode).length)) return ["Not known yet:", "both modes compute the whole prompt."]
  if (once) return [ended(state) ? "The same work:" : "One pass so far:", "the difference may be noise."]
  const times = pair.map((mode) => mode.times[0])
  const [low, high] = times.map(median).sort((a, b) => a - b)
  const overlap = Math.max(...times.map((each) => each[0])) <= Math.min(...times.map((each) => each.at(-1)))
  if (pair.some((mode) => mark(headline(state, mode)))) return ["The same work:", "other programs ran too; a difference may be noise."]
  if (!overlap && high > ALIKE * low) return ["Apart in each pass,", "for the same work: does another run repeat it?"]
  const tokens = state.prompt?.tokens
  const [opening, ...next] = curve(pair[0]).slice(0, 10).map((point) => point.mid)
  const slow = next.length > 0 && opening > ALIKE * median(next)
  const after = slow ? "a run's first step is slower (cause not measured)" : `the next uncached step computes ${count(tokens + 1)}`
  const work = nearly(tokens) ? `both compute ${count(tokens)} tokens; ${after}.` : "both compute the whole prompt in one pass, so it stands apart."
  return [overlap ? "Not changed:" : "The same work:", work]
}

function first(state, mode) {
  const figures = headline(state, mode)
  return figures ? two(figures.ttft_s, figures) : "–"
}

// The medians of the first and of the last tenth of the steps. A mode that the server has judged flat has the last alone
// if the two differ by no more than the last digit shown. The first look, whose ends are noise, and few steps, of which the first
// are slow, have one figure: the median step.
function later(state, mode, few) {
  const figures = headline(state, mode)
  const line = curve(mode).map((point) => point.mid)
  if (!figures?.itl_s) return "–"
  if (few) return two(figures.itl_s, figures)
  const [from, to] = ends(line).map(rough)
  if (figures.shape === "flat" && Math.abs(to - from) < 1.5 * lastDigit(to)) return `${two(to, figures)} all along`
  const [begins, is] = [from, to].map((seconds) => two(seconds, figures))
  return begins === is ? `${is} at both ends` : `${begins.replace(" ms", "")} → ${is.replace(mark(figures), "")}`
}
