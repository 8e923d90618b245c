// The latency curves: one Plotly chart whose node lives as long as the page does.

import { cacheBytes, curve } from "../shared/state.js"
import { bytes } from "../shared/format.js"

let plotly = null

// plotly.js is a classic script; it is loaded once for all charts.
export function loadPlotly(assets) {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script")
    script.src = `${assets}/vendor/plotly-basic-4.1.1.min.js`
    script.onload = () => resolve(window.Plotly)
    script.onerror = () => {
      plotly = null // the next drawing tries again
      reject(new Error("plotly.js could not be loaded"))
    }
    document.head.append(script)
  })
  return plotly
}

export class CurveChart {
  constructor(node, assets, look) {
    this.node = node
    this.look = look
    this.log = false
    this.under = () => [] // more lines, below the measured ones
    this.busy = Promise.resolve()
    this.assets = assets
    loadPlotly(assets).catch(() => {}) // early; a failure shows when something is drawn
  }

  // Drawings queue up behind one another; only the newest state that waits is drawn.
  draw(state, marked) {
    this.wanted = state
    this.marked = marked
    this.busy = this.busy.then(async () => {
      const current = this.wanted
      if (!current) return
      this.wanted = null
      const Plotly = await loadPlotly(this.assets)
      await Plotly.react(this.node, [...this.under(current), ...firstLook(current, this.look), ...traces(current, this.look), ...predicted(current, this.look)], this.layout(current), CONFIG)
    }).catch((error) => console.error(error))
    return this.busy
  }

  layout(state) {
    const { text, grid, paper, family } = this.look.theme()
    const axis = { gridcolor: grid, linecolor: grid, zeroline: false, automargin: true, tickfont: { size: 13 } }
    const measured = state.modes.some((m) => curve(m).length)
    return {
      uirevision: `${state.id} ${this.log}`,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family, size: 14, color: text },
      margin: { l: 62, r: labelled(state) ? 96 : 14, t: 8, b: 44 },
      height: this.node.clientHeight || 320,
      showlegend: !labelled(state),
      hovermode: "closest",
      hoverlabel: { bgcolor: paper, bordercolor: grid, font: { color: text, size: 13 }, align: "left" },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 14 } },
      xaxis: { ...axis, title: { text: "new token" }, range: [0.5, Math.max(2, state.spec?.new_tokens ?? 32) + 0.5],
               tickformat: "d" },
      yaxis: { ...axis, title: { text: "ms for this token" }, type: this.log ? "log" : "linear",
               rangemode: this.log ? "normal" : "tozero", ...(measured ? {} : { range: this.log ? [0, 2] : [0, 1] }) },
      shapes: this.marked ? [{ type: "line", x0: this.marked, x1: this.marked, y0: 0, y1: 1, yref: "paper",
                               line: { color: text, width: 1.5, dash: "dot" } }] : [],
      annotations: measured ? [prefillLabel(state, this.log), ...labels(state, this.look, this.log)] : [{ text: folded(hint(state), this.node.clientWidth), showarrow: false, x: 0.5, y: 0.5, xref: "paper",
                                      yref: "paper", font: { size: 15 } }],
    }
  }

  resize() {
    if (this.node.data) window.Plotly.Plots.resize(this.node)
  }

  purge() {
    if (this.node.data) window.Plotly.purge(this.node)
  }
}

// Names the first points, which read the whole prompt.
function prefillLabel(state, log) {
  const y = Math.max(...state.modes.map((mode) => (curve(mode)[0]?.mid ?? 0) * 1000))
  return { text: "prefill", x: 1, y: log ? Math.log10(y) : y, ax: 22, ay: -34, arrowhead: 0, arrowwidth: 1, font: { size: 13 } }
}

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

