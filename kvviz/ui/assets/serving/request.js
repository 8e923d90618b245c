// One request, chosen: its text so far, and how long it waited for what, under each policy beside the others.

import { element, put, scrolled } from "../shared/dom.js"
import { count, ms } from "../shared/format.js"
import { gaps, passed, rank } from "./served.js"

const FIGURES = [
  ["Waits for a place", (one) => ms(one.admitted_s.length ? one.admitted_s[0] - one.arrival_s : null)],
  ["Prefill", (one) => prefill(one)],
  ["First token (TTFT)", (one) => ms(one.token_s.length ? one.token_s[0] - one.arrival_s : null)],
  ["ITL p50", (one) => ms(rank(gaps(one.token_s), 50))],
  ["ITL p99", (one) => ms(rank(gaps(one.token_s), 99))],
  ["Done after", (one) => ms(one.ended_s === null ? null : one.ended_s - one.arrival_s)],
  ["Cache hits, tokens", (one) => told(one.hit_tokens)],
  ["Preempted", (one) => `${one.preempted_s.length}×`],
  ["Computed again, tokens", (one) => told(one.recomputed_tokens)],
]

const told = (tokens) => (tokens === undefined ? "–" : count(tokens))

function prefill({ admitted_s: admitted, chunks, token_s: tokens }) {
  if (!admitted.length || !tokens.length) return "–"
  const parts = chunks.filter((chunk) => chunk[1] <= tokens[0]).length
  return `${ms(tokens[0] - admitted[0])}${parts > 1 ? `, ${parts} chunks` : ""}`
}

export class OneRequest {
  constructor(choose) {
    this.select = element("select", { "aria-label": "Request", "data-testid": "kv-request" })
    this.select.onchange = () => choose(this.select.value === "" ? null : Number(this.select.value))
    this.about = element("span", { class: "kv-hint" })
    this.prompt = element("span", { class: "kv-prompt" })
    this.answer = element("span", { "data-testid": "kv-answer" })
    this.text = scrolled("The request's text", "kv-requesttext", this.prompt, this.answer)
    this.figures = element("table", { class: "kv-requestfigures" })
    this.body = element("div", {}, this.text, this.figures)
    this.node = element("section", { class: "kv-request" }, element("label", { class: "kv-requesthead" }, this.select, this.about), this.body)
  }

  // `policy` is the chosen one, whose text is shown as it is at `time`; null is the newest.
  draw(run, policy, number, time, titles) {
    const requests = run.spec?.arrivals_s.length ?? 0
    if (this.select.options.length !== requests + 1) {
      this.select.replaceChildren(element("option", { value: "" }, "Choose a request, or click one"),
        ...Array.from({ length: requests }, (_, i) => element("option", { value: i }, `Request ${i}`)))
    }
    this.select.value = number === null ? "" : String(number)
    const found = run.rows.map((row) => [row, row.each.find((one) => one.number === number)]).filter(([, one]) => one)
    const one = found.find(([row]) => row.policy === policy)?.[1]
    this.body.hidden = !one
    put(this.about, one ? `${count(one.prompt_tokens)} tokens of prompt, ${count(one.new_tokens)} new ones wanted` : "")
    if (!one) return
    put(this.prompt, run.prompts[number])
    put(this.answer, one.sentence || one.pieces.slice(0, time === null ? undefined : passed(one.token_s, time)).join(""))
    const name = (row) => (titles[row.policy] ?? row.policy).split(/[:,]/)[0]
    const heads = [element("td", {}, "in all"), ...found.map(([row]) => element("th", { scope: "col", "data-chosen": row.policy === policy }, name(row)))]
    this.figures.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...FIGURES.map(([name, of]) =>
      element("tr", {}, element("th", { scope: "row" }, name), ...found.map(([row, one]) => element("td", { "data-chosen": row.policy === policy }, of(one)))))))
  }
}
