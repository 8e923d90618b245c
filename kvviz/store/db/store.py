"""The store of comparisons and sweeps: `begin`, `append` and `finish` write them, `find`, `get` and others read them.

Each call uses short transactions, so any number of threads and processes may call. Each raises KvvizError with a
sentence if the file fails; a running measurement then continues without being recorded.
"""

import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, func, insert, literal_column, select, update

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.store.db import content
from kvviz.store.db.database import Database
from kvviz.store.db.schema import parts, runs, works
from kvviz.store.db.stored import LONGEST_TITLE, SHOWN_PROMPT, Run, Stored, clean, columns_of, of_document, of_started

RUNNING = "running"
PURGED = 0.0  # in place of the time at which a work was deleted
LONGEST_TAG = 40
MOST_TAGS = 20

_HEADER = [
    *(works.c[name] for name in Stored.__dataclass_fields__ if name != "prompt"),
    func.substr(works.c.prompt, 1, SHOWN_PROMPT).label("prompt"),
]
_BEGUN: ColumnElement[int] = literal_column("works.rowid")  # it grows with every new row
_open_stores: set[str] = set()  # of this process, by their owners' names
_SEARCHED = works.c.title + "\n" + works.c.model + "\n" + works.c.tags + works.c.prompt


class Store:
    """Comparisons and sweeps in one SQLite file, which is created if missing and migrated if older."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = Path(path) if path is not None else home() / "kvviz.sqlite"
        self._database = Database(self.path)
        self._owner = f"{process_mark(os.getpid())}/{secrets.token_hex(4)}"
        _open_stores.add(self._owner)

    def close(self) -> None:
        """Close the file. Works that were begun here and not finished then count as unfinished."""
        _open_stores.discard(self._owner)
        self._database.close()

    # --- writing during a measurement --------------------------------------------------------------------------

    def begin(
        self,
        work_id: str,
        spec: Mapping[str, object],
        *,
        kind: str = "comparison",
        origin: str = "here",
        title: str = "",
        made_by: str = "",
    ) -> None:
        """Add a running comparison or sweep. The whole `spec` is kept."""
        row = {
            "id": work_id,
            "kind": kind,
            "origin": origin,
            "title": _title(title),
            "state": RUNNING,
            "created": time.time(),
            "owner": self._owner,
            "made_by": made_by,
            "spec": json.dumps(spec),
            **columns_of(spec),
        }
        with self._database.writing() as connection:
            if _header(connection, work_id) is not None:
                raise KvvizError(f"the store holds {work_id} already")
            connection.execute(insert(works), row)

    def append(self, work_id: str, records: Sequence[str]) -> None:
        """Keep further records, each the JSON text that the worker sent. After this returns, kill -9 loses none."""
        if not records:
            return
        told = [found for found in map(of_started, content.records_of("started", records)) if found]
        chunk = {"work_id": work_id, "name": "records", "data": content.join(records, content.QUICK)}
        with self._database.writing() as connection:
            _known(connection, work_id)
            connection.execute(insert(parts), chunk)
            for values in told:
                _set(connection, work_id, **values)

    def drop_records(self, work_id: str) -> None:
        """Forget the records of a work that begins again."""
        chunk = (parts.c.work_id == work_id, parts.c.name == "records")
        with self._database.writing() as connection:
            connection.execute(delete(parts).where(*chunk))

    def finish(self, work_id: str, state: str, document: Mapping[str, object] | None = None, message: str = "") -> None:
        """End a work as done, stopped, failed or interrupted.

        Its records become one blob, and its document is split into one row of packed columns per mode.
        """
        values = {"state": state, "message": clean(message, 2000), "owner": ""}
        chunks = self._chunks(work_id)
        texts = [text for _, chunk in chunks for text in chunk]
        whole = content.join(texts)
        taken = None if document is None else content.take_apart(work_id, document, texts)
        with self._database.writing() as connection:  # the slow packing is done before the lock is taken
            _known(connection, work_id)
            _set(connection, work_id, **of_document(document or {}), **values)
            _compact(connection, work_id, [number for number, _ in chunks], whole)
            if taken is not None:
                _keep_document(connection, work_id, *taken)

    def unfinished(self) -> list[Stored]:
        """Return the works whose state is running although their store crashed, was killed, or was closed."""
        with self._database.reading() as connection:
            rows = connection.execute(select(*_HEADER, works.c.owner).where(works.c.state == RUNNING)).mappings()
            return [Stored.of_row(row) for row in rows if not is_there(row["owner"])]

    def _chunks(self, work_id: str) -> list[tuple[int, list[str]]]:
        query = select(parts.c.id, parts.c.data).where(parts.c.work_id == work_id, parts.c.name == "records")
        with self._database.reading() as connection:
            return [(number, content.split(data)) for number, data in connection.execute(query.order_by(parts.c.id))]

    # --- reading one work --------------------------------------------------------------------------------------

    def get(self, work_id: str) -> Stored | None:
        """Return a work's header, even if it is deleted; None if the store does not know it."""
        with self._database.reading() as connection:
            row = _header(connection, work_id)
            return None if row is None else Stored.of_row(row)

    def document(self, work_id: str) -> dict[str, Any] | None:
        """Return the document that `finish` was given (docs/json.md), with this store's ids; None without one."""
        with self._database.reading() as connection:
            part = select(parts.c.data).where(parts.c.work_id == work_id, parts.c.name == "document")
            rest = connection.execute(part).scalar()
            entries = select(runs).where(runs.c.work_id == work_id).order_by(runs.c.position)
            rows = connection.execute(entries).mappings().all()
            return None if rest is None else content.put_together(rest, rows)

    def records(self, work_id: str) -> list[str]:
        """Return all records in order, each as it was sent, even those of an interrupted work."""
        return [text for _, texts in self._chunks(work_id) for text in texts]

    def run(self, run_id: str) -> Run | None:
        """Return one mode's run of a finished comparison by its id, `<comparison>-<mode>`; None if it is unknown."""
        with self._database.reading() as connection:
            row = connection.execute(select(runs).where(runs.c.id == run_id)).mappings().first()
            header = None if row is None else _header(connection, row["work_id"])
            if row is None or header is None:
                return None
            spec = connection.execute(select(works.c.spec).where(works.c.id == row["work_id"])).scalar()
            return content.run_of(row, Stored.of_row(header), json.loads(spec or "{}"))

    # --- searching and managing --------------------------------------------------------------------------------

    def find(self, text: str = "", *, limit: int = 100, offset: int = 0, **filters: str | None) -> list[Stored]:
        """Return the works that match and are not deleted, the last begun first.

        Every word of `text` has to occur in the title, model, tags or the prompt's first 4,000 characters. It may be a
        part of a longer word; case is ignored and there are no wildcards. The filters are `kind` (a comparison unless
        given; None matches all), `model` and `tag`.
        """
        query = select(*_HEADER).where(*_matching(text, **filters))
        query = query.order_by(_BEGUN.desc()).limit(limit).offset(offset)
        with self._database.reading() as connection:
            return [Stored.of_row(row) for row in connection.execute(query).mappings()]

    def count(self, text: str = "", **filters: str | None) -> int:
        """Count the works that `find` would return without a limit."""
        query = select(func.count()).select_from(works).where(*_matching(text, **filters))
        with self._database.reading() as connection:
            return connection.execute(query).scalar_one()

    def rename(self, work_id: str, title: str) -> None:
        """Set a work's title; "" removes it. Raises KvvizError if it is too long."""
        self._change(work_id, title=_title(title))

    def tag(self, work_id: str, tags: Sequence[str]) -> None:
        """Replace a work's tags. Runs of spaces become one space, and duplicates are dropped."""
        self._change(work_id, tags=_tags(tags))

    def delete(self, work_id: str) -> None:
        """Mark a work as deleted: lists leave it out, and `restore` brings it back."""
        self._change(work_id, deleted=time.time())

    def restore(self, work_id: str) -> None:
        """Undo `delete`. Raises KvvizError if the work has been purged since."""
        with self._database.writing() as connection:
            _known(connection, work_id)
            if connection.execute(select(works.c.deleted).where(works.c.id == work_id)).scalar() == PURGED:
                raise KvvizError("this was deleted for good, a day after it was deleted")
            _set(connection, work_id, deleted=None)

    def purge(self, before: float) -> int:
        """Forget for good what was deleted before that time (seconds since 1970); returns how many works those are.

        The id alone stays, so that a watched folder does not bring the work back.
        """
        old = works.c.deleted.between(PURGED + 1, before)
        with self._database.writing() as connection:
            gone = [row.id for row in connection.execute(select(works.c.id).where(old))]
            for work_id in gone:
                for table in (parts, runs):
                    connection.execute(delete(table).where(table.c.work_id == work_id))
                _set(connection, work_id, deleted=PURGED, title="", tags="", prompt="", spec="{}", headline="[]")
        return len(gone)

    def _change(self, work_id: str, **values: object) -> None:
        with self._database.writing() as connection:
            _known(connection, work_id)
            _set(connection, work_id, **values)


