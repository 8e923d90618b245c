"""What is at a TCP port: a kvviz server, another program, nothing. Standard library only."""

import json
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any


def health_at(host: str, port: int) -> dict[str, Any] | None:
    """The JSON object that /healthz answers with; {} if something else answers, None if nothing does."""
    address = f"[{host}]" if ":" in host else host
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    body = b""
    try:
        with opener.open(f"http://{address}:{port}/healthz", timeout=5) as answer:
            body = answer.read(10_000)
    except urllib.error.HTTPError as error:
        body = error.read(10_000)
    except urllib.error.URLError as error:
        return None if isinstance(error.reason, OSError) and not isinstance(error.reason, TimeoutError) else {}
    except (OSError, ValueError):
        return {}
    with suppress(ValueError):
        found = json.loads(body)
        return found if isinstance(found, dict) else {}
    return {}


def bind_problem(host: str, port: int) -> str:
    """Why a server can't listen at this address; "" if it can."""
    try:
        family = socket.getaddrinfo(host or "127.0.0.1", port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError) as error:
        return f"nothing can listen at {host} port {port} ({error.strerror if isinstance(error, OSError) else error})"
    return ""
