// Formulas as MathML, which browsers typeset themselves: small makers of its elements.

const make = (tag, ...children) => {
  const node = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag)
  node.append(...children)
  return node
}

export const name = (text) => make("mi", text)
export const sign = (text) => make("mo", text)
// Two decimals, as the cells have, or two digits of a small number.
export const number = (value) => make("mn", typeof value === "number" ? (Math.abs(value) < 1 ? value.toPrecision(2) : value.toFixed(2)).replace("-", "−") : value)
export const unit = (text) => make("mtext", `\u00a0${text}`)
export const lower = (base, index) => make("msub", name(base), typeof index === "string" ? make("mi", index) : index)
export const upper = (base, index) => make("msup", base, name(index))
export const root = (text) => make("msqrt", make("mn", text))

// A formula of its parts: strings are names, or signs where they are no letters; numbers are numbers.
export function formula(...parts) {
  const nodes = parts.map((part) => part instanceof Node ? part : typeof part === "number" ? number(part) : /^\p{L}+$/u.test(part) ? name(part) : sign(part))
  return make("math", make("mrow", ...nodes))
}
