// The figures behind a chart, as a table: for who can't see it, and for who wants the numbers.

import { element, scrolled } from "./dom.js"

const PRECISE = 6 // digits

// A button that opens the table of this Plotly chart.
export const dataButton = (chart) => tableButton(() => named(chart), () => tables(chart))

// A button that opens tables, each with a `head`, `rows` and perhaps a `caption`, under a title; both are asked for when it is pressed.
export function tableButton(title, tables) {
  const button = element("button", { type: "button", class: "kv-data", "aria-haspopup": "dialog", "data-testid": "kv-data" }, "Data")
  button.onclick = async () => open(button, title(), await tables())
  return button
}

// The dialog stands beside its button, where the theme's colours are.
function open(button, title, tables) {
  const close = element("button", { type: "button", class: "kv-data" }, "Close")
  const dialog = element("dialog", { class: "kv-datatable", "aria-label": "The figures of this chart", "data-testid": "kv-datatable" },
    element("div", { class: "kv-datahead" }, element("h2", {}, title), close),
    ...tables.map(drawn))
  close.onclick = () => dialog.close()
  dialog.onclick = (event) => event.target === dialog && dialog.close()
  dialog.onclose = () => dialog.remove()
  button.after(dialog)
  dialog.showModal()
}

function drawn({ head, rows, caption }) {
  const cell = (value, i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, written(value))
  return scrolled(caption ?? head.join(", "), "kv-datascroll",
    element("table", {}, ...(caption ? [element("caption", {}, caption)] : []),
      element("thead", {}, element("tr", {}, ...head.map((words) => element("th", { scope: "col" }, words)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell))))))
}

const plain = (text) => new DOMParser().parseFromString(String(text ?? "").replace(/<br>/g, " "), "text/html").body.textContent

function written(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–"
  if (typeof value !== "number") return plain(value)
  return Number.isInteger(value) ? value.toLocaleString("en-US") : String(Number(value.toPrecision(PRECISE)))
}

const axisOf = (chart, letter, trace) => chart._fullLayout[(trace[`${letter}axis`] ?? letter).replace(letter, `${letter}axis`)] ?? {}
const titled = (axis, otherwise) => plain(axis.title?.text).replace(/^Click to enter.*/, "") || otherwise
const unnamed = (trace) => /^trace \d+$/.test(trace.name)
const isMark = (trace) => unnamed(trace) && trace.mode === "markers" && trace.hoverinfo === "skip" // around a point that a line has already
const series = (chart) => chart._fullData.filter((trace) => trace.visible === true && trace.fill !== "toself" && trace.type !== "heatmap" && !isMark(trace))

// What a chart shows, in words: its axes and its lines.
export function named(chart) {
  const [first] = chart._fullData
  if (!first) return "Chart"
  const [x, y] = ["x", "y"].map((letter) => titled(axisOf(chart, letter, first), ""))
  const lines = [...new Set(series(chart).filter((trace) => !unnamed(trace)).map((trace) => plain(trace.name)))]
  return [[y, x].filter(Boolean).join(" by ") || "Chart", lines.slice(0, 8).join(", ")].filter(Boolean).join(": ")
}

// A table for each group of lines that share their places on one axis, one column a line; one for each heat map.
export function tables(chart) {
  const groups = new Map()
  for (const trace of series(chart)) {
    const flat = trace.orientation === "h"
    const [along, across] = flat ? ["y", "x"] : ["x", "y"]
    const all = [...(trace[along] ?? [])], there = (values) => [...values].filter((_, i) => all[i] !== null) // a line is broken at a place that is none
    const places = there(all)
    const place = titled(axisOf(chart, along, trace), flat ? "" : "x")
    const key = `${place} ${places.join(" ")}`
    if (!groups.has(key)) groups.set(key, { place, places, lines: [] })
    const measure = titled(axisOf(chart, across, trace), "")
    const name = unnamed(trace) ? "" : plain(trace.name)
    groups.get(key).lines.push({ name: [name, measure].filter(Boolean).join(", "), values: there(trace.meta?.values ?? trace[across] ?? []) })
  }
  const found = [...groups.values()].map(({ place, places, lines }) => ({
    head: [place, ...lines.map((line) => line.name)],
    rows: places.map((at, i) => [at, ...lines.map((line) => line.values[i])]),
  }))
  return [...found, ...chart._fullData.filter((trace) => trace.type === "heatmap").map((trace) => grid(chart, trace))]
}

function grid(chart, trace) {
  const columns = [...(trace.x ?? trace.z[0].map((_, i) => i))]
  const rows = [...(trace.y ?? trace.z.map((_, i) => i))]
  const corner = `${titled(axisOf(chart, "y", trace), "row")} \\ ${titled(axisOf(chart, "x", trace), "column")}`
  const told = (y, x) => trace.z[y][x] ?? null
  return { head: [corner, ...columns.map(written)], rows: rows.map((at, y) => [at, ...columns.map((_, x) => (trace.text?.[y]?.[x] || told(y, x)))]) }
}
