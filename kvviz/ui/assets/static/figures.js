// The figures of a run in this browser, as the server computes them (kvviz/store/files/browser.py), for a page without one.

import { mean, median } from "../shared/state.js"

// The records that end a run. `student`: the 97.5% points of Student's t for 1, 2, … degrees of freedom.
export function ending(records, student) {
  const { modes, spec } = records.find((record) => record.t === "started")
  const reference = modes.some((mode) => mode.name === "uncached") ? "uncached" : modes[0].name
  const measured = Object.fromEntries(modes.map(({ name }) => [name, passesOf(records, name)]))
  const tokens = Object.fromEntries(modes.map(({ name }) => [name, records.filter((record) => record.t === "proof").map((record) => record.modes[name].ids[0])]))
  const last = records.findLast((record) => record.t === "proof").modes
  const base = measured.uncached?.kept.map(sum)
  const runs = modes.map(({ name }) => {
    const { kept, all, disturbed } = measured[name]
    const parted = tokens[name].findIndex((id, i) => id !== tokens[reference][i])
    const own = kept.map(sum)
    return {
      mode: name, identical: parted < 0, first_divergence: parted < 0 ? null : parted, max_abs_logit_diff: last[name].delta, ...figures(kept),
      speedup: base ? median(base) / median(own) : null,
      peak_bytes: records.find((record) => record.t === "memory" && record.mode === name)?.allocator.peak ?? null,
      passes: { clean: all - disturbed, disturbed, stopped_because: `${all} passes of each mode, as many as were asked for.` },
      speedup_interval: base && name !== "uncached" ? interval(base, own, spec.repeats, student) : null,
    }
  })
  return [{ t: "figures", runs }, { t: "done", message: "" }]
}

const sum = (values) => values.reduce((a, b) => a + b, 0)

// The timed passes of a mode; those that were disturbed count only where there is no other.
function passesOf(records, mode) {
  const passes = new Map()
  for (const { t, mode: of, repeat, s } of records) {
    if (t === "times" && of === mode && repeat >= 0) passes.set(repeat, [...(passes.get(repeat) ?? []), ...s])
  }
  const bad = new Set(records.filter((record) => record.t === "clocked" && record.mode === mode && record.clean === false).map((record) => record.repeat))
  const clean = [...passes].filter(([repeat]) => !bad.has(repeat)).map(([, s]) => s)
  return { kept: clean.length ? clean : [...passes.values()], all: passes.size, disturbed: bad.size }
}

function figures(passes) {
  const steps = passes[0].map((_, i) => median(passes.map((pass) => pass[i])))
  const singles = passes.flatMap((pass) => pass.slice(1)).sort((a, b) => a - b)
  const total = median(passes.map(sum))
  const decode = steps.slice(1)
  return { ttft_s: steps[0], itl_s: decode.length ? median(decode) : null, itl_mean_s: decode.length ? mean(decode) : null,
           itl_p99_s: singles.length ? singles[Math.ceil((99 * singles.length) / 100) - 1] : null, tokens_per_s: steps.length / total, total_s: total }
}

// The 95% interval of a speed-up, from the logarithms of the ratios of passes that lie beside one another.
function interval(base, own, first, student) {
  const logs = base.slice(0, own.length).map((one, i) => Math.log(one / own[i]))
  const some = logs.slice(0, first)
  if (some.length < 2) return null
  const middle = mean(some)
  const spread = Math.sqrt(sum(some.map((log) => (log - middle) ** 2)) / (some.length - 1))
  const half = (student[some.length - 2] * spread) / Math.sqrt(logs.length)
  const shown = median(base) / median(own)
  return [Math.min(shown, Math.exp(mean(logs) - half)), Math.max(shown, Math.exp(mean(logs) + half))]
}

