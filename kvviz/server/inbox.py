"""The watched folder (KVVIZ_INBOX): files of runs that were measured elsewhere are taken in as they come.

A file is read once two looks in a row have found it unchanged, so none is read while it is being written. It stays
where it is and as it is, whatever it holds. Its id in the store follows from its content, so it is taken in once, also
after a restart and beside a second server.
"""

import base64
import hashlib
import logging
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import count
from pathlib import Path
from typing import Literal

from kvviz.base.errors import KvvizError
from kvviz.base.logs import event
from kvviz.base.settings import settings
from kvviz.base.single import Single
from kvviz.decoding.modes import title_of
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.journal import Journal
from kvviz.server.persister import library
from kvviz.store.db.store import Store
from kvviz.store.db.stored import IMPORTED, Stored, clean
from kvviz.store.files import exchange

log = logging.getLogger("kvviz.server.inbox")

EVERY_S = 2.0
MOST_FILES = 200  # the newest; a folder with more is read bit by bit as old ones go
SUFFIXES = (".json", ".jsonl")

Mark = tuple[int, ...]  # what tells that a file has changed


@dataclass(frozen=True)
class Arrival:
    """A file of the folder. `says` is a sentence; `stored` is what the store has of it once it is taken in."""

    name: str
    mark: Mark
    state: Literal["waiting", "taken", "refused"] = "waiting"
    says: str = "It is still being written."
    read: bool = False
    stored: Stored | None = None

    @property
    def runs(self) -> list[str]:
        """The ids of its runs, which the compare page lays over one another; a sweep has none."""
        kept = self.stored
        return [] if kept is None or kept.deleted else [f"{kept.id}-{run['mode']}" for run in kept.headline]


class Inbox:
    """Looks into `folder` from a thread of its own; without a folder it does nothing.

    `problem` is a sentence while the folder can't be read, else empty.
    """

    def __init__(self, folder: Path | None, store: Callable[[], Store] = library) -> None:
        self.folder, self._store = folder, store
        self.problem = ""
        self._arrivals: dict[str, Arrival] = {}  # by the file's name; replaced whole, since pages read it
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        if self.folder is not None:
            self._thread.start()

    def close(self) -> None:
        """End after the file that is being read."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)

    @property
    def arrivals(self) -> list[Arrival]:
        """The files, the last changed first."""
        return list(self._arrivals.values())

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        """Note what is new in the folder, and read what has not changed since the last look."""
        if self.folder is None:
            return
        try:
            marks = _marks(self.folder)
        except OSError as error:
            self.problem = f"The watched folder can't be read ({type(error).__name__})."
            return
        self.problem = ""
        before = self._arrivals
        self._arrivals = {name: _noted(before.get(name), name, mark) for name, mark in marks.items()}
        for name, arrival in list(self._arrivals.items()):
            if arrival is before.get(name) and not arrival.read and not self._closing.is_set():
                self._arrivals = {**self._arrivals, name: self._taken(self.folder / name, arrival)}

    def _taken(self, path: Path, arrival: Arrival) -> Arrival:
        """Read a file and keep what it holds; a store that can't be written is tried again."""
        try:
            data = _content(path)
            found = exchange.read_any(data)
            if isinstance(found, Journal) and found.done < found.planned:
                says = f"{found.done} of {found.planned} passes so far; it is taken in when it is whole."
                return replace(arrival, says=says, read=True)
        except KvvizError as error:
            return replace(arrival, state="refused", says=_sentence(error), read=True)
        except Exception as error:  # one file must not keep the others out
            event(log, "file_unreadable", logging.WARNING, kind=type(error).__name__)
            return replace(arrival, state="refused", says="It can't be read.", read=True)
        try:
            stored = self._kept(found, data, path.stem)
        except KvvizError as error:
            return replace(arrival, says=_sentence(error))
        return replace(arrival, state="taken", says=_about(stored), read=True, stored=stored)

    def _kept(self, found: exchange.File, data: bytes, title: str) -> Stored:
        """Store it, unless it is there; what a server left half written gets the next id."""
        store = self._store()
        for attempt in count():
            work_id = _id_of(data, attempt)
            stored = store.get(work_id)
            if stored is None:
                exchange.keep(store, found.renamed(work_id), origin=IMPORTED, title=title)
                stored = store.get(work_id)
            if stored is not None and stored.state != "interrupted":
                return stored
        raise AssertionError  # `count` does not end


def _marks(folder: Path) -> dict[str, Mark]:
    """The newest files, the last changed first, with what tells that one has changed."""
    found = dict[str, Mark]()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIXES) and not entry.name.startswith("."):
                about = entry.stat(follow_symlinks=False)
                found[entry.name] = (about.st_mtime_ns, about.st_size, about.st_ino)
    return dict(nlargest(MOST_FILES, found.items(), key=lambda item: item[1]))


def _noted(before: Arrival | None, name: str, mark: Mark) -> Arrival:
    if before is not None and before.mark == mark:
        return before
    if before is not None and before.state == "waiting":
        return replace(before, mark=mark, read=False)
    return Arrival(clean(name, 200), mark)


def _content(path: Path) -> bytes:
    """A plain file's bytes. Raises KvvizError for any other, such as a link or a pipe, and for too many bytes."""
    most = settings().limits.upload_bytes
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise KvvizError("it is no plain file")
            with os.fdopen(number, "rb", closefd=False) as file:
                data = file.read(most + 1)
        finally:
            os.close(number)
    except OSError as error:
        raise KvvizError(f"it can't be read as a plain file ({type(error).__name__})") from error
    if len(data) > most:
        raise KvvizError(f"it has more than the {most:,} bytes that upload_bytes in kvviz.toml allows")
    return data


def _id_of(data: bytes, attempt: int) -> str:
    digest = hashlib.sha256(data + bytes(attempt)).digest()
    return base64.urlsafe_b64encode(digest)[:16].decode().replace("-", "_")


def _about(stored: Stored) -> str:
    """Say what the store has of a file."""
    if stored.deleted:
        return "It was deleted here. Drop the file below to take it in again."
    where = f" on {stored.device_name}" if stored.device_name else ""
    modes = f": {', '.join(map(title_of, stored.modes))}" if stored.kind == ComparisonSpec.kind else ""
    return f"{stored.model or stored.title}{where}{modes}."


def _sentence(error: KvvizError) -> str:
    words = str(error)
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


inbox = Single(lambda: Inbox(settings().inbox))  # of this process
