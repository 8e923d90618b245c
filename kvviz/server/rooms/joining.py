"""How others join a room: its link, the link as a QR code, and an address that they can reach."""

import ipaddress
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import segno

from kvviz.server.front_door import is_loopback

OUTSIDE = ("203.0.113.1", 9)  # a documentation address (RFC 5737): only asks for a route, sends nothing


def qr(link: str) -> str:
    """The link as a QR code, a data URI with an SVG: dark modules on white, whatever the theme."""
    return segno.make(link, error="m", micro=False).svg_data_uri(
        dark="#000000", light="#ffffff", border=3, omitsize=True
    )


def only_here(origin: str) -> bool:
    """Whether an origin (http://127.0.0.1:8501) means something on this machine alone."""
    return is_loopback(urlsplit(origin).hostname or "")


def network_address() -> str | None:
    """This machine's address in its network; None without a network."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(OUTSIDE)
        return _usable(asked.getsockname()[0])
    with suppress(OSError):
        return _usable(socket.gethostbyname(socket.gethostname()))
    return None


def _usable(address: str) -> str | None:
    parsed = ipaddress.ip_address(address)
    return None if parsed.is_loopback or parsed.is_unspecified else address


def answers(address: str, port: int) -> bool:
    """Whether someone listens there."""
    with suppress(OSError), socket.create_connection((address, port), timeout=0.5):
        return True
    return False


def reachable(origin: str, port: int) -> tuple[str, str]:
    """The origin that others can use, and a sentence about it, which may be empty.

    `port` is the one that this server listens on; for a browser behind a tunnel it is not the origin's.
    """
    if not only_here(origin):
        return origin, ""
    parts = urlsplit(origin)
    address = network_address()
    if address is None:
        return origin, "This machine has no address in a network, so the link works on this machine only."
    outside = f"{parts.scheme}://{address}:{port}"
    if answers(address, port):
        return outside, "The link names this machine by its address in the network; others have to be in the same one."
    return origin, (
        f"{parts.hostname} means this machine only, so nobody else can open the link. Start kvviz with "
        f"HOST=0.0.0.0 and open {outside} instead."
    )
