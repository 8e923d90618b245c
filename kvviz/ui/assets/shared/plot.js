// A figure that Python made, in a Plotly chart that lives as long as its place on the page.

import { named, tableButton, tables } from "./chart_table.js"
import { element } from "./dom.js"
import { mounted } from "./mounted.js"
import { loadPlotly } from "./plotly.js"

const FULL = { name: "Full screen", icon: { width: 24, height: 24, path: "M3 3h7v2H5v5H3zM14 3h7v7h-2V5h-5zM3 14h2v5h5v2H3zM19 14h2v7h-7v-2h5z" } }

const groups = new Map() // charts whose figures one button opens, by the group's name

class Plot {
  constructor(root) {
    this.node = element("div", { role: "figure" })
    this.button = tableButton(() => named(this.node), () => this.figures())
    this.button.hidden = true // until there are figures
    root.replaceChildren(this.node, this.button)
    this.busy = Promise.resolve()
    this.resizer = new ResizeObserver(() => this.fit())
    this.resizer.observe(this.node)
  }

  // Draws a figure, if it is another one than the one that is drawn.
  update({ figure, config, group, number, last, claim }) {
    if (figure === this.text) return
    Object.assign(this, { group, number, last, claim })
    if (group) groups.set(group, (groups.get(group) ?? new Set()).add(this))
    this.text = figure
    this.figure = JSON.parse(figure)
    this.config = { ...config, modeBarButtonsToAdd: [{ ...FULL, click: (node) => node.requestFullscreen?.() }] }
    this.height = this.figure.layout.height
    this.node.style.height = `${this.height}px`
    this.drawn = false
    this.fit()
  }

  // Draws what waits, and gives a chart the width of its place. A place without a width is in a closed box or behind
  // another tab: its chart is drawn when somebody opens it.
  fit() {
    const full = document.fullscreenElement === this.node
    const [width, height] = full ? [innerWidth, innerHeight] : [this.node.clientWidth, this.height]
    if (!width || (this.drawn && width === this.width && height === this.tall)) return
    Object.assign(this, { width, tall: height, drawn: true })
    this.busy = this.busy.then(() => this.draw(width, height)).catch((error) => console.error(error))
  }

  async draw(width, height) {
    const Plotly = await loadPlotly()
    const { data, layout } = this.figure
    await Plotly.react(this.node, data, { ...layout, template: template(this.node), width, height }, this.config)
    this.node.setAttribute("aria-label", named(this.node))
    this.button.hidden = this.group !== undefined && !this.last
  }

  // The tables of this chart; of all charts of its group, each named by its claim.
  figures() {
    if (!this.group) return tables(this.node)
    const charts = [...groups.get(this.group)].sort((a, b) => a.number - b.number)
    return charts.flatMap(({ node, claim }) => tables(node).map((table) => (claim ? { ...table, caption: claim } : table)))
  }

  close() {
    this.resizer.disconnect()
    groups.get(this.group)?.delete(this)
    if (window.Plotly) window.Plotly.purge(this.node)
  }
}

export const mount = mounted(Plot, ".kv-plot")

// What a figure leaves open: the ink, lines and letters of the page that it stands on.
function template(node) {
  const css = (name) => getComputedStyle(node).getPropertyValue(name).trim()
  const [line, family, paper] = [css("--st-border-color"), css("--st-font"), css("--st-background-color")]
  const axis = { gridcolor: line, zerolinecolor: line, tickcolor: line, automargin: true }
  const font = { family, color: css("--st-text-color") }
  return {
    layout: {
      font: { ...font, size: 14 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { pad: 8, l: 0, r: 0 },
      xaxis: { ...axis, showgrid: false, zeroline: false, title: { standoff: 16 } },
      yaxis: { ...axis, title: { standoff: 24 } },
      hoverlabel: { bgcolor: paper, bordercolor: line, font },
    },
  }
}
