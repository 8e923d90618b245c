"""Requests and sockets that no page of ours would open."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from kvviz.base.settings import Limits, Settings, read_settings
from kvviz.server.feed import Feed, routes
from kvviz.server.front_door import BURST, LONGEST_MESSAGE, FrontDoor, Rules, is_loopback, same_origin

ROOT = Path(__file__).resolve().parents[2]
EVIL = "https://evil.example"


@pytest.fixture
def client(scheduler_without_worker, tmp_path):
    """`client(rules)` talks to kvviz's own routes and to a stand-in for Streamlit's, behind the front door."""
    opened = []

    async def page(request):
        return HTMLResponse("<p>a page</p>")

    async def upload(request):
        return PlainTextResponse(str(len(await request.body())))

    async def stream(websocket):
        await websocket.accept()
        await websocket.send_text("streamlit")
        await websocket.close()

    def make(rules=None, address="http://testserver"):
        feed = Feed(scheduler_without_worker)
        (tmp_path / "assets").mkdir(exist_ok=True)
        app = Starlette(
            routes=[
                *routes(feed, str(tmp_path / "assets"), "/kv/assets/abc"),
                Route("/_stcore/upload_file/a/b", upload, methods=["PUT"]),
                WebSocketRoute("/_stcore/stream", stream),
                Mount("/", Route("/", page)),
            ],
            middleware=[Middleware(FrontDoor, lambda: rules or Rules())],
        )
        opened.append(TestClient(app, base_url=address, raise_server_exceptions=False).__enter__())
        opened[-1].feed = feed
        return opened[-1]

    yield make
    for one in opened:
        one.__exit__(None, None, None)


def refused(client, path, **headers):
    with pytest.raises(WebSocketDisconnect) as gone, client.websocket_connect(path, headers=headers) as socket:
        socket.receive()
    return gone.value.code == 1008


SOCKETS = ("/kv/feed", "/_stcore/stream")


@pytest.mark.parametrize("path", SOCKETS)
@pytest.mark.parametrize(
    "origin",
    [
        EVIL,
        "http://testserver.evil.example",
        "http://testserver:81",
        "null",
        "",
        "file://",
        "http://",
        "localhost",
        "http://localhost:3000",
        "http://127.0.0.1:8888",
        "http://evil@testserver",
        "testserver",
    ],
)
def test_a_page_of_another_site_opens_no_socket(client, path, origin):
    """Streamlit alone lets any port of this machine in: another program's page would do as the user does."""
    assert refused(client(), path, origin=origin)


@pytest.mark.parametrize("path", SOCKETS)
@pytest.mark.parametrize("headers", [{}, {"origin": "http://testserver"}, {"origin": "http://testserver:80"}])
def test_our_own_pages_do(client, path, headers):
    if headers.get("origin", "").endswith(":80"):
        headers = {"origin": "http://testserver", "host": "testserver:80"}
    with client().websocket_connect(path, headers=headers) as socket:
        assert socket.receive_text()


def test_behind_a_proxy_the_address_in_the_settings_counts(client):
    given = read_settings('origins = ["https://kv.example.org"]', public=False)
    behind = client(Rules(given, loopback=True), "http://localhost:8501")
    headers = {"origin": "https://kv.example.org", "host": "localhost:8501"}
    with behind.websocket_connect("/kv/feed", headers=headers) as socket:
        assert socket.receive_text()
    assert behind.get("/", headers={"host": "kv.example.org"}).status_code == 200
    assert refused(behind, "/kv/feed", host="kv.example.org", origin="https://kv.example.org.evil.example")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:8501",
        "127.0.0.1.nip.io",
        "",
        "[::1",
        "192.168.1.7",
        "localhost@evil.example",
    ],
)
def test_a_server_for_this_machine_answers_to_no_other_name(client, host):
    """A name that its owner lets point here makes a stranger's page the same origin as ours."""
    here = client(Rules(loopback=True), "http://localhost:8501")
    for path in ("/", "/kv/health", "/kv/assets/abc/x.js"):
        assert here.get(path, headers={"host": host}).status_code == 421
    for path in SOCKETS:
        assert refused(here, path, host=host, origin=f"http://{host}")


