// One box for whatever says which model is meant: a text that is typed or pasted, or a file that is dropped or chosen.
// Of a GGUF file, which can have many gigabytes, the browser sends the header alone.

import { element, put, styled } from "../shared/dom.js"
import { mounted } from "../shared/mounted.js"
import { slimmed } from "./header.js"

class Box {
  constructor(root, data) {
    styled(`${data.assets}/memory/memory.css`)
    this.most = data.most
    this.text = element("textarea", {
      rows: "1", spellcheck: "false", autocomplete: "off", "aria-label": data.label, placeholder: data.short, title: data.label, "data-testid": "kv-given-text",
    })
    this.input = element("input", { type: "file", accept: ".json,.gguf,.txt,.log", "data-testid": "kv-file-input", "aria-label": "Choose a file" })
    const choose = element("label", { class: "kv-given-file", title: data.choose }, this.input, "File")
    this.status = element("span", { role: "status" })
    this.box = element("div", { class: "kv-given-box" }, this.text, choose)
    this.text.oninput = () => this.grow()
    this.text.onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
      event.preventDefault()
      this.take(this.text.value)
    }
    this.text.onpaste = () => setTimeout(() => { this.grow(); this.take(this.text.value) })
    this.input.onchange = () => { this.takeFile(this.input.files[0]); this.input.value = "" }
    this.box.ondragover = (event) => { event.preventDefault(); this.box.dataset.over = "true" }
    this.box.ondragleave = () => delete this.box.dataset.over
    this.box.ondrop = (event) => {
      event.preventDefault()
      delete this.box.dataset.over
      const file = event.dataTransfer.files[0], text = event.dataTransfer.getData("text")
      if (file) this.takeFile(file)
      else if (text) { this.text.value = text; this.grow(); this.take(text) }
    }
    root.replaceChildren(this.box, this.status)
  }

  update(_, setTriggerValue) {
    this.send = (given) => setTriggerValue("given", given)
  }

  grow() { // to the lines of its text, six at most
    this.text.rows = Math.min(6, this.text.value.split("\n").length)
  }

  take(text) {
    put(this.status, "")
    if (!text.trim()) return
    if (text.length > this.most) return put(this.status, `This text is longer than the ${this.most.toLocaleString("en")} characters that are read here.`)
    this.send({ text })
  }

  async takeFile(file) {
    if (!file) return
    this.text.value = ""
    this.grow()
    put(this.status, `Reading ${file.name} …`)
    try {
      const first = new Uint8Array(await file.slice(0, 4).arrayBuffer())
      const isGguf = String.fromCharCode(...first) === "GGUF" || file.name.toLowerCase().endsWith(".gguf")
      const bytes = isGguf ? await slimmed(file) : new Uint8Array(await file.slice(0, this.most + 1).arrayBuffer())
      this.send({ name: file.name, bytes: base64(bytes) })
      put(this.status, "")
    } catch (error) {
      put(this.status, `${file.name} can't be read here (${error.name}).`)
    }
  }
}

export const mount = mounted(Box, ".kv-given")

function base64(bytes) {
  let text = ""
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768))
  return btoa(text)
}
