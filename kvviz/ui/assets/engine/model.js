// A GPT-2 or LLaMA/Qwen3 decoder: its sizes from config.json, its weights from a safetensors file, its forward.

const GELU_WITH_TANH = ["gelu_new", "gelu_pytorch_tanh"]

// The sizes that the forward needs. Throws with the reason for a config that this engine does not compute.
export function shapeOf(config) {
  const refuse = (why) => { throw new Error(`this browser's engine does not know this model: ${why}`) }
  if (config.model_type === "gpt2") {
    if (!GELU_WITH_TANH.includes(config.activation_function)) refuse(`its activation is ${config.activation_function}`)
    if (config.scale_attn_by_inverse_layer_idx || config.scale_attn_weights === false) refuse("it scales attention in another way")
    const hidden = config.n_embd
    return { family: "gpt2", layers: config.n_layer, hidden, heads: config.n_head, kvHeads: config.n_head, dim: hidden / config.n_head,
             inner: config.n_inner ?? 4 * hidden, vocab: config.vocab_size, context: config.n_positions, eps: config.layer_norm_epsilon }
  }
  if (!["llama", "qwen3"].includes(config.model_type)) refuse(`it is a ${config.model_type}, not GPT-2, LLaMA or Qwen3`)
  const rope = config.rope_parameters ?? { rope_type: config.rope_scaling?.rope_type, rope_theta: config.rope_theta }
  if (!["default", undefined].includes(rope.rope_type)) refuse(`its positions are scaled (${rope.rope_type})`)
  if (config.use_sliding_window || config.layer_types?.some((type) => type !== "full_attention")) refuse("it has sliding windows")
  if (config.hidden_act !== "silu") refuse(`its activation is ${config.hidden_act}`)
  return { family: config.model_type, layers: config.num_hidden_layers, hidden: config.hidden_size, heads: config.num_attention_heads,
           kvHeads: config.num_key_value_heads ?? config.num_attention_heads,
           dim: config.head_dim ?? config.hidden_size / config.num_attention_heads, inner: config.intermediate_size,
           vocab: config.vocab_size, context: config.max_position_embeddings, eps: config.rms_norm_eps, theta: rope.rope_theta ?? 10_000 }
}

