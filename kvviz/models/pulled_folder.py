"""The folder of models that `kvviz pull` made: what lies in it, by name, and whether each file is still what it was.

A model is a folder with a manifest, `kvviz.json`: where its files came from, their sizes and sha256. Sizes are looked
at whenever a model is named; sums when it is loaded, once per file as long as its size and time stay. Standard library.
"""

import hashlib
import json
import os
import re
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.settings import settings

MANIFEST = "kvviz.json"
LARGEST_MANIFEST = 1_000_000  # bytes
AGAIN = "pull the model again"
_NAME = re.compile(r"[\w-][\w.-]{0,150}")
_SUM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PulledFile:
    """One file: its name without a path, its size (bytes) and its sha256, in hexadecimal digits."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Pulled:
    """One model of the folder. `repo` and `revision` are None for one that comes with kvviz."""

    model: str
    repo: str | None
    revision: str | None
    licence: str | None
    files: tuple[PulledFile, ...]
    folder: Path

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def check_sizes(self) -> None:
        """Quick, for whoever names the model. Raises KvvizError naming the file that is not what was pulled."""
        for file in self.files:
            try:
                size = (self.folder / file.name).stat().st_size
            except OSError as error:
                raise KvvizError(f"{file.name} of {self.model} is not in the folder of models; {AGAIN}") from error
            if size != file.size:
                raise KvvizError(
                    f"{file.name} of {self.model} has {size:,} bytes and had {file.size:,} when it was pulled; {AGAIN}"
                )

    def check_sums(self) -> None:
        """Every byte, unless this file was looked at before and has the same size and time."""
        self.check_sizes()
        known, new = _remembered(), {}
        for file in self.files:
            path = self.folder / file.name
            key, mark = str(path.absolute()), [path.stat().st_size, path.stat().st_mtime_ns, file.sha256]
            if known.get(key) == mark:
                continue
            if sha256(path) != file.sha256:
                raise KvvizError(f"{file.name} of {self.model} is not what was pulled (its sha256 differs); {AGAIN}")
            new[key] = mark
        if new:
            _remember({**known, **new})

    def write(self) -> None:
        """Put the manifest beside the files."""
        fields = {name: value for name, value in asdict(self).items() if name != "folder"}
        _replace(self.folder / MANIFEST, json.dumps({"kvviz": 1, **fields}, indent=2))


def read_manifest(folder: Path) -> Pulled:
    """The model that lies in a folder. Raises KvvizError where its manifest is none."""
    path = folder / MANIFEST
    try:
        if path.stat().st_size > LARGEST_MANIFEST:
            raise ValueError
        data = json.loads(path.read_text(encoding="utf-8"))
        files = tuple(_file(entry) for entry in data["files"])
        texts = [data[name] for name in ("model", "repo", "revision", "licence")]
        if data["kvviz"] != 1 or not isinstance(texts[0], str) or not all(isinstance(t, str | None) for t in texts):
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise KvvizError(
            f"{folder.name} in the folder of models has no {MANIFEST} that can be read; {AGAIN}"
        ) from error
    return Pulled(*texts, files, folder)


def _file(entry: dict[str, Any]) -> PulledFile:
    file = PulledFile(entry["name"], entry["size"], entry["sha256"])
    if not _NAME.fullmatch(file.name) or not isinstance(file.size, int) or not _SUM.fullmatch(file.sha256):
        raise ValueError
    return file


def find_pulled(model: str) -> Pulled | None:
    """A model of the folder by its catalog id or its Hugging Face id; None where there is none."""
    folder = settings().models
    if folder is None:
        return None
    return _index(_stamp(folder)).get(model)


def pulled_ids() -> list[str]:
    """The ids under which the folder's models were pulled."""
    folder = settings().models
    return [] if folder is None else sorted({found.model for found in _index(_stamp(folder)).values()})


def _stamp(folder: Path) -> tuple[tuple[Path, int], ...]:
    """The models' folders with their manifests' times: what the index below depends on."""
    found = []
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            with suppress(OSError):
                found.append((path, (path / MANIFEST).stat().st_mtime_ns))
    return tuple(found)


@lru_cache(maxsize=4)
def _index(stamp: tuple[tuple[Path, int], ...]) -> dict[str, Pulled]:
    index: dict[str, Pulled] = {}
    for folder, _ in stamp:
        with suppress(KvvizError):
            found = read_manifest(folder)
            index.setdefault(found.repo or found.model, found)
            index[found.model] = found
    return index


def sha256(path: Path) -> str:
    """Of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- what has been looked at ---------------------------------------------------------------------------------------


def _memory() -> Path:
    return home() / "checked-files.json"


def _remembered() -> dict[str, Any]:
    try:
        found = json.loads(_memory().read_text(encoding="utf-8"))
    except (OSError, ValueError, KvvizError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(marks: dict[str, Any]) -> None:
    with suppress(OSError, KvvizError):  # then it is looked at again
        _replace(_memory(), json.dumps(marks))


def _replace(path: Path, text: str) -> None:
    """Write a file wholly or not at all."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).chmod(0o644)
    Path(name).replace(path)
