"""Where a model comes from: an id, a folder or a config in, one `Source` out. Standard library, no network."""

import json
import math
import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvviz.catalog import HERE as CATALOG
from kvviz.catalog import models, near
from kvviz.errors import KvvizError
from kvviz.pulled import Pulled, find_pulled, pulled_ids
from kvviz.spec import ModelSpec

BUNDLED = CATALOG / "bundled"
LARGEST_CONFIG = 5_000_000  # bytes; a published config.json takes a few thousand


@dataclass(frozen=True)
class Source:
    """A model that can be loaded: `weights` is one of bundled, random, local, hub.

    `config` is None for a hub model until it is fetched; `params` is None where nothing tells it before loading.
    """

    model: str
    title: str
    weights: str
    config: dict[str, Any] | None = None
    folder: Path | None = None
    hub: str | None = None
    params: int | None = None
    origin: str = ""

    @property
    def spec(self) -> ModelSpec | None:
        """The cache's shape, None while the config is unknown."""
        if self.config is None:
            return None
        return ModelSpec.from_config(self.config, name=self.model, source=self.origin)


def find_source(model: str, weights: str = "auto") -> Source:
    """Resolve MODEL and --weights. `auto` takes bundled, then local, then random, and never the network."""
    if "\0" in model:
        raise KvvizError("a model name holds no null bytes")
    if model in models():
        return _from_catalog(model, weights)
    if weights in ("auto", "local") and (found := find_pulled(model)) is not None:
        return _from_pulled(found, Source(model, model.rpartition("/")[2], "local"))
    try:
        path = Path(model).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # a name too long, an unknown user's home, a folder that may not be read
        raise KvvizError(f"{model[:80]!r} can't be looked at as a path ({type(error).__name__})") from error
    if is_folder:
        return _from_folder(path, weights)
    if is_file:
        return _from_config_file(path, weights)
    if weights in ("hub", "auto") and looks_like_hub_id(model):
        return _from_hub(model, weights)
    raise KvvizError(
        f"no model {model!r}: it is neither a catalog id (near ones: {', '.join(near(model))}), "
        "nor a folder, nor a config.json"
    )


def looks_like_hub_id(model: str) -> bool:
    """Whether a name has the form of a Hugging Face id, owner/name, and is nothing on this machine's disk."""
    if not re.fullmatch(r"[\w-][\w.-]{0,95}/[\w.-]{1,96}", model):
        return False
    return not Path(model).exists()


def _from_catalog(model: str, weights: str) -> Source:
    row = models()[model]
    known = {"model": model, "title": row.title, "origin": row.source}
    folder = BUNDLED / model
    if weights in ("auto", "bundled") and (folder / "config.json").is_file():
        return Source(
            **known,
            weights="bundled",
            config=_read_config(folder),
            folder=folder,
            params=_stored_params(folder),
        )
    if weights in ("auto", "local") and (found := find_pulled(model)) is not None:
        return _from_pulled(found, Source(**known, weights="local", params=row.params))
    if weights == "bundled":
        raise KvvizError(f"{model} does not come with kvviz; --weights random builds it with random weights")
    if weights == "local":
        raise KvvizError(
            f"{model} is a catalog id, and no weights of it are in a folder of models (`kvviz pull`); for others give "
            "the folder that holds them"
        )
    if weights == "hub":
        if row.hub is None:
            raise KvvizError(f"{model} has no Hugging Face id in the catalog; give the id itself, owner/name")
        return Source(**known, weights="hub", config=row.config, hub=row.hub, params=row.params)
    return Source(**known, weights="random", config=row.config, params=row.params)


def _from_pulled(found: Pulled, known: Source) -> Source:
    """A model of the folder that `kvviz pull` made. Its files' sums are looked at when it is loaded."""
    found.check_sizes()
    config = _read_config(found.folder)
    params = known.params or _stored_params(found.folder)
    origin = f"https://huggingface.co/{found.repo}" if found.repo else known.origin
    return replace(known, config=config, folder=found.folder, params=params, origin=origin)


def stored_weights(model: str) -> str:
    """Which weights `auto` takes of a catalog model: bundled, local or random."""
    if (BUNDLED / model / "config.json").is_file():
        return "bundled"
    return "random" if find_pulled(model) is None else "local"


def beside_catalog() -> list[str]:
    """The models of the folder that no catalog id names: owner/name."""
    return [name for name in pulled_ids() if name not in models()]


def _from_folder(folder: Path, weights: str) -> Source:
    config = _read_config(folder)
    known = {"model": str(folder), "title": folder.resolve().name, "config": config, "origin": str(folder)}
    stored = any(folder.glob("*.safetensors"))
    if weights == "random" or (weights == "auto" and not stored):
        return Source(**known, weights="random")
    if weights not in ("auto", "local"):
        raise KvvizError(f"{folder} is a folder: its weights are local or random, not {weights}")
    if not stored:
        raise KvvizError(f"{folder} holds no .safetensors file; kvviz loads no other format")
    return Source(**known, weights="local", folder=folder, params=_stored_params(folder))


def _from_config_file(path: Path, weights: str) -> Source:
    if weights not in ("auto", "random"):
        raise KvvizError(f"{path} is a config alone; it can only be built with --weights random")
    config = read_config(path)
    return Source(str(path), str(config.get("model_type", path.stem)), "random", config=config, origin=str(path))


def _from_hub(model: str, weights: str) -> Source:
    if weights == "auto":
        raise KvvizError(
            f"{model!r} looks like a Hugging Face id; --weights hub fetches it, auto never uses the network"
        )
    return Source(model, model.split("/")[1], "hub", hub=model, origin=f"https://huggingface.co/{model}")


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise KvvizError(f"{folder} holds no config.json, so it is no Hugging Face model folder")
    return read_config(path)


def read_config(path: Path) -> dict[str, Any]:
    """Read a config.json. Raises KvvizError where it is too large, not JSON or not an object."""
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise KvvizError(f"{path} is larger than {LARGEST_CONFIG:,} bytes, which no config.json is")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise KvvizError(f"{path} can't be read as JSON ({type(error).__name__})") from error
    if not isinstance(config, dict):
        raise KvvizError(f"{path} holds no JSON object, which a config.json is")
    return config


def _stored_params(folder: Path) -> int | None:
    """Parameters in a folder's safetensors files, from their headers alone; None where one can't be read.

    The format: https://huggingface.co/docs/safetensors/index#format
    """
    total = 0
    for path in folder.glob("*.safetensors"):
        try:
            with path.open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(size, 100_000_000)))
            total += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error):
            return None  # loading will say what is wrong with it
    return total