const NAMES = {
  gpt2: { prefix: "transformer.", layer: "h.", embed: "wte", positions: "wpe", last: "ln_f", norm1: "ln_1", norm2: "ln_2",
          qkv: "attn.c_attn", o: "attn.c_proj", up: "mlp.c_fc", down: "mlp.c_proj" },
  llama: { prefix: "model.", layer: "layers.", embed: "embed_tokens", last: "norm", norm1: "input_layernorm",
           norm2: "post_attention_layernorm", q: "self_attn.q_proj", k: "self_attn.k_proj", v: "self_attn.v_proj", o: "self_attn.o_proj",
           qNorm: "self_attn.q_norm", kNorm: "self_attn.k_norm", gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj" },
}

// Bytes of the heap for a model and a run that reaches so many positions with so many caches at once: a forward's own
// arrays, and each cache twice, as joining holds the old and the new.
export function bytesNeeded(shape, tensors, positions, caches) {
  const weights = Object.values(tensors).reduce((sum, { data }) => sum + data.length, 0)
  const forward = positions * (4 * shape.hidden + 2 * shape.heads * shape.dim + 2 * shape.kvHeads * shape.dim + 2 * shape.inner + 1)
  const cache = 2 * shape.layers * shape.kvHeads * shape.dim * positions
  return 4 * (weights + 2 * positions * shape.dim + forward + 2 * caches * cache + (caches + 1) * shape.vocab) + 2 ** 16
}

export class Model {
  constructor(shape, tensors, kernels, positions) {
    Object.assign(this, { shape, kernels, heap: kernels.heap, ...this.read(shape, tensors, kernels.heap) })
    if (shape.theta) this.tables = this.angles(positions)
  }

  read({ family, layers, hidden }, tensors, heap) {
    const names = NAMES[family] ?? NAMES.llama
    const prefix = Object.keys(tensors).some((name) => name.startsWith(names.prefix)) ? names.prefix : ""
    const kept = (data) => {
      const array = heap.take(data.length)
      array.set(data)
      return array
    }
    const found = (name) => (name in tensors ? kept(tensors[name].data) : null)
    // GPT-2 keeps its matrices the other way round, (in, out), and those of queries, keys and values as one.
    const matrix = (name, part = 0, of = 1) => {
      const { shape: [rows, columns], data } = tensors[`${name}.weight`]
      const bias = tensors[`${name}.bias`]?.data ?? null
      if (family !== "gpt2") return { w: kept(data), b: bias && kept(bias), nOut: rows, nIn: columns }
      const nOut = columns / of
      const w = heap.take(nOut * rows)
      for (let o = 0; o < nOut; o++) for (let i = 0; i < rows; i++) w[o * rows + i] = data[i * columns + part * nOut + o]
      return { w, b: kept(bias.subarray(part * nOut, (part + 1) * nOut)), nOut, nIn: rows }
    }
    const norm = (name) => ({ w: found(`${name}.weight`), b: found(`${name}.bias`) })
    const embed = found(`${prefix}${names.embed}.weight`)
    const head = found("lm_head.weight") ?? embed
    return {
      embed,
      positions: found(`${prefix}${names.positions}.weight`),
      last: norm(`${prefix}${names.last}`),
      head: { w: head, b: null, nOut: head.length / hidden, nIn: hidden },
      layers: Array.from({ length: layers }, (_, i) => {
        const at = `${prefix}${names.layer}${i}.`
        const [q, k, v] = names.qkv ? [0, 1, 2].map((part) => matrix(at + names.qkv, part, 3)) : [names.q, names.k, names.v].map((name) => matrix(at + name))
        return { norm1: norm(at + names.norm1), norm2: norm(at + names.norm2), q, k, v, o: matrix(at + names.o),
                 qNorm: found(`${at}${names.qNorm}.weight`), kNorm: found(`${at}${names.kNorm}.weight`),
                 gate: names.gate && matrix(at + names.gate), up: matrix(at + names.up), down: matrix(at + names.down) }
      }),
    }
  }

  // Cosines and sines of the rotary embedding, (positions, dim / 2), rounded to float32 where torch rounds.
  angles(positions) {
    const [half, round] = [this.shape.dim / 2, Math.fround]
    const [cosines, sines] = [this.heap.take(positions * half), this.heap.take(positions * half)]
    for (let i = 0; i < half; i++) {
      const frequency = round(1 / round(this.shape.theta ** round(i / half)))
      for (let p = 0; p < positions; p++) {
        cosines[p * half + i] = Math.cos(round(p * frequency))
        sines[p * half + i] = Math.sin(round(p * frequency))
      }
    }
    return { cosines, sines }
  }

  // The logits (vocabulary) after the last of these new tokens; the caller gives the array back. The new keys and values
  // go into `cache`; without one they are dropped. `note` receives each layer's number and output (rows, hidden).
  forward(ids, cache = null, note = null) {
    const { shape: { hidden, heads, kvHeads, dim, inner, vocab }, kernels, heap } = this
    const [rows, seen] = [ids.length, cache?.held ?? 0]
    const [x, h, o] = [hidden, hidden, hidden].map((width) => heap.take(rows * width))
    const [q, k, v, mixed] = [heads, kvHeads, kvHeads, heads].map((count) => heap.take(rows * count * dim))
    const [up, gate] = [heap.take(rows * inner), heap.take(rows * inner)]
    const scores = heap.take(seen + rows + 4)
    ids.forEach((id, row) => x.set(this.embed.subarray(id * hidden, (id + 1) * hidden), row * hidden))
    if (this.positions) kernels.add(x, this.positions.subarray(seen * hidden), rows * hidden)
    const linear = (out, from, { w, b, nIn, nOut }) => kernels.linear(out, from, w, b, rows, nIn, nOut)
    this.layers.forEach((layer, index) => {
      this.norm(h, x, layer.norm1, rows)
      linear(q, h, layer.q)
      linear(k, h, layer.k)
      linear(v, h, layer.v)
      this.turn(q, layer.qNorm, rows, heads, seen)
      this.turn(k, layer.kNorm, rows, kvHeads, seen)
      const all = cache?.append(index, k, v, rows) ?? { keys: k, values: v, tokenStep: kvHeads * dim, headStep: dim }
      kernels.attend(mixed, q, all.keys, all.values, scores, rows, seen, heads, kvHeads, dim, all.tokenStep, all.headStep)
      linear(o, mixed, layer.o)
      kernels.add(x, o, rows * hidden)
      this.norm(h, x, layer.norm2, rows)
      linear(up, h, layer.up)
      if (layer.gate) {
        linear(gate, h, layer.gate)
        kernels.swiglu(gate, up, rows * inner)
      } else kernels.gelu(up, rows * inner)
      linear(o, layer.gate ? gate : up, layer.down)
      kernels.add(x, o, rows * hidden)
      note?.(index, x)
    })
    const logits = heap.take(vocab)
    this.norm(h, x.subarray((rows - 1) * hidden), this.last, 1)
    kernels.linear(logits, h, this.head.w, null, 1, hidden, vocab)
    heap.give(x, h, o, q, k, v, mixed, up, gate, scores)
    return logits
  }

  norm(out, x, { w, b }, rows) {
    const { hidden, eps } = this.shape
    if (b) this.kernels.layer_norm(out, x, w, b, rows, hidden, eps)
    else this.kernels.rms_norm(out, x, w, rows, hidden, eps)
  }

  // Normalises each head of queries or keys, where the model does, and turns it to its position.
  turn(x, weight, rows, heads, seen) {
    if (weight) this.kernels.rms_norm(x, x, weight, rows * heads, this.shape.dim, this.shape.eps)
    if (this.tables) this.kernels.rotate(x, this.tables.cosines, this.tables.sines, rows, heads, this.shape.dim, seen)
  }
}
