// The latency curves: one Plotly chart whose node lives as long as the page does.

import { cacheBytes, curve, disturbedPasses, doubling, ended, headline, keptPasses, mean, median, quantile, runningTotal } from "../shared/state.js"
import { bytes, count, times } from "../shared/format.js"
import { loadPlotly } from "../shared/plotly.js"
import { MANY, running, WIDE, WIDER } from "./shapes.js"

export const MANY_PASSES = 3 // from which on a step has quartiles

export class CurveChart {
  constructor(node, look) {
    this.node = node
    this.look = look
    this.log = false
    this.total = false // the time so far in place of the time of each token
    this.under = () => [] // more lines, below the measured ones
    this.foretells = true // draws what was predicted, too
    this.asked = 32 // new tokens, until the run itself says how many
    this.spikes = null // see `spikes`, of what is drawn
    this.busy = Promise.resolve()
    loadPlotly().catch(() => {}) // early; a failure shows when something is drawn
  }

  // Drawings queue up behind one another; only the newest state that waits is drawn. Returns what to wait for before the
  // next, once plotly.js is there: until then the rest of the page goes on without it.
  draw(state, marked) {
    this.wanted = state
    this.marked = marked
    this.busy = this.busy.then(async () => {
      const current = this.wanted
      if (!current) return
      this.wanted = null
      this.weigh(current)
      const Plotly = await loadPlotly()
      const under = this.total ? [] : this.under(current)
      await Plotly.react(this.node, [...under, ...this.measured(current), ...runningMedians(current, this.look, this.total, this.wide), ...this.predicted(current)], this.layout(current), CONFIG)
    }).catch((error) => console.error(error))
    return window.Plotly && this.busy
  }

  // Finds whether spikes are a visible part of what is drawn; the words below the chart need it before the lines are drawn.
  weigh(state) {
    this.spikes = this.total ? null : spikes(state)
  }

  // The steps of the running median.
  get wide() {
    return this.spikes ? WIDER : WIDE
  }

  // The lines that were measured.
  measured(state) {
    return [...this.disturbed(state), ...traces(state, this.look, this.total, Boolean(this.spikes))]
  }

  // Those of passes that other work disturbed.
  disturbed(state) {
    return this.total ? [] : disturbed(state, this.look, this.wide)
  }

  // A mode's milliseconds as they are read: of a line with many spikes its running median.
  line(state, mode) {
    const mids = points(state, mode).map((p) => p.mid)
    return (this.spikes && smoothed(state, mode, points(state, mode), false, this.wide)?.map((y, i) => y ?? mids[i])) || mids
  }

  // What was predicted before the timed passes, for a machine that nothing else keeps busy.
  predicted(state) {
    return this.foretells && !this.spikes && ended(state) ? predicted(state, this.look, this.total) : []
  }

  // Whether a line is drawn by its running median.
  smooths(state) {
    return state.modes.some((mode) => isLong(state, curve(mode), this.total))
  }

  // Up to how many milliseconds the chart reaches, so that no single spike presses the curves down: past the prefill and
  // nearly all medians (where spikes are many, the running median), a guess, and a prediction, unless it is twice as high; and the
  // highest point, if that lies above.
  reach(state) {
    const lines = state.modes.map((mode) => this.line(state, mode)).filter((line) => line.length)
    if (this.total || this.log || !lines.length) return null
    const steps = Math.max(...lines.map((line) => quantile([...line].sort((a, b) => a - b), this.spikes ? 1 : 0.97)))
    const once = state.modes.every((mode) => !mode.times.length) // a slow prefill of one pass is noise
    const usual = Math.max(steps, Math.min(Math.max(...lines.map((line) => line[0])), once ? SINGLE * steps : Infinity))
    const foreseen = highest(this.predicted(state))
    const top = Math.max(1.25 * usual, 1.05 * highest(this.under(state)), Math.min(1.15 * foreseen, 2 * usual))
    const most = highest([...this.disturbed(state), ...state.modes.map((mode) => ({ y: points(state, mode).map((p) => p.q3) }))])
    return { top, above: most > top ? most : null }
  }

