// What a design forgot of a text: a map of tokens by layers or heads as it was at each step, and the text itself.

import { element, put, styled } from "../shared/dom.js"
import { count } from "../shared/format.js"
import { mounted } from "../shared/mounted.js"
import { isDark } from "../shared/theme.js"
import { keepers, paint, ticksOf } from "./paint.js"

const HIGH = 160 // CSS pixels of the map, if its rows are few
const LOST = 72 // and of the strip below it, as in its style
const PLAYS_S = 8 // a whole text
const ABSENT = 255
const ROWS = 32 // heads of all layers that have a row each before anybody asks for it
const SHADES = 6 // heads, up to which each count of them has its colour in the key

class Forgetting {
  constructor(root, { assets }) {
    Object.assign(this, { root, step: null, byHead: false, playing: null, token: null })
    styled(`${assets}/caches/forgetting.css`)
    this.play = element("button", { type: "button", class: "kv-forgotbutton" }, "Play")
    this.play.onclick = () => (this.playing === null ? this.start() : this.stop())
    this.slider = element("input", { type: "range", min: 1, "aria-label": "Tokens read so far", "data-testid": "kv-forgetting-step" })
    this.slider.oninput = () => {
      this.stop()
      this.goTo(Number(this.slider.value) - 1)
    }
    this.heads = element("button", { type: "button", class: "kv-forgotbutton", "aria-pressed": "false" }, "Each head")
    this.heads.onclick = () => {
      this.byHead = !this.byHead
      this.shape()
    }
    this.key = element("p", { class: "kv-forgotkey", "data-testid": "kv-forgetting-key" })
    this.words = element("p", { class: "kv-forgotwords", "data-testid": "kv-forgetting-words" })
    this.labels = element("div", { class: "kv-forgotlabels", "aria-hidden": "true" })
    this.map = element("canvas", { role: "img", class: "kv-forgotmap", "data-testid": "kv-forgetting-map" })
    this.lost = element("canvas", { role: "img", class: "kv-forgotlost" })
    this.ticks = element("div", { class: "kv-forgotticks", "aria-hidden": "true" })
    this.axis = element("span", { class: "kv-forgotaxis" })
    this.most = element("span", {})
    this.half = element("span", {})
    const scale = element("div", { class: "kv-forgotscale", "aria-hidden": "true" }, this.most, this.half, element("span", {}, "0%"))
    this.line = element("div", { class: "kv-forgotline", hidden: "" })
    this.cells = element("div", { class: "kv-forgotcells" }, this.map, this.line)
    this.text = element("p", { class: "kv-forgottext", tabindex: "0", role: "group", "aria-label": "The text; the arrow keys choose a token" })
    this.about = element("p", { class: "kv-forgotabout", "data-testid": "kv-forgetting-token", "aria-live": "polite" })
    this.history = element("canvas", { class: "kv-forgothistory", role: "img" })
    this.under = element("p", { class: "kv-forgotunder" })
    root.replaceChildren(
      element("div", { class: "kv-forgottransport" }, this.play, this.slider, this.words, this.heads),
      element("div", { class: "kv-forgotgrid" }, this.key, this.labels, this.cells,
              element("span", { class: "kv-forgottoken", "aria-hidden": "true" }, "token"), this.ticks, this.axis, scale, this.lost),
      this.text, this.about, this.history, this.under)
    for (const canvas of [this.map, this.lost]) {
      canvas.onpointermove = (event) => {
        const box = canvas.getBoundingClientRect()
        this.look(Math.floor(((event.clientX - box.left) / box.width) * this.tokens))
      }
    }
    this.text.onpointerover = (event) => event.target.dataset.token && this.look(Number(event.target.dataset.token))
    this.text.onkeydown = (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
      if (!by) return
      event.preventDefault()
      this.look((this.token ?? -1) + by)
    }
    this.sized = new ResizeObserver(() => this.run && this.drawToken())
    this.sized.observe(root)
    root.kvForgetting = () => this
  }

