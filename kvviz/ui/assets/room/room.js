// A room in the frame of every page. One for the browser's tab, whatever Streamlit mounts and unmounts: who leads
// tells where it is, who follows goes there; a hand on the page or on the slider ends the following, gently.

import { RoomLink } from "./roomlink.js"
import { RoomView, spaced } from "./roomview.js"

const LOOK_MS = 250 // between two looks at the address
const GO_AGAIN_MS = 6000 // a page that was asked for and has not come is asked for again, this often:
const TRIES = 3
const LOST_MS = 60_000 // a room that a restarted server does not know is waited for, since its leader opens it again
const STORED = "kvviz-room"

// Where a tab stands towards a room, and where each event takes it. An event that is not named changes nothing.
const TRANSITIONS = {
  none: { connect: "joining", resumeLeft: "left", forget: "none" },
  joining: { connect: "joining", lead: "lead", follow: "follow", forget: "none" },
  lead: { connect: "joining", lead: "lead", follow: "follow", forget: "none" },
  follow: { connect: "joining", lead: "lead", follow: "follow", leave: "left", forget: "none" },
  left: { connect: "joining", forget: "none" },
}

const NO_CURVES = { rows: [], mine: null } // of the class's run

let room = null

export function mount({ data, parentElement, setTriggerValue }) {
  room ??= new TabRoom(data)
  room.update(data, setTriggerValue, parentElement.querySelector(".kv-roomplace"))
}

