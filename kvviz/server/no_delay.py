"""Makes the server send every answer as soon as it is written."""

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path


def send_without_delay() -> None:
    """Switch Nagle's algorithm off for all connections that this process will accept: they inherit it.

    asyncio does so only where a socket names its protocol, and the one that Streamlit 1.67 binds names none. So the
    second part of each answer waited until the browser had confirmed the first, which it does after 40 ms. A descriptor
    that is closed meanwhile is passed over, and without the folder of descriptors the answers stay as they were.
    """
    opened: list[int] = []
    with suppress(OSError):
        opened = [int(entry.name) for entry in Path("/dev/fd").iterdir()]
    for descriptor in opened:
        with suppress(OSError):
            _send_without_delay(descriptor)


def _send_without_delay(descriptor: int) -> None:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    with socket.socket(fileno=os.dup(descriptor)) as found:
        if found.family in (socket.AF_INET, socket.AF_INET6) and listens(found):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def listens(found: socket.socket) -> bool:
    """Whether a socket accepts connections."""
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
