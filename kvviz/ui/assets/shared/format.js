// Numbers as people read them; every figure with its unit.

export function ms(seconds) {
  if (seconds === null || seconds === undefined) return "–"
  const value = seconds * 1000
  return value >= 100 ? `${value.toFixed(0)} ms` : value >= 10 ? `${value.toFixed(1)} ms` : `${value.toFixed(2)} ms`
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–"
  if (seconds < 1) return ms(seconds)
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`
  return `${Math.floor(seconds / 60)} min ${String(Math.round(seconds % 60)).padStart(2, "0")} s`
}

export function bytes(n) {
  if (n === null || n === undefined) return "–"
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(n) < 1024) return unit === "B" ? `${n} B` : `${n.toFixed(1)} ${unit}`
    n /= 1024
  }
  return `${n.toFixed(2)} TiB`
}

export const count = (n) => n.toLocaleString("en-US")

export const rate = (n) => (n === null || n === undefined ? "–" : `${n >= 100 ? n.toFixed(0) : n.toFixed(1)} tok/s`)

export const times = (n) => (n === null || n === undefined ? "–" : `${n >= 100 ? n.toFixed(0) : n.toFixed(2)}×`)
