"""The folder of models that `kvviz pull` made: look up its models, and check that each file is unchanged.

A model is a folder with a manifest, `kvviz.json`, which records the origin, sizes and sha256 of its files. Sizes are
checked whenever a model is named, sums when it is loaded, once per file until its size or time changes.
"""

import hashlib
import json
import os
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.settings import settings

MANIFEST = "kvviz.json"
CHECKED = "checked-files.json"
LARGEST_MANIFEST = 1_000_000  # bytes
ADVICE = "pull the model again"
_NAME = re.compile(r"[\w-][\w.-]{0,150}")
_SUM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PulledFile:
    """One file: its name without a path, its size (bytes) and its sha256 in hex.

    A small file that is still to be pulled may have git's own sum instead, in `blob`.
    """

    name: str
    size: int
    sha256: str | None
    blob: str | None = None

    def is_at(self, path: Path) -> bool:
        """Whether `path` holds every byte of the file."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        if self.sha256 is not None:
            return sha256(path) == self.sha256
        data = path.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == self.blob


@dataclass(frozen=True)
class Pulled:
    """One model of the folder, or still to be pulled into it; without `repo` and `revision` if it comes with kvviz."""

    model: str
    repo: str | None
    revision: str | None
    licence: str | None
    files: tuple[PulledFile, ...]
    folder: Path

    def missing(self) -> tuple[PulledFile, ...]:
        """Return the files that the folder does not hold yet."""
        return tuple(file for file in self.files if not file.is_at(self.folder / file.name))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def check_sizes(self) -> None:
        """Raise KvvizError naming a file whose size has changed since it was pulled."""
        for file in self.files:
            try:
                size = (self.folder / file.name).stat().st_size
            except OSError as error:
                raise KvvizError(f"{file.name} of {self.model} is not in the folder of models; {ADVICE}") from error
            if size != file.size:
                raise KvvizError(
                    f"{file.name} of {self.model} has {size:,} bytes and had {file.size:,} when it was pulled; {ADVICE}"
                )

    def check_sums(self) -> None:
        """Raise KvvizError naming a file whose bytes have changed; skips files checked before at this size and time."""
        self.check_sizes()
        known, new = _read_checked(), {}
        for file in self.files:
            path = self.folder / file.name
            key, mark = str(path.absolute()), [path.stat().st_size, path.stat().st_mtime_ns, file.sha256]
            if known.get(key) == mark:
                continue
            if sha256(path) != file.sha256:
                raise KvvizError(f"{file.name} of {self.model} is not what was pulled (its sha256 differs); {ADVICE}")
            new[key] = mark
        if new:
            with suppress(OSError, KvvizError):  # without the file, checksums are computed again
                _replace(home() / CHECKED, json.dumps({**known, **new}))

    def to_dict(self) -> dict[str, object]:
        """What the manifest says."""
        about = {name: getattr(self, name) for name in ("model", "repo", "revision", "licence")}
        files = [{"name": file.name, "size": file.size, "sha256": file.sha256} for file in self.files]
        return {**about, "files": files}

    def write(self) -> None:
        """Write the manifest beside the files."""
        _replace(self.folder / MANIFEST, json.dumps({"kvviz": 1, **self.to_dict()}, indent=2))


def read_manifest(folder: Path) -> Pulled:
    """Read the model in a folder. Raises KvvizError if the manifest is missing or invalid."""
    path = folder / MANIFEST
    try:
        if path.stat().st_size > LARGEST_MANIFEST:
            raise ValueError
        data = json.loads(path.read_text(encoding="utf-8"))
        model, repo, revision, licence = (data[name] for name in ("model", "repo", "revision", "licence"))
        named = isinstance(model, str) and all(isinstance(value, str | None) for value in (repo, revision, licence))
        files = tuple(PulledFile(entry["name"], entry["size"], entry["sha256"]) for entry in data["files"])
        sized = all(isinstance(file.size, int) for file in files)  # below, re raises TypeError for what is no string
        summed = all(_NAME.fullmatch(file.name) and _SUM.fullmatch(file.sha256 or "") for file in files)
        if data["kvviz"] != 1 or not named or not sized or not summed:
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        unread = f"{folder.name} in the folder of models has no {MANIFEST} that can be read"
        raise KvvizError(f"{unread}; {ADVICE}") from error
    return Pulled(model, repo, revision, licence, files, folder)


def find_pulled(model: str) -> Pulled | None:
    """Return a model of the folder by its catalog id or its Hugging Face id; None if it was not pulled."""
    return _by_id(_manifest_times()).get(model)


def pulled_ids() -> list[str]:
    """Return the ids under which the folder's models were pulled."""
    return sorted({found.model for found in _by_id(_manifest_times()).values()})


def _manifest_times() -> tuple[tuple[Path, int], ...]:
    """Return the models' folders with the times of their manifests; `_by_id` reads again when these change."""
    found, folder = [], settings().models
    with suppress(OSError):
        for path in sorted(folder.iterdir()) if folder is not None else ():
            with suppress(OSError):
                found.append((path, (path / MANIFEST).stat().st_mtime_ns))
    return tuple(found)


@lru_cache(maxsize=4)
def _by_id(manifests: tuple[tuple[Path, int], ...]) -> dict[str, Pulled]:
    """Index the models by Hugging Face id and by the name under which they were pulled."""
    index: dict[str, Pulled] = {}
    for folder, _ in manifests:
        with suppress(KvvizError):
            found = read_manifest(folder)
            index.setdefault(found.repo or found.model, found)
            index[found.model] = found
    return index


def sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_checked() -> dict[str, object]:
    """Which files were checked, by path: [size, time, sha256]."""
    try:
        found = json.loads((home() / CHECKED).read_text(encoding="utf-8"))
    except (OSError, ValueError, KvvizError):
        return {}
    return found if isinstance(found, dict) else {}


def _replace(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).chmod(0o644)
    Path(name).replace(path)
