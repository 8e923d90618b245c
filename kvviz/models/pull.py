"""Models from the Hugging Face Hub into one portable folder, for a server without a network.

Only what a decoder needs: weights in safetensors, configs, the tokenizer, the licence. Never pickles, never code.
Imports huggingface_hub when called, and neither torch nor transformers.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.models.catalog.rows import models
from kvviz.models.pulled_folder import Pulled, PulledFile, sha256
from kvviz.models.sources import BUNDLED, read_config
from kvviz.models.spec import ModelSpec

SPARE = 100_000_000  # bytes of the disk that are left alone
INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
_ID = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}")
BESIDE = frozenset(
    [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "vocab.txt",
        "tokenizer.model",
        "spiece.model",
        "chat_template.jinja",
        "LICENSE",
        "LICENSE.txt",
        "LICENSE.md",
        "NOTICE",
        "USE_POLICY.md",
    ]
)

OTHER = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx")

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Wanted:
    """One file to have: its size (bytes), and the sum that says it is there: sha256, or git's own for small files."""

    name: str
    size: int
    sha256: str | None
    blob: str | None = None

    def is_at(self, path: Path) -> bool:
        """Whether the file lies there, every byte of it."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        if self.sha256 is not None:
            return sha256(path) == self.sha256
        data = path.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == self.blob


@dataclass(frozen=True)
class Order:
    """What is to be had of one model, and where to."""

    model: str
    repo: str | None
    revision: str | None
    licence: str | None
    files: tuple[Wanted, ...]
    folder: Path

    def missing(self) -> tuple[Wanted, ...]:
        """The files that are not there yet."""
        return tuple(file for file in self.files if not file.is_at(self.folder / file.name))


def order(model: str, folder: Path) -> Order:
    """What `model`, a catalog id or owner/name, consists of. Asks the Hub; raises KvvizError for what can't be had."""
    row = models().get(model)
    if row is not None and row.has_encoder:
        raise KvvizError(f"{model} is an encoder-decoder, which kvviz calculates but does not decode; nothing to pull")
    if (BUNDLED / model / "config.json").is_file():
        return _bundled(model, folder / model)
    repo = model if row is None else row.hub
    if repo is None:
        raise KvvizError(f"{model} has no Hugging Face id in the catalog; give the repository itself, owner/name")
    if not _ID.fullmatch(repo):
        raise KvvizError(f"{model[:80]!r} is neither a catalog id nor a Hugging Face id, owner/name")
    info = _asked(repo)
    chosen = _chosen(model, info.siblings or ())
    files = [_wanted(sibling) for sibling in info.siblings if sibling.rfilename in chosen]
    licence = getattr(info.card_data, "license", None)
    licence = licence if isinstance(licence, str) else None
    return Order(model, repo, info.sha, licence, tuple(files), folder / model.replace("/", "--"))


def _bundled(model: str, folder: Path) -> Order:
    """A model that comes with kvviz is copied."""
    paths = [path for path in sorted((BUNDLED / model).iterdir()) if path.name in BESIDE or path.name == WHOLE]
    files = tuple(Wanted(path.name, path.stat().st_size, sha256(path)) for path in paths)
    return Order(model, None, None, "MIT", files, folder)


def _asked(repo: str) -> Any:
    from huggingface_hub import HfApi

    try:
        return HfApi().model_info(repo, files_metadata=True, timeout=30)
    except Exception as error:
        raise KvvizError(_why_not(repo, error)) from error


def _chosen(model: str, siblings: Sequence[Any]) -> set[str]:
    """The names of a repository's files that a decoder needs. Raises KvvizError where it has no safetensors."""
    names = {sibling.rfilename for sibling in siblings}
    shards = {name for name in names if _SHARD.fullmatch(name)}
    weights = {INDEX, *shards} if INDEX in names and shards else {WHOLE} & names
    if not weights:
        other = next((name for name in sorted(names) if name.endswith(OTHER)), None)
        there = f"its weights only in another format ({other[:80]})" if other else "no weights"
        raise KvvizError(
            f"{model} has {there}; kvviz takes safetensors alone, which hold numbers and no code: look for a "
            "repository that has them"
        )
    if "config.json" not in names:
        raise KvvizError(f"{model} has no config.json, so it is no model that transformers loads")
    return weights | (names & BESIDE)