  layout(state) {
    const { text, grid, paper, family } = this.look.theme()
    const axis = { gridcolor: grid, linecolor: grid, zeroline: false, automargin: true, tickfont: { size: 13 }, separatethousands: true }
    const measured = state.modes.some((m) => curve(m).length)
    const tokens = Math.max(2, state.spec?.new_tokens ?? this.asked)
    const narrow = this.node.clientWidth < NARROW
    const titled = { font: { size: 14 }, standoff: 6 }
    const aside = Math.max(0.5, tokens / (narrow ? 24 : 80)) // room for the prefill's mark, which no edge cuts
    const reach = this.reach(state)
    const each = this.perPixel(state, reach)
    const said = this.total ? [twice(state, this.node.clientWidth)] : [...this.prefillLabel(state, reach, each), ...events(state, this.look, this.log)]
    return {
      uirevision: `${state.id} ${this.log} ${this.total}`,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family, size: 14, color: text },
      margin: { l: 52, r: labelled(state) ? (narrow ? 80 : 100) : 14, t: TOP, b: BOTTOM },
      height: this.node.clientHeight || 320,
      showlegend: !labelled(state),
      hovermode: "closest",
      hoverlabel: { bgcolor: paper, bordercolor: grid, font: { color: text, size: 13 }, align: "left" },
      modebar: { bgcolor: paper, color: text, activecolor: text },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 14 } },
      xaxis: { ...axis, range: [1 - aside, tokens + aside], tickformat: ",d", labelalias: { 0: "" } },
      yaxis: { ...axis, showline: false, title: { text: this.total ? "seconds so far" : "ms for this token", ...titled }, type: this.log ? "log" : "linear",
               rangemode: this.log ? "normal" : "tozero", ...(measured ? up(reach) : { range: this.log ? [0, 2] : [0, 1], showticklabels: false }) },
      shapes: this.marked ? [{ type: "line", x0: this.marked, x1: this.marked, y0: 0, y1: 1, yref: "paper",
                               line: { color: text, width: 1.5, dash: "dot" } }] : [],
      annotations: measured ? [...said, named(state, narrow), ...keptLabel(state, grid, this.node.clientWidth), ...stepLabel(this.marked), ...labels(state, this.look, this.log, this.total, each, reach?.top, this.wide)] : [{ text: folded(hint(state), this.node.clientWidth), showarrow: false, x: 0.5, y: 0.5, xref: "paper",
                                      yref: "paper", font: { size: 15 } }],
    }
  }

  // Names the first points, where the whole prompt is computed: without a cache and with it, that is the same work. It
  // stands above the lines that begin there; where their spikes leave no room even for the short word, there is none.
  prefillLabel(state, reach, each) {
    const y = Math.min(reach?.top ?? Infinity, Math.max(...state.modes.map((mode) => (curve(mode)[0]?.mid ?? 0) * 1000)))
    const alike = state.modes.length > 1 && state.modes.every((mode) => ALIKE.includes(mode.name))
    const above = reach && each ? (reach.top - y) / each : 60
    const narrow = this.node.clientWidth < NARROW
    const short = narrow || state.modes.every((mode) => !mode.times.length) // the steps of one pass have spikes
    const whole = `TTFT: prefill of ${state.prompt ? `${count(state.prompt.tokens)} tokens` : "the prompt"}`
    const lines = state.modes.flatMap((mode) => [this.line(state, mode), points(state, mode).map((p) => Math.max(p.mid, p.q3 ?? 0)), mode.predicted?.map((s) => 1000 * s) ?? []])
    const within = (pixels) => [...lines, ...this.disturbed(state).map((pass) => pass.y)].map((line) => ({ y: line.slice(0, Math.ceil(this.tokens(state, pixels))) }))
    const under = (pixels) => (each ? (highest(within(pixels)) - y) / each : 0)
    const clear = (pixels) => !each || above - under(pixels) >= LINE // nothing that was measured lies under the words
    const fits = alike && !short && clear(190)
    if (!fits && !clear(70)) return []
    const crossed = under(fits ? 190 : 70)
    const aside = above < 36 // no room above it
    return [{ text: fits ? whole : "prefill", align: "left", x: 1, y: this.log ? Math.log10(y) : y, xanchor: "left", ax: aside ? 24 : 14, ay: aside ? 0 : -Math.max(26, Math.min(above - 10, Math.max(42, crossed + 15))), arrowhead: 0, arrowwidth: 1, arrowcolor: this.look.theme().text, bgcolor: fits ? this.look.theme().paper : undefined, font: { size: 13 } }]
  }

  // How many tokens so many pixels of the chart's width stand for.
  tokens(state, pixels) {
    return (pixels * (state.spec?.new_tokens ?? this.asked)) / Math.max(1, this.node.clientWidth - 140)
  }

  // How much one pixel of the chart's height stands for: milliseconds or seconds; null on a logarithmic axis.
  perPixel(state, reach) {
    if (this.log) return null
    const top = reach?.top ?? highest(state.modes.map((mode) => ({ y: points(state, mode, this.total).map((p) => p.mid) })))
    return top / Math.max(1, (this.node.clientHeight || 320) - TOP - BOTTOM)
  }

  resize() {
    if (this.node.data && this.node.clientWidth) window.Plotly.Plots.resize(this.node) // not while its page goes
  }

  purge() {
    if (this.node.data) window.Plotly.purge(this.node)
  }
}

