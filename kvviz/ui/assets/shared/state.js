// Records in, the state of one comparison out. Plain data: no DOM, no socket.

import { rough } from "./format.js"

export const ELSEWHERE = "endpoint" // the mode that a server decodes
const TRACED = 32 // steps that the check traces at most (kvviz/decoding/requirements.py)

export function emptyState(id) {
  return { id, state: "waiting", message: "", spec: null, model: null, environment: null, prompt: null,
           modes: [], steps: 0, proofSteps: 0, at: 0, proofAt: 0, running: null, passTimes: {}, clean: {}, figures: null }
}

// The state that each record leads to; other records leave it as it is.
const NEXT = { loading: "loading", started: "started", first_look: "looking", proof: "proof", memory: "memory", pass: "measuring", times: "measuring", clocked: "measuring",
               done: "done", stopped: "stopped", failed: "failed" }

const steps = {
  download: (s, r) => { s.download = r },
  started: (s, r) => {
    Object.assign(s, { spec: r.spec, model: r.model, environment: r.environment, prompt: r.prompt })
    s.modes = r.modes.map((m) => ({ ...m, tokens: [], rows: [], look: [], times: [], delta: null, divergence: null,
                                    margin: null, memory: null, predicted: null }))
  },
  predicted: (s, r) => {
    for (const [name, seconds] of Object.entries(r.step_s)) named(s, name).predicted = seconds
    s.tracing = r.tracing_s ?? null
  },
  first_look: (s, r) => {
    s.lookBegan ??= r.at
    s.lookAt = r.at
    for (const [name, row] of Object.entries(r.modes)) {
      const mode = named(s, name)
      if (mode.look.length !== r.i) continue
      mode.look.push(row.s)
      seen(s, mode, r.i, row)
    }
  },
  proof: (s, r) => {
    s.proofBegan ??= s.lookAt ?? 0
    s.proofSteps = r.i + 1
    s.proofAt = r.at
    for (const [name, row] of Object.entries(r.modes)) {
      const mode = named(s, name)
      if (r.i > mode.tokens.length) continue
      seen(s, mode, r.i, row)
      mode.delta = row.delta
      mode.divergence = row.divergence
      mode.margin = row.margin ?? null
    }
  },
  memory: (s, r) => {
    named(s, r.mode).memory = r
  },
  pass: (s, r) => {
    s.running = { mode: r.mode, repeat: r.repeat, began: r.at }
  },
  times: (s, r) => {
    const seconds = (s.passTimes[`${r.mode} ${r.repeat}`] ??= [])
    seconds.push(...r.s)
    if (r.repeat < 0) return
    const times = named(s, r.mode).times
    r.s.forEach((value, k) => insert((times[r.from + k] ??= []), value))
  },
  // A disturbed pass leaves the medians as soon as there is an undisturbed one.
  clocked: (s, r) => {
    s.clean[`${r.mode} ${r.repeat}`] = r.clean
    const mode = named(s, r.mode)
    if (!disturbedPasses(s, mode).length) return
    mode.times = []
    for (const seconds of keptPasses(s, mode)) seconds.forEach((value, i) => insert((mode.times[i] ??= []), value))
  },
  figures: (s, r) => { s.figures = r.runs },
  stopped: (s, r) => { s.message = r.message ?? "" },
  failed: (s, r) => { s.message = r.message },
}

// Keeps the token and the cache of a step. The first look sends both; the proof sends them again, after some steps with
// the bytes that outlive them.
function seen(s, mode, i, row) {
  s.steps = Math.max(s.steps, i + 1)
  mode.tokens[i] = { ids: row.ids, text: row.text, piece: row.piece ?? row.text, proposed: row.proposed }
  mode.where ??= row.where
  mode.rows[i] = { layers: row.layers.map(layerRow), outliving: row.outliving ?? null }
}

export function apply(state, record) {
  if (record.at !== undefined) state.at = record.at
  state.state = NEXT[record.t] ?? state.state
  steps[record.t]?.(state, record)
}

// The state after a message that comes while there is no record to send. `follows`: the comparison that was asked for.
export function withStatus(state, message, follows) {
  const unknown = message.state === "none" && state.id // what a new server does not know (yet) stays as it is
  const after = unknown || state.id === message.comparison ? state : emptyState(message.comparison)
  if (message.state === "queued") after.state = "queued"
  if (message.state === "none" && follows) after.state = "gone"
  return after
}

export function named(state, name) {
  return state.modes.find((m) => m.name === name)
}

