// Opens the arithmetic over a memory of its own: kernels.wasm where the browser can run it, else plain JavaScript.

import { Heap } from "./heap.js"
import { plainKernels } from "./plain.js"

const PAGE = 65_536 // bytes of a page of WebAssembly's memory
const LEAST = 2 * PAGE // the module's stack and its start

// How this browser can compute: "wasm" with SIMD, else "plain". `wasm` holds the bytes of kernels.wasm.
export function bestKernels(wasm) {
  return typeof WebAssembly === "object" && WebAssembly.validate(wasm) ? "wasm" : "plain"
}

// `kind` is one of those two; `bytes` is how much the heap has to hold. Throws where the browser grants no such memory.
export function openKernels(kind, wasm, bytes) {
  const size = Math.ceil((bytes + LEAST) / PAGE)
  if (kind === "plain") {
    const buffer = new ArrayBuffer(size * PAGE)
    return withArrays(plainKernels(buffer), new Heap(buffer, 0))
  }
  const memory = new WebAssembly.Memory({ initial: size, maximum: size })
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(wasm), { env: { memory } })
  return withArrays(exports, new Heap(memory.buffer, exports.__heap_base.value))
}

// The same functions, taking arrays of the heap where the others take their addresses; null stands for no array.
function withArrays(functions, heap) {
  const address = (given) => (given === null ? 0 : given.byteOffset ?? given)
  const names = ["linear", "layer_norm", "rms_norm", "rotate", "attend", "gelu", "swiglu", "add"]
  const each = names.map((name) => [name, (...given) => functions[name](...given.map(address))])
  return { heap, ...Object.fromEntries(each) }
}
