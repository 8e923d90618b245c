// The walk through a decode: which scenes a step has, which stages of attention each lights, and what is said.

import { bytes, count, small } from "../shared/format.js"

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
const million = (n) => (n / 1e6).toPrecision(2)
const tokens = (n) => (n === 1 ? "1 token" : `${count(n)} tokens`)

// How a token's position gets into its query and key.
const PLACED = {
  learned: "The positions at the left were added before the first layer.",
  rotary: "Query and key are rotated by an angle that depends on the position at the left; the cache keeps the rotated key.",
  alibi: "Positions, at the left, enter with the scores: the farther back a key, the lower its score.",
}

// The sentences of a scene: a short title, and what to look at. `again` is the walk without a cache.
export function said(look, step, key, again) {
  const now = look.steps[step]
  const read = again ? now.total : now.read
  const newest = quoted(look.tokens[now.total - 1])
  const { heads, kv_heads: kvHeads, head_dim: dim, layers } = look.design
  const prefill = step === 0
  switch (key) {
    case "whole":
      if (again) return [`Without a cache, one new token costs ${now.total} keys and values per head`, `${now.total - 1} of them were computed before and thrown away. This step takes ${million(now.again.multiply_adds)} million multiply-adds in the whole model; with a KV cache it takes ${million(now.multiply_adds)} million.`]
      return [`One new token: in each KV head, ${now.read} key and value computed, ${now.total - now.read} read from the cache`, `Each later query is compared with all keys so far, and its shares mix all values, so the cache keeps both: ${bytes(now.cache_bytes / now.total / layers)} a token in this layer${kvHeads > 1 ? `, ${bytes(now.cache_bytes / now.total / layers / kvHeads)} in each of ${kvHeads} KV heads` : ""}. The step for ${newest} takes ${million(now.multiply_adds)} million multiply-adds in the whole model. Without a cache it takes ${million(now.again.multiply_adds)} million: the layers of ${now.total} tokens, but logits of one, as here.`]
    case "enter":
      if (prefill) return ["Prefill: the prompt enters", `All ${tokens(read)} of the prompt go through the model at once. The empty frames show what they will leave behind.`]
      if (again) return ["The whole sequence enters again", `To choose one more token, the model reads all ${tokens(read)} again: the prompt and everything written since.`]
      return ["Decode: one token enters", `Only ${newest}, the token just chosen, enters. Its position is ${now.total - 1}; the ${now.total - 1} tokens before it are in the cache.`]
    case "project":
      return [
        `${read === 1 ? "One query, one key, one value" : `${read} queries, keys and values`} per head`,
        `Three weight matrices turn each token that enters into a query (what it looks for), a key (how it is found) and a value (what it passes on). ` +
          (again && !prefill ? `${read - 1} of the ${read} keys and values were computed before and thrown away. ` : `Each is a row of ${dim} numbers. `) + PLACED[look.design.positions],
      ]
    case "append":
      if (again && !prefill) {
        return ["Nothing was kept", `Every row of K and V is computed again. The rows differ from those that a cache would have held by at most ${small(now.again.difference)}, which is rounding: the work changed nothing.`]
      }
      if (prefill) return ["Prefill writes K and V for the prompt", again ? "Without a cache, they are used once and dropped." : `${read} rows of K and ${read} of V, in each of ${layers} layers and for each of ${kvHeads} KV heads.`]
      return ["A decode step appends one K and one V per layer", `${now.total - 1} rows come from the cache and one is new. The token axis grows by one: the cache's shape goes from [1, ${kvHeads}, ${now.total - 1}, ${dim}] to [1, ${kvHeads}, ${now.total}, ${dim}]. The picture shows one of its ${kvHeads} heads.`]
    case "score":
      if (prefill) return ["Every query meets its own key and all earlier ones", `${read} queries and ${read} keys make a square. Its upper half is masked, because no token may look at a later one.`]
      if (again) return ["All the old scores, once more", `${now.total} × ${now.total} products per head, although only the last row is needed for the next token.`]
      return ["The new query reads all cached keys", `One row of 1 × ${now.total} products per head. Older queries, hatched, were answered in earlier steps and are never needed again, so Q is not cached. No key is later than the newest token, so the mask hides nothing.`]
    case "softmax":
      return ["Scores become shares", `Softmax turns each row of scores into shares that add up to 1. Point at a cell to see how much attention ${prefill || again ? "a token" : newest} pays to which token.`]
    case "mix":
      return ["The shares weight the values", `Each of ${heads} heads adds up the values, weighted by the query's shares. The ${heads} results, side by side, go on through the model.`]
    default:
      return ["The next token", `After the last of ${layers} layers, the newest row becomes a score for every word piece. The likeliest piece is the next token, and enters in the next step.`]
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
