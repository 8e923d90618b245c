// The colours of a map of tokens by layers or heads at one moment, as pixels: small enough to be drawn anew each frame.

// `gone[row * tokens + token]`: the step in which a head let go of a token, `tokens` if never. `heads` rows of `gone`
// make a row of the picture. `kept[n]`: the colour where n heads keep a token; `evicted`: where none does; `ahead`: of
// tokens that are yet to come.
export function paint(pixels, { gone, tokens, rows, heads, step }, { kept, evicted, ahead }) {
  for (let row = 0; row < rows; row++) {
    const from = row * heads * tokens
    const to = row * tokens
    for (let token = 0; token <= step; token++) {
      let keeping = 0
      for (let head = 0, at = from + token; head < heads; head++, at += tokens) if (gone[at] > step) keeping++
      pixels[to + token] = keeping ? kept[keeping] : evicted
    }
    pixels.fill(ahead, to + step + 1, to + tokens)
  }
}

// How many heads of all layers keep each token.
export function keepers({ gone, tokens, step }, counts) {
  counts.fill(0)
  for (let at = 0, token = 0; at < gone.length; at++) {
    if (gone[at] > step && token <= step) counts[token]++
    if (++token === tokens) token = 0
  }
  return counts
}

// Positions to write under the map, counted from 1: the first, each 64th (of a long text fewer), the last.
export function ticksOf(tokens) {
  let every = 64
  while (tokens / every > 6) every *= 2
  const between = []
  for (let token = every; token < tokens - every / 4; token += every) between.push(token)
  return [1, ...between, ...(tokens > 1 ? [tokens] : [])]
}