const TOP = 8 // pixels around the chart
const BOTTOM = 24
const NARROW = 480 // pixels of a chart on a phone
const ALIKE = ["uncached", "cached", "unpassed"] // modes whose prefill is the model's one forward over the prompt
const VISIBLE = 0.15 // of the time: spikes that are more of it are seen as a gap between the lines and the totals
const SINGLE = 1.5 // times nearly all steps: a first step of one pass that rises higher is noise
const LINE = 17 // between two names at the ends of lines
const GAP = 8 // below a name of several lines

// The name of the axis, at its end beside its numbers; inside it where no name of a line has made room.
const named = (state, narrow) => ({ text: narrow ? "token" : "new token", x: 1, y: 0, xref: "paper", yref: "paper", showarrow: false, font: { size: 13 },
                                    ...(labelled(state) ? { xanchor: "left", yanchor: "top", xshift: narrow ? 20 : 6 } : { xanchor: "right", yanchor: "bottom" }) })

const up = (reach) => (reach ? { range: [0, reach.top] } : {})
const highest = (lines) => lines.reduce((most, { y }) => y.reduce((m, v) => Math.max(m, v ?? 0), most), 0)

// The points to draw: milliseconds of each token, or seconds so far.
function points(state, mode, total) {
  const scale = total ? 1 : 1000
  return (total ? runningTotal(state, mode) : curve(mode)).map((p) => ({ q1: p.q1 * scale, mid: p.mid * scale, q3: p.q3 * scale }))
}

// Where the square is to be seen: a line adds up to a parabola.
function twice(state, width) {
  const each = state.modes.map((mode) => [mode.title, doubling(state, mode)]).filter(([, ratio]) => ratio)
  const text = each.length ? `Twice the tokens: ${each.map(([title, ratio]) => `${title} ${times(ratio)}`.replaceAll(" ", "\u00a0")).join(", ")} the\u00a0time` : ""
  return { text: folded(escapeHtml(text), width), align: "left", showarrow: false, x: 0.02, y: 0.98, xref: "paper", yref: "paper", xanchor: "left", yanchor: "top", font: { size: 14 } }
}

