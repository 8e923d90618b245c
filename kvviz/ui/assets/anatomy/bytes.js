// Bytes over the tokens as lines, with axes: what stays and what grows.

import { svg } from "../shared/dom.js"
import { bytes, count, unitOf } from "../shared/format.js"

const left = 62, right = 118, top = 12, under = 40 // CSS pixels

// `lines`: each a `way` ("kept" here, or an "other" one's), a `name`, its `bytes` after each token. `most`: bytes at the top of the
// chart; `step`: the token at which the walk is; `across` and `high`: CSS pixels.
export function bytesOverTokens(lines, most, step, across, high = 172) {
  const last = lines[0].bytes.length - 1
  const x = (i) => left + (i / Math.max(1, last)) * (across - left - right)
  const y = (value) => high - under - (value / most) * (high - under - top)
  const told = lines.map((line) => line.name + " " + bytes(line.bytes[step])).join(", ")
  const board = svg("svg", { class: "kv-lines", width: across, height: high, viewBox: `0 0 ${across} ${high}`, role: "img", "aria-label": `Bytes after ${step + 1} tokens: ${told}` })
  const words = (text, attributes) => { const node = svg("text", attributes); node.textContent = text; return node }
  const marks = ticks(most), inUnit = alike(marks)
  for (const value of marks) {
    board.append(svg("line", { class: "kv-ground", x1: left, x2: across - right, y1: y(value), y2: y(value) }),
                 words(inUnit(value), { x: left - 6, y: y(value) + 4, "text-anchor": "end" }))
  }
  const every = [1, 2, 5, 10].find((by) => ((last + 1) / by) * 34 < across - left) ?? 20
  for (let i = 0; i <= last; i++) if ((i === 0 && every !== 2) || (i + 1) % every === 0) board.append(words(count(i + 1), { x: x(i), y: high - under + 17, "text-anchor": "middle" }))
  board.append(words("tokens so far", { x: (left + across - right) / 2, y: high - 4, "text-anchor": "middle" }),
               svg("line", { class: "kv-nowline", x1: x(step), x2: x(step), y1: top, y2: y(0) }))
  for (const { way, name, bytes: held } of lines) {
    board.append(svg("polyline", { "data-kind": way, points: held.map((value, i) => x(i) + "," + y(value)).join(" ") }),
                 svg("circle", { "data-kind": way, cx: x(step), cy: y(held[step]), r: 4.5 }))
  }
  // beside the ends of the lines, and not over one another
  let free = top
  for (const { name, bytes: held } of [...lines].sort((one, other) => other.bytes[last] - one.bytes[last])) {
    const level = Math.max(free, Math.min(y(held[last]) - 4, high - under - 14))
    board.append(words(name, { class: "kv-linename", x: across - right + 9, y: level }), words(`${bytes(held[last])}${step < last ? ` at token ${last + 1}` : ""}`, { x: across - right + 9, y: level + 15 }))
    free = level + 34
  }
  return board
}

// Round numbers of bytes from 0 up to `most`, at most six of them.
function ticks(most) {
  let by = 256
  while (most / by >= 6) by *= 2
  return Array.from({ length: Math.floor(most / by) + 1 }, (_, i) => i * by)
}

// How an axis writes its marks: all in the unit of the largest, with as many decimals as their step needs.
function alike(marks) {
  const [unit, size] = unitOf(marks.at(-1))
  const digits = (String((marks[1] ?? 0) / size).split(".")[1] ?? "").length
  return (value) => (value ? `${(value / size).toFixed(digits)} ${unit}` : "0")
}
