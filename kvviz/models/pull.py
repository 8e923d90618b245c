"""Download models from the Hugging Face Hub into one portable folder, for a server without a network.

It takes only what a decoder needs: weights in safetensors, configs, the tokenizer, the licence; never pickles, never
code. Imports huggingface_hub when called, and neither torch nor transformers.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.models.catalog.rows import models
from kvviz.models.custom_code import check_known
from kvviz.models.hub_config import refusal
from kvviz.models.pulled_folder import Pulled, PulledFile, sha256
from kvviz.models.sources import HUB_ID, bundled_folder, read_config
from kvviz.models.spec import ModelSpec, decoder_fields

SPARE = 100_000_000  # bytes of the disk that have to stay free
INDEX = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
BESIDE_WEIGHTS = frozenset(
    (
        *("config.json", "generation_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json"),
        *("special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model"),
        *("spiece.model", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "USE_POLICY.md"),
    )
)
OTHER_FORMATS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx")

Progress = Callable[[int], None]


def order(model: str, folder: Path) -> Pulled:
    """What pulling `model`, a catalog id or owner/name, will make: its files by the Hub. Raises KvvizError on failure.

    Of a small file the Hub has git's own sum instead of a sha256.
    """
    row = models().get(model)
    if row is not None and row.has_encoder:
        raise KvvizError(f"{model} is an encoder-decoder, which kvviz calculates but does not decode; nothing to pull")
    if (bundled := bundled_folder(model)) is not None:
        paths = [path for path in sorted(bundled.iterdir()) if path.name in BESIDE_WEIGHTS or path.name == SINGLE_FILE]
        copied = tuple(PulledFile(path.name, path.stat().st_size, sha256(path)) for path in paths)
        return Pulled(model, None, None, "MIT", copied, folder / model)
    repo = model if row is None else row.hub
    if repo is None:
        raise KvvizError(f"{model} has no Hugging Face id in the catalog; give the repository itself, owner/name")
    if not HUB_ID.fullmatch(repo):
        raise KvvizError(f"{model[:80]!r} is neither a catalog id nor a Hugging Face id, owner/name")
    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(repo, files_metadata=True, timeout=30)
    except Exception as error:
        raise KvvizError(_why_not(repo, error)) from error
    siblings = info.siblings or []
    needed = _needed_names(model, {sibling.rfilename for sibling in siblings})
    files = (
        PulledFile(sibling.rfilename, sibling.size or 0, sibling.lfs.sha256 if sibling.lfs else None, sibling.blob_id)
        for sibling in siblings
        if sibling.rfilename in needed
    )
    licence = getattr(info.card_data, "license", None)
    licence = licence if isinstance(licence, str) else None
    return Pulled(model, repo, info.sha, licence, tuple(files), folder / model.replace("/", "--"))


def _needed_names(model: str, names: set[str]) -> set[str]:
    """Return the names of the files that a decoder needs. Raises KvvizError for a repository without safetensors."""
    shards = {name for name in names if _SHARD.fullmatch(name)}
    weights = {INDEX, *shards} if INDEX in names and shards else {SINGLE_FILE} & names
    if not weights:
        other = next((name for name in sorted(names) if name.endswith(OTHER_FORMATS)), None)
        there = f"its weights only in another format ({other[:80]})" if other else "no weights"
        raise KvvizError(
            f"{model} has {there}; kvviz takes safetensors alone, which hold numbers and no code: look for a "
            "repository that has them"
        )
    if "config.json" not in names:
        raise KvvizError(f"{model} has no config.json, so it is no model that transformers loads")
    return weights | (names & BESIDE_WEIGHTS)


def check_room(orders: Sequence[Pulled], folder: Path) -> int:
    """Return the bytes still to fetch. Raises KvvizError if the folder can't be made or the disk is too full."""
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


def carry_out(order: Pulled, progress: Progress = lambda count: None) -> Pulled:
    """Fetch every missing file, check all files and write the manifest. `progress` receives the bytes that arrive."""
    try:
        order.folder.mkdir(parents=True, exist_ok=True)
        missing = order.missing()
        for large in (False, True):
            for file in missing:
                if file.name.endswith(".safetensors") == large:
                    _fetch(order, file, progress)
            _check(order)  # after the small files too: an unreadable model then costs no large download
        shutil.rmtree(order.folder / ".cache", ignore_errors=True)  # huggingface_hub's notes
        files = (PulledFile(file.name, file.size, sha256(order.folder / file.name)) for file in order.files)
        done = replace(order, files=tuple(files))
        done.write()
    except OSError as error:
        raise KvvizError(f"{order.model} can't be written to {order.folder} ({type(error).__name__})") from error
    return done


def _fetch(order: Pulled, file: PulledFile, progress: Progress) -> None:
    path = order.folder / file.name
    path.unlink(missing_ok=True)  # huggingface_hub would keep a damaged file
    if order.repo is not None:
        from huggingface_hub import hf_hub_download

        reporter, revision = _reporting_tqdm(progress), order.revision
        try:
            hf_hub_download(order.repo, file.name, revision=revision, local_dir=order.folder, tqdm_class=reporter)
        except Exception as error:
            raise KvvizError(_why_not(order.repo, error)) from error
    elif (bundled := bundled_folder(order.model)) is not None:
        shutil.copyfile(bundled / file.name, path)
        progress(file.size)
    if not file.is_at(path):
        path.unlink(missing_ok=True)
        raise KvvizError(f"{file.name} of {order.model} did not arrive as it was sent (its sum differs); pull it again")


def _reporting_tqdm(progress: Progress) -> type:
    """Make a tqdm class that draws nothing and passes each update on to `progress`."""
    from tqdm import tqdm

    class ReportingTqdm(tqdm):
        def __init__(self, *args: object, **kwargs: object) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            progress(int(n or 0))

    return ReportingTqdm


def _check(order: Pulled) -> None:
    """Raise KvvizError for a config that kvviz can't read, or an index that names a file which the repository lacks."""
    try:
        config = read_config(order.folder / "config.json")
        ModelSpec.from_config(config, name=order.model)
        check_known(decoder_fields(config))
    except KvvizError as error:
        raise KvvizError(f"{order.model} can't be decoded here: {error}") from error
    names = {file.name for file in order.files}
    if INDEX not in names:
        return
    try:
        parts = set(json.loads((order.folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KvvizError(f"{INDEX} of {order.model} can't be read, so its weights are unknown") from error
    if lacking := sorted(map(str, parts - names)):
        raise KvvizError(f"{order.model} lacks {lacking[0][:80]}, which its {INDEX} names")


def _why_not(repo: str, error: Exception) -> str:
    if why := refusal(repo, error):
        return why
    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.filename is not None:
        return f"{repo} can't be written ({type(error).__name__})"
    return (
        f"the Hugging Face Hub can't be reached from here for {repo} ({type(error).__name__}): run `kvviz pull` on a "
        "machine with a network; what has been fetched is kept"
    )
