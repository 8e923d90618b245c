// The arithmetic of kernels.c in plain JavaScript, for browsers without SIMD in WebAssembly. Pointers are those of the
// heap, in bytes; sums are made in float64 and rounded where they are stored.

export function plainKernels(buffer) {
  const f = new Float32Array(buffer)

  function dot(a, b, n) {
    let s = 0
    for (let i = 0; i < n; i++) s += f[a + i] * f[b + i]
    return s
  }

  // Four products with rows that lie one after another, so that what is read of x serves all of them.
  function dots(out, x, w, n) {
    let s = 0, t = 0, u = 0, v = 0
    for (let i = 0; i < n; i++) {
      const value = f[x + i]
      s += value * f[w + i]
      t += value * f[w + n + i]
      u += value * f[w + 2 * n + i]
      v += value * f[w + 3 * n + i]
    }
    f[out] = s
    f[out + 1] = t
    f[out + 2] = u
    f[out + 3] = v
  }

  return {
    linear(out, x, w, bias, rows, nIn, nOut) {
      for (let o = 0; o < nOut; o += 4) {
        const many = Math.min(4, nOut - o)
        for (let r = 0; r < rows; r++) {
          const [from, to] = [(x >> 2) + r * nIn, (out >> 2) + r * nOut + o]
          if (many === 4) dots(to, from, (w >> 2) + o * nIn, nIn)
          else for (let j = 0; j < many; j++) f[to + j] = dot(from, (w >> 2) + (o + j) * nIn, nIn)
          if (bias) for (let j = 0; j < many; j++) f[to + j] += f[(bias >> 2) + o + j]
        }
      }
    },
    layer_norm(out, x, weight, bias, rows, n, eps) {
      for (let [r, at, to] = [0, x >> 2, out >> 2]; r < rows; r++, at += n, to += n) {
        let [mean, squares] = [0, 0]
        for (let i = 0; i < n; i++) mean += f[at + i] / n
        for (let i = 0; i < n; i++) squares += (f[at + i] - mean) ** 2
        const scale = 1 / Math.sqrt(squares / n + eps)
        for (let i = 0; i < n; i++) f[to + i] = (f[at + i] - mean) * scale * f[(weight >> 2) + i] + f[(bias >> 2) + i]
      }
    },
    rms_norm(out, x, weight, rows, n, eps) {
      for (let [r, at, to] = [0, x >> 2, out >> 2]; r < rows; r++, at += n, to += n) {
        const scale = 1 / Math.sqrt(dot(at, at, n) / n + eps)
        for (let i = 0; i < n; i++) f[to + i] = f[at + i] * scale * f[(weight >> 2) + i]
      }
    },
    rotate(x, cosines, sines, rows, heads, dim, first) {
      const half = dim / 2
      for (let [row, at] = [0, x >> 2]; row < rows * heads; row++, at += dim) {
        const angle = (first + Math.floor(row / heads)) * half
        for (let i = 0; i < half; i++) {
          const [c, s, a, b] = [f[(cosines >> 2) + angle + i], f[(sines >> 2) + angle + i], f[at + i], f[at + half + i]]
          f[at + i] = a * c - b * s
          f[at + half + i] = b * c + a * s
        }
      }
    },
    attend(out, q, keys, values, scores, rows, seen, heads, kvHeads, dim, tokenStep, headStep) {
      const p = scores >> 2
      for (let [row, at, to] = [0, q >> 2, out >> 2]; row < rows * heads; row++, at += dim, to += dim) {
        const head = Math.floor((row % heads) / (heads / kvHeads)) * headStep
        const n = seen + Math.floor(row / heads) + 1
        let [most, total] = [-Infinity, 0]
        for (let t = 0; t < n; t++) {
          f[p + t] = dot(at, (keys >> 2) + head + t * tokenStep, dim) / Math.sqrt(dim)
          most = Math.max(most, f[p + t])
        }
        for (let t = 0; t < n; t++) total += f[p + t] = Math.exp(f[p + t] - most)
        f.fill(0, to, to + dim)
        for (let t = 0; t < n; t++) {
          const [share, from] = [f[p + t] / total, (values >> 2) + head + t * tokenStep]
          for (let i = 0; i < dim; i++) f[to + i] += share * f[from + i]
        }
      }
    },
    gelu(x, n) {
      for (let i = x >> 2; i < (x >> 2) + n; i++) {
        f[i] = f[i] / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (f[i] + 0.044715 * f[i] ** 3)))
      }
    },
    swiglu(gate, up, n) {
      for (let i = 0; i < n; i++) {
        const g = f[(gate >> 2) + i]
        f[(gate >> 2) + i] = (g / (1 + Math.exp(-g))) * f[(up >> 2) + i]
      }
    },
    add(x, y, n) {
      for (let i = 0; i < n; i++) f[(x >> 2) + i] += f[(y >> 2) + i]
    },
  }
}
