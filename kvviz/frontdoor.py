"""What every request passes first, Streamlit's own included: plain ASGI, standard library only.

A browser that has no name yet is given one, in a cookie that no script can read: runs belong to browsers.
"""

import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

COOKIE = "kvviz_browser"
A_YEAR = 365 * 24 * 3600
_NAME = re.compile(r"[A-Za-z0-9_-]{22}")

App = Callable[[dict[str, Any], Callable, Callable], Awaitable[None]]


def is_browser_name(name: str) -> bool:
    """Whether this has the form of a name that was given out."""
    return _NAME.fullmatch(name) is not None


class FrontDoor:
    """ASGI middleware: gives each new browser its name."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        """Serve one request."""
        if scope["type"] != "http" or browser_of(scope["headers"]):
            await self._app(scope, receive, send)
            return

        async def named(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start" and _is_page(message["headers"]):
                message = {**message, "headers": [*message["headers"], (b"set-cookie", _new_cookie(scope).encode())]}
            await send(message)

        await self._app(scope, receive, named)


def browser_of(headers: list[tuple[bytes, bytes]]) -> str | None:
    """The name that a request's cookie carries, None where it carries none of ours."""
    for key, value in headers:
        if key == b"cookie":
            for part in value.decode("latin-1").split(";"):
                name, _, content = part.strip().partition("=")
                if name == COOKIE and is_browser_name(content):
                    return content
    return None


def _is_page(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(key.lower() == b"content-type" and value.startswith(b"text/html") for key, value in headers)


def _new_cookie(scope: dict[str, Any]) -> str:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{COOKIE}={secrets.token_urlsafe(16)}; Path=/; Max-Age={A_YEAR}; HttpOnly; SameSite=Lax{secure}"
