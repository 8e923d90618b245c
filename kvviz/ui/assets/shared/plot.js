// A figure that Python made, in a Plotly chart that lives as long as its place on the page.

import { named, tableButton, tables } from "./chart_table.js"
import { element, idle } from "./dom.js"
import { mounted } from "./mounted.js"
import { loadPlotly } from "./plotly.js"

// One object for all: a chart whose options differ from those of before, if only in a function, is made anew by Plotly.
const FULL = { name: "Full screen", click: (node) => node.requestFullscreen?.(), icon: { width: 24, height: 24, path: "M3 3h7v2H5v5H3zM14 3h7v7h-2V5h-5zM3 14h2v5h5v2H3zM19 14h2v7h-7v-2h5z" } }

const NEAR_PX = 120 // a chart no further than this from the screen, about a notch of the wheel, is drawn at once
const LATER_MS = 1500 // after which the others are drawn too, for readers who print the page or have it read aloud
const KEPT = 24

const groups = new Map() // charts whose figures one button opens, by the group's name
const kept = [] // the last KEPT charts whose place is gone: a reader who comes back to a tab finds them drawn
const ASKED = ["text", "options", "width", "height"] // what a drawing depends on
const alike = (one, other) => ASKED.every((part) => one[part] === other?.[part])

class Plot {
  constructor(root) {
    this.root = root
    this.button = tableButton(() => named(this.node), () => this.figures())
    this.button.hidden = true // until there are figures
    this.busy = Promise.resolve()
    this.near = false
    this.watchers = [
      new ResizeObserver(() => this.fit()),
      new IntersectionObserver((seen) => this.come(seen.at(-1).isIntersecting), { root: root.closest('[data-testid="stMain"]'), rootMargin: `${NEAR_PX}px` }),
    ]
  }

  begin(figure) {
    const at = kept.findIndex((node) => node.kvDrawn.text === figure)
    this.node = at < 0 ? element("div", { role: "figure" }) : kept.splice(at, 1)[0]
    this.root.replaceChildren(this.node, this.button)
    for (const watcher of this.watchers) watcher.observe(this.node)
  }

  come(near) {
    this.near = near
    this.fit()
  }

  // Draws a figure, if it is another one than the one that is drawn. Far from the screen it waits, and the old one is hidden.
  update({ figure, config, group, number, last, claim }) {
    const options = JSON.stringify(config)
    if (figure === this.text && options === this.options) return
    const first = !this.node
    if (first) this.begin(figure)
    Object.assign(this, { group, number, last, claim })
    if (group) groups.set(group, (groups.get(group) ?? new Set()).add(this))
    Object.assign(this, { text: figure, options })
    this.figure = JSON.parse(figure)
    this.config = { ...config, modeBarButtonsToAdd: [FULL] }
    this.height = this.figure.layout.height
    this.node.style.height = `${this.height}px`
    if (first) this.near = reachable(this.node) // the observer reports it only after the next frame
    this.node.style.visibility = this.near ? "" : "hidden"
    clearTimeout(this.later)
    this.later = setTimeout(() => idle(() => this.fit(true)), LATER_MS)
    this.fit()
  }

  // Draws what waits, and gives a chart the width of its place. A place without a width is in a closed box or behind
  // another tab: its chart is drawn when somebody opens it.
  fit(far = false) {
    const full = document.fullscreenElement === this.node
    if (!(this.near || far || full)) return // before its width is read, for which the browser lays out the whole page
    const [width, height] = full ? [innerWidth, innerHeight] : [this.node.clientWidth, this.height]
    const asked = { text: this.text, options: this.options, width, height }
    if (!width || alike(asked, this.asked)) return
    this.asked = asked
    this.busy = this.busy.then(() => this.draw(asked)).catch((error) => console.error(error))
  }

  async draw(asked) {
    const Plotly = await loadPlotly()
    if (this.closed) return
    const { data, layout } = this.figure
    const { width, height } = asked
    if (!alike(asked, this.node.kvDrawn)) {
      this.node.kvDrawn = asked
      const look = template(this.node)
      const margin = roomy(data, layout, look.layout)
      await Plotly.react(this.node, data, { ...layout, margin, template: look, width, height }, this.config)
      if (this.closed) return
    }
    this.node.style.visibility = ""
    this.node.setAttribute("aria-label", named(this.node))
    this.button.hidden = this.group !== undefined && !this.last
  }

