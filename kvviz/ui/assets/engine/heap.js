// float32 arrays inside one block of memory, where WebAssembly can reach them. What is taken is counted until it is
// given back, so that a run can tell what outlives a step.

const FLOAT = 4
const ALIGN = 16

export class Heap {
  constructor(buffer, start) {
    this.buffer = buffer
    this.live = 0 // bytes taken and not given back
    this.peak = 0
    this.free = [[Math.ceil(start / ALIGN) * ALIGN, buffer.byteLength]] // [from, to), in order, never adjoining
  }

  // An array of so many floats, whose content is whatever lay there.
  take(count) {
    const bytes = Math.ceil((count * FLOAT) / ALIGN) * ALIGN
    const place = this.free.findIndex(([from, to]) => to - from >= bytes)
    if (place < 0) throw new Error(`the browser's memory for this run, ${this.buffer.byteLength} bytes, is full`)
    const from = this.free[place][0]
    if (this.free[place][1] - from === bytes) this.free.splice(place, 1)
    else this.free[place][0] += bytes
    this.live += bytes
    this.peak = Math.max(this.peak, this.live)
    return new Float32Array(this.buffer, from, count)
  }

  give(...arrays) {
    for (const { byteOffset: from, byteLength } of arrays) {
      const to = from + Math.ceil(byteLength / ALIGN) * ALIGN
      this.live -= to - from
      const after = this.free.findIndex((gap) => gap[0] >= to)
      const place = after < 0 ? this.free.length : after
      this.free.splice(place, 0, [from, to])
      if (this.free[place + 1]?.[0] === to) this.free[place][1] = this.free.splice(place + 1, 1)[0][1]
      if (this.free[place - 1]?.[1] === from) this.free[place - 1][1] = this.free.splice(place, 1)[0][1]
    }
  }
}
