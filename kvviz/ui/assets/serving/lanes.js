// One policy's requests over time: a lane each, in SVG whose units are milliseconds and requests.

import { element, put } from "../shared/dom.js"
import { ms, rate, rough } from "../shared/format.js"
import { bars, endOf, middleWait, preemptions } from "./served.js"

const SVG = "http://www.w3.org/2000/svg"
const THICK = 0.84 // of a lane
const THIN = { waiting: 0.3, preempted: 0.6 } // a preempted request often waits too shortly for a thinner bar to be seen
const MEASURES = { // what a policy gives to those who wait, and what it takes from those who run
  wait: [() => "wait for the first token, median", (found) => found.ttft[0]],
  late: [(requests) => `wait for the first token, ${last(requests)}`, (found) => found.ttft[1]],
  pause: [() => "pause between tokens, p99", (found) => found.itl[1]],
}

const last = (requests) => (requests < 100 ? "slowest" : "p99") // as `tail` in figures.py

function shape(name, attributes) {
  const node = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value))
  return node
}

export class Lanes {
  // `kinds` names and colours the bars; `waits`: the median wait is marked, and MEASURES stand for the figures, under what the policy does. `choose(policy, request)`: somebody wants to see that one; without a request, the policy.
  constructor(row, title, { kinds, waits, summaries }, choose) {
    Object.assign(this, { kinds, waits, drawn: null })
    this.title = element("button", { type: "button", class: "kv-lanetitle", "data-testid": `kv-policy-${row.policy}` }, title)
    this.title.onclick = () => choose(row.policy)
    this.figures = element("span", { class: "kv-lanefigures" })
    this.picked = shape("rect", { class: "kv-picked", x: 0, height: 1, visibility: "hidden" })
    this.bars = shape("g", {})
    this.svg = shape("svg", { preserveAspectRatio: "none", role: "img" })
    this.svg.append(this.picked, this.bars)
    this.moment = element("span", {}, "the memory drawn below")
    this.veil = element("div", { class: "kv-veil" }, this.moment)
    this.wait = element("span", { class: "kv-wait" })
    this.measures = Object.entries(waits ? MEASURES : {}).map(([name]) => {
      const [words, value] = [element("span", {}), element("b", {})]
      return { name, words, value, node: element("div", { class: "kv-measure", "data-measure": name }, words, value) }
    })
    this.numbers = element("div", { class: "kv-lanenumbers", "aria-hidden": "true" })
    this.track = element("div", { class: "kv-lanes" }, this.svg, this.wait, this.veil)
    this.track.onclick = (event) => {
      const box = this.track.getBoundingClientRect()
      const at = Math.floor(((event.clientY - box.top) / box.height) * this.requests)
      choose(row.policy, Math.max(0, Math.min(this.requests - 1, at)))
    }
    this.node = element("section", { class: "kv-policy" }, element("div", { class: "kv-lanehead" }, this.title, waits ? element("p", { class: "kv-lanesummary" }, summaries[row.policy] ?? "") : this.figures, ...this.measures.map(({ node }) => node)), this.numbers, this.track)
  }

  // `range`, `time` and `shown` are seconds; a time of null is the newest. The memory is drawn as it was at `shown`, null
  // if it is not drawn. `found` are the figures at that time.
  draw(row, { range, time, shown, requests, chosen, request, found }) {
    this.requests = requests
    if (this.drawn !== row.version) this.redraw(row)
    this.drawn = row.version
    this.svg.setAttribute("viewBox", `0 0 ${1000 * range} ${requests}`)
    this.node.dataset.chosen = String(chosen)
    this.title.setAttribute("aria-pressed", String(chosen))
    this.picked.setAttribute("visibility", request === null ? "hidden" : "visible")
    this.picked.setAttribute("y", String(request ?? 0))
    this.picked.setAttribute("width", String(1000 * range))
    this.veil.style.left = `${(100 * (time ?? shown ?? range)) / range}%`
    this.veil.dataset.rests = String(time === null)
    this.veil.dataset.late = String((time ?? shown ?? 0) > range / 2)
    this.veil.hidden = time === null && !(chosen && shown !== null)
    if (this.waits) this.measure(row, found)
    else this.tell(row, found, time ?? Infinity)
    this.drawWait(row, range, time ?? Infinity)
  }

