// Under a question: tells the room this visitor's answer, and shows how the class has answered, without names. It tells
// the page whether there is a room.

import { element, styled } from "../shared/dom.js"
import { ClassLink } from "../shared/classlink.js"
import { mounted } from "../shared/mounted.js"

class ClassAnswers {
  constructor(root, data) {
    Object.assign(this, { root, data, looks: false, told: data.room })
    styled(`${data.assets}/quiz/quiz.css`)
    this.link = new ClassLink((said) => {
      this.said = said
      this.tellPage()
      this.draw()
    })
  }

  // Who goes an own way is still in the class; who is joining is heard of again.
  tellPage() {
    if (!this.tell || !this.said || this.said.role === "joining" || this.data.room === null) return
    const room = this.said.role !== "none"
    if (room !== this.told) this.tell("room", room)
    this.told = room
  }

  get what() {
    return `${this.data.question} ${this.data.round}`
  }

  update(data, _, tell) {
    this.tell = tell
    if (this.data.question !== data.question || this.data.round !== data.round) this.looks = false
    this.data = data
    this.tellPage()
    if (data.answer !== null) {
      const { question, round, answer } = data
      document.dispatchEvent(new CustomEvent("kv-answered", { detail: { question, round, answer } }))
    }
    this.draw()
  }

  draw() {
    const { role, code, work } = this.said ?? {}
    const rows = work?.answers[this.what] ?? []
    const leads = role === "lead"
    const revealed = Boolean(work?.revealed.includes(this.what))
    const answered = rows.reduce((all, [, count]) => all + count, 0)
    const parts = []
    if (leads) {
      parts.push(element("div", { class: "kv-classhead" },
        element("span", { "data-testid": "kv-class-count", role: "status" }, `${answered} of the class ${answered === 1 ? "has" : "have"} answered`),
        ...(answered ? [
          this.pill(this.looks ? "Hide the answers" : "Look at the answers", "kv-class-look", () => { this.looks = !this.looks; this.draw() }),
          this.pill(revealed ? "Hide from the class" : "Reveal to the class", "kv-class-reveal", () => this.link.reveal(this.what, !revealed)),
          element("a", { class: "kv-classact", href: `/kv/room/answers.csv?code=${code}`, download: "", "data-testid": "kv-class-csv" }, "All answers as CSV"),
        ] : [])))
    } else if (revealed && answered) {
      parts.push(element("div", { class: "kv-classhead" }, "How the class has answered"))
    }
    if (answered && (revealed || (leads && this.looks))) {
      parts.push(element("table", { class: "kv-classrows", "data-testid": "kv-class-rows" }, ...rows.map((row) => this.row(row, answered))))
    }
    this.root.replaceChildren(...parts)
  }

  row([words, count, right], answered) {
    const bar = element("span", { class: "kv-classbar", style: `width:${(100 * count) / answered}%` })
    return element("tr", { "data-right": String(right) }, element("td", {}, right ? `${words} ✓` : words),
      element("td", { class: "kv-classshare" }, bar), element("td", {}, String(count)))
  }

  pill(words, testid, pressed) {
    const button = element("button", { type: "button", class: "kv-classact", "data-testid": testid }, words)
    button.onclick = pressed
    return button
  }

  close() {
    this.link.close()
  }
}

export const mount = mounted(ClassAnswers, ".kv-class")
