"""Resolve an id, a folder or a config to a `Source`, without the network."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.models.catalog.rows import HERE as CATALOG
from kvviz.models.catalog.rows import models, near
from kvviz.models.config_fields import shown
from kvviz.models.pulled_folder import Pulled, find_pulled, pulled_ids
from kvviz.models.spec import ModelSpec
from kvviz.models.weight_files import parameters

BUNDLED = CATALOG / "bundled"
LARGEST_CONFIG = 5_000_000  # bytes; a published config.json has a few thousand
_PICKLES = ("bin", "pt", "pth", "ckpt", "pkl")
DEEPEST_CONFIG = 40  # levels of nested objects and lists; published configs have five


@dataclass(frozen=True)
class Source:
    """A model that can be loaded; `weights` is one of bundled, random, local, hub.

    `config` is None for a hub model until it is fetched; `params` is None if the number is only known after loading.
    """

    model: str
    title: str
    weights: str
    config: dict[str, object] | None = None
    folder: Path | None = None
    hub: str | None = None
    params: int | None = None
    origin: str = ""

    @property
    def spec(self) -> ModelSpec | None:
        """The layers of its cache; None while the config is unknown."""
        if self.config is None:
            return None
        return ModelSpec.from_config(self.config, name=self.model, source=self.origin)


_hub_models: frozenset[str] | None = None  # the ids that may be fetched; None: any


def restrict(hub_models: Iterable[str] | None) -> None:
    """Restrict this process to the catalog and these Hugging Face ids: no folder, no file, no other id.

    A public server calls this once in its own process and once in the worker's. Every model name goes through
    `find_source` or `check_hub`. None lifts the restriction.
    """
    global _hub_models
    _hub_models = None if hub_models is None else frozenset(hub_models)


def check_hub(repo_id: str) -> None:
    """Raise KvvizError for a Hugging Face id that this process may not fetch."""
    if _hub_models is not None and repo_id not in _hub_models:
        raise KvvizError(f"this server is open to all and fetches {_offered()} from the Hugging Face Hub")


def _offered() -> str:
    return f"only {', '.join(sorted(_hub_models))}" if _hub_models else "nothing"


def find_source(model: str, weights: str = "auto") -> Source:
    """Resolve MODEL and --weights. `auto` prefers bundled, then local, then random, and needs no network."""
    if "\0" in model:
        raise KvvizError("a model name holds no null bytes")
    if model in models():
        return _from_catalog(model, weights)
    if weights in ("auto", "local") and (found := find_pulled(model)) is not None:
        return _from_pulled(found, Source(model, model.rpartition("/")[2], "local"))
    if _hub_models is not None:
        return _from_allowed_ids(model, weights)
    try:
        path = Path(model).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # name too long, unknown user's home, or folder not readable
        raise KvvizError(f"{model[:80]!r} can't be used as a path ({type(error).__name__})") from error
    if is_folder:
        return _from_folder(path, weights)
    if is_file:
        if weights not in ("auto", "random"):
            raise KvvizError(f"{path} is a config alone; it can only be built with --weights random")
        config = read_config(path)
        return Source(str(path), str(config.get("model_type", path.stem)), "random", config=config, origin=str(path))
    if weights in ("hub", "auto") and looks_like_hub_id(model):
        if weights == "hub":
            return _from_hub(model)
        raise KvvizError(
            f"{model!r} looks like a Hugging Face id; --weights hub fetches it, auto never uses the network"
        )
    raise KvvizError(
        f"no model {model!r}: it is neither a catalog id (near ones: {', '.join(near(model))}), "
        "nor a folder, nor a config.json or a GGUF file"
    )


def _from_allowed_ids(model: str, weights: str) -> Source:
    """Resolve a hub model that a restricted process may fetch; it never opens a path that a user names."""
    if model not in (_hub_models or ()):
        known = f"the models of its catalog (near ones: {', '.join(near(model[:80]))})"
        raise KvvizError(
            f"no model {model[:80]!r} here: this server is open to all, so it takes no folders or files, but {known}, "
            f"and {_offered()} from the Hugging Face Hub"
        )
    if weights not in ("hub", "auto"):
        raise KvvizError(f"{model} comes from the Hugging Face Hub with its own weights, not {weights} ones")
    return _from_hub(model)


HUB_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,95}/(?![.-])[A-Za-z0-9_.-]{1,96}")


def looks_like_hub_id(model: str) -> bool:
    """Whether a name has the form of a Hugging Face id, owner/name, and is no path on this machine."""
    if not HUB_ID.fullmatch(model) or ".." in model:
        return False
    return not Path(model).exists()


def bundled_folder(model: str) -> Path | None:
    """Return the folder of a model whose weights come with kvviz; None for any other."""
    return BUNDLED / model if model in _bundled() else None


@cache
def _bundled() -> frozenset[str]:
    """Return the names of those models; a page asks for every model of its catalog each time that it is drawn."""
    return frozenset(path.parent.name for path in BUNDLED.glob("*/config.json"))


def _from_catalog(model: str, weights: str) -> Source:
    row = models()[model]
    known = Source(model, row.title, "random", row.config, params=row.params, origin=row.source)
    folder = bundled_folder(model)
    if folder is not None and weights in ("auto", "bundled"):
        config, params = _config_in(folder), parameters(folder)
        return replace(known, weights="bundled", config=config, folder=folder, params=params)
    if weights in ("auto", "local") and (found := find_pulled(model)) is not None:
        return _from_pulled(found, replace(known, weights="local"))
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
        return replace(known, weights="hub", hub=row.hub)
    return known


def _from_pulled(found: Pulled, known: Source) -> Source:
    """Resolve a model of the folder that `kvviz pull` made; loading checks the checksums of its files."""
    found.check_sizes()
    params = known.params or parameters(found.folder)
    origin = f"https://huggingface.co/{found.repo}" if found.repo else known.origin
    return replace(known, config=_config_in(found.folder), folder=found.folder, params=params, origin=origin)


def stored_weights(model: str) -> str:
    """Return which weights `auto` takes for a catalog model: bundled, local or random."""
    if bundled_folder(model) is not None:
        return "bundled"
    return "random" if find_pulled(model) is None else "local"


def first_model() -> str:
    """Return the model that a page starts with: the first that comes with trained weights, else GPT-2's true shape."""
    return next((row for row in models() if stored_weights(row) == "bundled"), "gpt2")