// The timed passes of a mode so far, as [repeat, seconds of each step].
const timedPasses = (state, mode) => Object.entries(state.passTimes)
  .filter(([key]) => key.startsWith(`${mode.name} `) && Number(key.split(" ")[1]) >= 0)

// The passes that other work disturbed.
export const disturbedPasses = (state, mode) => timedPasses(state, mode).filter(([key]) => state.clean[key] === false).map(([, s]) => s)

// The passes that figures are made from: all but the disturbed ones; all of them until an undisturbed pass has ended.
export function keptPasses(state, mode) {
  const all = timedPasses(state, mode)
  const over = all.filter(([key]) => key in state.clean)
  const only = over.length > 0 && over.every(([key]) => state.clean[key] === false)
  return all.filter(([key]) => only || state.clean[key] !== false).map(([, seconds]) => seconds)
}

export const ended = (state) => ["done", "stopped", "failed"].includes(state.state)

function insert(sorted, value) {
  let i = sorted.length
  while (i > 0 && sorted[i - 1] > value) i--
  sorted.splice(i, 0, value)
}

// Linear interpolation between sorted values, as the server computes it.
export function quantile(sorted, share) {
  const place = (sorted.length - 1) * share
  const low = Math.floor(place)
  const high = Math.min(low + 1, sorted.length - 1)
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low)
}

export const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length
export const median = (values) => quantile([...values].sort((a, b) => a - b), 0.5)

// The device of an environment as a reader knows it.
export function deviceName({ device_name, device, threads }) {
  const how = device.startsWith("cpu") && threads ? `${threads} ${threads === 1 ? "thread" : "threads"}` : device
  return `${device_name} (${how})`
}

// Per-step median and quartiles over the repeats so far, in seconds; of steps that none has reached, the first look's.
export function curve(mode) {
  const timed = mode.times.map((t) => ({ q1: quantile(t, 0.25), mid: quantile(t, 0.5), q3: quantile(t, 0.75) }))
  return [...timed, ...mode.look.slice(timed.length).map((s) => ({ q1: s, mid: s, q3: s }))]
}

// Whether a mode's first repeat is under way, so that its later steps are still those of the first look.
export const partly = (mode) => mode.times.length > 0 && mode.times.length < mode.look.length

// Seconds from the start of a pass to the end of each of its steps: median and quartiles over the repeats that are furthest;
// those of the first look, until a repeat has as many steps as it.
export function runningTotal(state, mode) {
  const passes = keptPasses(state, mode).filter((seconds) => seconds.length >= mode.look.length)
  const known = passes.length ? passes : [mode.look]
  const length = Math.max(...known.map((seconds) => seconds.length))
  const sums = known.filter((seconds) => seconds.length === length).map(cumulated)
  return Array.from({ length }, (_, i) => {
    const at = sums.map((one) => one[i]).sort((a, b) => a - b)
    return { q1: quantile(at, 0.25), mid: quantile(at, 0.5), q3: quantile(at, 0.75) }
  })
}

// The seconds that each mode took for as many tokens as all modes have reached, in the first look until every mode has been
// timed. Null before the first token.
export function soFar(state) {
  const timed = state.modes.every((mode) => mode.times.length && !partly(mode))
  const totals = state.modes.map((mode) => (timed ? runningTotal(state, mode).map((at) => at.mid) : cumulated(mode.look)))
  const tokens = Math.min(...totals.map((total) => total.length))
  return tokens > 0 && tokens < Infinity ? { tokens, timed, seconds: totals.map((total) => total[tokens - 1]) } : null
}

function cumulated(seconds) {
  let sum = 0
  return seconds.map((s) => (sum += s))
}

// How many times as long twice the tokens took, by the running total; null before a second half.
export function doubling(state, mode) {
  const total = runningTotal(state, mode)
  const half = Math.floor(total.length / 2)
  return half > 1 ? total[2 * half - 1].mid / total[half - 1].mid : null
}

// Whether all that is shown was read once: no repeat has begun.
export const firstLookOnly = (state) => state.modes.some((mode) => mode.look.length) && !state.modes.some((mode) => mode.times.length)

const LAYER_FIELDS = ["indices", "kind", "key_shape", "value_shape", "dtype", "seen", "held", "nbytes", "allocated"]

// One entry for all layers in the same state. Runs recorded before the fields had names list their values in this order.
export function layerRow(entry) {
  return Array.isArray(entry) ? Object.fromEntries(LAYER_FIELDS.map((name, i) => [name, entry[i]])) : entry
}

