// Chooses tokens as kvviz/decoding/loop.py does: greedily, or drawn with the random numbers that torch would draw.

// The first number of torch.rand(1, dtype=float64) after manual_seed(seed): the first two words of MT19937.
export function firstRandom(seed) {
  const words = new Uint32Array(624)
  words[0] = seed % 2 ** 32
  for (let i = 1; i < 624; i++) words[i] = Math.imul(1_812_433_253, words[i - 1] ^ (words[i - 1] >>> 30)) + i
  const [high, low] = [0, 1].map((i) => {
    const joined = (words[i] & 0x80000000) | (words[i + 1] & 0x7fffffff)
    let y = words[i + 397] ^ (joined >>> 1) ^ (joined & 1 ? 0x9908b0df : 0)
    y ^= y >>> 11
    y ^= (y << 7) & 0x9d2c5680
    y ^= (y << 15) & 0xefc60000
    return (y ^ (y >>> 18)) >>> 0
  })
  return ((high % 2 ** 21) * 2 ** 32 + low) / 2 ** 53
}

// The function that chooses the token of a step from its logits.
export function chooser({ temperature = 0, top_k: topK = null, top_p: topP = null, seed = 0 } = {}) {
  return (logits, step) => {
    const best = logits.reduce((most, value, i) => (value > logits[most] ? i : most), 0)
    if (!temperature) return best
    const scaled = Float64Array.from(logits, (value) => (value - logits[best]) / temperature)
    if (topK !== null && topK < scaled.length) {
      const least = Float64Array.from(scaled).sort().at(-topK)
      scaled.forEach((value, i) => { if (value < least) scaled[i] = -Infinity })
    }
    const shares = normalised(scaled.map(Math.exp))
    if (topP !== null) {
      let [before, least] = [0, 2]
      for (const share of Float64Array.from(shares).sort().reverse()) {
        if (before < topP) least = share
        before += share
      }
      shares.forEach((share, i) => { if (share < least) shares[i] = 0 })
    }
    const sums = cumulated(shares)
    const bound = firstRandom(seed * 1_000_003 + step) * sums.at(-1)
    return sums.findIndex((sum) => sum >= bound)
  }
}

const cumulated = (values) => {
  let sum = 0
  return values.map((value) => (sum += value))
}

const normalised = (values) => {
  const sum = cumulated(values).at(-1)
  return values.map((value) => value / sum)
}
