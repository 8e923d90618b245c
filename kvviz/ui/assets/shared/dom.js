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

export function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value)
  return node
}

// A part that scrolls by itself: within reach of the keyboard, and named.
export function scrolled(name, kind, ...children) {
  return element("div", { class: kind, tabindex: "0", role: "region", "aria-label": name }, ...children)
}

// Change a node's text only where it differs: what is selected on a page stays selected.
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text
}

// Calls a function once the page is at rest; Safari has no such call of its own.
export const idle = window.requestIdleCallback ?? setTimeout

// Have the page use these style sheets, each once.
export function styled(...sheets) {
  for (const href of sheets) {
    if (!document.querySelector(`link[href="${href}"]`)) document.head.append(element("link", { rel: "stylesheet", href }))
  }
}