@pytest.mark.parametrize(
    "host", ["localhost:8501", "127.0.0.1:9", "[::1]:8501", "LOCALHOST", "kv.localhost", "127.9.9.9"]
)
def test_a_server_for_this_machine_answers_to_its_own_names(client, host):
    assert client(Rules(loopback=True)).get("/", headers={"host": host}).status_code == 200


def test_what_is_loopback():
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "[::1]", "127.0.0.53")))
    assert not any(
        map(is_loopback, ("0.0.0.0", "::", "192.168.0.2", "10.0.0.1", "", "example.org", "127.0.0.1.example"))
    )


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
def test_a_page_of_another_site_changes_nothing(client, method):
    answer = client().request(method, "/_stcore/upload_file/a/b", headers={"origin": EVIL})
    assert (answer.status_code, "another site" in answer.text) == (403, True)


def test_same_origin_of_odd_headers():
    assert not same_origin({"origin": "http://[::1", "host": "[::1"})
    assert not same_origin({"origin": "http://a"})
    assert same_origin({"origin": "http://[::1]:8501", "host": "[::1]:8501"})


# --- sizes and floods -------------------------------------------------------------------------------------------


def test_an_oversized_upload_is_refused_before_it_is_read(client):
    strict = client(Rules(Settings(limits=Limits(upload_bytes=100_000))))
    assert strict.put("/_stcore/upload_file/a/b", content=b"x" * 100_000).text == "100000"
    answer = strict.put("/_stcore/upload_file/a/b", content=b"x" * 200_000)
    assert (answer.status_code, answer.text) == (413, "A file has at most 100,000 bytes here.")
    assert strict.put("/_stcore/upload_file/a/b", headers={"content-length": "9" * 400}).status_code == 413


def closed_with(socket):
    """The code with which the server closes, after whatever it had sent before."""
    while (message := socket.receive())["type"] != "websocket.close":
        pass
    return message["code"]


@pytest.mark.parametrize("message", ["x" * (LONGEST_MESSAGE + 1), "é" * LONGEST_MESSAGE, b"\0" * (LONGEST_MESSAGE + 1)])
def test_a_message_that_is_too_long_ends_the_socket(client, message):
    made = client()
    with made.websocket_connect("/kv/feed") as socket:
        (socket.send_text if isinstance(message, str) else socket.send_bytes)(message)
        assert closed_with(socket) == 1009
    assert made.feed.viewers == 0


def test_a_flood_ends_the_socket(client):
    made = client()
    with made.websocket_connect("/kv/feed") as socket:
        for _ in range(3 * BURST):
            socket.send_text("{}")
        assert closed_with(socket) == 1008
    assert made.feed.viewers == 0


@pytest.mark.parametrize(
    "message", [b"\xff\xfe\x00", b"", "", "{" * 5000, "[" * 10_000, '{"a": 1e999}', "\udc80", "null"]
)
def test_nonsense_on_a_socket_harms_nobody(client, message):
    made = client()
    with made.websocket_connect("/kv/feed") as socket, made.websocket_connect("/kv/feed") as other:
        (socket.send_text if isinstance(message, str) else socket.send_bytes)(message)
        assert json.loads(other.receive_text())["state"] == "none"
    assert made.get("/kv/health").status_code == 200


def test_more_sockets_than_the_server_takes_are_refused(client):
    few = client(Rules(Settings(limits=Limits(viewers=2))))
    with few.websocket_connect("/kv/feed"), few.websocket_connect("/kv/feed"):
        assert refused(few, "/kv/feed")
    with few.websocket_connect("/kv/feed") as again:
        assert again.receive_text()


# --- paths ------------------------------------------------------------------------------------------------------