// What happens along a finished run: a mode's first other token, and the step at which a window is full.
function events(state, look, log) {
  if (!state.figures) return []
  const at = (mode, i, text) => {
    const y = curve(mode)[i].mid * 1000
    return { text, x: i + 1, y: log ? Math.log10(y) : y, ax: 0, ay: -30, arrowhead: 0, arrowwidth: 1, font: { size: 13, color: look.colour(mode.name) } }
  }
  return state.modes.flatMap((mode) => {
    const points = curve(mode).length
    const full = mode.rows.findIndex((row) => row.layers.some((layer) => layer.held < layer.seen))
    const found = [[full, "window full"], [mode.divergence ?? -1, "first other token"]]
    return found.filter(([i]) => i > 0 && i < points).map(([i, text]) => at(mode, i, text))
  })
}

// Names the step that the slider stands at.
const stepLabel = (at) => (at ? [{ text: `step ${at}`, x: at, y: 1, yref: "paper", yanchor: "top", xanchor: at > 1 ? "right" : "left",
                                   showarrow: false, font: { size: 13 } }] : [])

const CONFIG = {
  displaylogo: false,
  responsive: true,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // and none that sends the chart elsewhere
  toImageButtonOptions: { format: "svg", filename: "kvviz" },
}

// Plotly does not break lines: on a narrow screen a hint is broken where its sentence turns, and at half its length.
function folded(text, width) {
  return width && width < 600 ? text.replace(/(.{16,26}) /g, "$1<br>") : text
}

function hint(state) {
  return {
    waiting: "Press Run: the curves are drawn here while the model decodes",
    queued: "Waiting for the device",
    loading: "Loading the model",
    started: "About to begin",
    failed: "No curve: the comparison could not be done",
    stopped: "Stopped before the first timed step",
  }[state.state] ?? ""
}

// How far the predictions missed and the mode that they missed most: the median step of the tenth of its run that they
// missed most, as a share of it; 0 before the run has ended.
export function strays(state) {
  if (!ended(state)) return [0, ""]
  const foretold = state.modes.filter((mode) => mode.predicted && mode.times.length > 1)
  return foretold.flatMap((mode) => {
    const off = curve(mode).slice(1).map(({ mid }, i) => Math.abs(mode.predicted[i + 1] / mid - 1)), tenth = Math.ceil(off.length / 10)
    return Array.from({ length: Math.ceil(off.length / tenth) }, (_, i) => [median(off.slice(i * tenth, (i + 1) * tenth)), mode.title])
  }).reduce((most, each) => (each[0] > most[0] ? each : most), [0, ""])
}

// What was predicted before the timed passes, beside what is measured; alone it would be a curve that nobody measured.
function predicted(state, look, total) {
  return state.modes.filter((mode) => mode.predicted && mode.times.length).map((mode) => {
    let sum = 0
    const y = mode.predicted.slice(0, mode.tokens.length || undefined).map((s, i) => (total ? (sum += s) : i ? s * 1000 : null)) // the first is no decode step
    return { type: "scatter", mode: "lines", name: `${escapeHtml(mode.title)}, predicted`, x: y.map((_, i) => i + 1), y,
             line: { color: look.colour(mode.name), width: 1.5, dash: "dash" }, opacity: 0.75,
             hovertemplate: `predicted before the timed passes: %{y:.${total ? 3 : 2}f} ${total ? "s so far" : "ms"}<extra></extra>` }
  })
}

// With a few modes each line carries its name at its end.
const labelled = (state) => state.modes.length > 0 && state.modes.length <= 3

const WHY = { uncached: "computes all<br>tokens again", cached: "computes only<br>the newest" } // what makes two curves part

