// The calculator's formula for the models of the catalog, as kvviz/memory has it: tests/ui/test_static.py holds it to the
// same bytes. Plain data: no DOM.

// `model` is a row of data.json, `asked` { tokens, batch, dtype, view }, `tables` { precisions, views }. Returns the bytes, or
// a `problem` in a sentence.
export function memory(model, { tokens, batch, dtype, view }, { precisions, views }) {
  const stored = precisions[dtype]
  if (!views[view].dtypes.includes(dtype)) return { problem: `the view ${view} has no cache in ${dtype}; it has ${views[view].dtypes.join(", ")}` }
  const source = model.source_tokens ?? (model.crossing ? tokens : 0)
  const layers = model.order.flatMap(([count, place]) => Array(count).fill(views[view].hf ? (model.layers[place].stored ?? model.layers[place]) : model.layers[place]))
  try {
    const keep = (count) => layers.map((layer) => kept(layer, view, { tokens: count, source, batch, stored }))
    const [now, next] = [keep(tokens), keep(tokens + 1)]
    const rows = now.map((row, i) => layerOf(layers[i], row, { i: i < model.own ? i : i - model.own, tokens, source, batch }))
    const sum = (list, field) => list.reduce((all, row) => all + row[field], 0)
    return {
      layers: rows,
      per_token_bytes: batch * (sum(next, "nbytes") - sum(now, "nbytes")),
      total_bytes: sum(rows, "nbytes"),
      reserved_bytes: sum(rows, "allocated"),
      fixed_bytes: rows.reduce((all, row) => all + fixed(row), 0),
      plateau_bytes: rows.reduce((all, row) => all + (row.window !== null && row.held < row.seen ? row.nbytes - row.state_bytes : 0), 0),
      notes: [...model.notes, ...beyond(model, tokens)],
    }
  } catch (error) {
    if (error instanceof RangeError) return { problem: error.message }
    throw error
  }
}

function layerOf(layer, row, { i, tokens, source, batch }) {
  const shape = layer.kv_heads ? [batch, layer.kv_heads, row.held] : null
  const { kind, kv_heads, key_dim, value_dim, window } = layer
  return { index: i, kind, kv_heads, key_dim, value_dim, window, seen: kind === "cross" ? source : tokens, held: row.held,
           key_shape: shape ? [...shape, key_dim] : [], value_shape: shape ? [...shape, value_dim] : [],
           state_bytes: batch * row.states, nbytes: batch * row.nbytes, allocated: row.allocated }
}

// What one layer keeps of a sequence, and what is allocated for all sequences.
function kept(layer, view, { tokens, source, batch, stored }) {
  const reach = (slack) => {
    if (["none", "shared", "linear"].includes(layer.kind)) return 0
    if (layer.kind === "cross") return source
    return layer.window === null ? tokens : Math.min(tokens, layer.window - slack)
  }
  const held = reach(view === "hf-dynamic" ? 1 : 0)
  const token = row(stored, layer.kv_heads, layer.key_dim) + row(stored, layer.kv_heads, layer.value_dim)
  const states = layer.states.reduce((all, { elements, float32, integer }) => all + elements * (integer ? 8 : float32 ? 4 : stored.state_bytes), 0)
  const beside = states + layer.rows.reduce((all, one) => all + grown(one, tokens, stored), 0)
  return { held, states: beside, nbytes: held * token + beside, allocated: batch * (reach(0) * token + beside) }
}

// Bytes of `heads` x `dim` elements.
function row(stored, heads, dim) {
  const count = heads * dim
  if (count % stored.block) {
    throw new RangeError(`${stored.name} packs ${stored.block} values with one scale, and a row of ${heads} x ${dim} = ${count} values doesn't divide into them`)
  }
  return (count / stored.block) * stored.block_bytes + (dim ? heads * stored.head_bytes : 0)
}

// Bytes of what grows with the tokens beside keys and values.
function grown({ width, every, waiting, overlap, above, element_bytes: each }, tokens, stored) {
  const complete = tokens > above ? Math.floor(tokens / every) : 0
  const beside = (tokens % every) * waiting + (complete ? overlap : 0)
  return complete * (each * width || row(stored, 1, width)) + beside * stored.state_bytes
}

function fixed({ kind, nbytes, state_bytes: states }) {
  if (kind === "cross") return nbytes
  return ["indexed", "compressed", "hidden"].includes(kind) ? 0 : states
}

function beyond({ title, context }, tokens) {
  if (!context || tokens <= context) return []
  return [`${title} was made for ${context.toLocaleString("en-US")} tokens; beyond them the figure is arithmetic only.`]
}

// Bytes of the weights: parameters x bits / 8.
export const weightBytes = (params, bits) => Math.ceil((params * bits) / 8)
