// The decode loop: a generator of steps. It reads no clock; whoever asks for the next step does.

import { Buffer, KVCache } from "./cache.js"
import { bestKernels, openKernels } from "./kernels.js"
import { bytesNeeded, Model, shapeOf } from "./model.js"
import { Tokenizer } from "./tokenizer.js"
import { readTensors, sha256 } from "./weights.js"

// How each mode opens its cache, and whether it passes it on to the next step.
export const MODES = {
  uncached: { open: () => null, passes: false },
  cached: { open: (model) => new KVCache(model.heap, model.shape), passes: true },
  unpassed: { open: (model) => new KVCache(model.heap, model.shape), passes: false },
  concat: { open: (model) => new KVCache(model.heap, model.shape), passes: true },
  prealloc: { open: (model, capacity) => new Buffer(model.heap, model.shape, capacity), passes: true },
}

// A model that is ready to decode. `files` are {config, tokenizer, weights, sha256}: two objects, an ArrayBuffer, and
// what its checksum has to be. `caches`: how many runs are open at once; `positions`: how far each of them goes.
export function load(files, { wasm, kernels = bestKernels(wasm), positions, caches = 1 }) {
  if (sha256(files.weights) !== files.sha256) {
    throw new Error("the file of weights is not the one that its checksum names: it was damaged or changed on its way")
  }
  const shape = shapeOf(files.config)
  if (positions > shape.context) throw new Error(`the prompt and the new tokens are ${positions}, and this model has ${shape.context} positions`)
  const tensors = readTensors(files.weights)
  const opened = openKernels(kernels, wasm, bytesNeeded(shape, tensors, positions, caches))
  return { kernels, tokenizer: new Tokenizer(files.tokenizer), model: new Model(shape, tensors, opened, positions) }
}

// Yields {index, id, logits, cache} for each new token; step 0 is the prefill. The logits are gone with the next step.
export function* decode(model, prompt, { mode, newTokens, choose }) {
  const { open, passes } = MODES[mode]
  const capacity = prompt.length + newTokens
  const ids = [...prompt]
  let [cache, fresh, logits] = [passes ? open(model, capacity) : null, prompt, null]
  try {
    for (let index = 0; index < newTokens; index++) {
      const filled = passes ? cache : open(model, capacity)
      logits = model.forward(passes ? fresh : ids, filled)
      if (!passes) filled?.close()
      const id = choose(logits, index)
      fresh = [id]
      ids.push(id)
      yield { index, id, logits, cache }
      model.heap.give(logits)
      logits = null
    }
  } finally {
    if (logits) model.heap.give(logits)
    cache?.close()
  }
}
