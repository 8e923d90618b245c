"""A real server, `python app.py` with KVVIZ_PUBLIC=1, and what only its sockets can show."""

import http.client
import os
import socket
import struct

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.browser.conftest import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    before = {name: os.environ.get(name) for name in ("KVVIZ_PUBLIC", "HOST")}
    os.environ.pop("HOST", None)
    os.environ["KVVIZ_PUBLIC"] = "1"
    server = Server(tmp_path_factory.mktemp("public"))
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    server.wait()
    yield server
    server.close()
    log = server.log.read_text()  # text that is no UTF-8 is uvicorn's to report, which it does at length
    assert log.count("Traceback") == log.count("UnicodeDecodeError: 'utf-8'") <= 1


def asked(server, path, method="GET", body=None, **headers):
    """Status, headers and text of an answer, the path as it is written here."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, dict(answer.getheaders()), text


@pytest.mark.slow
@pytest.mark.worker
def test_it_listens_on_this_machine_alone(server):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))  # sends nothing; tells which address this machine would use
        except OSError:
            pytest.skip("this machine has no address but its own")
        outside = probe.getsockname()[0]
    with pytest.raises(OSError), socket.create_connection((outside, server.port), timeout=5):
        pass


@pytest.mark.worker
def test_its_pages_bind_the_browser(server):
    status, headers, _ = asked(server, "/")
    assert status == 200
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.worker
@pytest.mark.parametrize("path", ["/", "/_stcore/health", "/kv/health", "/static/index.html"])
def test_under_another_name_it_says_nothing(server, path):
    assert asked(server, path, host="evil.example")[0] == 421


@pytest.mark.worker
@pytest.mark.parametrize("path", ["/kv/feed", "/_stcore/stream"])
@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "http://127.0.0.1:1", "null"])
def test_a_foreign_page_opens_none_of_its_sockets(server, path, origin):
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{server.port}{path}", origin=origin):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.worker
@pytest.mark.worker
@pytest.mark.parametrize(
    "path",
    [
        "/kv/assets/../../etc/passwd",
        "/../../../../etc/passwd",
        "/static/../../../etc/passwd",
        "/static/..%2f..%2f..%2fetc%2fpasswd",
        "/media/../../etc/passwd",
        "/component/../../etc/passwd",
        "/app/static/../../../etc/passwd",
        "/kvviz/base/settings.py",
        "/.streamlit/config.toml",
        "/.streamlit/secrets.toml",
        "//etc/passwd",
        "/%00",
        "/kv/assets/%00",
        "/\\\\evil\\share",
    ],
)
def test_no_path_leads_to_a_file(server, path):
    status, _, text = asked(server, path)
    assert status < 500
    assert "root:" not in text and "import " not in text[:2000] and "[server]" not in text


@pytest.mark.worker
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/_stcore/agent/interact"), ("POST", "/_stcore/agent/mcp"), ("PUT", "/_stcore/upload_file/a/b"),
     ("DELETE", "/_stcore/upload_file/a/b"), ("POST", "/kv/feed"), ("POST", "/")],
)  # fmt: skip
def test_nothing_can_be_sent_but_by_a_page(server, method, path):
    status, _, _ = asked(server, path, method, body=b"{}", content_length="2", content_type="application/json")
    assert 400 <= status < 500


def frame(opcode, payload, masked=True, final=True):
    """A WebSocket frame (RFC 6455), right or not."""
    length, head = len(payload), bytes([opcode | (0x80 if final else 0)])
    size = bytes([length]) if length < 126 else b"\x7f" + struct.pack(">Q", length)
    size = bytes([size[0] | (0x80 if masked else 0)]) + size[1:]
    return head + size + (b"\0\0\0\0" if masked else b"") + payload


FRAMES = {
    "text that is no UTF-8": frame(1, b"\xff\xfe\xfa"),
    "without a mask": frame(1, b"{}", masked=False),
    "an opcode that there is not": frame(3, b"x"),
    "a ping that is too long": frame(9, b"x" * 200),
    "a continuation of nothing": frame(0, b"x"),
    "a length beyond all": b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
    "reserved bits": bytes([0xF1, 0x80]) + b"\0\0\0\0",
    "a close code that there is not": frame(8, struct.pack(">H", 5)),
    "binary, too long": frame(2, b"\0" * 100_000),
    "no frame at all": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.parametrize("name", FRAMES)
def test_a_malformed_frame_ends_its_own_socket_alone(server, name):
    with (
        connect(f"ws://127.0.0.1:{server.port}/kv/feed") as other,
        connect(f"ws://127.0.0.1:{server.port}/kv/feed") as bad,
    ):
        bad.recv(timeout=20)
        bad.socket.sendall(FRAMES[name])
        with pytest.raises(ConnectionClosed):
            while True:
                bad.recv(timeout=20)
        assert other.recv(timeout=20)
        other.ping().wait(20)
    assert asked(server, "/kv/health")[0] == 200
