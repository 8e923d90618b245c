// What is seen of a room: a button at the top right, a bar at the foot, and a dialog with code, link and QR code.

import { element, styled } from "../shared/dom.js"

export const spaced = (code) => (code?.length === 6 ? `${code.slice(0, 3)}-${code.slice(3)}` : code ?? "")

const AWAY_AFTER_MS = 3000 // a reload of the leader's page is no absence

export class RoomView {
  constructor(assets, room) {
    this.room = room
    styled(`${assets}/room/room.css`)
    this.button = button("Classroom", () => this.show(), "kv-roombutton", "kv-room-button")
    this.words = element("span", { class: "kv-roomwords", "data-testid": "kv-room-words", role: "status" })
    this.actions = element("span", { class: "kv-roomactions" })
    this.bar = element("div", { class: "kv-roombar", "data-testid": "kv-room-bar" }, this.words, this.actions)
    this.dialog = new RoomDialog(room)
    this.node = element("div", { class: "kv-room" }, this.button, this.bar, this.dialog.node)
    this.draw()
  }

  // Streamlit may give the component a new place; the room moves there as it is.
  put(place) {
    if (!place || this.node.parentNode === place) return
    const open = this.dialog.node.open
    place.replaceChildren(this.node)
    if (open) {
      this.dialog.node.close()
      this.show()
    }
  }

  show() {
    this.dialog.draw()
    this.dialog.node.showModal()
    this.dialog.node.focus() // not its first field: on a telephone that would call the keyboard
  }

  draw() {
    const { role, code, why } = this.room
    const inside = role === "lead" || role === "follow" || role === "left"
    this.node.dataset.role = role
    this.button.replaceChildren(inside ? `Room ${spaced(code)}` : "Classroom")
    this.bar.hidden = !inside && role !== "joining" && !why
    this.say()
    const actions = this.buttons()
    const key = `${role} ${why} ${Boolean(this.room.state?.yours)}`
    if (this.shown !== key) { // a button under a finger is not exchanged for its like
      this.shown = key
      this.actions.replaceChildren(...actions)
    }
    if (this.dialog.node.open) this.dialog.draw()
  }

  say() {
    const words = this.sentence()
    if (this.words.textContent !== words) this.words.textContent = words
  }

  sentence() {
    const { role, code, state, up, why } = this.room
    if (role === "joining") return code ? `Looking for room ${spaced(code)} …` : "Opening a room …"
    if (role === "left") return `You go your own way; room ${spaced(code)} goes on.`
    if (role !== "lead" && role !== "follow") return why
    if (!up) return `Room ${spaced(code)}: connecting again …`
    if (role === "lead") {
      const unseen = this.room.refused ? " · what you see now can't be shown to them" : ""
      return `You lead room ${spaced(code)} · ${count(state.followers)}${unseen}`
    }
    return `Following room ${spaced(code)} · ${this.absent() ? "the teacher is away" : `${state.followers} here`}`
  }

  // Away is said after a moment only.
  absent() {
    clearTimeout(this.timer)
    if (!this.room.state.away) {
      this.since = null
      return false
    }
    this.since ??= performance.now()
    const left = AWAY_AFTER_MS - (performance.now() - this.since)
    if (left > 0) this.timer = setTimeout(() => this.say(), left + 20)
    return left <= 0
  }

  buttons() {
    const { room } = this
    const { role, why } = room
    if (role === "lead") return [button("Show code", () => this.show())]
    if (role === "follow") {
      const own = room.state?.yours ? [button("Lead from here", () => room.leadFromHere())] : []
      return [...own, button("Stop following", () => room.unfollow())]
    }
    if (role === "left") return [button("Follow again", () => room.followAgain(), "kv-first"), cross("Leave the room", () => room.forget())]
    if (role === "joining") return [button("Cancel", () => room.forget())]
    return why ? [cross("Dismiss", () => room.forget())] : []
  }
}

const count = (n) => (n ? (n === 1 ? "1 follows" : `${n} follow`) : "nobody follows yet")

function button(text, act, kind = "", testid = "") {
  const node = element("button", { type: "button", class: `kv-roomact ${kind}`, ...(testid ? { "data-testid": testid } : {}) }, text)
  node.onclick = act
  return node
}

