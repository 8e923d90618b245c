// The tokenizer of a model, from its tokenizer.json: byte-level BPE, as GPT-2 has it.

// Words with the space before them, numbers, signs, spaces: no token reaches across two of them.
const PIECES = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu

// Each byte as a character that can be seen: printable ones stand for themselves.
const BYTES = (() => {
  const printable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173)
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++))
})()

export class Tokenizer {
  constructor(file) {
    const { model, pre_tokenizer: before, normalizer, added_tokens: added } = file
    if (model.type !== "BPE" || before?.type !== "ByteLevel" || before.add_prefix_space || normalizer) {
      throw new Error("this engine reads byte-level BPE tokenizers without a normalizer")
    }
    this.ids = new Map(Object.entries(model.vocab))
    this.ranks = new Map(model.merges.map((pair, rank) => [Array.isArray(pair) ? pair.join(" ") : pair, rank]))
    this.added = new Map(added.map(({ content, id }) => [content, id]))
    this.tokens = []
    const codes = new Map(BYTES.map((character, byte) => [character, byte]))
    for (const [token, id] of this.ids) this.tokens[id] = Uint8Array.from([...token], (character) => codes.get(character))
    for (const [token, id] of this.added) this.tokens[id] = new TextEncoder().encode(token)
    this.known = new Map()
  }

  encode(text) {
    const names = [...this.added.keys()].map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    const parts = names.length ? text.split(new RegExp(`(${names.join("|")})`)) : [text]
    return parts.flatMap((part) => (this.added.has(part) ? [this.added.get(part)]
      : (part.match(PIECES) ?? []).flatMap((piece) => this.piece(piece))))
  }

  // Joins the pair that was learned first, again and again.
  piece(piece) {
    if (this.known.has(piece)) return this.known.get(piece)
    const parts = Array.from(new TextEncoder().encode(piece), (byte) => BYTES[byte])
    for (;;) {
      const ranks = parts.slice(1).map((part, i) => this.ranks.get(`${parts[i]} ${part}`) ?? Infinity)
      const best = Math.min(...ranks)
      if (best === Infinity) break
      const at = ranks.indexOf(best)
      parts.splice(at, 2, parts[at] + parts[at + 1])
    }
    const ids = parts.map((part) => this.ids.get(part))
    this.known.set(piece, ids)
    return ids
  }

  decode(ids) {
    const bytes = ids.flatMap((id) => [...(this.tokens[id] ?? [])])
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes))
  }
}

// The text that each token adds, by one function for each text; a character of several tokens comes with its last one.
export function textStream(tokenizer) {
  const ids = []
  let [start, read] = [0, 0] // the window that is decoded again, and the end of its part whose text is out
  return (id) => {
    ids.push(id)
    const text = tokenizer.decode(ids.slice(start))
    if (text.endsWith("\uFFFD") && ids.length - read < 4) return ""
    const before = tokenizer.decode(ids.slice(start, read))
    ;[start, read] = [read, ids.length]
    return text.slice(before.length)
  }
}