PATHS = (
    "/kv/assets/abc/../secret.txt",
    "/kv/assets/abc/%2e%2e/secret.txt",
    "/kv/assets/abc/..%2fsecret.txt",
    "/kv/assets/abc/..%5csecret.txt",
    "/kv/assets/abc/%00",
    "/kv/assets/abc/secret.txt%00.js",
    "/kv/assets/abc//etc/passwd",
    "/kv/assets/abc/%252e%252e/secret.txt",
    "/kv/assets/abc/link.txt",
    "/kv/assets/abc/folder/secret.txt",
    "/kv/assets/abc/" + "a" * 5000,
    "/kv/assets/abc/~root/.profile",
    "/kv/assets/abc/file:%2f%2f%2fetc%2fpasswd",
)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[15:45])
def test_nothing_but_the_files_of_the_page_is_served(client, tmp_path, path):
    made = client()
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "assets" / "fine.js").write_text("fine")
    (tmp_path / "assets" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "assets" / "folder").symlink_to(tmp_path)
    answer = made.get(path)
    assert answer.status_code in (400, 404)
    assert "secret" not in answer.text
    assert made.get("/kv/assets/abc/fine.js").text == "fine"


@pytest.mark.parametrize(
    "comparison", ["../../etc/passwd", "%00", "'; drop table works; --", "<script>", "x" * 4000, "%f0%28"]
)
def test_an_odd_id_is_only_unknown(client, comparison):
    with client().websocket_connect(f"/kv/feed?comparison={comparison}&had={comparison}&from=-1") as socket:
        assert socket.receive_json()["state"] == "none"


# --- what a browser is told -------------------------------------------------------------------------------------


def test_pages_bind_their_browser(client):
    answer = client().get("/")
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'self';" in policy
    assert (
        "default-src 'self'" in policy and "object-src 'none'" in policy and "*" not in policy and "http" not in policy
    )
    assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == ("nosniff", "same-origin")


def test_who_may_frame_the_pages_is_a_setting(client):
    framed = client(Rules(Settings(embedders=("https://huggingface.co",)))).get("/")
    assert "frame-ancestors 'self' https://huggingface.co;" in framed.headers["content-security-policy"]


def test_a_name_for_a_browser_comes_with_pages_alone_and_can_not_be_chosen(client):
    assert "set-cookie" not in client().get("/kv/health").headers
    given = client().get("/", headers={"cookie": "kvviz_browser=chosen\r\nset-cookie: a=b"})
    assert given.headers["set-cookie"].count("kvviz_browser=") == 1 and "chosen" not in given.headers["set-cookie"]


# --- signing in -------------------------------------------------------------------------------------------------


def test_who_has_not_signed_in_sees_no_runs(client):
    strict = client(Rules(signed_in=lambda scope: dict(scope["headers"]).get(b"cookie") == b"good"))
    assert refused(strict, "/kv/feed")
    assert refused(strict, "/kv/feed", cookie="bad")
    with strict.websocket_connect("/kv/feed", headers={"cookie": "good"}) as socket:
        assert socket.receive_text()
    assert strict.get("/kv/health").status_code == 200, "whoever watches the server has no account"
    assert strict.get("/kv/other").status_code == 401


# --- where it listens -------------------------------------------------------------------------------------------


STARTS = """
import os, runpy
from streamlit import config
from streamlit.web import bootstrap
from kvviz.base.settings import settings
for address, public in ((None, "0"), ("0.0.0.0", "0"), ("0.0.0.0", "1")):
    os.environ["KVVIZ_PUBLIC"] = public
    settings.cache_clear()
    bootstrap.load_config_options({"server.address": address} if address else {})
    app = runpy.run_path("app.py")
    print(config.get_option("server.address"), app["rules"]().loopback)
    app["warn_if_open"]()
"""


@pytest.mark.slow
@pytest.mark.worker
def test_it_listens_on_this_machine_alone_unless_told_otherwise():
    """As `streamlit run app.py` reads its options. An open server that is not public warns, and no other."""
    done = subprocess.run([sys.executable, "-c", STARTS], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["127.0.0.1 True", "0.0.0.0 False", "0.0.0.0 False"], done.stderr
    assert done.stderr.count("KVVIZ_PUBLIC=1 forbids that") == 1


@pytest.mark.slow
@pytest.mark.worker
def test_settings_that_do_not_fit_are_one_line_and_status_2(tmp_path):
    (tmp_path / "kvviz.toml").write_text('origins = ["kv.example.org/"]')
    env = {**os.environ, "KVVIZ_SETTINGS": str(tmp_path / "kvviz.toml")}
    done = subprocess.run([sys.executable, "app.py"], cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("kvviz: origins holds 'kv.example.org/'") and done.stderr.count("\n") == 1
