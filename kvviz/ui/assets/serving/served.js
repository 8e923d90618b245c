// A serving run: records in, what became of each request out, and how it stood at a moment. Plain data: no DOM, no socket.

export function emptyRun() {
  return { state: "waiting", spec: null, prompts: [], rows: [], now: null }
}

export function apply(run, record) {
  if (record.t === "look") Object.assign(run, { state: "look", spec: record.spec, prompts: record.prompts, rows: record.spec.policies.map(emptyRow) })
  else if (record.t === "part") take(run, record)
  else if (record.t === "way") Object.assign(run.now, { clean: record.clean, over: true })
  else if (["loading", "done", "stopped", "failed"].includes(record.t)) run.state = record.t
}

export function takeDocument(run, { spec, prompts, rows }) {
  Object.assign(run, { state: "done", spec, prompts, rows: rows.map((row) => ({ ...row, version: 0, over: true })) })
}

const emptyRow = (policy) => ({ policy, each: [], steps: {}, pictures: [], stride: 1, clean: null, version: 0, over: false })

// What is new of a policy: a list goes on, any other value takes the place of the one before (`together` in timeline.py).
function take(run, part) {
  run.state = "serving"
  const row = run.now = run.rows.find((row) => row.policy === part.policy)
  for (const news of part.each) {
    let one = row.each.find((one) => one.number === news.number)
    if (!one) row.each.push(one = {})
    goOn(one, news)
  }
  goOn(row.steps, part.steps)
  row.stride = part.stride
  row.pictures = [...row.pictures, ...part.pictures].filter((picture) => picture.step % row.stride === 0)
  row.version += 1
}

function goOn(held, news) {
  for (const [name, value] of Object.entries(news)) {
    if (!Array.isArray(value)) held[name] = value
    else if (held[name]) held[name].push(...value)
    else held[name] = [...value]
  }
}

export const endOf = (row) => Math.max(row.steps.ended_s?.at(-1) ?? 0, ...row.each.map((one) => one.ended_s ?? 0))

// A request has one colour wherever it is drawn.
export const colourOf = (request) => `var(--kv-request-${request})`

// The request that waits as long for its first token as half of them do at most; null before any has one.
export function middleWait({ each }) {
  const wait = (one) => one.token_s[0] - one.arrival_s
  const told = each.filter((one) => one.token_s.length).sort((a, b) => wait(a) - wait(b))
  return told[Math.ceil(told.length / 2) - 1] ?? null
}

// When most blocks were in use.
export function fullest({ steps: { blocks = [], ended_s: ended } }) {
  return blocks.length ? ended[blocks.indexOf(Math.max(...blocks))] : null
}

// What became of a request, without a gap, from its arrival to its end or to `now`: { kind, from, to } in seconds.
export function bars(one, now) {
  if (one.state === "refused" || one.arrival_s > now) return []
  const found = []
  const ended = one.ended_s ?? now
  let at = one.arrival_s
  one.admitted_s.forEach((admitted, i) => {
    const stopped = one.preempted_s[i] ?? ended
    found.push({ kind: i ? "preempted" : "waiting", from: at, to: admitted })
    const chunks = one.chunks.filter((chunk) => admitted <= chunk[0] && chunk[0] < stopped)
    const filled = chunks.at(-1)?.[1] ?? admitted
    const chosen = one.token_s.some((second) => second >= filled)
    found.push({ kind: i ? "again" : "prefill", from: admitted, to: chosen ? filled : stopped, chunks: chunks.length })
    if (chosen) found.push({ kind: "decode", from: filled, to: stopped })
    at = stopped
  })
  if (at < ended && one.ended_s === null) found.push({ kind: one.admitted_s.length ? "preempted" : "waiting", from: at, to: now })
  return found.filter((bar) => bar.to > bar.from)
}

// How many of these ascending seconds have passed.
export function passed(seconds, time) {
  let [low, high] = [0, seconds?.length ?? 0]
  while (low < high) {
    const middle = (low + high) >> 1
    if (seconds[middle] <= time) low = middle + 1
    else high = middle
  }
  return low
}

export function rank(values, percent) { // the nearest rank, as `nearest_rank` in figures.py
  const ordered = values.sort((a, b) => a - b)
  return ordered.length ? ordered[Math.ceil((percent * ordered.length) / 100) - 1] : null
}

export const gaps = (seconds) => seconds.slice(1).map((second, i) => second - seconds[i])

// The figures of a policy until a moment; `step` is the number of steps that have ended by then.
export function figuresAt(row, time) {
  const told = row.each.map((one) => ({ arrived: one.arrival_s, seconds: one.token_s.slice(0, passed(one.token_s, time)) }))
  const tokens = told.reduce((sum, one) => sum + one.seconds.length, 0)
  const step = passed(row.steps.ended_s, time)
  const over = row.over && time >= endOf(row)
  const spent = Math.min(time, endOf(row)) - Math.min(...told.map((one) => one.arrived))
  const first = told.filter((one) => one.seconds.length).map((one) => one.seconds[0] - one.arrived)
  const between = told.flatMap((one) => gaps(one.seconds))
  return {
    step, computed: row.steps.computed?.[step - 1] ?? 0, done: row.each.filter((one) => one.ended_s !== null && one.ended_s <= time).length,
    running: over || !step ? 0 : row.steps.running[step - 1], waiting: over || !step ? 0 : row.steps.waiting[step - 1],
    rate: tokens && spent > 0 ? tokens / spent : null,
    ttft: [rank(first, 50), rank(first, 99)], itl: [rank(between, 50), rank(between, 99)],
  }
}

// What the preemptions of a policy took: how many there were, and what was computed again or copied.
export function preemptions({ each }) {
  const sum = (of) => each.reduce((sum, one) => sum + (of(one) || 0), 0)
  const count = sum((one) => one.preempted_s.length)
  if (!count) return null
  const [out, back] = [sum((one) => one.swapped_out_blocks), sum((one) => one.swapped_in_blocks)]
  return { count, words: out ? `${out} blocks copied out, ${back} copied back` : `${sum((one) => one.recomputed_tokens)} tokens computed again` }
}

// The newest picture of the memory after so many steps.
export const pictureAt = (row, step) => row.pictures[passed(row.pictures.map((picture) => picture.step), step) - 1] ?? null

// Each block that is not free: its owners, its filled slots, and whether only its prefix is kept.
export function blocksOf(picture) {
  const found = new Map()
  for (const [owner, blocks, tokens] of picture?.tables ?? []) {
    blocks.forEach((block, place) => {
      const held = found.get(block) ?? { owners: [], filled: 0 }
      held.owners.push(owner)
      held.filled = Math.max(held.filled, Math.min(picture.block, tokens - place * picture.block))
      found.set(block, held)
    })
  }
  for (const block of picture?.findable ?? []) found.set(block, { owners: [], filled: picture.block })
  return found
}
