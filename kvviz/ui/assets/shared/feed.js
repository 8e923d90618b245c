// The socket to the server's feed. Messages are applied strictly in order; what is known already is skipped,
// and on a hole the socket is closed and opened again for just what is missing.

import { hangUp } from "./hangup.js"

const RETRY_MS = [300, 600, 1200, 2500, 5000]

export class Feed {
  constructor(comparison, onRecords, onStatus, onLink) {
    this.follows = comparison
    this.comparison = null
    this.next = 0
    this.onRecords = onRecords
    this.onStatus = onStatus
    this.onLink = onLink
    this.failures = 0
    this.closed = false
    this.open()
  }

  open() {
    const url = new URL("/kv/feed", location.href)
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:"
    if (this.follows) url.searchParams.set("comparison", this.follows)
    if (this.comparison) {
      url.searchParams.set("had", this.comparison)
      url.searchParams.set("from", String(this.next))
    }
    const socket = new WebSocket(url)
    this.socket = socket
    socket.onopen = () => {
      this.failures = 0
      this.onLink(true)
    }
    socket.onmessage = (event) => {
      if (socket === this.socket) this.take(JSON.parse(event.data))
    }
    socket.onclose = () => {
      if (socket !== this.socket || this.closed) return
      this.onLink(false)
      this.timer = setTimeout(() => this.open(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)])
    }
  }

  take(message) {
    if (message.status) {
      this.onStatus(message)
      return
    }
    if (message.comparison !== this.comparison || message.whole) {
      this.comparison = message.comparison
      this.next = 0
    }
    if (message.from > this.next) {
      this.socket.close() // a hole: come back for what is missing
      return
    }
    const fresh = message.records.slice(this.next - message.from)
    this.next += fresh.length
    if (fresh.length) this.onRecords(message.comparison, fresh, this.next === fresh.length)
  }

  close() {
    this.closed = true
    clearTimeout(this.timer)
    hangUp(this.socket)
  }
}
