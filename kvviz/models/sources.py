"""Where a model comes from: an id, a folder or a config in, one `Source` out. Standard library, no network."""

import json
import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.models.catalog.rows import HERE as CATALOG
from kvviz.models.catalog.rows import models, near
from kvviz.models.pulled_folder import Pulled, find_pulled, pulled_ids
from kvviz.models.spec import ModelSpec

BUNDLED = CATALOG / "bundled"
LARGEST_CONFIG = 5_000_000  # bytes; a published config.json takes a few thousand
DEEPEST_CONFIG = 40  # objects and lists in one another; published ones have five


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


_hub_models: frozenset[str] | None = None  # all that may be fetched, None for anything


def restrict(hub_models: Iterable[str] | None) -> None:
    """From now on this process knows the catalog and these Hugging Face ids alone: no folder, no file, no other id.

    A server that is open to all says so once, in its own process and in the worker's; whatever way a name takes, it
    ends in `find_source` or `check_hub`. None lifts it.
    """
    global _hub_models
    _hub_models = None if hub_models is None else frozenset(hub_models)


def check_hub(repo_id: str) -> None:
    """Raises KvvizError where this process may not fetch a Hugging Face id."""
    if _hub_models is not None and repo_id not in _hub_models:
        raise KvvizError(f"this server is open to all and fetches {_offered()} from the Hugging Face Hub")


def _offered() -> str:
    return f"only {', '.join(sorted(_hub_models))}" if _hub_models else "nothing"


def find_source(model: str, weights: str = "auto") -> Source:
    """Resolve MODEL and --weights. `auto` takes bundled, then local, then random, and never the network."""
    if "\0" in model:
        raise KvvizError("a model name holds no null bytes")
    if model in models():
        return _from_catalog(model, weights)
    if weights in ("auto", "local") and (found := find_pulled(model)) is not None:
        return _from_pulled(found, Source(model, model.rpartition("/")[2], "local"))
    if _hub_models is not None:
        return _on_the_list(model, weights)
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


def _on_the_list(model: str, weights: str) -> Source:
    """The one other thing that a restricted process takes; nothing on its disk is looked at."""
    if model not in (_hub_models or ()):
        known = f"the models of its catalog (near ones: {', '.join(near(model[:80]))})"
        raise KvvizError(
            f"no model {model[:80]!r} here: this server is open to all, so it takes no folders or files, but {known}, "
            f"and {_offered()} from the Hugging Face Hub"
        )
    if weights not in ("hub", "auto"):
        raise KvvizError(f"{model} comes from the Hugging Face Hub with its own weights, not {weights} ones")
    return _from_hub(model, "hub")


_HUB_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,95}/(?![.-])[A-Za-z0-9_.-]{1,96}")


def looks_like_hub_id(model: str) -> bool:
    """Whether a name has the form of a Hugging Face id, owner/name, and is nothing on this machine's disk."""
    if not _HUB_ID.fullmatch(model) or ".." in model:
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
        check_hub(row.hub)
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
        raise KvvizError(f"{folder} holds no .safetensors file{_pickled(folder)}; kvviz loads no other format")
    return Source(**known, weights="local", folder=folder, params=_stored_params(folder))


def _pickled(folder: Path) -> str:
    """What else it holds, as part of a sentence: weights in a format that can hold code."""
    ends = ("bin", "pt", "pth", "ckpt", "pkl")
    name = next((path.name for end in ends for path in sorted(folder.glob(f"*.{end}"))), "")
    return f" but {name}, a pickle, which could run code" if name else ""


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
        with path.open("rb") as file:
            data = file.read(LARGEST_CONFIG + 1)  # a file under /proc says that it is empty, whatever it holds
        if len(data) > LARGEST_CONFIG:
            raise KvvizError(f"{path} is larger than {LARGEST_CONFIG:,} bytes, which no config.json is")
        config = json.loads(data.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise KvvizError(f"{path} can't be read as JSON ({type(error).__name__})") from error
    if not isinstance(config, dict):
        raise KvvizError(f"{path} holds no JSON object, which a config.json is")
    check_depth(config)
    return config


def check_depth(config: Any) -> None:
    """Raises ConfigError for parts in parts in parts: what walks a config must not run out of stack."""
    level = [config]
    for _ in range(DEEPEST_CONFIG):
        level = [
            part
            for whole in level
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, dict | list)
        ]
    if level:
        raise ConfigError(f"this config is nested more than {DEEPEST_CONFIG} deep; no config.json is built so")


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