  update(data) {
    if (this.data && this.data.name === data.name) return this.colour()
    this.stop()
    const run = data.run
    Object.assign(this, { data, run, tokens: data.pieces.length, layers: run.layers.length, token: null })
    this.gone = new Uint16Array(bytesOf(run.gone).buffer)
    this.scores = bytesOf(run.history)
    this.counts = new Uint16Array(this.tokens)
    this.levels = new Array(this.tokens)
    this.meanLost = run.lost[0].map((_, i) => run.lost.reduce((sum, layer) => sum + layer[i], 0) / this.layers)
    this.byHead = run.heads > 1 && this.layers * run.heads <= ROWS
    this.slider.max = this.tokens
    this.ticks.replaceChildren(...ticksOf(this.tokens).map((token) => {
      const tick = element("span", {}, count(token))
      tick.style.left = `${(100 * (token - 0.5)) / this.tokens}%`
      return tick
    }))
    this.text.replaceChildren(...data.pieces.map((piece, token) => element("span", { "data-token": token }, ...struck(piece, token))))
    this.spans = [...this.text.children]
    this.step = this.tokens - 1
    this.heads.hidden = run.heads < 2
    this.about.textContent = "Point at a token, in the text or on the map: when did each layer evict it, and how did its score change?"
    this.history.hidden = this.under.hidden = this.line.hidden = true
    this.shape()
  }

  shape() {
    const per = this.byHead ? 1 : this.run.heads
    this.rows = (this.layers * this.run.heads) / per
    this.map.width = this.tokens
    this.map.height = this.rows
    this.cells.style.setProperty("--kv-layers", this.layers)
    this.map.style.height = `${Math.max(HIGH, this.rows * 2)}px`
    this.image = new ImageData(this.tokens, this.rows)
    this.pixels = new Uint32Array(this.image.data.buffer)
    this.heads.setAttribute("aria-pressed", String(this.byHead))
    const every = Math.ceil(this.layers / 12)
    this.labels.replaceChildren(...this.run.layers.map((layer, i) => element("span", {}, i % every ? "" : `layer ${layer}`)))
    this.colour()
  }

  colour() {
    const dark = isDark()
    const [keep, give, ahead] = [this.data.colours.kept, this.data.colours.evicted, this.data.colours.ahead].map((pair) => rgb(pair[dark ? 1 : 0]))
    const heads = this.byHead ? 1 : this.run.heads
    const ground = dark ? [38, 46, 56] : [236, 239, 243]
    this.strong = [keep, give]
    const kept = Array.from({ length: heads + 1 }, (_, n) => mix(ground, keep, 0.35 + (0.65 * n) / heads)), gone = mix(give, ground, 0.92)
    this.palette = {
      kept: kept.map(packed),
      evicted: packed(gone),
      ahead: packed(mix(ground, ahead, 0.12)),
    }
    const counts = heads > SHADES ? [1, Math.ceil(heads / 2), heads] : kept.slice(1).map((_, n) => n + 1)
    const swatch = (colour, words) => element("span", { class: "kv-forgotswatch", style: `--kv-fill: rgb(${colour})` }, words)
    const keepers = heads > 1 ? element("span", {}, "kept by ", ...counts.map((n) => swatch(kept[n], n)), " heads") : swatch(keep, "kept")
    this.key.replaceChildren(keepers, swatch(gone, "evicted"))
    this.drawLost(ahead)
    this.draw()
  }

  start() {
    if (this.step >= this.tokens - 1) this.step = 0
    const pace = this.tokens / (PLAYS_S * 1000)
    let before = null
    let at = this.step
    put(this.play, "Pause")
    const frame = (now) => {
      at += before === null ? 0 : (now - before) * pace
      before = now
      this.goTo(Math.min(this.tokens - 1, Math.floor(at)))
      if (this.step >= this.tokens - 1) return this.stop()
      this.playing = requestAnimationFrame(frame)
    }
    this.playing = requestAnimationFrame(frame)
  }

  stop() {
    if (this.playing !== null) cancelAnimationFrame(this.playing)
    this.playing = null
    put(this.play, "Play")
  }

  goTo(step) {
    if (step === this.step) return
    this.step = step
    this.draw()
  }

  draw() {
    const { gone, tokens, rows, step } = this
    const heads = this.byHead ? 1 : this.run.heads
    paint(this.pixels, { gone, tokens, rows, heads, step }, this.palette)
    this.map.getContext("2d").putImageData(this.image, 0, 0)
    this.slider.value = step + 1
    keepers({ gone, tokens, step }, this.counts)
    const all = this.layers * this.run.heads
    let nowhere = 0
    for (let token = 0; token < tokens; token++) {
      const level = token > step ? "ahead" : this.counts[token] ? "kept" : "gone"
      if (level === "gone") nowhere++
      if (this.levels[token] === level) continue
      this.levels[token] = level
      this.spans[token].dataset.level = level
    }
    const held = this.counts.reduce((sum, n) => sum + n, 0) / all
    put(this.words, `After ${count(step + 1)} of ${count(tokens)} tokens, a head keeps ${count(Math.round(held))}; the ${count(nowhere)} struck out are gone from every layer.`)
    this.map.setAttribute("aria-label", `${this.run.title}: which tokens each layer keeps after ${step + 1} tokens`)
  }

