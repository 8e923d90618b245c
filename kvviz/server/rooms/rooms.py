"""Rooms: one browser leads, the others see the same page, the same run and the same step. No accounts.

Plain book-keeping for one event loop; it knows no socket and no page. What a seat (one open page) has not been told
yet is found by comparing, so that one that lags gets the newest state and never a queue of old ones.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.records import is_whole
from kvviz.base.settings import settings

ALPHABET = "CDFGHJKMNPQRTVWXY23456789"  # no vowels, so no words; of letters and digits that look alike one each
READ_AS = str.maketrans("BSZ", "852")
LENGTH = 6
PER_BROWSER = 3
AWAY = 3 * 3600  # seconds without its leader after which a room ends
LARGEST = 16_384  # characters of a message; a calculator's link may hold whole configs
NO_COOKIE = (
    "a room belongs to the browser that opens it, and this one keeps no cookie of kvviz; allow cookies for this "
    "address, or open it in a window of its own"
)
GONE = "there is no room with this code; it may have been closed, or the code was mistyped"
CLOSED = "was closed"  # said after the room's code
LEFT_ALONE = "has ended, since whoever led it has been away for hours"

ABOUT_THE_FRAME = ("room", "embed", "embed_options")  # of an address: they say nothing of what is seen on the page
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,30}")
LONGEST = 8_000  # characters of a value
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Place:
    """A page, by the last part of its path, and the query in which it keeps what is seen on it."""

    page: str
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """What of a comparison is looked at: a step, None for the newest as it comes, and the layers of one mode."""

    comparison: str
    step: int | None = None
    mode: str | None = None


def read_place(data: Any) -> Place:
    """A place from a message. Raises KvvizError for what can't be the address of a page of ours."""
    if not isinstance(data, Mapping) or set(data) - {"page", "query"}:
        raise KvvizError("a place is a page and its query")
    page, query = data.get("page"), data.get("query", {})
    if not isinstance(page, str) or not _WORD.fullmatch(page):
        raise KvvizError("a place needs the name of a page, such as live")
    if not isinstance(query, Mapping) or not all(map(_is_field, query)):
        raise KvvizError("a query has fields with plain names, none of them about the frame")
    if not all(isinstance(value, str) and len(value) <= LONGEST and value.isprintable() for value in query.values()):
        raise KvvizError(f"a value of the query is a line of text of at most {LONGEST:,} characters")
    return Place(page, dict(query))


def _is_field(name: Any) -> bool:
    return isinstance(name, str) and _WORD.fullmatch(name) is not None and name not in ABOUT_THE_FRAME


def read_look(data: Mapping[str, Any]) -> Look:
    """What is looked at, from a message. Raises KvvizError for what is none."""
    comparison, step, mode = data.get("comparison"), data.get("step"), data.get("mode")
    if not isinstance(comparison, str) or not _ID.fullmatch(comparison):
        raise KvvizError("a step belongs to a comparison, named by its id")
    if step is not None and not is_whole(step, 1, 10**6):
        raise KvvizError("a step is a whole number of at least 1, or null for the newest")
    if mode is not None and (not isinstance(mode, str) or not _WORD.fullmatch(mode)):
        raise KvvizError("a mode is named by a word, such as cached, or null")
    return Look(comparison, step, mode)


def read_code(text: str) -> str:
    """A code as it was typed or read off a wall: case, hyphens and spaces don't matter. Raises KvvizError."""
    code = re.sub(r"[\s\-–·]+", "", text[:40]).upper().translate(READ_AS)
    if len(code) != LENGTH or set(code) - set(ALPHABET):
        raise KvvizError("a room's code has six letters and digits, such as K7M-4QX")
    return code


@dataclass(eq=False)
class Seat:
    """One open page in a room. `wake` is called when there may be news; `told` is what it knows."""

    browser: str | None
    wake: Callable[[], None]
    told: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Room:
    """Where its leader is, and who is in it. `lead` is the seat that may speak, None while the leader is away."""

    code: str
    browser: str
    place: Place | None = None
    look: Look | None = None
    lead: Seat | None = None
    followers: set[Seat] = field(default_factory=set)
    left_at: float = field(default_factory=time.monotonic)
    ended: str = ""

    @property
    def mark(self) -> str:
        """Tells this room from one that another browser opened under the same code; says nothing of the browser."""
        return hashlib.sha256(f"{self.browser} {self.code}".encode()).hexdigest()[:16]

    @property
    def empty(self) -> bool:
        return self.lead is None and not self.followers

    def view(self, seat: Seat) -> dict[str, Any]:
        """What this seat should know."""
        people = {"role": "lead" if seat is self.lead else "follow", "followers": len(self.followers)}
        if seat is self.lead:
            return people
        return {
            **people,
            "away": self.lead is None,
            "place": asdict(self.place) if self.place else None,
            "look": asdict(self.look) if self.look else None,
        }

    def news(self, seat: Seat) -> dict[str, Any]:
        """What it should know and was not told yet; it counts as told from here on."""
        view = self.view(seat)
        fresh = {name: value for name, value in view.items() if name not in seat.told or seat.told[name] != value}
        seat.told.update(fresh)
        return fresh

    def wake(self) -> None:
        for seat in (*self.followers, *((self.lead,) if self.lead else ())):
            seat.wake()


