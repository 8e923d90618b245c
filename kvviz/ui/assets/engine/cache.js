// What a run keeps of the tokens that it has read: one array of keys and one of values for each layer, (1, KV heads,
// tokens, head dim). A KVCache joins the new to the old in new arrays, as transformers' DynamicCache does; a Buffer has
// room for the whole run from the start.

const FLOAT = Float32Array.BYTES_PER_ELEMENT

export class KVCache {
  constructor(heap, { layers, kvHeads, dim }) {
    Object.assign(this, { heap, kvHeads, dim })
    this.layers = Array.from({ length: layers }, () => ({ keys: null, values: null, held: 0, slots: 0 }))
  }

  // Adds a layer's new keys and values, (rows, KV heads, dim); returns all of them: {keys, values, tokenStep, headStep}.
  append(index, keys, values, rows) {
    const layer = this.layers[index]
    this.room(layer, rows)
    for (const [into, from] of [[layer.keys, keys], [layer.values, values]]) {
      for (let head = 0; head < this.kvHeads; head++) {
        for (let row = 0; row < rows; row++) {
          const start = (row * this.kvHeads + head) * this.dim
          into.set(from.subarray(start, start + this.dim), (head * layer.slots + layer.held + row) * this.dim)
        }
      }
    }
    layer.held += rows
    return { keys: layer.keys, values: layer.values, tokenStep: this.dim, headStep: layer.slots * this.dim }
  }

  // Makes room for further rows: new arrays, into which the old ones are copied.
  room(layer, rows) {
    const slots = layer.held + rows
    for (const name of ["keys", "values"]) {
      const old = layer[name]
      layer[name] = this.heap.take(this.kvHeads * slots * this.dim)
      for (let head = 0; old && head < this.kvHeads; head++) {
        const start = head * layer.slots * this.dim
        layer[name].set(old.subarray(start, start + layer.held * this.dim), head * slots * this.dim)
      }
      if (old) this.heap.give(old)
    }
    layer.slots = slots
  }

  get held() {
    return this.layers[0].held
  }

  // Each layer as the feed's records describe it (kvviz.base.records.LayerState), equal layers in one entry.
  states() {
    const groups = new Map()
    this.layers.forEach(({ keys, values, held }, index) => {
      const shape = [1, this.kvHeads, held, this.dim]
      const state = { kind: "full", key_shape: shape, value_shape: shape, dtype: "float32", seen: held, held,
                      nbytes: 2 * FLOAT * this.kvHeads * held * this.dim, allocated: keys.byteLength + values.byteLength }
      const same = JSON.stringify(state)
      groups.set(same, { ...state, indices: [...(groups.get(same)?.indices ?? []), index] })
    })
    return [...groups.values()]
  }

  close() {
    for (const { keys, values } of this.layers) if (keys) this.heap.give(keys, values)
  }
}

export class Buffer extends KVCache {
  constructor(heap, shape, capacity) {
    super(heap, shape)
    this.capacity = capacity
  }

  room(layer) {
    if (layer.keys) return
    layer.slots = this.capacity
    for (const name of ["keys", "values"]) layer[name] = this.heap.take(this.kvHeads * this.capacity * this.dim)
  }
}
