// A comparison that this browser measures: a generator of the records that the server's feed would send, in their order.

import { decode } from "../engine/decode.js"
import { chooser } from "../engine/sampling.js"
import { textStream } from "../engine/tokenizer.js"

const ALONE = 10 // ticks of the clock that a step has to last to be timed by itself
const SEND_EVERY_MS = 100
const ROUNDING = 3 * Math.sqrt(2 ** -23) // the share of a logit that rounding in float32 explains

// The milliseconds between two values of the clock: browsers make it coarser than the processor's.
export function tickOf(now) {
  const ticks = Array.from({ length: 15 }, () => {
    const start = now()
    let at = start
    while (at === start) at = now()
    return at - start
  })
  return ticks.sort((a, b) => a - b)[7]
}

// `work` has the records' spec, modes and model; `environment` says what this browser tells of itself.
export function* comparison(engine, work, environment, now = () => performance.now()) {
  const begun = now()
  const tick = tickOf(now)
  const { tokenizer } = engine
  const prompt = promptOf(work, tokenizer)
  const text = work.spec.prompt ?? tokenizer.decode(prompt)
  const pieces = prompt.map((id) => tokenizer.decode([id]))
  yield { t: "started", spec: work.spec, environment, config_hash: work.config_hash, modes: work.modes,
          model: { ...work.model, note: clockWords(tick) }, prompt: { tokens: prompt.length, text, pieces } }
  const run = { ...engine, work, prompt, now, alone: ALONE * tick, choose: chooser(work.spec.sampling), checked: {} }
  for (const part of [firstLook, check, passes]) {
    for (const record of part(run)) yield { ...record, at: Math.round(now() - begun) / 1000 }
  }
}

function clockWords(tick) {
  const ms = (value) => `${Number(value.toPrecision(2))} ms`
  return `This browser's clock moves in steps of ${ms(tick)}. In the timed passes, decode steps of less than ${ms(ALONE * tick)} are timed ` +
    "in groups that last at least so long, and each step of a group counts as its mean; in the first look each step is timed alone."
}

export function promptOf({ spec, book }, tokenizer) {
  const row = tokenizer.encode(spec.prompt ?? book)
  return Array.from({ length: spec.prompt_tokens ?? row.length }, (_, i) => row[i % row.length])
}

const open = ({ model, prompt, work, choose }, mode) => decode(model, prompt, { mode, newTokens: work.spec.new_tokens, choose })

// One mode in a pass of all modes in turn: what its latest step wrote and keeps.
class Lane {
  constructor(run, mode) {
    Object.assign(this, { run, mode, steps: open(run, mode.name), stream: textStream(run.tokenizer), ids: [], bytes: 0, peak: 0, delta: null, divergence: null, margin: null })
  }

  // Takes a step; returns its seconds.
  advance() {
    const { now, model: { heap } } = this.run
    const before = heap.live
    heap.peak = before
    const start = now()
    this.step = this.steps.next().value
    const seconds = (now() - start) / 1000
    this.peak = Math.max(this.peak, this.bytes + heap.peak - before)
    this.bytes += heap.live - before // with the logits, which the next step gives back
    this.ids.push(this.step.id)
    return seconds
  }

  read() {
    const { id, cache, index } = this.step
    const found = { ids: [id], text: this.stream(id), piece: this.run.tokenizer.decode([id]), layers: cache?.states() ?? [] }
    return index || !cache ? found : { ...found, where: `${cache.constructor.name} → layers[0].keys` }
  }

  // Holds the step against that of the mode that all are compared with.
  compare(reference) {
    if (this.divergence !== null) return
    const [mine, other] = [this.step.logits, reference.step.logits]
    let [delta, most] = [0, 0]
    for (let i = 0; i < mine.length; i++) {
      delta = Math.max(delta, Math.abs(mine[i] - other[i]))
      most = Math.max(most, Math.abs(other[i]))
    }
    this.delta = Math.max(this.delta ?? 0, delta)
    if (this.step.id === reference.step.id) return
    this.divergence = this.step.index
    const [first, second] = [...other].sort((a, b) => b - a)
    this.margin = first - second
    if (delta > ROUNDING * most) throw new Error(`${this.mode.title} computes something else in this browser: its logits are ${delta.toPrecision(3)} off`)
  }

