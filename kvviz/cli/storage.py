"""Files and the store of runs, as commands use them."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kvviz.base.errors import KvvizError

if TYPE_CHECKING:
    from kvviz.store.db.store import Store


def has_store() -> bool:
    """Whether the packages of the store are installed; a machine that only measures does without."""
    return find_spec("sqlalchemy") is not None


def open_store() -> "Store":
    """Open the store of runs. Raises KvvizError where its packages are not installed."""
    if not has_store():
        raise KvvizError("the store of runs needs the dashboard's packages (sqlalchemy), which are not installed here")
    from kvviz.store.db.store import Store

    return Store()


def read_bytes(file: str) -> bytes:
    """Read a file. Raises KvvizError."""
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise KvvizError(f"{file[:200]} can't be read ({type(error).__name__})") from error


def check_writable(file: Path) -> None:
    """Raises KvvizError where a file can't be written, before anything is measured for it."""
    if file.is_dir() or not os.access(file.absolute().parent, os.W_OK):
        raise KvvizError(f"{file} can't be written")


def write_bytes(file: Path, data: bytes) -> None:
    """Write a file. Raises KvvizError."""
    try:
        file.write_bytes(data)
    except (OSError, ValueError) as error:
        raise KvvizError(f"{file} can't be written ({type(error).__name__})") from error
