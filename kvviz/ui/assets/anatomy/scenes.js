// The walk through a decode: which scenes a step has, which stages of attention each lights, and what is said.

import { count } from "../shared/format.js"

export const SCENES = [
  { key: "enter", stages: ["enter"] },
  { key: "project", stages: ["project", "split", "norm", "turn"] },
  { key: "append", stages: ["append", "share"] },
  { key: "score", stages: ["score", "lean", "mask"] },
  { key: "softmax", stages: ["softmax"] },
  { key: "mix", stages: ["mix", "merge"] },
  { key: "next", stages: ["output"] },
]

const quoted = (text) => `“${text.trim() || text}”`
const tokens = (n) => (n === 1 ? "1 token" : `${count(n)} tokens`)

// How a token's position gets into its query and key.
const PLACED = {
  learned: "Their positions, at the left, were added before the first layer.",
  rotary: "Query and key are turned by an angle that their position, at the left, gives; a key is kept turned.",
  alibi: "Their positions, at the left, come in with the scores: the farther back a key, the lower its score.",
}

// The sentences of a scene: a short title, and what to look at. `again` is the walk without a cache.
export function said(look, step, key, again) {
  const now = look.steps[step]
  const read = again ? now.total : now.read
  const newest = quoted(look.tokens[now.total - 1])
  const { heads, kv_heads: kvHeads, head_dim: dim, layers } = look.design
  const prefill = step === 0
  switch (key) {
    case "enter":
      if (prefill) return ["Prefill: the prompt enters", `All ${tokens(read)} of the prompt go through the model at once. Each frame says what they will leave in it: press Next, and watch the frames fill.`]
      if (again) return ["The whole sequence enters again", `To choose one more token, all ${tokens(read)} are read again: the prompt, and what was written since.`]
      return ["Decode: one token enters", `Only ${newest}, the token just chosen. Its position is ${now.total - 1}: the ${now.total - 1} before it are in the cache.`]
    case "project":
      return [
        `${read === 1 ? "One query, one key, one value" : `${read} queries, keys and values`} per head`,
        `Each token that enters is multiplied by three matrices: a query asks, a key is found, a value is handed over. ` +
          (again && !prefill ? `${read - 1} of the ${read} keys and values have been computed before, and were thrown away. ` : `Look at the rows: one for each token, ${dim} numbers wide. `) + PLACED[look.design.positions],
      ]
    case "append":
      if (again && !prefill) {
        return ["Nothing was kept", `Every row of K and V is computed again. Against what a cache would have held they differ by at most ${now.again.difference.toExponential(1)}: rounding. The work was for nothing.`]
      }
      if (prefill) return ["Prefill writes K and V for the prompt", again ? "Without a cache they are used once and dropped." : `${read} rows of K and of V, in each of ${layers} layers, for each of ${kvHeads} KV heads.`]
      return ["A decode step appends one K and one V per layer", `${now.total - 1} rows are read from the cache, one is new. This is the axis that grows: the cache's shape was [1, ${kvHeads}, ${now.total - 1}, ${dim}] and is [1, ${kvHeads}, ${now.total}, ${dim}]; below is one of the ${kvHeads} heads.`]
    case "score":
      if (prefill) return ["Every query meets the keys before it", `${read} queries, ${read} keys: a square, and its upper half is masked, since no token may look ahead. A query sees the keys up to its own position.`]
      if (again) return ["All the old scores, once more", `${now.total} × ${now.total} products per head, though only the last row leads to the next token.`]
      return ["The new query reads all cached keys", `One row: 1 × ${now.total} products per head. The hatched rows above it belong to older queries, which got their answers in earlier steps and are not asked again: so Q is never cached. The mask lines run too, but no key comes after the newest token, so they hide nothing.`]
    case "softmax":
      return ["Scores become shares", `Softmax turns a row of scores into shares that add up to 1. Point at a cell: how much of ${prefill || again ? "a token's" : `${newest}'s`} attention goes where?`]
    case "mix":
      return ["Values are mixed by their shares", `Each query takes its share of every value, in each of ${heads} heads; the heads side by side go back into the model.`]
    default:
      return ["The next token", `After the last of ${layers} layers the newest row becomes a score for every word piece. The likeliest is taken, and enters in the next step.`]
  }
}

// What a stage's lines do only in models that are made for it.
const NEEDED = {
  norm: (design) => design.qk_norm,
  turn: (design) => design.positions === "rotary",
  share: (design) => design.kv_heads < design.heads,
  lean: (design) => design.positions === "alibi",
}
export const idle = (stage, design) => !(NEEDED[stage]?.(design) ?? true)

// What stands at the first of the rows that come from the same place.
export const whence = (kind, key, narrow) => narrow ? { kept: "cached", now: "now", again: "again" }[kind] : key === "enter" ? { kept: "in the cache", now: "enters now", again: "enters again" }[kind] :
  { kept: "read from the cache", now: "computed now", again: "computed again" }[kind]

// Where a row of K or V comes from in this step.
export function origin(step, row, now, again) {
  if (row >= now.total - now.read) return "now"
  return again ? "again" : "kept"
}
