"""The folder in which kvviz keeps its files: $KVVIZ_HOME, else the user's data folder of this system."""

import os
from pathlib import Path

from kvviz.base.errors import KvvizError

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent  # holds the package; a checkout of kvviz also has app.py and pages/ here


def dashboard() -> Path:
    """Return the folder of app.py and pages/: inside an installed package, beside that of a checkout."""
    installed = PACKAGE / "dashboard"
    return installed if installed.is_dir() else CHECKOUT


def home() -> Path:
    """The folder, made if it is missing. Raises KvvizError if nothing can be written there."""
    folder = _chosen()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KvvizError(_unwritable(folder)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise KvvizError(_unwritable(folder))
    return folder


def _chosen() -> Path:
    if given := os.environ.get("KVVIZ_HOME"):
        try:
            return Path(given).expanduser().absolute()
        except RuntimeError as error:
            raise KvvizError(f"KVVIZ_HOME is {given!r}, and there is no such user") from error
    try:
        from platformdirs import user_data_path
    except ImportError:  # a machine that only measures: the folder that the XDG rules name
        return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "kvviz"
    return user_data_path("kvviz", appauthor=False)


def _unwritable(folder: Path) -> str:
    return f"kvviz can't keep anything in {folder}; set KVVIZ_HOME to a folder that it may write to"