  get outliving() {
    return this.bytes - this.step.logits.byteLength
  }
}

const lanesOf = (run) => run.work.modes.map((mode) => new Lane(run, mode))

function* inTurn(run, lanes, read) {
  for (let i = 0; i < run.work.spec.new_tokens; i++) yield { i, modes: Object.fromEntries(lanes.map((lane) => [lane.mode.name, read(lane)])) }
  for (const lane of lanes) lane.steps.return()
}

function* firstLook(run) {
  for (const looked of inTurn(run, lanesOf(run), (lane) => ({ s: lane.advance(), ...lane.read() }))) yield { t: "first_look", ...looked }
}

// The untimed check that the modes agree, and what each of them keeps at its end.
function* check(run) {
  const lanes = lanesOf(run)
  const reference = lanes.find((lane) => lane.mode.name === "uncached") ?? lanes[0]
  const ordered = [reference, ...lanes.filter((lane) => lane !== reference)]
  const checked = inTurn(run, ordered, (lane) => {
    lane.advance()
    lane.compare(reference)
    lane.last = { ...lane.read(), outliving: lane.outliving, delta: lane.delta, divergence: lane.divergence, margin: lane.margin }
    return lane.last
  })
  for (const record of checked) yield { t: "proof", ...record }
  const { layers, kvHeads, dim } = run.model.shape
  for (const lane of lanes) {
    run.checked[lane.mode.name] = lane.ids
    const sum = (field) => lane.last.layers.reduce((all, group) => all + group.indices.length * group[field], 0)
    const fed = lane.last.layers.length ? run.prompt.length + lane.ids.length - 1 : 0
    const reasons = sum("allocated") === sum("nbytes") ? [] : ["The arrays have room for all tokens of the run from the start."]
    yield { t: "memory", mode: lane.mode.name, formula: 2 * layers * kvHeads * dim * 4 * fed, tensors: sum("nbytes"), storages: sum("allocated"),
            allocator: { kind: "heap", kept: lane.last.outliving, peak: lane.peak, reserved: null }, reasons }
  }
}

// The warm-ups that are left, then the timed passes, the modes in turn: A B, B A, …
function* passes(run) {
  const { repeats, warmup } = run.work.spec
  for (let repeat = 1 - warmup; repeat < repeats; repeat++) {
    const names = run.work.modes.map((mode) => mode.name)
    for (const mode of (repeat + warmup) % 2 ? names : names.reverse()) {
      yield { t: "pass", mode, repeat }
      yield* timedPass(run, mode, repeat)
      if (repeat >= 0) yield { t: "clocked", mode, repeat, clean: null }
    }
  }
}

// The prefill is timed by itself. A group of decode steps ends when it is long enough for the clock; what is left over at
// the end belongs to the group before.
export function* timedPass(run, mode, repeat) {
  const { now, alone, checked } = run
  const ids = []
  let [seconds, from, sent, told] = [[], 0, 0, now()]
  let since = now()
  for (const step of open(run, mode)) {
    ids.push(step.id)
    const at = now()
    if (step.index && at - since < alone) continue
    seconds.push({ steps: ids.length - from, ms: at - since })
    from = ids.length
    if (at - told > SEND_EVERY_MS) {
      const ready = seconds.slice(sent, -1) // the last one may still grow
      if (ready.length) yield times(mode, repeat, seconds.slice(0, sent), ready)
      sent += ready.length
      told = now()
    }
    since = now()
  }
  const over = { steps: ids.length - from, ms: now() - since }
  if (over.steps && seconds.length > 1) {
    const last = seconds.pop()
    seconds.push({ steps: last.steps + over.steps, ms: last.ms + over.ms })
  } else if (over.steps) seconds.push(over)
  yield times(mode, repeat, seconds.slice(0, sent), seconds.slice(sent))
  if (ids.some((id, i) => id !== checked[mode][i])) throw new Error(`a timed pass of ${mode} chose other tokens than the check`)
}

function times(mode, repeat, before, groups) {
  const s = groups.flatMap(({ steps, ms }) => Array(steps).fill(Number((ms / 1000 / steps).toFixed(9))))
  return { t: "times", mode, repeat, from: before.reduce((sum, { steps }) => sum + steps, 0), s }
}
