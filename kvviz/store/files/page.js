// Draws the page's charts from the JSON that lies in it. Nothing is fetched.
;(() => {
  const part = (id) => document.getElementById(id)
  const { traces, layout, dark, filename } = JSON.parse(part("figure").textContent)
  const night = matchMedia("(prefers-color-scheme: dark)")
  let log = false

  const recoloured = (trace) => {
    const shade = (colour) => (night.matches && dark[colour]) || colour
    const copy = { ...trace }
    if (trace.line) copy.line = { ...trace.line, color: shade(trace.line.color) }
    if (trace.fillcolor) copy.fillcolor = shade(trace.fillcolor)
    return copy
  }

  const themed = () => {
    const grid = night.matches ? "#39424f" : "#d5dae1"
    const result = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" }
    result.font = { ...layout.font, family: "system-ui, sans-serif", color: night.matches ? "#e8ebf0" : "#1d2430" }
    result.modebar = { bgcolor: "rgba(0,0,0,0)", color: result.font.color, activecolor: result.font.color }
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      result[name] = { ...layout[name], gridcolor: grid, linecolor: grid, zerolinecolor: grid }
    }
    result.yaxis.type = log ? "log" : "linear"
    return result
  }

  const picture = (format) => ({ format, filename, width: 1400, height: 1000, scale: format === "png" ? 2 : 1 })
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "sendChartToCloud"],
    toImageButtonOptions: picture("png"),
    modeBarButtonsToAdd: [
      {
        name: "svg",
        title: "Download the charts as SVG",
        icon: Plotly.Icons.disk,
        click: (chart) => Plotly.downloadImage(chart, picture("svg")),
      },
    ],
  }
  const draw = () => Plotly.react(part("charts"), traces.map(recoloured), themed(), config)

  const save = () => {
    const link = document.createElement("a")
    link.href = URL.createObjectURL(new Blob([part("comparison").textContent], { type: "application/json" }))
    link.download = `${filename}.json`
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 1000)
  }

  part("log").addEventListener("click", () => {
    log = !log
    part("log").setAttribute("aria-pressed", log)
    draw()
  })
  part("save").addEventListener("click", save)
  night.addEventListener("change", draw)
  draw()
})()