function cross(label, act) {
  const node = button("✕", act, "kv-cross")
  node.setAttribute("aria-label", label)
  node.title = label
  return node
}

// --- the dialog ------------------------------------------------------------------------------------------------

class RoomDialog {
  constructor(room) {
    this.room = room
    this.body = element("div", { class: "kv-roombody" })
    const close = cross("Close this window", () => this.node.close())
    close.classList.add("kv-roomclose")
    this.node = element("dialog", { class: "kv-roomdialog", tabindex: "-1", "data-testid": "kv-room-dialog", "aria-label": "Classroom" }, this.body, close)
    this.node.onclick = (event) => {
      if (event.target === this.node) this.node.close() // beside the window
    }
  }

  // Built anew only when it shows something else; the number of followers is put in place.
  draw() {
    const { role, code, state, why } = this.room
    const inside = state && (role === "lead" || role === "follow")
    const key = inside ? `${role} ${code} ${state.link}` : `none ${role} ${why}`
    if (this.shown !== key) {
      this.shown = key
      this.body.replaceChildren(...(inside ? this.invitation(state, role, code) : this.entrance(why)))
      this.node.dataset.inside = String(Boolean(inside))
    }
    if (inside) this.here.textContent = role === "lead" ? count(state.followers) : `${state.followers} here`
  }

  invitation(state, role, code) {
    this.here = element("span", { class: "kv-roomcount", "data-testid": "kv-room-count" })
    const picture = element("img", { class: "kv-qr", src: state.qr, alt: `QR code of ${state.link}`, "data-testid": "kv-room-qr" })
    const warns = state.link.startsWith(`${location.origin}/`) // no address was found that others can use
    const hint = state.hint ? [element("p", { class: `kv-roomhint${warns ? " kv-warns" : ""}`, "data-testid": "kv-room-hint" }, state.hint)] : []
    const end = role === "lead"
      ? [button("Close room", () => this.end(), "kv-end")]
      : [button("Stop following", () => this.leave())]
    const words = role === "lead"
      ? "Who joins sees your page, your run and the step you look at, until they go their own way."
      : "You see the teacher's page, run and step, until you go your own way. A neighbour joins with the same code."
    return [
      picture,
      element("div", { class: "kv-roomtext" },
        element("p", { class: "kv-roomlabel" }, "Room"),
        element("p", { class: "kv-roomcode", "data-testid": "kv-room-code" }, spaced(code)),
        this.link(state.link),
        ...hint,
        element("p", { class: "kv-roomsmall" }, words),
        element("div", { class: "kv-roomfoot" }, this.here, ...end)),
    ]
  }

  link(address) {
    const field = element("input", { class: "kv-roomlink", readonly: "", value: address, "aria-label": "Link to join", "data-testid": "kv-room-link" })
    field.onclick = () => field.select()
    const copy = button("Copy", () => {
      field.select()
      document.execCommand("copy") // the newer way is for pages under https alone
      copy.textContent = "Copied"
      setTimeout(() => { copy.textContent = "Copy" }, 2000)
    })
    return element("div", { class: "kv-roomrow" }, field, copy)
  }

  entrance(why) {
    const field = element("input", {
      class: "kv-roomfield", "aria-label": "Code of a room", placeholder: "K7M-4QX", maxlength: "12",
      autocomplete: "off", autocapitalize: "characters", spellcheck: "false", "data-testid": "kv-room-field",
    })
    const form = element("form", { class: "kv-roomrow" }, field, element("button", { type: "submit", class: "kv-roomact" }, "Join"))
    form.onsubmit = (event) => {
      event.preventDefault()
      if (!field.value.trim()) return
      this.node.close()
      this.room.join(field.value)
    }
    return [
      element("section", {},
        element("h3", {}, "Lead a class"),
        element("p", {}, "Open a room, and everyone who joins sees your page, your run and the step you look at."),
        button("Open a room", () => this.room.open(), "kv-first")),
      element("section", {},
        element("h3", {}, "Join a room"),
        element("p", {}, "Type the code that the teacher shows. No account is needed."),
        form),
      ...(why ? [element("p", { class: "kv-roomhint" }, why)] : []),
    ]
  }

  end() {
    this.node.close()
    this.room.closeRoom()
  }

  leave() {
    this.node.close()
    this.room.unfollow()
  }
}
