"""Opens, reads and writes the SQLite file, and turns its failures into sentences."""

import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from kvviz.base.errors import KvvizError
from kvviz.store.db.schema import LADDER, climb, version_of

BUSY_S = 10  # seconds to wait for another writer

SENTENCES = {
    "FULL": "the disk is full: nothing more can be kept in {path}",
    "BUSY": "{path} has been locked by another process for more than {seconds:g} s",
    "LOCKED": "{path} has been locked for more than {seconds:g} s",
    "READONLY": "{path} may be read but not written; nothing is kept until that changes",
    "CANTOPEN": "{path} can't be opened or made; look at its folder, or set KVVIZ_HOME to another one",
    "NOTADB": "{path} is no store of kvviz; move it away and a new one is made",
    "CORRUPT": "{path} is damaged; move it away and a new one is made",
    "IOERR": "the disk refuses to read or write {path}",
    "CONSTRAINT": "{path} would contradict itself with this, so it was not kept",
}


class Database:
    """One SQLite file that many threads share; each transaction is short and takes a connection from a pool."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine = _engine(path)
        try:
            with self._speaking():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._prepare()
        except KvvizError:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction, which sees one consistent state. Raises KvvizError if the file fails."""
        with self._speaking(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open an atomic write transaction. Raises KvvizError if the file fails.

        It takes the write lock at once, since upgrading a read transaction to a write can fail.
        """
        writer = self.engine.execution_options(begin="BEGIN IMMEDIATE")
        with self._speaking(), writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _prepare(self) -> None:
        """Refuse a file of a newer version without changing it; else turn WAL on and bring the tables up to date."""
        with self.engine.connect() as connection:
            version = version_of(connection)
        self._use_wal()
        if version < len(LADDER):
            with self.writing() as connection:
                climb(connection)

    def _use_wal(self) -> None:
        """Switch the file to WAL permanently; retry while it is busy, since this switch ignores SQLite's timeout."""
        end = time.monotonic() + BUSY_S
        while True:
            try:
                with closing(self.engine.raw_connection()) as connection:
                    connection.cursor().execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if _short_name(error) != "BUSY" or time.monotonic() > end:
                    raise
                time.sleep(0.02)

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, zlib.error, ValueError, OverflowError, OSError) as error:
            raise KvvizError(sentence(self.path, error)) from error


def _engine(path: Path) -> Engine:
    url = URL.create("sqlite", database=str(path.absolute()))
    engine = create_engine(
        url, connect_args={"timeout": BUSY_S, "check_same_thread": False}, pool_timeout=BUSY_S, max_overflow=50
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # _begin sends BEGIN instead of the driver
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.create_function("holds", 2, holds, deterministic=True)


def holds(text: str, words: str) -> bool:
    """Whether every word occurs, ignoring case. SQLite's LIKE would expand wildcards and fold only ASCII."""
    folded = text.casefold()
    return all(word in folded for word in words.casefold().split())


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def sentence(path: Path, error: Exception) -> str:
    """Describe a failure of the store in one sentence."""
    cause = getattr(error, "orig", None) or error
    if isinstance(cause, UnicodeEncodeError):
        return "this name holds characters that are no text"
    if isinstance(cause, OverflowError):
        return "this number is larger than the store can hold"
    if isinstance(cause, zlib.error | ValueError):
        return SENTENCES["CORRUPT"].format(path=path)
    if isinstance(cause, OSError):
        return SENTENCES["CANTOPEN"].format(path=path)
    words = SENTENCES.get(_short_name(cause), "the store in {path} failed ({cause})")
    return words.format(path=path, seconds=BUSY_S, cause=str(cause).partition("\n")[0][:200])


def _short_name(error: BaseException) -> str:
    """Return FULL for SQLITE_FULL, IOERR for SQLITE_IOERR_WRITE."""
    return (getattr(error, "sqlite_errorname", None) or "__").split("_")[1]
