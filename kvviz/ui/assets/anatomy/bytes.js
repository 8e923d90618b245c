// Bytes over the tokens as lines, with axes: what stays and what grows.

import { svg } from "../shared/dom.js"
import { bytes, count } from "../shared/format.js"

const HIGH = 172, LEFT = 62, RIGHT = 118, TOP = 12, UNDER = 40 // CSS pixels

// `lines`: each a `way` ("stays" or "grows"), a `name`, its `bytes` after each token. `most`: bytes at the top of the
// chart; `step`: the token at which the walk is; `across`: CSS pixels.
export function bytesOverTokens(lines, most, step, across) {
  const last = lines[0].bytes.length - 1
  const x = (i) => LEFT + (i / Math.max(1, last)) * (across - LEFT - RIGHT)
  const y = (value) => HIGH - UNDER - (value / most) * (HIGH - UNDER - TOP)
  const board = svg("svg", { class: "kv-lines", width: across, height: HIGH, viewBox: `0 0 ${across} ${HIGH}`, role: "img", "aria-label": `Bytes over the tokens: ${lines.map(({ name, bytes: held }) => `${name} ${bytes(held[step])} after ${step + 1}`).join(", ")}` })
  const words = (text, attributes) => { const node = svg("text", attributes); node.textContent = text; return node }
  for (const value of ticks(most)) {
    board.append(svg("line", { class: "kv-ground", x1: LEFT, x2: across - RIGHT, y1: y(value), y2: y(value) }),
                 words(bytes(value), { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }))
  }
  const every = [1, 2, 5, 10].find((by) => ((last + 1) / by) * 34 < across - LEFT) ?? 20
  for (let i = 0; i <= last; i++) if ((i === 0 && every !== 2) || (i + 1) % every === 0) board.append(words(count(i + 1), { x: x(i), y: HIGH - UNDER + 17, "text-anchor": "middle" }))
  board.append(words("tokens so far", { x: (LEFT + across - RIGHT) / 2, y: HIGH - 4, "text-anchor": "middle" }),
               svg("line", { class: "kv-nowline", x1: x(step), x2: x(step), y1: TOP, y2: y(0) }))
  for (const { way, name, bytes: held } of lines) {
    board.append(svg("polyline", { "data-kind": way, points: held.map((value, i) => `${x(i)},${y(value)}`).join(" ") }),
                 svg("circle", { "data-kind": way, cx: x(step), cy: y(held[step]), r: 4.5 }))
  }
  // beside the ends of the lines, and not over one another
  let free = TOP
  for (const { name, bytes: held } of [...lines].sort((one, other) => other.bytes[last] - one.bytes[last])) {
    const level = Math.max(free, Math.min(y(held[last]) - 4, HIGH - UNDER - 14))
    board.append(words(name, { class: "kv-linename", x: across - RIGHT + 9, y: level }), words(`${bytes(held[step])} now`, { x: across - RIGHT + 9, y: level + 15 }))
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
