"""Rooms: one browser leads, the others see the same page, the same run and the same step. No accounts.

Plain state for one event loop; it knows no socket and no page. A seat is one open page.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from kvviz.base.errors import KvvizError
from kvviz.base.records import is_whole, new_id
from kvviz.base.settings import settings
from kvviz.server.rooms.class_run import ClassRun
from kvviz.server.rooms.class_work import ClassWork, pupil_of

CODE_ALPHABET = "CDFGHJKMNPQRTVWXY23456789"  # no vowels, so no words; one each of letters and digits that look alike
READ_AS = str.maketrans("BSZ", "852")
CODE_LENGTH = 6
ROOMS_PER_BROWSER = 3
AWAY_S = 3 * 3600  # without its leader; then a room ends
LONGEST_MESSAGE = 16_384  # characters; a calculator's link may hold whole configs
CLOSED = "was closed"  # follows the room's code in a sentence

FRAME_PARAMETERS = ("room", "embed", "embed_options")  # of an address, which say nothing of what the page shows
LONGEST_VALUE = 8_000  # characters of a parameter's value
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Place:
    """A page, by the last part of its path, and the query in which it keeps what it shows."""

    page: str
    query: Mapping[str, str] = field(default_factory=dict)


def read_place(data: object) -> Place:
    """The place in a message. Raises KvvizError unless it can be the address of a page of kvviz."""
    if not isinstance(data, Mapping) or set(data) - {"page", "query"}:
        raise KvvizError("a place is a page and its query")
    page, query = data.get("page"), data.get("query", {})
    if not isinstance(page, str) or not _WORD.fullmatch(page):
        raise KvvizError("a place needs the name of a page, such as live")
    if not isinstance(query, Mapping) or not all(map(_is_field, query)):
        raise KvvizError("a query has fields with plain names, none of them about the frame")
    fit = (isinstance(text, str) and len(text) <= LONGEST_VALUE and text.isprintable() for text in query.values())
    if not all(fit):
        raise KvvizError(f"a value of the query is a line of text of at most {LONGEST_VALUE:,} characters")
    return Place(page, dict(query))


def _is_field(name: object) -> bool:
    return isinstance(name, str) and _WORD.fullmatch(name) is not None and name not in FRAME_PARAMETERS


def read_shown_step(data: Mapping[str, object]) -> dict[str, object]:
    """What the page shows of a comparison: a step, None for the newest as it comes, and the layers of one mode.

    Raises KvvizError for a message of type "look" that says something else.
    """
    shown = {name: data.get(name) for name in ("comparison", "step", "mode")}
    comparison, step, mode = shown.values()
    if not isinstance(comparison, str) or not _ID.fullmatch(comparison):
        raise KvvizError("a step belongs to a comparison, named by its id")
    if step is not None and not is_whole(step, 1, 10**6):
        raise KvvizError("a step is a whole number of at least 1, or null for the newest")
    if mode is not None and (not isinstance(mode, str) or not _WORD.fullmatch(mode)):
        raise KvvizError("a mode is named by a word, such as cached, or null")
    return shown


def read_code(text: str) -> str:
    """A code as it was typed or read off a wall: case, hyphens and spaces don't matter. Raises KvvizError."""
    code = re.sub(r"[\s\-–·]+", "", text[:40]).upper().translate(READ_AS)
    if len(code) != CODE_LENGTH or set(code) - set(CODE_ALPHABET):
        raise KvvizError("a room's code has six letters and digits, such as K7M-4QX")
    return code


@dataclass(eq=False)
class Seat:
    """One open page in a room. `wake` is called when there may be news; `sent` is what it knows already.

    `curves` are the class's run and how many of its curves the page knows; it is `behind` from when it has been woken
    for more of them until it is sent them.
    """

    browser: str | None
    wake: Callable[[], None]
    sent: dict[str, object] = field(default_factory=dict)
    curves: tuple[ClassRun | None, int] = (None, 0)
    behind: bool = False
    page: str = field(default_factory=new_id)

    @property
    def named(self) -> str:
        """The name under which the class's work is kept: the browser's, or this page's own if the browser has none."""
        return self.browser or self.page


@dataclass(eq=False)
class Room:
    """Where its leader is, and who is in it. `lead` is the seat that may speak, None while the leader is away."""

    code: str
    browser: str
    place: Place | None = None
    shown: Mapping[str, object] | None = None  # of `read_shown_step`
    lead: Seat | None = None
    followers: set[Seat] = field(default_factory=set)
    work: ClassWork = field(default_factory=ClassWork)
    run: ClassRun | None = None  # that the class is asked for
    left_at: float = field(default_factory=time.monotonic)
    ended: str = ""

    @property
    def mark(self) -> str:
        """A hash that tells this room from another browser's under the same code, and nothing of the browser."""
        return hashlib.sha256(f"{self.browser} {self.code}".encode()).hexdigest()[:16]

    @property
    def pages(self) -> list[Seat]:
        """Every page in it, the leader's last."""
        return [*self.followers, *([self.lead] if self.lead else [])]

    def news(self, seat: Seat) -> dict[str, object]:
        """What this seat should know and was not sent yet; it counts as sent from here on."""
        known: dict[str, object] = {"role": "lead", "followers": len(self.followers)}
        known["work"] = self.work.seen(leads=seat is self.lead)
        known["run"] = self.run.asked if self.run else None
        if seat is not self.lead:
            known |= {"role": "follow", "away": self.lead is None}
            known |= {"place": asdict(self.place) if self.place else None, "look": self.shown}
        fresh = {name: value for name, value in known.items() if name not in seat.sent or seat.sent[name] != value}
        seat.sent.update(fresh)
        return fresh

    def curves(self, seat: Seat) -> str:
        """The class's curves that this seat was not sent yet, as a message; they count as sent from here on."""
        seat.behind = False
        run, known = seat.curves if seat.curves[0] is self.run else (self.run, 0)
        if run is None or known == run.sent:
            return ""
        seat.curves = run, run.sent
        return run.text(known, pupil_of(seat.named))

    def wake(self) -> None:
        """Tell every seat that there may be news."""
        for seat in self.pages:
            seat.wake()

    def wake_for_curves(self) -> None:
        """Tell every seat that is not behind already: a class of a hundred sends its curves almost at once."""
        for seat in self.pages:
            if not seat.behind:
                seat.behind = True
                seat.wake()