def _wanted(sibling: Any) -> Wanted:
    return Wanted(sibling.rfilename, sibling.size, sibling.lfs.sha256 if sibling.lfs else None, sibling.blob_id)


def check_room(orders: Sequence[Order], folder: Path) -> int:
    """Bytes that are still to be had. Raises KvvizError where the folder can't be made or the disk is too full."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise KvvizError(f"{folder} can't be made ({type(error).__name__})") from error
    missing = sum(file.size for order in orders for file in order.missing())
    if missing + SPARE > free:
        raise KvvizError(
            f"{human(missing)} are still to be fetched and {folder} has {human(free)} free: "
            "make room, or take another folder or fewer models"
        )
    return missing


def carry_out(order: Order, progress: Progress = lambda count: None) -> Pulled:
    """Have every file that is missing, look at all of them, write the manifest. `progress` is told of bytes."""
    try:
        order.folder.mkdir(parents=True, exist_ok=True)
        missing = order.missing()
        for large in (False, True):
            for file in missing:
                if file.name.endswith(".safetensors") == large:
                    _fetch(order, file, progress)
            _check_config(order)  # between the small files and the large
            _check_index(order)
        shutil.rmtree(order.folder / ".cache", ignore_errors=True)  # huggingface_hub's notes
        names = [PulledFile(file.name, file.size, sha256(order.folder / file.name)) for file in order.files]
        done = Pulled(order.model, order.repo, order.revision, order.licence, tuple(names), order.folder)
        done.write()
    except OSError as error:
        raise KvvizError(f"{order.model} can't be written to {order.folder} ({type(error).__name__})") from error
    return done


def _fetch(order: Order, file: Wanted, progress: Progress) -> None:
    path = order.folder / file.name
    path.unlink(missing_ok=True)  # a broken one would be taken for the one that was fetched before
    if order.repo is None:
        shutil.copyfile(BUNDLED / order.model / file.name, path)
        progress(file.size)
    else:
        _download(order, file, progress)
    if not file.is_at(path):
        path.unlink(missing_ok=True)
        raise KvvizError(f"{file.name} of {order.model} did not arrive as it was sent (its sum differs); pull it again")


def _download(order: Order, file: Wanted, progress: Progress) -> None:
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(
            order.repo, file.name, revision=order.revision, local_dir=order.folder, tqdm_class=_teller(progress)
        )
    except Exception as error:
        raise KvvizError(_why_not(order.repo or "", error)) from error


def _teller(progress: Progress) -> type:
    """A tqdm that draws nothing and hands on what it is told."""
    from tqdm import tqdm

    class Teller(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            progress(int(n or 0))

    return Teller


def _check_config(order: Order) -> None:
    """Raises KvvizError for a config that kvviz can't read."""
    try:
        ModelSpec.from_config(read_config(order.folder / "config.json"), name=order.model)
    except KvvizError as error:
        raise KvvizError(f"{order.model} can't be decoded here: {error}") from error


def _check_index(order: Order) -> None:
    """Every part that the index names has to be among the files."""
    names = {file.name for file in order.files}
    if INDEX not in names:
        return
    try:
        parts = set(json.loads((order.folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KvvizError(f"{INDEX} of {order.model} can't be read, so its weights can't be told") from error
    if lacking := sorted(map(str, parts - names)):
        raise KvvizError(f"{order.model} lacks {lacking[0][:80]}, which its {INDEX} names")


def _why_not(repo: str, error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return f"{repo} is gated: ask for access on its page, then log in with `hf auth login` or set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError | errors.HFValidationError):
        return f"the Hugging Face Hub shows no model {repo}: check the id, or log in if it is private"
    if isinstance(error, errors.HfHubHTTPError):
        return f"the Hugging Face Hub did not give {repo} ({type(error).__name__}); try again"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.filename is not None:
        return f"{repo} can't be written ({type(error).__name__})"
    return (
        f"the Hugging Face Hub can't be reached from here for {repo} ({type(error).__name__}): run `kvviz pull` on a "
        "machine with a network; what has been fetched is kept"
    )
