"""What is at a TCP port: a kvviz server, another program, nothing. A container's health check starts with this alone.

Of the standard library it takes what loads quickly: the check runs beside measurements.
"""

import json
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

from kvviz.base.errors import KvvizError


def asked_port(environment: Mapping[str, str]) -> int:
    """The port that PORT in the environment asks for, else 8501. Raises KvvizError for a value that is no port."""
    given = environment.get("PORT") or "8501"
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < 65536:
        raise KvvizError(f"PORT is {given[:20]!r}; it is a number from 1 to 65,535")
    return int(given)


def health_at(host: str, port: int) -> dict[str, Any] | None:
    """The JSON object that /healthz answers with; {} if something else answers, None if nothing does."""
    connection = HTTPConnection(host, port, timeout=5)
    try:
        connection.connect()
    except OSError as error:
        return {} if isinstance(error, TimeoutError) else None
    with closing(connection), suppress(OSError, HTTPException, ValueError):
        connection.request("GET", "/healthz")
        found = json.loads(connection.getresponse().read(10_000))
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
