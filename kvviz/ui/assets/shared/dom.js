// One way to make an element. Children that are strings become text, never markup.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value
    else node.setAttribute(name, value)
  }
  node.append(...children)
  return node
}