// Where two lines end close to one another, the names stand one above the other; that of a line that ends above the chart,
// whose `top` in milliseconds is known on a linear axis, at its edge. `each`: see `perPixel`.
function labels(state, look, log, total, each, top = Infinity, wide = WIDE) {
  if (!labelled(state)) return []
  const ends = state.modes.map((mode) => ({ mode, line: points(state, mode, total) })).filter(({ line }) => line.length)
    .map(({ mode, line }) => ({ mode, x: line.length, y: (smoothed(state, mode, line, total, wide) ?? []).at(-1) ?? line.at(-1).mid }))
    .map(({ y, ...end }) => ({ ...end, y: Math.min(y, top), why: !total && state.modes.length > 1 ? WHY[end.mode.name] : undefined }))
    .sort((a, b) => a.y - b.y)
  const high = ends.map(({ why }) => (why ? 3 * LINE + GAP : LINE))
  const most = each && Number.isFinite(top) ? top / each : Infinity // the height of the chart
  const middles = apart(ends.map(({ y }) => (each ? y / each : 0)), high, most)
  return ends.map(({ mode, x, y, why }, i) => {
    const text = `<b>${escapeHtml(mode.title)}</b>${why ? `<br><span style="font-size:12px">${why}</span>` : ""}`
    return { text, x, y: log ? Math.log10(y) : y, showarrow: false, align: "left", xanchor: "left", yanchor: "middle", xshift: 8,
             yshift: each ? middles[i] - y / each : 0, font: { size: 14, color: look.colour(mode.name) } }
  })
}

// The middles of names, from the lowest to the highest: as near to `wanted` as they can stand without overlapping, each so
// `high`, none below 0 or above `most`; all in pixels.
export function apart(wanted, high, most) {
  const found = []
  wanted.forEach((at, i) => found.push(Math.max(at, (i ? found[i - 1] + high[i - 1] / 2 : 0) + high[i] / 2)))
  for (let i = found.length - 1, free = most; i >= 0; i--) {
    found[i] = Math.min(found[i], free - high[i] / 2)
    free = found[i] - high[i] / 2
  }
  return found
}

// Says across the chart that nobody here has measured it.
const keptLabel = (state, colour, width) => (state.recorded ? [{ text: "<b>RECORDING</b>", x: 0.97, y: 0.32, xref: "paper", yref: "paper",
  xanchor: "right", showarrow: false, font: { size: width < NARROW ? 16 : 26, color: colour } }] : [])

const FAINT = 8 // lines of disturbed passes that are drawn for each mode

// Passes that other work disturbed and that the median leaves out; of a long line its running median, without the spikes.
function disturbed(state, look, wide) {
  return state.modes.flatMap((mode) => {
    const left = disturbedPasses(state, mode)
    if (left.some((seconds) => keptPasses(state, mode).includes(seconds))) return []
    return left.slice(-FAINT).map((seconds) => seconds.map((s) => ({ mid: s * 1000 }))).map((line) => ({
      type: "scatter", mode: "lines", name: `${escapeHtml(mode.title)}, disturbed`, showlegend: false, opacity: 0.3,
      x: line.map((_, i) => i + 1), y: smoothed(state, mode, line, false, wide) ?? line.map((p) => p.mid), line: { color: look.colour(mode.name), width: 1.5, dash: "1px,4px" },
      hovertemplate: "a pass that other work disturbed: %{y:.2f} ms<extra></extra>",
    }))
  })
}

// Whether a mode's line is read off its running median, because it is long or will be; the medians of the passes are thin
// below it.
const isLong = (state, line, total) => !total && line.length > WIDE && Math.max(line.length, state.spec?.new_tokens ?? 0) > MANY

// The median of each step and its neighbours, without the prefill; the mean where tokens come several at a time. Null for
// a short line, which speaks for itself.
function smoothed(state, mode, line, total, wide = WIDE) {
  return isLong(state, line, total) ? running(line.map((p) => p.mid), mode.speculates ? mean : median, wide) : null
}