class TabRoom {
  constructor(data) {
    this.data = data
    this.role = "none" // a key of TRANSITIONS
    this.why = "" // a sentence to be shown
    this.joined = 0
    this.curves = NO_CURVES
    this.given = new Map() // what was drawn and answered in this tab, for the room that it follows
    this.view = new RoomView(data.assets, this)
    const stored = remembered()
    if (stored) {
      this.mark = stored.mark
      this.enter(stored.code, stored.role)
    }
    setInterval(() => this.watch(), LOOK_MS)
    document.addEventListener("kv-looked", (event) => this.looked(event.detail))
    document.addEventListener("kv-drawn", ({ detail }) => this.contribute("drawing", { t: "drawing", strokes: inHundredths(detail) }))
    document.addEventListener("kv-answered", ({ detail }) => this.contribute(`${detail.question} ${detail.round}`, { t: "answer", ...detail }))
    document.addEventListener("kv-reveal", ({ detail }) => this.link?.say({ t: "reveal", ...detail }))
    document.addEventListener("kv-everyone", ({ detail }) => this.link?.say({ t: "everyone", work: detail }))
    document.addEventListener("kv-curves", ({ detail }) => this.contribute("curves", { t: "curves", ...detail }))
    document.addEventListener("kv-class-asked", () => this.tellClass())
    for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, (e) => this.hand(e), true)
    window.addEventListener("popstate", () => { this.touched = true })
  }

  update(data, trigger, place) {
    this.data = data
    this.trigger = trigger
    this.view.put(place)
    if (data.join && data.join.number > this.joined) {
      this.joined = data.join.number
      this.join(data.join.code)
    }
  }

  // --- what the buttons do ---------------------------------------------------------------------------------

  open() {
    this.forget()
    this.connect("open")
  }

  join(text) {
    const code = text.toUpperCase().replace(/[^A-Z0-9]/g, "")
    if (this.code === code && ["lead", "follow"].includes(this.role)) return
    this.forget()
    this.enter(code, "follow")
  }

  followAgain() {
    this.enter(this.code, "follow")
  }

  leadFromHere() {
    this.enter(this.code, "lead")
  }

  unfollow() {
    this.link?.close()
    this.after("leave")
  }

  closeRoom() {
    this.link?.say({ t: "close" })
  }

  // Nothing is left of the room in this tab.
  forget(why = "") {
    this.link?.close()
    Object.assign(this, { link: null, code: null, mark: null, state: null, lost: null })
    this.after("forget", why)
    this.tellClass()
  }

  // --- the socket ------------------------------------------------------------------------------------------

  enter(code, role) {
    this.code = code
    if (role === "left") this.after("resumeLeft")
    else this.connect(role)
  }

  connect(want) {
    this.link?.close()
    this.want = want
    this.state = null
    this.after("connect")
    this.link = new RoomLink(
      () => ({ want: this.want, ...(this.code ? { code: this.code } : {}) }), (m) => this.take(m), (up) => this.linked(up))
  }

  linked(up) {
    this.up = up
    this.view.draw()
  }

  take(message) {
    const { t, ...said } = message
    if (t === "welcome") this.welcome(said)
    else if (t === "news") this.news(said)
    else if (t === "curves") this.gather(said)
    else if (t === "none") this.none(said.message)
    else if (t === "refused") {
      Object.assign(this, { refused: true, refusal: said.message })
      this.view.draw()
      this.tellClass()
    } else if (t === "ended") this.forget(`Room ${spaced(this.code)} ${said.message}.`)
  }

  welcome(said) {
    if (this.mark && said.mark !== this.mark) {
      this.forget("The room that this page followed has ended.")
      return
    }
    this.state = said
    this.lost = null
    Object.assign(this, { code: said.code, mark: said.mark, want: said.role, reported: "", told: "", last: "", refused: false, refusal: "", curves: NO_CURVES })
    this.after(said.role)
    this.arrive(true)
    const asked = (message) => message.t !== "curves" || message.number === said.run?.number
    if (said.role === "follow") for (const message of [...this.given.values()].filter(asked)) this.link.say(message)
    this.tellClass()
  }

  news(said) {
    const role = said.role && said.role !== this.role
    Object.assign(this.state, said)
    if (role) {
      this.want = said.role
      this.after(said.role)
    }
    this.arrive("place" in said, "look" in said)
    if ("run" in said) Object.assign(this, { curves: NO_CURVES, refusal: "" })
    if (role || "work" in said || "run" in said) this.tellClass()
    this.view.draw()
  }

  // A room that was there a moment ago may come back with its leader: the server was started anew.
  none(message) {
    if (!this.state) {
      this.forget(sentence(message))
      return
    }
    this.lost ??= performance.now()
    if (performance.now() - this.lost > LOST_MS) this.forget(sentence(message))
    else if (this.role === "lead") this.want = "open"
  }

  // The role after an event; `why`: a sentence to be shown.
  after(event, why = "") {
    const role = TRANSITIONS[this.role][event]
    if (!role) return
    Object.assign(this, { role, why })
    remember(role === "none" || !this.code ? null : { code: this.code, mark: this.mark, role: role === "joining" ? this.want : role })
    this.view.draw()
  }

  // --- the class's work ------------------------------------------------------------------------------------

  contribute(what, message) {
    if (JSON.stringify(this.given.get(what)) === JSON.stringify(message)) return
    this.given.set(what, message)
    this.refusal = ""
    if (this.role === "follow" && this.up) this.link.say(message)
  }

  tellClass() {
    const work = this.state?.work ?? { answers: {}, drawings: [], revealed: [] }
    const { role, code, curves, refusal } = this
    document.dispatchEvent(new CustomEvent("kv-class", { detail: { role, code, work, run: this.state?.run ?? null, curves, refusal } }))
  }

  // The curves of a class's run come bit by bit; `from` is how many came before.
  gather({ number, from, mine, rows }) {
    if (number !== this.state?.run?.number) return
    this.curves = { rows: [...this.curves.rows.slice(0, from), ...rows], mine }
    this.tellClass()
  }

  // --- leading ---------------------------------------------------------------------------------------------

  watch() {
    const place = this.here()
    const text = JSON.stringify(place)
    const still = text === this.last
    this.last = text
    if (this.role === "lead" && still) this.report(place, text)
    if (this.role === "follow") this.astray(place, still)
  }

  report(place, text) {
    if (text === this.reported || !this.up) return
    this.reported = text
    this.refused = false
    this.link.say({ t: "place", place })
    this.looked({})
  }

  // `own`: a hand has moved the slider; `fresh`: a comparison has just appeared, and has not heard of the room's look.
  looked({ own, fresh }) {
    if (this.role === "follow") {
      if (own) this.unfollow()
      else if (fresh && this.state.look) this.show(this.state.look)
    }
    const live = document.querySelector(".kv-live")
    if (this.role !== "lead" || !this.up || !live?.dataset.comparison) return
    const step = live.dataset.step ? Number(live.dataset.step) : null
    const look = { t: "look", comparison: live.dataset.comparison, step, mode: live.dataset.mode || null }
    if (JSON.stringify(look) === this.told) return
    this.told = JSON.stringify(look)
    this.link.say(look)
  }

  // The page, and the query in which it keeps what is seen on it.
  here() {
    const page = location.pathname.split("/").filter(Boolean).at(-1) ?? this.data.first
    const asked = [...new URLSearchParams(location.search)].filter(([name]) => !this.data.passed_over.includes(name))
    return { page, query: Object.fromEntries(asked.sort(([one], [other]) => (one < other ? -1 : 1))) }
  }

  // --- following -------------------------------------------------------------------------------------------

  arrive(place, look = true) {
    if (this.role !== "follow") return
    if (place && this.state.place && !same(this.state.place, this.here())) this.go()
    if (look && this.state.look) this.show(this.state.look)
  }

  show(look) {
    document.dispatchEvent(new CustomEvent("kv-look", { detail: look }))
  }

  go(tries = 0) {
    this.touched = false
    this.going = { tries, at: performance.now() }
    this.trigger?.("go", { page: this.state.place.page, query: this.state.place.query })
  }

  // Pages put their own addresses in order, so it takes a hand on the page to call another address one's own way.
  astray(place, still) {
    const target = this.state?.place
    if (!target || same(target, place)) {
      if (!still) this.touched = false // arrived; a hand since then may be at work yet, for a busy server takes its time
      this.going = null
    } else if (this.touched && !still) {
      this.unfollow()
    } else if (this.going && performance.now() - this.going.at > GO_AGAIN_MS) {
      if (this.going.tries < TRIES) this.go(this.going.tries + 1)
    }
  }

  hand(event) {
    if (!event.target.closest?.(".kv-live, .kv-room")) this.touched = true
  }
}

function same(one, other) {
  if (one.page !== other.page) return false
  const names = new Set([...Object.keys(one.query), ...Object.keys(other.query)])
  return [...names].every((name) => one.query[name] === other.query[name])
}

const inHundredths = (strokes) => Object.fromEntries(
  Object.entries(strokes).map(([mode, heights]) => [mode, heights.map((h) => (h === null ? null : Math.round(100 * h)))]))

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`

// --- what the tab remembers over a reload -----------------------------------------------------------------------

function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(STORED))
  } catch {
    return null
  }
}

function remember(value) {
  try {
    if (value) sessionStorage.setItem(STORED, JSON.stringify(value))
    else sessionStorage.removeItem(STORED)
  } catch {
    // no storage: a reload leaves the room
  }
}
