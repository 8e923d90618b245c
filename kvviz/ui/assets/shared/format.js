// Numbers as people read them; every figure with its unit. The rules are those of `kvviz/base/words.py`.

export function ms(seconds) {
  if (seconds === null || seconds === undefined) return "–"
  const value = seconds * 1000
  if (value >= 999.5) return `${count(Math.round(value))} ms`
  const known = Number(value.toPrecision(3))
  if (known > 0 && known < 1 && `${known}`.length < 4) return `${known.toFixed(2)} ms` // 0.60 beside 0.65
  return `${known && known < 10 && Number.isInteger(known) ? known.toFixed(1) : known} ms` // 3.0 beside 3.3
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–"
  if (seconds < 1) return ms(seconds)
  const [size, unit] = [[3600, "h"], [60, "min"]].find(([size]) => seconds >= 1.5 * size) ?? [1, "s"]
  const value = seconds / size
  return `${value.toFixed(Number(value.toFixed(1)) < 10 ? 1 : 0)} ${unit}`
}

export function bytes(n) {
  if (n === null || n === undefined) return "–"
  for (const [unit, digits] of [["B", 0], ["KiB", 1], ["MiB", 1], ["GiB", 1]]) {
    if (Math.abs(n.toFixed(digits)) < 1024) return `${n.toFixed(digits)} ${unit}`
    n /= 1024
  }
  return `${n.toFixed(2)} TiB`
}

// Of so many bytes, the unit for figures that stand side by side: its name, and its bytes.
export function unitOf(n) {
  const power = Math.min(4, Math.floor(Math.log2(n || 1) / 10))
  return [["B", "KiB", "MiB", "GiB", "TiB"][power], 1024 ** power]
}

export const count = (n) => n.toLocaleString("en-US")

export const rate = (n) => (n === null || n === undefined ? "–" : `${n >= 100 ? count(Number(n.toPrecision(3))) : Number(n.toFixed(1))} tokens/s`)

export const times = (n) => (n === null || n === undefined ? "–" : `${n >= 100 ? count(Math.round(n)) : n.toFixed(2)}×`)

const twoDigits = (n) => (n === null || n === undefined ? "–" : `${n >= 9.95 ? count(Math.round(n)) : n.toFixed(1)}×`)

// A factor and its 95% interval with as many digits as half of the interval knows, two at least and at most three, of
// disturbed passes two: one digit would contradict the times beside it, which give 5.5 and not 6. Without an interval the
// factor alone, with two digits.
export function known(factor, interval, disturbed) {
  const half = interval ? (interval[1] - interval[0]) / 2 : 0
  if (!(half > 0)) return { factor: factor && disturbed ? `${rough(factor)}×` : interval ? times(factor) : twoDigits(factor), ...shown(interval, (end) => Number(end.toPrecision(3))) }
  const digits = (n) => Number(n.toPrecision(Math.min(disturbed ? 2 : 3, Math.max(2, exponent(n) - exponent(half) + 1))))
  return { factor: `${digits(factor)}×`, ...shown(interval, digits) }
}

// An interval in words, and its rounded ends; none without one.
function shown(interval, digits) {
  const ends = interval?.map(digits)
  return { interval: ends?.join(" to "), ends }
}

const exponent = (n) => Math.floor(Math.log10(Math.abs(n) || 1))

// A figure that only disturbed passes told: two digits.
export const rough = (n) => (n ? Number(n.toPrecision(2)) : n)

// A small number with two digits: 0, 0.0012, or 2.7 × 10⁻⁵.
export function small(n) {
  if (!n) return "0"
  if (n >= 0.001) return n.toPrecision(2)
  const [digits, power] = n.toExponential(1).split("e")
  return `${digits} × 10${[...power].map((sign) => RAISED[sign]).join("")}`
}

const RAISED = Object.fromEntries([..."-0123456789"].map((sign, i) => [sign, [..."⁻⁰¹²³⁴⁵⁶⁷⁸⁹"][i]]))
