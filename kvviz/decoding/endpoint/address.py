"""Where a server is, and whether it may be asked. Standard library only.

On a server of one's own every address is allowed. On a public one a stranger names the address, so one that only this
machine or its network can reach is refused, unless the settings list it. The name is resolved once and the connection
is made to the very number that was checked: a name that means another machine a moment later gains nothing. The key is
that of whoever asks; this machine's own goes only to the servers that the settings list.
"""

import ipaddress
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Settings

KEY = "KVVIZ_ENDPOINT_KEY"  # the environment variable with this machine's own key
LONGEST = 500  # characters of an address
PATIENCE = 10.0  # seconds for a connection to come about
_PORTS = {"http": 80, "https": 443}
_ZMQ = "tcp://"  # of ZeroMQ's transports the only one that is not of this machine
_HOST = r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253}):[1-9]\d{0,4}"
_LISTENS = "vLLM listens there only if the endpoint in its kv-events-config has * for its host, such as tcp://*:5557"
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True)
class Published:
    """Where an engine publishes its cache's events, and where it repeats them: ZeroMQ addresses of checked numbers."""

    name: str
    events: str
    replay: str | None = None


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
        raise KvvizError("the address of an endpoint holds no name, key or query: a key is given apart from it")
    return urlunsplit((parts.scheme, parts.netloc.lower(), parts.path.rstrip("/") or "/v1", "", ""))


def find_place(url: str, given: Settings, key: str | None = None) -> Place:
    """Resolve an address once, and check what it stands for. Raises KvvizError for one that is not to be asked.

    `key` is that of whoever asks.
    """
    base = base_url(url)
    if key and not re.fullmatch(r"[!-~]{1,500}", key):
        raise KvvizError("the endpoint's key holds characters that no key has")
    parts = urlsplit(base)
    listed = base in {base_url(known) for known in given.endpoints if not known.startswith(_ZMQ)}
    number = _number(parts.hostname or "", parts.port or _PORTS[parts.scheme], given, listed=listed)
    return Place(base, number, key or (os.environ.get(KEY) if listed else None))


def event_addresses(text: object) -> list[str]:
    """Return the address of an engine's KV events and, after a comma, that of its replay socket.

    Raises KvvizError for anything else.
    """
    found = [part.strip().lower() for part in text.split(",")] if isinstance(text, str) else []
    try:
        good = 1 <= len(found) <= 2 and all(re.fullmatch(_ZMQ + _HOST, part) and urlsplit(part).port for part in found)
    except ValueError:
        good = False
    if not good:
        raise KvvizError(
            "the address of KV events is one such as tcp://localhost:5557, then, after a comma, that of the replay "
            "socket, if there is one"
        )
    return found


def find_publisher(text: str, given: Settings) -> Published:
    """Resolve the addresses of KV events once, and check them as those of endpoints. Raises KvvizError."""
    found = event_addresses(text)
    listed = {known.lower() for known in given.endpoints}
    numbers = list[str]()
    for address in found:
        parts = urlsplit(address)
        number = _number(parts.hostname or "", parts.port or 0, given, _LISTENS, listed=address in listed)
        numbers.append(f"{_ZMQ}{f'[{number}]' if ':' in number else number}:{parts.port}")
    return Published(urlsplit(found[0]).netloc, *numbers)


def _number(host: str, port: int, given: Settings, why: str = "is the server running?", *, listed: bool) -> str:
    """Resolve a name once, and return the number that may be asked and that answers. Raises KvvizError."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise KvvizError(f"no machine is called {host[:100]}: look at the endpoint's address") from None
    numbers = list(dict.fromkeys(str(row[4][0]) for row in rows))
    if given.public and not listed and not all(_open_to_all(number) and not _is_here(number) for number in numbers):
        raise KvvizError("this server asks no endpoint on its own machine or network, unless its settings list it")
    for number in numbers:
        with suppress(OSError), socket.create_connection((number, port), PATIENCE):
            return number
    raise KvvizError(f"nobody answers at {host}:{port}: {why}")


def _open_to_all(number: str) -> bool:
    """Whether a number is one of the open internet, also if it carries one of the older kind within it."""
    found = ipaddress.ip_address(number.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        within = found.ipv4_mapped or found.sixtofour
        if found in _NAT64 or found.teredo:
            return False
        found = within or found
    return found.is_global and not found.is_multicast


def _is_here(number: str) -> bool:
    """Whether a number is one of this machine's own, by which its closed doors can be reached from within."""
    kind = socket.AF_INET6 if ":" in number else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((number, 0))
        except OSError:
            return False
    return True
