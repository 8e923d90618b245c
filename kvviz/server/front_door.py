"""Checks every request first, Streamlit's own included: plain ASGI.

A new browser is given a name, in a cookie that no script can read: runs belong to browsers. Requests from a page of
another site or under another server's name, and floods on our own sockets, end here.
"""

import ipaddress
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvviz.base.settings import Settings

COOKIE = "kvviz_browser"
A_YEAR = 365 * 24 * 3600
_NAME = re.compile(r"[A-Za-z0-9_-]{22}")

OUR_ROUTES = "/kv/"  # the prefix of kvviz's own routes; the others are Streamlit's
SHOWING_NO_RUNS = (f"{OUR_ROUTES}assets/", f"{OUR_ROUTES}health")  # files of the pages, the health check
LONGEST_MESSAGE = 65_536  # bytes of a message on our sockets; a page's have hundreds
BURST, PER_SECOND = 100, 50  # messages on one of our sockets
FORM_BYTES = 4_096  # that a form adds to a file
TOO_BIG, NOT_ALLOWED = 1009, 1008  # WebSocket close codes


def browser_of(cookies: Mapping[str, str]) -> str | None:
    """The browser's name among a request's cookies; None without one that has the form of those of `_new_cookie`."""
    name = cookies.get(COOKIE)
    return name if isinstance(name, str) and _NAME.fullmatch(name) else None  # in AppTest it is a mock


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine itself."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


_USUAL_PORTS = {"https": ":443", "http": ":80"}  # a browser leaves them out of an origin


def same_origin(headers: Mapping[str, str], origins: Collection[str] = ()) -> bool:
    """Whether a request comes from a page of ours, or from one of `origins`; clients that are no browsers name none."""
    origin = headers.get("origin")
    if origin is None or origin in origins:
        return True
    try:
        scheme, netloc, *_ = urlsplit(origin)
    except ValueError:  # a bracket without its other half
        return False
    host = headers.get("host") or ""
    return bool(netloc) and netloc in (host, host.removesuffix(_USUAL_PORTS.get(scheme, " ")))


@dataclass(frozen=True)
class Rules:
    """Who is let in: what the settings say of origins, embedders and limits, and where the server listens.

    `loopback`: it is for this machine alone, so unknown Host headers are rejected (DNS rebinding). `signed_in`: whether
    a request to our routes may see runs.
    """

    settings: Settings = field(default_factory=Settings)
    loopback: bool = False
    signed_in: Callable[[Scope], bool] = lambda scope: True

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the sentence with which a request is refused; None if it is let in."""
        headers = Headers(scope=scope)
        if self.loopback and not self._is_ours(headers.get("host", "")):
            return 421, "This server answers to localhost alone; a proxy's address belongs into origins of kvviz.toml."
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD", "OPTIONS")
        if changes and not same_origin(headers, self.settings.origins):
            return 403, "This request comes from a page of another site."
        most = self.settings.limits.upload_bytes
        if _body_bytes(headers) > most + FORM_BYTES:
            return 413, f"A file has at most {most:,} bytes here."
        path = scope["path"]
        shows_runs = path.startswith(OUR_ROUTES) and not path.startswith(SHOWING_NO_RUNS)
        if shows_runs and not self.signed_in(scope):
            return 401, "Sign in first."
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # a bracket without its other half
            return False
        return is_loopback(name) or name in {urlsplit(origin).hostname for origin in self.settings.origins}


class FrontDoor:
    """ASGI middleware: refuses what the rules refuse, names each new browser, restricts what a page may do in it."""

    def __init__(self, app: ASGIApp, rules: Callable[[], Rules] = Rules) -> None:
        self._app, self._make_rules = app, rules
        self._rules: Rules | None = None
        self._open_sockets = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        rules = self._rules = self._rules or self._make_rules()  # at the first request: by then all settings are read
        refusal = rules.refusal(scope)
        if refusal is not None:
            await _refuse(scope, receive, send, *refusal)
        elif scope["type"] == "http":
            await self._app(scope, receive, _with_headers(scope, send, rules.settings.embedders))
        elif not scope["path"].startswith(OUR_ROUTES):
            await self._app(scope, receive, send)
        elif self._open_sockets >= rules.settings.limits.viewers:
            await _refuse(scope, receive, send, 503, "As many sockets are open as this server takes.")
        else:
            self._open_sockets += 1
            try:
                limited = _LimitedSocket(receive, send)
                await self._app(scope, limited.receive, limited.send)
            finally:
                self._open_sockets -= 1


def _with_headers(scope: Scope, send: Send, embedders: Collection[str]) -> Send:
    """Answer with headers that restrict the browser, and name it if it has no name.

    A browser that has forgotten its cookies may still keep the page, which is answered without a body and its type.
    """
    restrictions = _restrictions(embedders)
    request = HTTPConnection(scope)
    nameless = not browser_of(request.cookies)
    for_a_page = "text/html" in request.headers.get("accept", "")

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], *restrictions]
            page = Headers(raw=message["headers"]).get("content-type", "").startswith("text/html")
            kept = message["status"] == HTTPStatus.NOT_MODIFIED and for_a_page
            if nameless and (page or kept):
                headers.append((b"set-cookie", _new_cookie(scope).encode()))
            message = {**message, "headers": headers}
        await send(message)

    return send_with_headers


class _LimitedSocket:
    """One of our sockets: it is closed for a client that sends too much or too fast."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._left, self._at, self._closed = float(BURST), time.monotonic(), False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return message
        size = len(message.get("bytes") or b"") + len((message.get("text") or "").encode("utf-8", "surrogatepass"))
        code = TOO_BIG if size > LONGEST_MESSAGE else NOT_ALLOWED if self._too_fast() else None
        if code is None:
            return message
        await self.send({"type": "websocket.close", "code": code})
        self._closed = True
        return {"type": "websocket.disconnect", "code": code, "reason": None}

    async def send(self, message: Message) -> None:
        if self._closed:
            raise OSError("this socket was closed")  # as a server raises it for a client that has left
        await self._send(message)

    def _too_fast(self) -> bool:
        now = time.monotonic()
        self._left = min(BURST, self._left + (now - self._at) * PER_SECOND) - 1
        self._at = now
        return self._left < 0


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, sentence: str) -> None:
    """Answer with the sentence; a socket is not opened, which its browser sees as status 403."""
    if scope["type"] == "websocket":
        await receive()  # the request to connect
        await send({"type": "websocket.close", "code": NOT_ALLOWED, "reason": sentence})
        return
    answer = PlainTextResponse(sentence, status, {"connection": "close"})
    answer.raw_headers += _restrictions(())
    await answer(scope, receive, send)


def _restrictions(embedders: Collection[str]) -> list[tuple[bytes, bytes]]:
    """Headers that say who may frame a page and from where it may fetch. Streamlit's pages need eval and blobs."""
    policy = (
        " ".join(("frame-ancestors 'self'", *embedders)),
        "default-src 'self' data: blob:",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
    return [
        (b"content-security-policy", "; ".join(policy).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"same-origin"),
    ]


def _body_bytes(headers: Mapping[str, str]) -> int:
    """Bytes of a request's body as announced; the server itself has refused what is no number."""
    announced = headers.get("content-length", "")
    return int(announced[:18]) if announced.isascii() and announced.isdigit() else 0


def _new_cookie(scope: Scope) -> str:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{COOKIE}={secrets.token_urlsafe(16)}; Path=/; Max-Age={A_YEAR}; HttpOnly; SameSite=Lax{secure}"