  // The tables of this chart; of all charts of its group, each named by its claim.
  async figures() {
    if (!this.group) return tables(this.node)
    const charts = [...groups.get(this.group)].sort((a, b) => a.number - b.number)
    await Promise.all(charts.map((chart) => (chart.fit(true), chart.busy)))
    const drawn = charts.filter(({ node }) => node.kvDrawn)
    return drawn.flatMap(({ node, claim }) => tables(node).map((table) => (claim ? { ...table, caption: claim } : table)))
  }

  close() {
    for (const watcher of this.watchers) watcher.disconnect()
    clearTimeout(this.later)
    groups.get(this.group)?.delete(this)
    this.closed = true
    if (!this.node?.kvDrawn) return
    window.Plotly.Fx.unhover(this.node)
    kept.push(this.node)
    if (kept.length > KEPT) window.Plotly.purge(kept.shift())
  }
}

function reachable(node) {
  const { top, bottom } = node.getBoundingClientRect()
  return bottom > -NEAR_PX && top < innerHeight + NEAR_PX
}

export const mount = mounted(Plot, ".kv-plot")

// What a figure leaves open: the ink, lines and letters of the page that it stands on.
function template(node) {
  const css = (name) => getComputedStyle(node).getPropertyValue(name).trim()
  const [line, family, paper] = [css("--st-border-color"), css("--st-font"), css("--st-background-color")]
  const axis = { gridcolor: line, zerolinecolor: line, tickcolor: line, automargin: true, ticklabeloverflow: "allow" }
  const ink = css("--st-text-color")
  const font = { family, color: ink }
  return {
    layout: {
      font: { ...font, size: 14 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { pad: 8, l: 0, r: 0 },
      xaxis: { ...axis, showgrid: false, zeroline: false, title: { standoff: 16 } },
      yaxis: { ...axis, title: { standoff: 24 } },
      hoverlabel: { bgcolor: paper, bordercolor: line, font },
      modebar: { bgcolor: paper, color: ink, activecolor: ink }, // Plotly's own is half black on a transparent paper
    },
  }
}

const BREAK = "<br>"
const LINES = 1.3 // of a font's size, from line to line
const pen = document.createElement("canvas").getContext("2d")

// Margins with room for what is written beside the axes. Plotly finds them as well, but by drawing a chart twice: in
// the margins that it was given, and again if they are too small. Where these are too small, it still does.
function roomy(data, { margin, xaxis, yaxis }, look) {
  const given = { ...look.margin, ...margin }
  const apart = Math.min(12, given.r, given.t) + given.pad + 1 // from the chart's edge and from the axis, rounded up
  const marks = yaxis.ticks === "outside" ? 8 : 0
  const wide = width(labels(yaxis, data), yaxis.tickfont.size, look.font.family) + titled(yaxis, look.yaxis)
  const high = LINES * xaxis.tickfont.size * rows(xaxis.ticktext ?? [""]) + titled(xaxis, look.xaxis)
  const l = yaxis.automargin === false ? 0 : apart + marks + wide
  return { ...given, l: Math.max(given.l, l), b: Math.max(given.b, apart + high) }
}

const rows = (texts) => Math.max(0, ...texts.map((text) => String(text).split(BREAK).length))

function width(texts, size, family) {
  return Math.max(0, ...texts.join(BREAK).split(BREAK).map((line) => {
    pen.font = `${line.match(/font-size:(\d+)/)?.[1] ?? size}px ${family}`
    return pen.measureText(line.replace(/<.*?>/g, "")).width
  }))
}

// The room of an axis's title. An empty one takes it as well.
function titled({ title: { text, standoff, font } }, look) {
  return text === undefined ? 0 : (standoff ?? look.title.standoff) + font.size * (0.7 + LINES * (rows([text]) - 1))
}

// The labels of a vertical axis; of one with numbers of Plotly's choice, about the longest.
function labels({ ticktext, tickvals, range, type, visible, showticklabels, ticklabelposition }, data) {
  if (visible === false || showticklabels === false || ticklabelposition?.startsWith("inside")) return []
  const values = tickvals ?? data.filter(({ yaxis }) => !yaxis || yaxis === "y").flatMap(({ y }) => y ?? [])
  if (ticktext || typeof values[0] === "string") return ticktext ?? values
  const reach = range && !tickvals ? range.map((end) => (type === "log" ? 10 ** end : end)) : values
  const end = reach.reduce((most, value) => Math.max(most, value), 0)
  return [end.toLocaleString("en", { maximumFractionDigits: end < 5 ? 1 : 0 })]
}