def usual_draft(model: str) -> str:
    """Return the bundled model that drafts for another, whose tokenizer it has. Raises KvvizError if none fits."""
    if (own := bundled_folder(model)) is not None:
        tokenizer = (own / "tokenizer.json").read_bytes()
        for folder in sorted(BUNDLED.iterdir()):
            if folder != own and (folder / "tokenizer.json").read_bytes() == tokenizer:
                return folder.name
    raise KvvizError(f"speculative needs a second, smaller model with the tokenizer of {model}: name one as its draft")


def beside_catalog() -> list[str]:
    """Return the pulled models that have no catalog id, as owner/name."""
    return [name for name in pulled_ids() if name not in models()]


def _from_folder(folder: Path, weights: str) -> Source:
    known = Source(str(folder), folder.resolve().name, "random", _config_in(folder), origin=str(folder))
    stored = any(folder.glob("*.safetensors"))
    if weights == "random" or (weights == "auto" and not stored):
        return known
    if weights not in ("auto", "local"):
        raise KvvizError(f"{folder} is a folder: its weights are local or random, not {weights}")
    if not stored:
        pickled = next((path.name for end in _PICKLES for path in sorted(folder.glob(f"*.{end}"))), "")
        there = f" but {pickled}, a pickle, which could run code" if pickled else ""
        raise KvvizError(f"{folder} holds no .safetensors file{there}; kvviz loads no other format")
    return replace(known, weights="local", folder=folder, params=parameters(folder))


def _from_hub(model: str) -> Source:
    return Source(model, model.split("/")[1], "hub", hub=model, origin=f"https://huggingface.co/{model}")


def _config_in(folder: Path) -> dict[str, object]:
    path = folder / "config.json"
    if not path.is_file() and (adapter := folder / "adapter_config.json").is_file():
        base = shown(read_config(adapter).get("base_model_name_or_path"))
        raise KvvizError(f"{folder} holds an adapter alone, which keeps no cache: give the model under it, {base}")
    if not path.is_file():
        raise KvvizError(f"{folder} holds no config.json, so it is no Hugging Face model folder")
    return read_config(path)


def read_config(path: Path) -> dict[str, object]:
    """Read a config.json. Raises KvvizError if it is too large, not JSON or not an object."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_CONFIG + 1)  # stat does not help: a file under /proc has size 0
    except OSError as error:
        raise KvvizError(f"{path} can't be read ({type(error).__name__})") from error
    return parse_config(data, str(path))


def parse_config(text: str | bytes, what: str = "this") -> dict[str, object]:
    """The object of a config.json's text. Raises ConfigError, which begins with `what`, for any other text."""
    if text[:4] in ("GGUF", b"GGUF"):
        raise ConfigError(f"{what} is a GGUF file, not a config.json; `kvviz calc` and the memory page read its header")
    if len(text) > LARGEST_CONFIG:
        raise ConfigError(f"{what} is larger than {LARGEST_CONFIG:,} bytes, which no config.json is")
    try:
        config = json.loads(text.removeprefix("\ufeff") if isinstance(text, str) else text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(f"{what} can't be read as JSON{where}; a whole config.json goes from {{ to }}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{what} holds no JSON object; a config.json starts with {{")
    _check_depth(config)
    return config


def _check_depth(config: dict[str, object]) -> None:
    """Raise ConfigError for a config nested so deeply that code walking it could overflow the stack."""
    level: list[dict[str, object] | list[object]] = [config]
    for _ in range(DEEPEST_CONFIG):
        parts = (part for whole in level for part in (whole.values() if isinstance(whole, dict) else whole))
        level = [part for part in parts if isinstance(part, dict | list)]
    if level:
        raise ConfigError(f"this config is nested more than {DEEPEST_CONFIG} deep; no config.json is built so")


def weights_in_words(kind: str) -> str:
    """Where a model's numbers come from."""
    return {"random": "seeded random weights", "bundled": "trained weights"}.get(kind, f"{kind} weights")
