// Close a socket. One that is still being opened is closed once it is open: browsers complain of the other way.

export function hangUp(socket) {
  if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close()
  else socket.close()
}