  // The median wait for a first token, right under the very request that waited so long.
  drawWait(row, range, time) {
    const one = row.over && this.waits ? middleWait(row) : null
    this.wait.hidden = !one || time < one.token_s[0]
    if (this.wait.hidden) return
    const [left, right] = [one.arrival_s, one.token_s[0]]
    Object.assign(this.wait.style, { left: `${(100 * left) / range}%`, width: `${(100 * (right - left)) / range}%`, top: `${(100 * (one.number + 1)) / this.requests}%` })
    this.wait.dataset.side = left > range / 4 ? "left" : "under" // below and to the left of an arrival no later request has a bar
    this.wait.style.setProperty("--kv-at", String(left / range))
    this.wait.dataset.said = `${row.clean === false ? "≈ " : ""}${rough(1e3 * (right - left))} ms`
  }

  redraw(row) {
    const end = endOf(row)
    this.bars.replaceChildren(...row.each.flatMap((one) => bars(one, end).map((bar) => {
      const height = THIN[bar.kind] ?? THICK
      const rect = shape("rect", { class: `kv-bar-${bar.kind}`, x: 1000 * bar.from, y: one.number + (1 - height) / 2, width: 1000 * (bar.to - bar.from), height })
      const title = shape("title", {})
      title.textContent = `request ${one.number}: ${this.kinds[bar.kind][0]} for ${ms(bar.to - bar.from)}`
      rect.append(title)
      return rect
    })))
    this.numbers.replaceChildren(...Array.from({ length: Math.ceil(this.requests / 10) }, (_, i) => {
      const node = element("span", {}, String(10 * i))
      node.style.top = `${(100 * (10 * i + 0.5)) / this.requests}%`
      return node
    }))
    this.svg.setAttribute("aria-label", `${this.title.textContent}: ${row.each.length} requests over ${ms(end)}; the button Data has the figures`)
    this.node.style.setProperty("--kv-requests", this.requests)
  }

  measure(row, found) {
    for (const { name, words, value } of this.measures) {
      const [said, figure] = MEASURES[name]
      const seconds = figure(found)
      put(words, said(this.requests))
      put(value, seconds === null ? "–" : `${row.clean === false ? "≈ " : ""}${rough(1e3 * seconds)} ms`) // two digits, as it is one run
    }
  }

  tell(row, found, time) {
    const about = row.clean === false ? "≈ " : ""
    const pair = ([middle, most]) => (middle === null ? "–" : `${about}${ms(middle)}, ${ms(most)}`)
    const over = row.over && time >= endOf(row)
    const soFar = over ? "" : "so far" // a percentile of those that are done is none of all
    const told = [[found.rate === null ? "–" : about + rate(found.rate)], [found.running, "running"], [found.waiting, "waiting"],
                  [found.done, over ? `done after ${about}${Number(endOf(row).toPrecision(3))} s` : "done"], [pair(found.ttft), soFar, `first token p50, ${last(this.requests)}: `], [pair(found.itl), soFar, "ITL p50, p99: "]]
    const lost = over && preemptions(row)
    told.push(lost ? [lost.count, `preempted, ${lost.words}`] : ["", ""])
    if (!this.figures.children.length) {
      this.figures.append(...told.map(([, , before = ""]) => element("span", {}, before, element("b", {}), element("i", {}))))
    }
    this.figures.dataset.over = String(over)
    told.forEach(([value, after = ""], i) => {
      const [figure, words] = this.figures.children[i].children
      put(figure, String(value))
      put(words, after && ` ${after}`)
    })
  }
}