class Rooms:
    """All rooms of this server, by code."""

    def __init__(self) -> None:
        self._rooms: dict[str, Room] = {}

    def find(self, text: str) -> Room:
        """The room with this code. Raises KvvizError for an unknown code."""
        self.purge()
        room = self._rooms.get(read_code(text))
        if room is None:
            raise KvvizError("there is no room with this code; it may have been closed, or the code was mistyped")
        return room

    def open(self, browser: str | None, code: str = "") -> Room:
        """Open a room that this browser leads, under `code` if that is free. Raises KvvizError."""
        self.purge()
        if browser is None:
            raise KvvizError(
                "a room belongs to the browser that opens it, and this one keeps no cookie of kvviz; allow cookies for "
                "this address, or open it in a window of its own"
            )
        if code and (own := self._rooms.get(read_code(code))) is not None:
            if own.browser == browser:
                return own
            raise KvvizError("another room has this code by now; open a new one")
        self._check_own_rooms(browser)
        if len(self._rooms) >= settings().limits.rooms:
            raise KvvizError(f"{len(self._rooms)} rooms are open on this server, its limit; try again later")
        room = Room(read_code(code) if code else self._new_code(), browser)
        self._rooms[room.code] = room
        return room

    def _check_own_rooms(self, browser: str) -> None:
        """End the oldest empty room of a browser that has as many as it may. Raises KvvizError if none is empty."""
        own = [room for room in self._rooms.values() if room.browser == browser]
        if len(own) < ROOMS_PER_BROWSER:
            return
        empty = next((room for room in own if not room.pages), None)
        if empty is None:
            raise KvvizError(f"this browser leads {len(own)} rooms already; close one of them first")
        self._end(empty, CLOSED)

    def _new_code(self) -> str:
        while (code := "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))) in self._rooms:
            pass
        return code

    def enter(self, room: Room, seat: Seat, *, lead: bool = False) -> None:
        """Take a seat. Only the room's own browser may lead; of its pages the one that asked last does."""
        seats = sum(len(other.pages) for other in self._rooms.values())
        if seats >= settings().limits.viewers:
            raise KvvizError(f"{seats} pages are in rooms of this server, its limit; try again later")
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
        """Give up a seat. The room stays: its leader may come back."""
        room.followers.discard(seat)
        if room.lead is seat:
            room.lead, room.left_at = None, time.monotonic()
        room.wake()

    def hear(self, room: Room, seat: Seat, message: object) -> None:
        """Do what the leader says, and take what a pupil has drawn or answered. Raises KvvizError for all else."""
        if not isinstance(message, Mapping):
            raise KvvizError("a message is an object")
        if message.get("t") in ("answer", "drawing"):
            if seat is not room.lead:
                room.work.hear(seat.named, message)
                room.wake()
            return
        if message.get("t") == "curves":
            if room.run is None:
                raise KvvizError("the class is not asked for a run")
            if room.run.hear(pupil_of(seat.named), message):
                room.wake_for_curves()
            return
        if seat is not room.lead:
            raise KvvizError("only whoever leads a room may speak in it")
        if message.get("t") == "place" and set(message) == {"t", "place"}:
            room.place = read_place(message["place"])
        elif message.get("t") == "look" and set(message) == {"t", "comparison", "step", "mode"}:
            room.shown = read_shown_step(message)
        elif message.get("t") == "reveal" and set(message) == {"t", "what", "shown"}:
            room.work.reveal(message["what"], message["shown"])
        elif message.get("t") == "everyone" and set(message) == {"t", "work"}:
            room.run = None if message["work"] is None else ClassRun(message["work"])
        elif message == {"t": "close"}:
            self._end(room, CLOSED)
        else:
            raise KvvizError("a message tells a place, a look, what is revealed, what everyone runs, or close")
        room.wake()

    def purge(self) -> None:
        """End the rooms whose leader has been away for hours."""
        now = time.monotonic()
        for room in list(self._rooms.values()):
            if room.lead is None and now - room.left_at > AWAY_S:
                self._end(room, "has ended, since whoever led it has been away for hours")

    def _end(self, room: Room, why: str) -> None:
        self._rooms.pop(room.code, None)
        room.ended = why
        room.wake()