  drawLost(colour) {
    const most = Math.ceil(50 * Math.max(0.01, ...this.meanLost)) / 50 // its half is a whole percentage
    this.lost.width = this.tokens
    this.lost.height = LOST
    const brush = this.lost.getContext("2d")
    brush.fillStyle = `rgb(${colour})`
    this.meanLost.forEach((share, i) => brush.fillRect(i, LOST * (1 - share / most), 1, LOST))
    const spared = this.meanLost.findIndex((share) => share > 0) // tokens that came before anything was gone
    const mean = this.meanLost.reduce((sum, share) => sum + share, 0) / this.tokens
    brush.fillStyle = getComputedStyle(this.root).color
    brush.fillRect(0, Math.round(LOST * (1 - mean / most)), this.tokens, 1)
    put(this.most, `${Math.round(most * 100)}%`)
    put(this.half, `${Math.round(most * 50)}%`)
    put(this.axis, `attention that would go, with the full cache, to tokens that are gone: mean ${Math.round(mean * 100)}% (line)${spared > 0 ? `, none until token ${count(spared)}` : ""}`)
    const said = `How much of its attention each token would give, with the full cache, to tokens that are gone here: 0 to ${Math.round(most * 100)}%; the line is the mean, ${Math.round(mean * 100)}%`
    this.lost.setAttribute("aria-label", said)
    this.lost.title = said
  }

  look(token) {
    if (!(token >= 0 && token < this.tokens)) return
    this.token = token
    this.drawToken()
  }

  drawToken() {
    const { token, tokens, layers } = this
    if (token === null) return
    this.spans.forEach((span, i) => span.toggleAttribute("data-chosen", i === token))
    this.line.hidden = false
    this.line.style.left = `${(100 * (token + 0.5)) / tokens}%`
    const went = Array.from({ length: layers }, (_, layer) => this.lastOf(layer, token))
    const said = went.map((when, i) => `layer ${this.run.layers[i]} ${when >= tokens ? "keeps it" : `evicted it ${count(when - token)} tokens later`}`)
    put(this.about, `Token ${count(token + 1)}, “${this.data.pieces[token].trim()}”: ${said.slice(0, 6).join("; ")}${layers > 6 ? " …" : ""}.`)
    this.drawHistory()
  }

  // The step in which the last head of a layer let go of a token.
  lastOf(layer, token) {
    let last = 0
    for (let head = 0; head < this.run.heads; head++) last = Math.max(last, this.gone[(layer * this.run.heads + head) * this.tokens + token])
    return last
  }

  drawHistory() {
    const { token, tokens, layers, run } = this
    this.history.hidden = this.under.hidden = !run.scored
    if (!run.scored) return
    const its = run.moments.flatMap((moment, i) => (moment < token ? [] : Array.from({ length: layers }, (_, layer) => this.scores[(i * layers + layer) * tokens + token])))
    const most = Math.max(1, ...its.filter((score) => score !== ABSENT))
    const wide = (this.history.width = Math.max(200, Math.round(this.root.clientWidth)))
    const high = (this.history.height = 90)
    const brush = this.history.getContext("2d")
    const [keep, give] = this.strong
    for (let layer = 0; layer < layers; layer++) {
      brush.strokeStyle = `rgb(${mix(keep, give, layers > 1 ? layer / (layers - 1) : 0)})`
      brush.lineWidth = 2
      brush.beginPath()
      let drawing = false
      run.moments.forEach((moment, i) => {
        const score = this.scores[(i * layers + layer) * tokens + token]
        if (score === ABSENT || moment < token) return (drawing = false)
        const [x, y] = [(wide * (moment + 0.5)) / tokens, high - 4 - ((high - 8) * score) / most]
        drawing ? brush.lineTo(x, y) : brush.moveTo(x, y)
        drawing = true
      })
      brush.stroke()
    }
    const said = `Its score from then on, a line for each layer, at most ${Math.round((most / 254) * 100)}% of the highest in the layer; a line ends with the eviction.`
    this.history.setAttribute("aria-label", said)
    put(this.under, said)
  }

  close() {
    this.stop()
    this.sized.disconnect()
  }
}

export const mount = mounted(Forgetting, ".kv-forgetting")

// A piece of the text with its word apart, so that a line through it spares the spaces at its ends.
function struck(piece, token) {
  const word = piece.trim()
  if (!word) return [piece]
  const [before, after] = piece.split(word)
  return [before, element("span", { "data-token": token }, word), after]
}

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))
const mix = (a, b, share) => a.map((from, i) => Math.round(from + (b[i] - from) * share))
const packed = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