// The part of each mode's decode time, as the headline counts it, that its running median leaves out, where that is
// enough in one of them to be seen; else null. Other work makes such spikes.
function spikes(state) {
  const sum = (values) => values.reduce((a, b) => a + b, 0)
  const found = state.modes.filter((mode) => !mode.speculates).map((mode) => {
    const drawn = points(state, mode)
    const line = smoothed(state, mode, drawn, false, WIDER)
    const told = headline(state, mode)
    const whole = told?.total_s && drawn.length === mode.tokens.length // else the headline's time is of more steps than are drawn
    const spent = whole ? 1000 * (told.total_s - told.ttft_s) : sum(drawn.slice(1).map((p) => p.mid))
    return line && spent > 0 && { title: mode.title, share: 1 - sum(line.slice(1)) / spent }
  }).filter(Boolean)
  return found.some(({ share }) => share > VISIBLE) ? found : null
}

function runningMedians(state, look, total, wide) {
  return state.modes.flatMap((mode) => {
    const y = smoothed(state, mode, points(state, mode, total), total, wide)
    return y ? [{ type: "scatter", mode: "lines", name: `${escapeHtml(mode.title)}, running median`, hoverinfo: "skip", showlegend: false,
                  x: y.map((_, i) => i + 1), y, line: { color: look.colour(mode.name), width: 3, dash: look.dash(mode.name) } }] : []
  })
}

function traces(state, look, total, spiky) {
  return state.modes.flatMap((mode) => {
    const colour = look.colour(mode.name)
    const line = points(state, mode, total)
    const x = line.map((_, i) => i + 1)
    const y = line.map((p) => p.mid)
    const text = line.map((p, i) => hover(state, mode, p, i, total))
    const once = !mode.times.length
    const dots = !once && x.length <= MANY // each would be an element of its own, and hundreds of them slow every drawing down
    return [
      { type: "scatter", mode: "lines", x: [...x, ...[...x].reverse()], hoverinfo: "skip", showlegend: false,
        y: [...line.map((p) => p.q3), ...line.map((p) => p.q1).reverse()],
        fill: "toself", fillcolor: look.faint(mode.name), line: { width: 0 }, visible: mode.times[0]?.length >= MANY_PASSES && !(spiky && isLong(state, line, total)) },
      { type: "scatter", mode: dots ? "lines+markers" : "lines", name: escapeHtml(mode.title), x, y, text, hoverinfo: "text",
        line: { color: colour, width: once ? 1.3 : isLong(state, line, total) ? 1 : 2.5, dash: look.dash(mode.name) },
        marker: { color: colour, size: 5, symbol: look.marker(mode.name) }, opacity: isLong(state, line, total) ? (spiky ? 0.22 : 0.5) : 1 },
      { type: "scatter", mode: "markers", x: x.slice(0, 1), y: y.slice(0, 1), hoverinfo: "skip", showlegend: false, // the prefill
        marker: { color: colour, size: 12, symbol: `${look.marker(mode.name)}-open`, line: { width: 2.5 } } },
    ]
  })
}

function hover(state, mode, point, i, total) {
  const token = mode.tokens[i]
  const row = mode.rows[i]
  const phase = i === 0 ? `prefill of ${state.prompt.tokens} tokens` : "decode step"
  const piece = token ? escapeHtml(JSON.stringify(token.piece)) : ""
  const [unit, digits] = total ? ["s so far", 3] : ["ms", 2]
  return [
    `<b>${escapeHtml(mode.title)}</b> · ${phase}`,
    `token ${i + 1}: ${piece} at position ${state.prompt.tokens + i + 1}`,
    i < mode.times.length ? `${point.mid.toFixed(digits)} ${unit} (quartiles ${point.q1.toFixed(digits)} to ${point.q3.toFixed(digits)})`
      : `${point.mid.toFixed(digits)} ${unit}, first look: read once`,
    `cache: ${row ? bytes(cacheBytes(row)) : "–"}`,
  ].join("<br>")
}

export function escapeHtml(text) {
  return text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c])
}
