// The header of a GGUF file of any size without its vocabulary: what the server needs, a few hundred kilobytes.
// The server reads the result as strictly as any file, so nothing is judged here: from whatever this does not
// understand, the bytes as they are go along, for the server to say what is wrong.

const LARGEST = 64 * 2 ** 20 // bytes of a header; STEPS are read from the file one after the other until it is whole
const STEPS = [2 ** 22, 2 ** 24, LARGEST]
const KEPT_TEXT = 1000, KEPT_LIST = 2000, MOST_TENSORS = 100_000
const WIDTHS = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8] // bytes of a value by its type; 8 is a text, 9 a list
const TEXT = 8, LIST = 9
const REST = 400 // bytes that go along from where something is odd

class Odd extends Error {}

export async function slimmed(file) {
  for (const most of STEPS) {
    const bytes = new Uint8Array(await file.slice(0, most).arrayBuffer())
    try {
      return slim(bytes)
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      if (file.size <= most || most === LARGEST) return bytes.subarray(0, REST)
    }
  }
}

// The header in `bytes`. Throws a RangeError where they end inside it.
export function slim(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const pieces = []
  let at = 24, kept = 0, from = at
  const skip = (length) => {
    if (length > LARGEST) throw new Odd()
    at += length
    if (at > bytes.length) throw new RangeError()
  }
  const word = () => { at += 4; return view.getUint32(at - 4, true) }
  const long = () => { at += 8; return Number(view.getBigUint64(at - 8, true)) }
  const text = () => { const length = long(); skip(length); return length }
  const value = () => { // whether it is kept
    const kind = word()
    if (kind === TEXT) return text() <= KEPT_TEXT
    if (kind !== LIST) { skip(width(kind)); return true }
    const of = word(), count = long()
    if (of !== TEXT) { skip(count * width(of)); return count <= KEPT_LIST }
    if (count > LARGEST) throw new Odd()
    for (let i = 0; i < count; i++) text()
    return false
  }
  const tensors = view.getBigUint64(8, true), keys = view.getBigUint64(16, true)
  try {
    if (tensors > MOST_TENSORS || keys > MOST_TENSORS) throw new Odd()
    for (let i = 0; i < keys; i++) {
      from = at
      text()
      if (value()) { pieces.push(bytes.subarray(from, at)); kept++ }
    }
    from = at
    for (let i = 0; i < tensors; i++) {
      text()
      skip(8 * word())
      skip(12)
    }
    pieces.push(bytes.subarray(from, at))
  } catch (error) {
    if (!(error instanceof Odd)) throw error
    pieces.push(bytes.subarray(from, from + REST))
    kept = Number(keys)
  }
  return joined([start(bytes, kept), ...pieces])
}

function width(kind) {
  if (!WIDTHS[kind]) throw new Odd()
  return WIDTHS[kind]
}

// Magic, version and the number of tensors as they are, and the number of keys that are kept.
function start(bytes, keys) {
  const first = bytes.slice(0, 24)
  new DataView(first.buffer).setBigUint64(16, BigInt(keys), true)
  return first
}

function joined(pieces) {
  const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0))
  let at = 0
  for (const piece of pieces) {
    whole.set(piece, at)
    at += piece.length
  }
  return whole
}
