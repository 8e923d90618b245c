// The socket to a room. It comes back by itself until it is closed; what it asks for then is asked each time anew.

import { hangUp } from "../shared/hangup.js"

const RETRY_MS = [300, 600, 1200, 2500, 5000]

export class RoomLink {
  constructor(ask, onMessage, onLink) {
    this.ask = ask // () => the query of the handshake
    this.onMessage = onMessage
    this.onLink = onLink
    this.failures = 0
    this.closed = false
    this.open()
  }

  open() {
    const url = new URL("/kv/room", location.href)
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:"
    for (const [name, value] of Object.entries(this.ask())) url.searchParams.set(name, value)
    const socket = new WebSocket(url)
    this.socket = socket
    socket.onmessage = (event) => {
      if (socket !== this.socket || this.closed) return
      const message = JSON.parse(event.data)
      if (message.t === "welcome") {
        this.failures = 0
        this.onLink(true)
      }
      this.onMessage(message)
    }
    socket.onclose = () => {
      if (socket !== this.socket || this.closed) return
      this.onLink(false)
      this.timer = setTimeout(() => this.open(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)])
    }
  }

  say(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message))
  }

  close() {
    this.closed = true
    clearTimeout(this.timer)
    hangUp(this.socket)
  }
}
