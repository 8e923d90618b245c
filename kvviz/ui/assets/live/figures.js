// The headline figures of each mode, and whether the modes chose the same tokens.

import { element, put, scrolled } from "../shared/dom.js"
import { bytes, count, duration, known, ms, rate, rough, small } from "../shared/format.js"
import { cacheBytes, ended, firstLookOnly, headline, mark, median, onlyDisturbed, soFar, told, watched } from "../shared/state.js"
import { gain, inRatio } from "./shapes.js"

// Title, tooltip, key; and the tooltip during the first look, where there is one pass and no median of several.
const COLUMNS = [
  ["Mode", "", ""],
  ["TTFT", "time to first token: the prefill, median of the repeats", "ttft", "time to first token: the prefill, read once in the first look"],
  ["ITL", "inter-token latency: median over the decode steps, each the median of the repeats; their mean where tokens come several at a time", "itl", "inter-token latency: median over the decode steps of one pass, the first look"],
  ["p99", "99th percentile of all single decode steps of all repeats", "p99"],
  ["Tokens/s", "new tokens of all sequences over the whole time, prefill included", "rate"],
  ["Per sequence", "tokens per second of one sequence of the batch", "each"],
  ["Whole run", "median over the repeats of the sum of all steps", "total", "sum of all steps of one pass, the first look"],
  ["Cache", "bytes of keys and values that the run holds", "cache"],
  ["Speed-up", "whole time of “No cache” over that of this mode, with the 95% interval", "speedup"],
]

export class Figures {
  // `recorded(state)` tells the recorded speed-up of the same work, in words.
  constructor(look, recorded = () => "") {
    Object.assign(this, { look, recorded })
    this.badge = element("div", { class: "kv-badge", "data-testid": "kv-badge" })
    this.big = element("div", { class: "kv-big", "data-testid": "kv-speedup" })
    this.body = element("tbody")
    this.head = element("tr", {}, ...COLUMNS.map(([title, tip, key]) => element("th", { title: tip, "data-figure": key }, title)))
    this.table = element("table", { class: "kv-figures", "data-testid": "kv-figures" }, element("thead", {}, this.head), this.body)
    this.sure = element("div", { class: "kv-sure", "data-testid": "kv-sure" })
    this.rates = element("div", { class: "kv-rates", "data-testid": "kv-rates" })
    this.call = element("div", { class: "kv-call" }, this.big, this.sure, this.rates, this.badge)
    this.node = scrolled("The figures of each mode", "kv-scroll", this.table)
    this.rows = new Map()
  }

  draw(state) {
    if (this.shown !== state.id + state.modes.length) {
      this.shown = state.id + state.modes.length
      this.rows = new Map(state.modes.map((mode) => [mode.name, this.row(mode)]))
      this.body.replaceChildren(...[...this.rows.values()].map((row) => row.node))
    }
    this.node.dataset.batch = String((state.spec?.batch ?? 1) > 1)
    const once = firstLookOnly(state)
    COLUMNS.forEach(([, tip, , onceTip], i) => { this.head.children[i].title = (once && onceTip) || tip })
    for (const mode of state.modes) this.fill(this.rows.get(mode.name), state, mode)
    this.tell(state)
  }

  row(mode) {
    const cells = Object.fromEntries(COLUMNS.slice(1).map(([, , key]) => [key, element("td", { "data-figure": key })]))
    const name = element("th", { scope: "row", title: mode.summary }, element("i", { class: "kv-dot", style: `background:${this.look.colour(mode.name)}` }), mode.title)
    return { node: element("tr", { "data-mode": mode.name }, name, ...Object.values(cells)), cells }
  }

  fill({ cells }, state, mode) {
    const figures = headline(state, mode)
    const last = mode.rows.at(-1)
    const timed = (words, n) => ((words = words(told(n, figures))) === "–" ? words : mark(figures) + words)
    put(cells.ttft, timed(ms, figures?.ttft_s))
    put(cells.itl, mode.speculates ? `${timed(ms, figures?.itl_mean_s)} mean` : timed(ms, figures?.itl_s))
    put(cells.p99, timed(ms, figures?.itl_p99_s))
    put(cells.rate, timed(rate, figures?.tokens_per_s))
    put(cells.each, timed(rate, figures?.tokens_per_s ? figures.tokens_per_s / state.spec.batch : null))
    put(cells.total, timed(duration, figures?.total_s))
    put(cells.cache, last ? bytes(cacheBytes(last)) : "–")
    const about = either(state, figures)
    const { factor, interval } = known(figures?.speedup, figures?.speedup_interval, about)
    put(cells.speedup, factor === "–" ? factor : `${about}${factor}${interval ? ` (${interval})` : ""}`)
  }

  // How many times as fast, how sure that is, and whether the tokens are the same.
  tell(state) {
    const best = state.figures?.find((run) => run.mode === "cached" && run.speedup)
    const running = best || ended(state) ? null : soFar(state)
    const [words, sure] = best ? gain(best.speedup, best.speedup_interval, either(state, best), lean(state, best)) : [running ? clock(state, running) : "", ""]
    const quiet = best && !state.recorded && onlyDisturbed(best) ? this.recorded(state) : ""
    put(this.big, words)
    put(this.sure, quiet ? `a recording of a quiet machine: ${quiet}` : sure)
    this.big.dataset.rough = String(Boolean(best && mark(best)))
    this.big.dataset.running = String(Boolean(running))
    this.big.dataset.once = String(Boolean(running && !running.timed))
    put(this.rates, best ? rates(state, best) : "")
    const [same, good] = identity(state)
    put(this.badge, same)
    this.badge.dataset.good = String(good)
    this.badge.title = checked(state)
  }
}

