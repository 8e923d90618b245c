// What a speed-up says, and two curves of one mode, drawn and measured, on one scale and in words. Plain data: no DOM.

import { known, ms } from "../shared/format.js"
import { median } from "../shared/state.js"

export const COLUMNS = 65 // a stroke is a height for each of so many places from the first new token to the last
export const TENTH = 0.1
export const FEWEST = 25 // decode steps, of which a tenth has a middle that one slow step does not move
export const MANY = 48 // steps; a longer line is read off its running median
export const WIDE = 9 // steps of a running median
export const WIDER = 25 // where spikes are a visible part of the time
const UNSTEADY = 0.5 // quartiles further apart than this part of the median
const NEARLY = 0.1 // ends of a drawn line that differ by less of the tallest point are no climb to the eye

const middle = (values) => [...values].sort((a, b) => a - b)[values.length >> 1]

// Whether a step over so many tokens is nearly as much work as one over one token more.
export const nearly = (tokens) => tokens >= 4

// What the cache brings, and how sure that is. One rule: it is certain where the 95% interval, as its
// digits show it, lies on one side of 1, or, without an interval, if it is more than 5%. `mark`: what stands before a
// figure that other work has disturbed. `lean`: "high" or "low" if it disturbed every pass of one mode alone.
export function gain(speedup, interval, mark = "", lean = "") {
  const found = known(speedup, interval, mark)
  const [low, high] = found.ends ?? [speedup / 1.05, speedup * 1.05]
  const said = `${found.interval ? mark : "≈ "}${found.factor.replace("×", "")} times as fast`
  const sure = found.interval ? `95% interval ${mark && "of these passes "}${found.interval}` : lean ? `may be too ${lean}: every pass ${lean === "low" ? "with" : "without"} it was disturbed` : "no interval: too few quiet passes"
  if (high < 1) return [`Slower with the cache: ${said}`, sure]
  return low > 1 ? [`${said} with the cache`, sure] : [`Not certain: ${said}`, sure] // no longer than the others, so that the end of a run moves nothing
}

// Two rates rounded to `few` digits, or to as many more as make their ratio the factor that is shown beside them.
export function inRatio(fast, slow, factor, few) {
  const shown = factor.replace("×", "")
  const slack = 0.5 * 10 ** -(shown.split(".")[1]?.length ?? 0)
  const rounded = (digits) => [fast, slow].map((n) => Number(n.toPrecision(digits)))
  const agrees = ([one, other]) => Math.abs(one / other - Number(shown.replaceAll(",", ""))) <= slack
  return [few, few + 1, few + 2].map(rounded).find(agrees) ?? rounded(few + 1)
}

// Milliseconds that a drawn height of 1 stands for: the tallest drawn point is the tallest measured median.
export function scale(strokes, curves) {
  const modes = Object.keys(strokes).filter((mode) => curves[mode]?.length)
  const drawn = Math.max(0, ...modes.flatMap((mode) => strokes[mode].filter((h) => h !== null)))
  const measured = Math.max(0, ...modes.flatMap((mode) => curves[mode]))
  return drawn > 0 && measured > 0 ? measured / drawn : null
}

// A stroke's points: x in new tokens, y in ms.
export function points(stroke, tokens, perHeight) {
  const found = stroke.map((h, i) => [1 + (i / (COLUMNS - 1)) * (tokens - 1), h]).filter(([, h]) => h !== null)
  return { x: found.map(([x]) => x), y: found.map(([, h]) => h * perHeight) }
}

// The two ends of a line: medians of its first and of its last tenth; its first entry, the prefill, is left out.
export function ends(values) {
  const decode = values.length > 2 ? values.slice(1) : values
  const some = Math.max(1, Math.round(decode.length * TENTH))
  return [middle(decode.slice(0, some)), middle(decode.slice(-some))]
}

// The median of each step and its neighbours, and null for the prefill, which is no decode step; `middle` may be a mean.
export function running(values, middle = median, wide = WIDE) {
  const half = (wide - 1) / 2
  return values.map((_, i) => (i ? middle(values.slice(Math.max(1, i - half), i + half + 1)) : null))
}

// A long line's running median behind its prefill; a short line speaks for itself.
export const smooth = (line) => (line.length > MANY ? [line[0], ...running(line).slice(1)] : line)

// What a drawn line does, by what its ends differ as a part of the tallest point of all.
export function shape([first, last], tallest) {
  if (Math.abs(last - first) < NEARLY * tallest) return "flat"
  return last > first ? "climb" : "fall"
}

const EXPECTED = { climb: "to climb", fall: "to fall", flat: "to stay flat" }

// Whether the passes of the typical step differ widely; `quartiles` has {q1, mid, q3} for each step.
export function unsteady(quartiles) {
  const widths = quartiles.filter(({ mid }) => mid > 0).map(({ q1, mid, q3 }) => (q3 - q1) / mid)
  return widths.length > 0 && middle(widths) > UNSTEADY
}

const CAME = { climb: "climbed", fall: "fell", flat: "stayed flat" }
const CLOSE = 1.25 // a drawing that is off by a smaller factor is close

const times = (ratio) => `${ratio.toFixed(1)}×`

// How far a drawing is from the measurement, in sentences for one mode; both in ms. `found` is the shape of the measured
// steps as the server tells it from a 95% interval: climb, fall, flat, null where that can't be told, undefined without a
// server.
export function compared(title, drawn, measured, tallest, found) {
  const [want, got] = [ends(drawn), ends(measured)]
  const [drew, came] = [want, got].map(([first, last]) => last / first)
  const expected = shape(want, tallest)
  const off = Math.max(came / drew, drew / came)
  const size = off < CLOSE ? "and your drawing is close" : `but your factor is ${off.toFixed(1)} times too ${came > drew ? "small" : "large"}`
  const slight = found !== "flat" && shape(got, tallest) === "flat" ? ", by too little to see beside the highest point" : ""
  const verdict = found === undefined ? "" : !found ? `You expected it ${EXPECTED[expected]}; its steps are too few or too unlike to tell what it did.`
    : expected === found ? `It ${CAME[found]}, as you expected, ${size}.`
    : `You expected it ${EXPECTED[expected]}, but it ${CAME[found]}${slight}.`
  const [first, last] = got.map((value) => ms(value / 1000))
  return `${title}: you drew the last step at ${times(drew)} the first; measured: ${times(came)}, from ${first} to ${last}. ${verdict}`
}
