"""What every request passes first, Streamlit's own included: plain ASGI, standard library only.

A browser that has no name yet is given one, in a cookie that no script can read: runs belong to browsers. What comes
from a page of another site, under a name that is not this server's, or in a flood on our own sockets, ends here.
"""

import ipaddress
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

COOKIE = "kvviz_browser"
A_YEAR = 365 * 24 * 3600
_NAME = re.compile(r"[A-Za-z0-9_-]{22}")

OURS = "/kv/"  # where kvviz's own routes begin; the others are Streamlit's
LONGEST_MESSAGE = 65_536  # bytes of a message on our sockets, of which a page sends hundreds
BURST, PER_SECOND = 100, 50  # messages on one of our sockets
ENVELOPE = 4_096  # bytes that a form adds to a file
TOO_BIG, NOT_ALLOWED = 1009, 1008  # WebSocket close codes

App = Callable[[dict[str, Any], Callable, Callable], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


def is_browser_name(name: str) -> bool:
    """Whether this has the form of a name that was given out."""
    return _NAME.fullmatch(name) is not None


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine itself."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


_USUAL_PORTS = {"https": ":443", "http": ":80"}  # a browser leaves them out of an origin


def same_origin(headers: Any, origins: Collection[str] = ()) -> bool:
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
    """Who is let in. `origins`: addresses of this server through a proxy; `embedders`: sites that may frame it.

    `loopback`: the server is for this machine alone, so a request under another name was led here by somebody's DNS.
    `upload_bytes`: of a file; `sockets`: open at once on our routes. `signed_in`: whether a request to our routes may
    see what they carry.
    """

    origins: tuple[str, ...] = ()
    embedders: tuple[str, ...] = ()
    loopback: bool = False
    upload_bytes: int | None = None
    sockets: int | None = None
    signed_in: Callable[[dict[str, Any]], bool] = lambda scope: True

    def why_not(self, scope: dict[str, Any]) -> tuple[int, str] | None:
        """The status and the sentence with which a request is refused; None where it is let in."""
        headers = _named(scope["headers"])
        if self.loopback and not self._is_ours(headers.get("host", "")):
            return 421, "This server answers to localhost alone; a proxy's address belongs into origins of kvviz.toml."
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD", "OPTIONS")
        if changes and not same_origin(headers, self.origins):
            return 403, "This request comes from a page of another site."
        if self.upload_bytes is not None and _length(headers) > self.upload_bytes + ENVELOPE:
            return 413, f"A file has at most {self.upload_bytes:,} bytes here."
        if self._is_private(scope) and not self.signed_in(scope):
            return 401, "Sign in first."
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # a bracket without its other half
            return False
        return is_loopback(name) or name in {urlsplit(origin).hostname for origin in self.origins}

    @staticmethod
    def _is_private(scope: dict[str, Any]) -> bool:
        """What carries runs; files of the pages and the health check do not."""
        path = scope["path"]
        return path.startswith(OURS) and not path.startswith((f"{OURS}assets/", f"{OURS}health"))


class FrontDoor:
    """ASGI middleware: turns away what the rules do, names each new browser, tells browsers what a page may do."""

    def __init__(self, app: App, rules: Callable[[], Rules] = Rules) -> None:
        self._app, self._rules, self._made = app, rules, None
        self._open = 0

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        """Serve one request or socket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        self._made = self._made or self._rules()  # at the first request: by then all settings are read
        refused = self._made.why_not(scope)
        if refused is not None:
            await _refuse(scope, receive, send, *refused)
        elif scope["type"] == "http":
            await self._app(scope, receive, self._furnished(scope, send))
        elif scope["path"].startswith(OURS):
            await self._socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _furnished(self, scope: dict[str, Any], send: Callable) -> Callable:
        """Answers with headers that bind the browser, and a name for it where it has none."""
        more = _binding(self._made.embedders)
        nameless = not browser_of(scope["headers"])

        async def furnished(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *more]
                if nameless and _is_page(message["headers"]):
                    headers.append((b"set-cookie", _new_cookie(scope).encode()))
                message = {**message, "headers": headers}
            await send(message)

        return furnished

    async def _socket(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        if self._made.sockets is not None and self._open >= self._made.sockets:
            await _refuse(scope, receive, send, 503, "As many sockets are open as this server takes.")
            return
        self._open += 1
        try:
            watched = _Watched(receive, send)
            await self._app(scope, watched.receive, watched.send)
        finally:
            self._open -= 1


class _Watched:
    """One of our sockets: whoever sends too much or too fast is sent away."""

    def __init__(self, receive: Callable, send: Callable) -> None:
        self._receive, self._send = receive, send
        self._left, self._at, self._closed = float(BURST), time.monotonic(), False

    async def receive(self) -> dict[str, Any]:
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

    async def send(self, message: dict[str, Any]) -> None:
        if self._closed:
            raise OSError("this socket was closed")  # as a server says it of a client that has gone
        await self._send(message)

    def _too_fast(self) -> bool:
        now = time.monotonic()
        self._left = min(BURST, self._left + (now - self._at) * PER_SECOND) - 1
        self._at = now
        return self._left < 0


async def _refuse(scope: dict[str, Any], receive: Callable, send: Callable, status: int, sentence: str) -> None:
    """A plain answer; a socket is not opened, which its browser sees as status 403."""
    if scope["type"] == "websocket":
        await receive()  # the request to connect
        await send({"type": "websocket.close", "code": NOT_ALLOWED, "reason": sentence})
        return
    body = sentence.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close"), *_binding(())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _binding(embedders: tuple[str, ...]) -> Headers:
    """What a page may do in its browser: be framed by whom, fetch from where. Streamlit's own needs eval and blobs."""
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


def _named(headers: Headers) -> dict[str, str]:
    """Headers by name; where one comes twice, the first counts, as it does for Streamlit."""
    return {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in reversed(headers)}


def _length(headers: dict[str, str]) -> int:
    """Bytes of a request's body as announced; what is no number was refused by the server itself."""
    told = headers.get("content-length", "")
    return int(told[:18]) if told.isascii() and told.isdigit() else 0


def browser_of(headers: Headers) -> str | None:
    """The name that a request's cookie carries, None where it carries none of ours."""
    for key, value in headers:
        if key == b"cookie":
            for part in value.decode("latin-1").split(";"):
                name, _, content = part.strip().partition("=")
                if name == COOKIE and is_browser_name(content):
                    return content
    return None


def _is_page(headers: Headers) -> bool:
    return any(key.lower() == b"content-type" and value.startswith(b"text/html") for key, value in headers)


def _new_cookie(scope: dict[str, Any]) -> str:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{COOKIE}={secrets.token_urlsafe(16)}; Path=/; Max-Age={A_YEAR}; HttpOnly; SameSite=Lax{secure}"
