// The text of each mode, token by token; at the end one box for all, if all wrote the same. Text from a model is only ever
// text.

import { element, put } from "../shared/dom.js"
import { ended } from "../shared/state.js"

export class Texts {
  constructor(look) {
    this.look = look
    this.node = element("div", { class: "kv-texts" })
    this.panels = new Map()
  }

  // `shown` says how many tokens of a mode are to be seen: those of the step looked at, or of the race; `racing` keeps the
  // modes apart.
  draw(state, shown, racing) {
    if (this.shown !== state.id + state.modes.length) {
      this.shown = state.id + state.modes.length
      this.panels = new Map(state.modes.map((mode) => [mode.name, this.panel(state, mode)]))
      this.node.replaceChildren(...[...this.panels.values()].map((panel) => panel.node))
      this.node.dataset.one = "false" // the boxes are new, whatever stood here before
    }
    for (const mode of state.modes) {
      const panel = this.panels.get(mode.name)
      this.extend(panel, state, mode)
      const count = Math.min(shown(mode), mode.tokens.length)
      const whole = count === mode.tokens.length && (ended(state) || count >= state.spec.new_tokens)
      this.reveal(panel, count, !whole)
    }
    this.join(!racing && ended(state) && alike(state.modes) ? state.modes : null)
  }

  // Shows one box under the names of all these modes: the first, which keeps its place. Without modes, each has its own box
  // again.
  join(modes) {
    if (this.node.dataset.one === String(Boolean(modes))) return
    this.node.dataset.one = Boolean(modes)
    for (const { node, body, title, own } of this.panels.values()) {
      put(title, modes ? `${modes.map((mode) => mode.title).join(" and ")}: the same text` : own)
      cut(node, body)
    }
    const colours = modes?.map((mode, i) => `var(--kv-${mode.name}, currentcolor) ${(100 * i) / modes.length}% ${(100 * (i + 1)) / modes.length}%`)
    this.node.style.setProperty("--kv-all", colours ? `linear-gradient(${colours.join(", ")})` : "")
  }

  panel(state, mode) {
    const body = element("div", { class: "kv-text", tabindex: "0", role: "group", "aria-label": `Text, ${mode.title}`, "data-testid": `kv-text-${mode.name}` },
                         element("span", { class: "kv-prompt", title: `prompt, ${state.prompt.tokens} tokens` }, state.prompt.text))
    const title = element("span", {}, mode.title)
    const head = element("div", { class: "kv-panelhead", style: `border-color:${this.look.colour(mode.name)}` }, title)
    if (mode.speculates) head.append(element("small", {}, "underlined: proposed and accepted; struck out: rejected"))
    const node = element("div", { class: "kv-panel" }, head, body)
    body.onscroll = () => cut(node, body)
    return { node, body, title, own: mode.title, done: 0, spans: [], seen: 0, forward: 0 }
  }

  extend(panel, state, mode) {
    for (; panel.done < mode.tokens.length; panel.done++) {
      const token = mode.tokens[panel.done]
      const place = `token ${panel.done + 1}, position ${state.prompt.tokens + panel.done + 1}, id ${token.ids[0]}`
      const after = panel.over ? " kv-after" : ""
      const span = element("span", { class: `kv-token${after}`, title: place }, panel.over || !this.ends(state, token) ? token.text : "")
      if (!panel.over && this.ends(state, token)) {
        panel.over = true
        span.append(element("span", { class: "kv-end", "data-testid": "kv-end" }, "the model ended here; decoding goes on for the measurement"))
      }
      panel.spans.push(span)
      panel.body.append(span)
      span.hidden = true
      if (mode.speculates) this.mark(panel, mode)
    }
  }

  // Marks the token before the newest. It was accepted if the newest needed no forward. If a forward ran, the model chose
  // that token in place of a proposal, which is rejected with all that follow it.
  mark(panel, mode) {
    const newest = panel.done
    const before = panel.spans[newest - 1]
    if (mode.tokens[newest].proposed === null) {
      before.classList.add("kv-accepted")
      before.title += ", proposed and accepted"
      return
    }
    const proposed = mode.tokens[panel.forward].proposed ?? []
    const rejected = proposed.slice(newest - 1 - panel.forward)
    if (before && rejected.length) {
      const title = `${rejected.length} of ${proposed.length} proposals rejected: ${rejected.join("")}`
      before.prepend(element("s", { class: "kv-rejected", title }, rejected[0]))
    }
    panel.forward = newest
  }

  // Whether the model's text is over with this token, and yet the run goes on.
  ends(state, token) {
    return state.model.end_ids?.includes(token.ids[0]) && state.spec.stop_at_eos === false
  }

  // A text that grows is followed to its newest token; one that is over is read from its beginning.
  reveal(panel, count, grows) {
    if (panel.seen === count && panel.grows === grows) return
    for (let i = Math.min(panel.seen, count); i < Math.max(panel.seen, count); i++) panel.spans[i].hidden = i >= count
    Object.assign(panel, { seen: count, grows })
    panel.body.scrollTop = grows ? panel.body.scrollHeight : 0
    cut(panel.node, panel.body)
  }
}

// Whether several modes chose the same tokens, each by itself: proposals are marked in a text of their own.
function alike([first, ...others]) {
  const ids = (mode) => mode.tokens.map((token) => token.ids[0]).join()
  return others.length > 0 && [first, ...others].every((mode) => !mode.speculates && ids(mode) === ids(first))
}

// Tells the style whether there is more text above and below what is seen.
function cut(node, body) {
  Object.assign(node.dataset, { above: body.scrollTop > 2, below: body.scrollTop + body.clientHeight < body.scrollHeight - 2 })
}