const overLayers = (row, field) => (row ? row.layers.reduce((sum, entry) => sum + entry.indices.length * entry[field], 0) : null)
export const cacheBytes = (row) => overLayers(row, "nbytes")
export const reservedBytes = (row) => overLayers(row, "allocated")

// A run of the user's own, watched from outside: nothing ran beside it and no tensor of it was traced.
export const watched = (state) => state.spec?.warmup === 0

// Headline figures: the server's when the comparison is over, until then from the steps measured so far.
export function headline(state, mode) {
  const final = state.figures?.find((run) => run.mode === mode.name)
  if (final) return final
  const mids = curve(mode).map((c) => c.mid)
  if (!mids.length) return null
  const whole = keptPasses(state, mode).filter((s) => s.length === mode.tokens.length).map((s) => s.reduce((a, b) => a + b, 0))
  const looked = mode.look.length && mode.look.length === mode.tokens.length ? mode.look.reduce((a, b) => a + b, 0) : null
  const total = whole.length ? median(whole) : looked
  return {
    ttft_s: mids[0],
    itl_s: mids.length > 1 ? median(mids.slice(1)) : null,
    itl_mean_s: mids.length > 1 ? mean(mids.slice(1)) : null,
    total_s: total,
    tokens_per_s: total ? (mode.tokens.length * state.spec.batch) / total : null,
    speedup: null,
  }
}

// How many timed passes nothing disturbed, of how many, over all modes; null before the end of a run that told.
export function passCounts(state) {
  const counts = state.figures?.map((run) => run.passes).filter(Boolean) ?? []
  if (!counts.length) return null
  const clean = counts.reduce((sum, found) => sum + found.clean, 0)
  return { clean, all: clean + counts.reduce((sum, found) => sum + found.disturbed, 0), why: counts[0].stopped_because }
}

// Whether a mode's figures come from disturbed passes alone.
export const onlyDisturbed = (figures) => figures?.passes?.clean === 0

// What a figure of such a mode carries wherever it stands, and how many digits it keeps.
export const mark = (figures) => (onlyDisturbed(figures) ? "≈ " : "")
export const told = (n, figures) => (onlyDisturbed(figures) ? rough(n) : n)

// The second decode of the check before it has begun: a pass of the modes with a cache, and the traced steps of all. NaN if
// nobody has said how long tracing takes.
function foreseenCheck(state, look) {
  const again = look.filter((_, i) => state.modes[i].rows.at(-1)?.layers.length).reduce((a, b) => a + b, 0)
  return again + (state.tracing ?? NaN) * Math.min(TRACED, state.spec.new_tokens) * state.modes.length
}

// Seconds left: the passes still to come at what a pass of that mode took, in the first look or else in the check.
export function progress(state) {
  if (ended(state)) return { share: state.state === "done" ? 1 : null, left: 0 }
  if (!state.spec && state.download) return { share: state.download.bytes / state.download.of, left: null }
  if (!state.spec || !state.steps) return { share: 0, left: null }
  const count = state.modes.length
  const sum = (s) => s.reduce((a, b) => a + b, 0)
  const look = state.modes.map((mode) => (mode.look.length ? (sum(mode.look) * state.spec.new_tokens) / mode.look.length : 0))
  const seen = Math.max(...state.modes.map((m) => m.look.length)) - 1 // the first record tells no pace
  const looking = ((state.lookAt - state.lookBegan) * (state.spec.new_tokens - 1 - seen)) / seen
  const since = state.proofAt - (state.proofBegan ?? 0)
  const proof = state.proofSteps ? (since * state.spec.new_tokens) / state.proofSteps : foreseenCheck(state, look)
  const passes = state.spec.warmup - 1 + Math.max(state.spec.repeats, (state.running?.repeat ?? 0) + 1)
  let left = state.state === "looking" ? looking : 0
  if (!state.running && !state.modes.some((mode) => mode.memory)) left += Math.max(0, proof - (state.proofSteps ? since : 0))
  for (const [i, mode] of state.modes.entries()) {
    const runs = Object.entries(state.passTimes).filter(([key]) => key.startsWith(`${mode.name} `)).map(([, s]) => s)
    const full = runs.filter((s) => s.length >= mode.tokens.length && mode.tokens.length)
    const one = full.length ? sum(full[0]) : look[i] || proof / count
    left += Math.max(0, one * passes - runs.reduce((all, s) => all + sum(s), 0))
  }
  return Number.isNaN(left) ? { share: null, left: null } : { share: state.at / (state.at + left), left }
}