def _header(connection: Connection, work_id: str) -> RowMapping | None:
    return connection.execute(select(*_HEADER).where(works.c.id == work_id)).mappings().first()


def _known(connection: Connection, work_id: str) -> None:
    if connection.execute(select(works.c.id).where(works.c.id == work_id)).first() is None:
        raise KvvizError(f"the store holds no {work_id[:80]!r}")


def _set(connection: Connection, work_id: str, **values: object) -> None:
    connection.execute(update(works).where(works.c.id == work_id).values(**values))


def _compact(connection: Connection, work_id: str, chunks: Sequence[int], whole: bytes) -> None:
    """Replace the given chunks by one blob in the first one's place; chunks appended meanwhile stay behind it."""
    if chunks:
        connection.execute(update(parts).where(parts.c.id == chunks[0]).values(data=whole))
        rest = parts.c.id.between(chunks[0] + 1, chunks[-1])
        connection.execute(delete(parts).where(parts.c.work_id == work_id, parts.c.name == "records", rest))


def _keep_document(connection: Connection, work_id: str, rest: bytes, rows: Sequence[Mapping[str, object]]) -> None:
    connection.execute(delete(parts).where(parts.c.work_id == work_id, parts.c.name == "document"))
    connection.execute(delete(runs).where(runs.c.work_id == work_id))
    connection.execute(insert(parts), {"work_id": work_id, "name": "document", "data": rest})
    if rows:
        connection.execute(insert(runs), list(rows))