class Rooms:
    """All rooms of this server, by code."""

    def __init__(self) -> None:
        self._rooms: dict[str, Room] = {}

    @property
    def seats(self) -> int:
        """How many pages are in a room."""
        return sum(len(room.followers) + (room.lead is not None) for room in self._rooms.values())

    def __len__(self) -> int:
        return len(self._rooms)

    def find(self, text: str) -> Room:
        """The room with this code. Raises KvvizError where there is none."""
        self.purge()
        room = self._rooms.get(read_code(text))
        if room is None:
            raise KvvizError(GONE)
        return room

    def open(self, browser: str | None, code: str = "") -> Room:
        """A new room that this browser leads; under `code` where it is free. Raises KvvizError."""
        self.purge()
        if browser is None:
            raise KvvizError(NO_COOKIE)
        if code and (own := self._rooms.get(read_code(code))) is not None:
            if own.browser == browser:
                return own
            raise KvvizError("another room has this code by now; open a new one")
        self._make_way(browser)
        if len(self._rooms) >= settings().limits.rooms:
            raise KvvizError(f"{len(self._rooms)} rooms are open on this server, its limit; try again later")
        room = Room(read_code(code) if code else self._new_code(), browser)
        self._rooms[room.code] = room
        return room

    def _make_way(self, browser: str) -> None:
        """A browser that has rooms enough loses the oldest that nobody is in."""
        own = [room for room in self._rooms.values() if room.browser == browser]
        if len(own) < PER_BROWSER:
            return
        deserted = next((room for room in own if room.empty), None)
        if deserted is None:
            raise KvvizError(f"this browser leads {len(own)} rooms already; close one of them first")
        self._end(deserted, CLOSED)

    def _new_code(self) -> str:
        while (code := "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))) in self._rooms:
            pass
        return code

    def enter(self, room: Room, seat: Seat, *, lead: bool = False) -> None:
        """Take a seat. Who leads is the room's browser alone, and of its pages the one that asked last."""
        if self.seats >= settings().limits.viewers:
            raise KvvizError(f"{self.seats} pages are in rooms of this server, its limit; try again later")
        if lead:
            if seat.browser is None or seat.browser != room.browser:
                raise KvvizError("only the browser that opened this room may lead it")
            if room.lead is not None:
                room.followers.add(room.lead)
            room.lead = seat
        else:
            room.followers.add(seat)
        room.wake()

    def leave(self, room: Room, seat: Seat) -> None:
        """Give up a seat; the room stays, for its leader may come back."""
        room.followers.discard(seat)
        if room.lead is seat:
            room.lead, room.left_at = None, time.monotonic()
        room.wake()

    def hear(self, room: Room, seat: Seat, message: Any) -> None:
        """Do what the leader says. Raises KvvizError for anybody else, and for what can't be understood."""
        if seat is not room.lead:
            raise KvvizError("only whoever leads a room may speak in it")
        if not isinstance(message, Mapping):
            raise KvvizError("a message is an object")
        if message.get("t") == "place" and set(message) == {"t", "place"}:
            room.place = read_place(message["place"])
        elif message.get("t") == "look" and set(message) == {"t", "comparison", "step", "mode"}:
            room.look = read_look(message)
        elif message == {"t": "close"}:
            self._end(room, CLOSED)
        else:
            raise KvvizError("a message tells a place, a look, or close")
        room.wake()

    def purge(self) -> None:
        """End the rooms whose leader has been away for hours."""
        now = time.monotonic()
        for room in list(self._rooms.values()):
            if room.lead is None and now - room.left_at > AWAY:
                self._end(room, LEFT_ALONE)

    def _end(self, room: Room, why: str) -> None:
        self._rooms.pop(room.code, None)
        room.ended = why
        room.wake()
