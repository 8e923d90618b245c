// Reads a file of weights in the safetensors format, and checks it by its SHA-256.

// Numbers of 16 bits as float32, by a table of all of them.
function halves(exponentBits) {
  const [fraction, bias] = [15 - exponentBits, 2 ** (exponentBits - 1) - 1]
  return Float32Array.from({ length: 65_536 }, (_, code) => {
    const exponent = (code >> fraction) & (2 ** exponentBits - 1)
    const rest = (code & (2 ** fraction - 1)) / 2 ** fraction
    const size = exponent === 2 ** exponentBits - 1 ? (rest ? NaN : Infinity)
      : exponent ? (1 + rest) * 2 ** (exponent - bias) : rest * 2 ** (1 - bias)
    return code >> 15 ? -size : size
  })
}

const EXPONENT_BITS = { F16: 5, BF16: 8 }

// The tensors of a file, an ArrayBuffer, by name: {shape, data}, where data is a Float32Array.
export function readTensors(file) {
  const length = Number(new DataView(file).getBigUint64(0, true))
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length)))
  const tables = {}
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__")
  return Object.fromEntries(entries.map(([name, { dtype, shape, data_offsets: [from, to] }]) => {
    const bytes = file.slice(8 + length + from, 8 + length + to)
    if (dtype === "F32") return [name, { shape, data: new Float32Array(bytes) }]
    if (!(dtype in EXPONENT_BITS)) throw new Error(`the weights are stored as ${dtype}, which this engine does not read`)
    const table = (tables[dtype] ??= halves(EXPONENT_BITS[dtype]))
    const codes = new Uint16Array(bytes)
    const data = new Float32Array(codes.length)
    for (let i = 0; i < codes.length; i++) data[i] = table[codes[i]]
    return [name, { shape, data }]
  }))
}

// The SHA-256 of an ArrayBuffer, in hex (FIPS 180-4). A browser offers its own only to pages over https.
export function sha256(file) {
  const primes = [2]
  for (let n = 3; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n)
  const part = (root) => primes.map((p) => ((root(p) % 1) * 2 ** 32) | 0)
  const [k, state] = [Int32Array.from(part(Math.cbrt)), part(Math.sqrt).slice(0, 8)]
  const size = file.byteLength
  const bytes = new Uint8Array(Math.ceil((size + 9) / 64) * 64)
  bytes.set(new Uint8Array(file))
  bytes[size] = 0x80
  const view = new DataView(bytes.buffer)
  view.setBigUint64(bytes.length - 8, BigInt(size) * 8n)
  const w = new Int32Array(64)
  const turn = (x, n) => (x >>> n) | (x << (32 - n))
  for (let at = 0; at < bytes.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i)
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15], y = w[i - 2]
      w[i] = w[i - 16] + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + w[i - 7] + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10))
    }
    let [a, b, c, d, e, f, g, h] = state
    for (let i = 0; i < 64; i++) {
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i]) | 0
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0
      h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0
    }
    ;[a, b, c, d, e, f, g, h].forEach((value, i) => { state[i] = (state[i] + value) | 0 })
  }
  return state.map((value) => (value >>> 0).toString(16).padStart(8, "0")).join("")
}
