"""Where a server is, and whether it may be asked. Standard library only.

On a server of one's own every address is allowed. On a public one a stranger names the address, so one that only this
machine or its network can reach is refused, unless the settings list it. The name is resolved once and the connection
is made to the very number that was checked: a name that means another machine a moment later gains nothing.
"""

import ipaddress
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Settings

KEY = "KVVIZ_ENDPOINT_KEY"  # the environment variable with the key that a server may ask for
LONGEST = 500  # characters of an address
PATIENCE = 10.0  # seconds for a connection to come about
_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True)
class Place:
    """A server that may be asked: the base of its interface, the number to connect to, the key to send it."""

    base: str
    number: str
    key: str | None = field(default=None, repr=False)

    @property
    def root(self) -> str:
        """The base without the version, where engines have what is their own."""
        return self.base.removesuffix("/v1")

    @property
    def name(self) -> str:
        """The host and the port, for a sentence."""
        return urlsplit(self.base).netloc


def base_url(url: object) -> str:
    """Return the base of a server's interface; /v1 where the address has no path. Raises KvvizError for another text.

    The refusal does not repeat the address: it may hold a key.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        plain = str(url).isprintable() and " " not in str(url) and len(str(url)) <= LONGEST
        good = bool(parts.scheme in _PORTS and parts.hostname and parts.port != 0 and plain)
        extra = bool(parts.username is not None or parts.query or parts.fragment)
    except ValueError:
        good, extra = False, False
    if not good:
        raise KvvizError("the address of an endpoint is one such as http://localhost:8000/v1")
    if extra:
        raise KvvizError(f"the address of an endpoint holds no name, key or query: a key comes from {KEY}")
    return urlunsplit((parts.scheme, parts.netloc.lower(), parts.path.rstrip("/") or "/v1", "", ""))


def find_place(url: str, given: Settings) -> Place:
    """Resolve an address once, and check what it stands for. Raises KvvizError for one that is not to be asked.

    On a public server the key goes only to a server that the settings list.
    """
    base = base_url(url)
    parts = urlsplit(base)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    listed = base in {base_url(known) for known in given.endpoints}
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise KvvizError(f"no machine is called {host[:100]}: look at the endpoint's address") from None
    numbers = list(dict.fromkeys(str(row[4][0]) for row in rows))
    if given.public and not listed and not all(map(_open_to_all, numbers)):
        raise KvvizError("this server asks no endpoint on its own machine or network, unless its settings list it")
    for number in numbers:
        with suppress(OSError), socket.create_connection((number, port), PATIENCE):
            return Place(base, number, os.environ.get(KEY) if listed or not given.public else None)
    raise KvvizError(f"nobody answers at {parts.netloc}: is the server running?")


def _open_to_all(number: str) -> bool:
    """Whether a number is one of the open internet, also if it carries one of the older kind within it."""
    found = ipaddress.ip_address(number.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        within = found.ipv4_mapped or found.sixtofour
        if found in _NAT64 or found.teredo:
            return False
        found = within or found
    return found.is_global and not found.is_multicast
