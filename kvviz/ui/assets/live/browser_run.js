// A run in this browser: starts its thread, passes its records on, marks the passes during which the page was hidden.

export class BrowserRun {
  constructor(assets, work, onRecord, onOver) {
    Object.assign(this, { id: work.id, records: [], onRecord, onOver, hidden: false })
    this.watch = () => { this.hidden ||= document.hidden }
    document.addEventListener("visibilitychange", this.watch)
    this.worker = new Worker(`${assets}/live/browser_worker.js`, { type: "module" })
    this.worker.onmessage = ({ data }) => this.take(data)
    this.worker.onerror = (event) => this.take({ t: "failed", message: event.message || "this browser can't run the engine's thread" })
    this.worker.postMessage(work)
  }

  take(record) {
    if (record.t === "pass") this.hidden = document.hidden
    if (record.t === "clocked" && this.hidden) record.clean = false
    if (record.t === "over" || record.t === "failed") {
      this.close()
      this.onOver({ id: this.id, records: this.records, failed: record.message ?? "" })
    }
    if (record.t === "over") return
    if (!["loading", "failed"].includes(record.t)) this.records.push(record)
    this.onRecord(this.id, record)
  }

  close() {
    document.removeEventListener("visibilitychange", this.watch)
    this.worker.terminate()
  }
}
