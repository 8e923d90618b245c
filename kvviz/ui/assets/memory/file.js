// A place for a config.json or a GGUF file. Of a GGUF file, which can have many gigabytes, the browser reads the header.

import { element, put } from "../shared/dom.js"
import { slimmed } from "./header.js"

const instances = new WeakMap()

export function mount({ data, parentElement, setTriggerValue }) {
  let place = instances.get(parentElement)
  if (!place) {
    place = new Place(parentElement.querySelector(".kv-file"), data)
    instances.set(parentElement, place)
  }
  place.send = (file) => setTriggerValue("file", file)
  return () => instances.delete(parentElement)
}

class Place {
  constructor(root, data) {
    const href = `${data.assets}/memory/memory.css`
    if (!document.querySelector(`link[href="${href}"]`)) document.head.append(element("link", { rel: "stylesheet", href }))
    this.most = data.most
    this.input = element("input", { type: "file", accept: ".json,.gguf", "data-testid": "kv-file-input" })
    this.status = element("span", { role: "status" })
    const how = element("span", { class: "kv-filehow" }, "Of a GGUF file of any size, only the header is read, here in the browser.")
    const words = element("strong", {}, "Drop a config.json or a .gguf file here, or choose one")
    this.label = element("label", { class: "kv-fileplace" }, this.input, words, how, this.status)
    this.input.onchange = () => this.take(this.input.files[0])
    this.label.ondragover = (event) => { event.preventDefault(); this.label.dataset.over = "true" }
    this.label.ondragleave = () => delete this.label.dataset.over
    this.label.ondrop = (event) => {
      event.preventDefault()
      delete this.label.dataset.over
      this.take(event.dataTransfer.files[0])
    }
    root.replaceChildren(this.label)
  }

  async take(file) {
    if (!file) return
    put(this.status, `Reading ${file.name} …`)
    try {
      const first = new Uint8Array(await file.slice(0, 4).arrayBuffer())
      const isGguf = String.fromCharCode(...first) === "GGUF" || file.name.toLowerCase().endsWith(".gguf")
      const bytes = isGguf ? await slimmed(file) : new Uint8Array(await file.slice(0, this.most + 1).arrayBuffer())
      this.send({ name: file.name, bytes: base64(bytes) })
      put(this.status, `Read: ${file.name}`)
      this.label.dataset.read = "true"
    } catch (error) {
      put(this.status, `${file.name} can't be read here (${error.name}).`)
    }
  }
}

function base64(bytes) {
  let text = ""
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768))
  return btoa(text)
}
