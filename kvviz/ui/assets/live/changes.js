// What the cache changes and what it leaves as it was: the first token and the later ones, the modes side by side.

import { element } from "../shared/dom.js"
import { count, ms, rough } from "../shared/format.js"
import { curve, headline, mark } from "../shared/state.js"
import { ends, FEWEST } from "./shapes.js"

const MOST = 3 // modes that stand side by side

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
      ...cells.map(([name, mode, time]) => element("td", {}, element("i", { class: "kv-dot", style: `background:${this.look.colour(name)}` }), mode, " ", element("b", {}, time))),
      element("td", { class: "kv-why" }, ...(why ? [element("b", {}, why[0]), ` ${why[1]}`] : [])))))
  }
}

// The two rows, as texts; none where more modes were measured than fit.
function rows(state) {
  const modes = state.modes.filter((mode) => !mode.speculates)
  if (!modes.length || modes.length > MOST) return []
  const both = state.prompt && ["uncached", "cached"].every((name) => modes.some((mode) => mode.name === name))
  const steps = Math.max(...modes.map((mode) => curve(mode).length)) - 1
  const [prompt, last] = both ? [state.prompt.tokens, state.prompt.tokens + state.spec.new_tokens - 1] : []
  const disturbed = modes.some((mode) => mark(headline(state, mode)))
  const over = steps < FEWEST ? "the median" : "start → end of the run"
  const together = state.spec?.batch > 1 ? `, ${count(state.spec.batch)} sequences at once` : ""
  return [
    { title: "First token", rule: `TTFT, the prefill${together}`, cells: modes.map((mode) => [mode.name, mode.title, first(state, mode)]),
      why: both && ["Not changed by the cache:", disturbed ? "both modes read the prompt; other work ran beside these." : "both modes read the whole prompt."] },
    { title: "Later tokens", rule: over + together,
      cells: modes.map((mode) => [mode.name, mode.title, later(state, mode)]),
      why: both && last > prompt && ["Changed by the cache:", `a step reads 1 token, not ${last > prompt + 1 ? `${count(prompt + 1)} to ${count(last)}` : count(last)}.`] },
  ]
}

const two = (seconds, figures) => mark(figures) + ms(rough(seconds))

function first(state, mode) {
  const figures = headline(state, mode)
  return figures ? two(figures.ttft_s, figures) : "–"
}

// The medians of the first and of the last tenth of the steps. A mode that the server has judged flat, and one of few
// steps, of which the first are slow, have one figure: the median step.
function later(state, mode) {
  const figures = headline(state, mode)
  const line = curve(mode).map((point) => point.mid)
  if (!figures?.itl_s) return "–"
  if (line.length <= FEWEST) return two(figures.itl_s, figures)
  if (figures.shape === "flat") return `${two(figures.itl_s, figures)} all along`
  const [begins, is] = ends(line).map((seconds) => two(seconds, figures))
  return begins === is ? `${is} at both ends` : `${begins.replace(" ms", "")} → ${is}`
}
