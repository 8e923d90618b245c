"""Has every answer sent as soon as it is written."""

import os
import socket
import stat
from pathlib import Path


def send_without_delay() -> None:
    """Switch Nagle's algorithm off for all connections that this process will accept: they inherit it.

    asyncio does so only where a socket names its protocol, and the one that Streamlit 1.67 binds names none. So the
    second part of each answer waited until the browser had confirmed the first, which it does after 40 ms.
    """
    for opened in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        if is_socket(opened):
            with socket.socket(fileno=os.dup(opened)) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and listens(found):
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def is_socket(descriptor: int) -> bool:
    """Whether an open file is a socket; the folder's own descriptor is closed by the time that it is asked about."""
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def listens(found: socket.socket) -> bool:
    """Whether a socket accepts connections."""
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
