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