def _matching(
    text: str, kind: str | None = "comparison", model: str | None = None, tag: str | None = None
) -> list[ColumnElement[bool]]:
    """Build the conditions of `find` and `count`. They use `instr`, since LIKE would expand wildcards."""
    conditions: list[ColumnElement[bool]] = [works.c.deleted.is_(None)]
    conditions += [works.c.kind == kind] if kind is not None else []
    conditions += [works.c.model == model] if model is not None else []
    conditions += [func.instr(works.c.tags, f"\n{tag}\n") > 0] if tag is not None else []
    conditions += [func.holds(_SEARCHED, clean(text, 1000)) == 1] if text.strip() else []
    return conditions


def _title(title: str) -> str:
    if len(title) > LONGEST_TITLE:
        raise KvvizError(f"a title has at most {LONGEST_TITLE} characters; this one has {len(title):,}")
    return clean(" ".join(title.split()), LONGEST_TITLE)


def _tags(tags: Sequence[str]) -> str:
    tidy = list(dict.fromkeys(name for tag in tags if (name := clean(" ".join(tag.split()), LONGEST_TAG + 1))))
    if len(tidy) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in tidy):
        raise KvvizError(f"a comparison has at most {MOST_TAGS} tags of at most {LONGEST_TAG} characters each")
    return "\n".join(["", *tidy, ""]) if tidy else ""


def is_there(owner: str) -> bool:
    """Whether the store that began the work is still open, in this process or another one on this machine."""
    process = owner.partition("/")[0]
    pid = process.partition(":")[0]
    if not pid.isdecimal():
        return False
    return owner in _open_stores if int(pid) == os.getpid() else process_mark(int(pid)) == process


def process_mark(pid: int) -> str:
    """Return `PID:START`, or "" for a process that has ended. START distinguishes processes that reuse a PID.

    START is in clock ticks since the system booted; it is empty on systems without /proc.
    """
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass  # the process exists and belongs to another user
    except (OSError, OverflowError):
        return ""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{pid}:"
    return "" if fields[0] in "ZX" else f"{pid}:{fields[19]}"
