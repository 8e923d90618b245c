// plotly.js is a classic script; it is loaded once for all charts of a page.

const SCRIPT = new URL("../vendor/plotly-cartesian-4.1.1.min.js", import.meta.url)

let plotly = null

export function loadPlotly() {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script")
    script.src = SCRIPT
    script.onload = () => resolve(window.Plotly)
    script.onerror = () => {
      plotly = null // the next drawing tries again
      script.remove()
      reject(new Error("plotly.js could not be loaded"))
    }
    document.head.append(script)
  })
  return plotly
}

// Draws a small chart that nobody sees: a browser compiles what it runs for the first time, which would make the first chart
// behind a tab take twice as long.
export async function rehearse() {
  if (document.querySelector(".js-plotly-plot")) return
  const Plotly = await loadPlotly()
  const node = document.createElement("div")
  node.style.cssText = "position: fixed; left: -1000px; visibility: hidden"
  document.body.append(node)
  const axis = { automargin: true, title: { text: "x" } }
  const bars = { type: "bar", orientation: "h", x: [1, 2], y: ["a", "b"], text: ["1", "2"], name: "a" }
  const line = { type: "scatter", mode: "lines+markers", x: [1, 2], y: ["a", "b"], name: "b" }
  const layout = { width: 600, height: 400, barmode: "stack", showlegend: true, xaxis: axis, yaxis: axis, annotations: [{ text: "a", x: 1, yref: "paper", y: 0.5, showarrow: false }] }
  await Plotly.newPlot(node, [bars, line], layout, { displaylogo: false })
  Plotly.purge(node)
  node.remove()
}
