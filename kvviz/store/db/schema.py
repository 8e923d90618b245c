"""Defines the four tables, and the migrations that bring an older file up to date."""

from collections.abc import Callable

from sqlalchemy import Column, Connection, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text
from sqlalchemy.inspection import inspect
from sqlalchemy.schema import CreateColumn

from kvviz.base.errors import KvvizError

metadata = MetaData()


def _text(name: str, default: str = "") -> Column:
    return Column(name, Text, nullable=False, server_default=default)


works = Table(
    "works",
    metadata,
    Column("id", Text, primary_key=True),
    _text("kind", "comparison"),
    _text("origin", "here"),
    _text("title"),
    _text("state", "interrupted"),
    _text("message"),
    Column("created", Float, nullable=False, server_default="0"),  # seconds since 1970, UTC
    Column("deleted", Float),  # seconds since 1970, UTC; NULL if it is not deleted, 0 if it was purged after that
    _text("owner"),  # the store that writes it (kvviz.store.db.store); "" once it has ended
    _text("made_by"),  # the mark of the browser that owns it (kvviz.server.jobs); "" if nobody does
    _text("model"),
    _text("weights"),
    _text("config_hash"),
    _text("device"),
    _text("device_name"),
    _text("dtype"),
    _text("modes", "[]"),  # JSON
    Column("prompt_tokens", Integer),
    Column("new_tokens", Integer),
    Column("batch", Integer),
    _text("tags"),  # each tag stands between two line feeds
    _text("headline", "[]"),  # JSON
    _text("prompt"),
    _text("spec", "{}"),  # JSON
    Index("works_in_order", "kind", "deleted"),  # equal entries follow in rowid order, the order of `begin`
)

parts = Table(
    "parts",
    metadata,
    Column("id", Integer, primary_key=True),  # ascending in the order of the chunks
    Column("work_id", Text, ForeignKey("works.id", ondelete="CASCADE"), nullable=False),
    _text("name"),  # "records" or "document"
    Column("data", LargeBinary, nullable=False),
    Index("parts_of_work", "work_id", "name"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),  # <work>-<mode>
    Column("work_id", Text, ForeignKey("works.id", ondelete="CASCADE"), nullable=False),
    _text("mode"),
    Column("position", Integer, nullable=False, server_default="0"),  # index in the document's runs
    Column("figures", LargeBinary, nullable=False),  # zlib of JSON: its entry in the document without the columns
    Column("columns", LargeBinary, nullable=False),  # kvviz.store.db.content
    Column("repeats", LargeBinary),  # packed likewise: seconds (repeats, steps); NULL without timed passes
    Index("runs_of_work", "work_id"),
)


def add_what_is_missing(connection: Connection) -> None:
    """Create the tables, columns and indexes that a file lacks; old rows get the columns' defaults."""
    metadata.create_all(connection)
    for table in metadata.tables.values():
        there = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                clause = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {clause}")
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def know_owners(connection: Connection) -> None:
    """Migrate to version 2: add the owner columns, and order works by rowid instead of the clock."""
    add_what_is_missing(connection)
    connection.exec_driver_sql("DROP INDEX IF EXISTS works_by_date")


# LADDER[n] migrates a file from version n to n + 1. Version 0 is an empty file, or one from before versions were
# counted. A version that only adds tables, columns or indexes reuses `add_what_is_missing`; any other needs its own
# migration.
LADDER: tuple[Callable[[Connection], None], ...] = (add_what_is_missing, know_owners)


def version_of(connection: Connection) -> int:
    """Return the file's schema version. Raises KvvizError if it is newer than this code."""
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    if version > len(LADDER):
        raise KvvizError(
            f"this store was written by a newer kvviz (schema {version}, this one knows {len(LADDER)}); "
            "update kvviz, or set KVVIZ_HOME to another folder"
        )
    return version


def climb(connection: Connection) -> None:
    """Migrate the file to this code's version, inside the caller's transaction."""
    version = version_of(connection)
    for number, rung in enumerate(LADDER[version:], version + 1):
        rung(connection)
        connection.exec_driver_sql(f"PRAGMA user_version = {number}")