// What a run has taken so far; of many modes the table tells it.
function clock(state, { tokens, timed, seconds }) {
  if (seconds.length > 3) return ""
  const many = tokens === 1 ? "1 token" : `${tokens} tokens`
  const once = !timed && tokens > 1 // the spikes of one pass would hide what the cache brings
  const looked = (mode) => (!mode.times.length && state.modes.some(({ times }) => times.length) ? " (first look)" : "")
  const took = state.modes.map((mode, i) => `${mode.title} ${duration(once ? rough(headline(state, mode).itl_s) : seconds[i])}${looked(mode)}`).join(", ")
  return timed || !once ? `${many}: ${took}` : `A median step so far: ${took}`
}

const without = (state) => state.figures?.find((run) => run.mode === "uncached")

// What stands before a ratio to the run without a cache: it rests on both runs.
const either = (state, figures) => mark(figures) || mark(without(state))

// To which side a speed-up leans if other work disturbed every pass of one mode alone.
const lean = (state, figures) => (mark(figures) === mark(without(state)) ? "" : mark(figures) ? "low" : "high")

// The tokens per second of the whole run with the cache, and without.
function rates(state, best) {
  const base = without(state)
  if (!base?.tokens_per_s || !best.tokens_per_s) return ""
  const about = either(state, best)
  const { factor } = known(best.speedup, best.speedup_interval, about)
  const [fast, slow] = about ? [best, base].map((run) => Number(run.tokens_per_s.toPrecision(mark(run) ? 2 : 3))) : inRatio(best.tokens_per_s, base.tokens_per_s, factor, 3)
  return `${mark(best)}${count(fast)} tokens/s instead of ${mark(base)}${count(slow)}`
}

// The modes whose tokens have to be the same, once some of them are checked.
function compared(state) {
  const modes = state.modes.filter((m) => m.exact)
  return !watched(state) && modes.length > 1 && state.proofSteps ? modes : []
}

// Why the modes have to choose the same tokens, and how far their logits are apart; empty until the check is over.
export function reason(state) {
  const modes = compared(state)
  if (!["uncached", "cached"].every((name) => modes.some((mode) => mode.name === name)) || modes.some((mode) => mode.divergence !== null)) return ""
  if (!state.running && !ended(state)) return ""
  const delta = Math.max(...modes.map((mode) => mode.delta ?? 0))
  const apart = delta ? `The logits differ by at most ${small(delta)}: rounding.` : "The logits are equal to the last bit."
  return `A token never looks ahead, so its K and V stay valid. ${apart}`
}

// How far the logits of the modes are apart.
export function checked(state) {
  const modes = compared(state)
  if (!modes.length) return ""
  const delta = Math.max(...modes.map((m) => m.delta ?? 0))
  if (!delta) return `The logits of the modes are equal to the last bit (max |Δlogit| is 0).${traced(state)}`
  return `The logits of the modes differ by at most ${small(delta)} (max |Δlogit|), in ${state.environment.dtype}: the same sums in another order. ` +
    `Such rounding can change which token is the likeliest only where the two best logits lie within twice that.${traced(state)}`
}

// After how many steps the bytes that outlive them were counted, once that is known and if it was not after each.
function traced(state) {
  const steps = Math.max(...state.modes.map((mode) => mode.rows.length))
  const found = Math.max(...state.modes.map((mode) => mode.rows.filter((row) => row.outliving !== null).length))
  if (!found || found === steps || !(state.running || ended(state))) return ""
  return ` After ${found} of ${steps} steps (the first, the last and some between) the bytes of all tensors that were still alive were counted.`
}

// The proof's sentence: how many tokens agree; or where they part, and why.
function identity(state) {
  if (watched(state)) return ["watched: one run, nothing to compare with", true]
  const modes = compared(state)
  const drawn = state.modes.filter((m) => m.speculates && !m.exact).map((m) => `${m.title}: sampled, same distribution, other draws`)
  if (!modes.length) return [drawn.join(""), ""]
  const total = ended(state) || state.running ? Math.max(...modes.map((m) => m.tokens.length)) : state.spec.new_tokens
  const split = modes.find((m) => m.divergence !== null)
  if (split) return [`First different token: ${split.divergence + 1} of ${total} · ${why(split, state)}`, false]
  const same = Math.min(state.proofSteps, ...modes.map((m) => m.tokens.length))
  const found = same < total && !ended(state) ? `${same} of ${total} tokens checked, all identical` : `${same} of ${total} tokens identical`
  return [[found, ...drawn].join(" · "), true]
}

function why({ margin, delta }, state) {
  if (margin === null) return "this mode ended at another token"
  const gap = `the two best tokens lay ${margin.toPrecision(2)} apart`
  const precision = state.environment.dtype
  return margin <= 2 * delta ? `${gap}: a near-tie, decided by rounding in ${precision}` : `${gap}: more than rounding explains`
}
