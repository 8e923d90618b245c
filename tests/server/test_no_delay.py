"""No answer waits for the browser to confirm its first part."""

import socket

from streamlit.web.server.starlette.starlette_server import _bind_socket

from kvviz.server.no_delay import send_without_delay


def test_a_connection_to_the_socket_that_streamlit_binds_sends_without_delay():
    with _bind_socket("127.0.0.1", 0, backlog=5) as listening:
        assert not accepted_without_delay(listening), "Streamlit does it itself: kvviz.server.no_delay can go"
        send_without_delay()
        assert accepted_without_delay(listening)


def test_other_sockets_keep_their_settings():
    with socket.socket() as other:
        send_without_delay()
        assert not other.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def accepted_without_delay(listening):
    listening.setblocking(True)
    with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
        return bool(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
