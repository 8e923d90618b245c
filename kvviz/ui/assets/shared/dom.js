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

// Change a node's text only where it differs: what is selected on a page stays selected.
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text
}