// What was predicted before the first step, beside what is measured; alone it would be a curve that nobody measured.
function predicted(state, look) {
  return state.modes.filter((mode) => mode.predicted && mode.times.length).map((mode) => {
    const y = mode.predicted.slice(0, mode.tokens.length || undefined).map((s) => s * 1000)
    return { type: "scatter", mode: "lines", name: `${escapeHtml(mode.title)}, predicted`, x: y.map((_, i) => i + 1), y,
             line: { color: look.colour(mode.name), width: 1.5, dash: "dash" }, opacity: 0.75,
             hovertemplate: "predicted before the run: %{y:.2f} ms<extra></extra>" }
  })
}

// With a few modes each line carries its name at its end.
const labelled = (state) => state.modes.length > 0 && state.modes.length <= 3

function labels(state, look, log) {
  if (!labelled(state)) return []
  const ends = state.modes.map((mode) => ({ mode, points: curve(mode) })).filter(({ points }) => points.length)
  return ends.map(({ mode, points }) => {
    const y = points.at(-1).mid * 1000
    return { text: `<b>${escapeHtml(mode.title)}</b>`, x: points.length, y: log ? Math.log10(y) : y, showarrow: false,
             xanchor: "left", xshift: 8, font: { size: 14, color: look.colour(mode.name) } }
  })
}

// The first look, one reading of each step: thin, and under the median as soon as there is one.
function firstLook(state, look) {
  return state.modes.filter((mode) => mode.look.length && mode.times.length && !state.figures).map((mode) => ({
    type: "scatter", mode: "lines", name: `${escapeHtml(mode.title)}, first look`, hoverinfo: "skip", showlegend: false, opacity: 0.55,
    x: mode.look.map((_, i) => i + 1), y: mode.look.map((s) => s * 1000), line: { color: look.colour(mode.name), width: 1 },
  }))
}

const MANY = 48 // steps; on a line of more the markers would hide it

function traces(state, look) {
  return state.modes.flatMap((mode) => {
    const colour = look.colour(mode.name)
    const points = curve(mode)
    const x = points.map((_, i) => i + 1)
    const y = points.map((p) => p.mid * 1000)
    const text = points.map((p, i) => hover(state, mode, p, i))
    const once = !mode.times.length
    const prefill = { size: x.map((_, i) => (i === 0 ? 12 : once || x.length > MANY ? 0.1 : 5)),
                      symbol: x.map((_, i) => (i === 0 ? look.marker(mode.name) + "-open" : look.marker(mode.name))),
                      line: { width: x.map((_, i) => (i === 0 ? 2.5 : 0)) } }
    return [
      { type: "scatter", mode: "lines", x: [...x, ...[...x].reverse()], hoverinfo: "skip", showlegend: false,
        y: [...points.map((p) => p.q3 * 1000), ...points.map((p) => p.q1 * 1000).reverse()],
        fill: "toself", fillcolor: look.faint(mode.name), line: { width: 0 } },
      { type: "scatter", mode: "lines+markers", name: escapeHtml(mode.title), x, y, text, hoverinfo: "text",
        line: { color: colour, width: once ? 1.3 : 2.5, dash: look.dash(mode.name) }, marker: { color: colour, ...prefill } },
    ]
  })
}

function hover(state, mode, point, i) {
  const token = mode.tokens[i]
  const row = mode.rows[i]
  const phase = i === 0 ? `prefill of ${state.prompt.tokens} tokens` : "decode step"
  const piece = token ? escapeHtml(JSON.stringify(token.piece)) : ""
  return [
    `<b>${escapeHtml(mode.title)}</b> · ${phase}`,
    `token ${i + 1}: ${piece} at position ${state.prompt.tokens + i + 1}`,
    mode.times.length ? `${(point.mid * 1000).toFixed(2)} ms (quartiles ${(point.q1 * 1000).toFixed(2)} to ${(point.q3 * 1000).toFixed(2)})`
      : `${(point.mid * 1000).toFixed(2)} ms, first look: read once`,
    `cache: ${row ? bytes(cacheBytes(row)) : "–"}`,
  ].join("<br>")
}

export function escapeHtml(text) {
  return text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c])
}
