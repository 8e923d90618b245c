"""What somebody gives the calculator: a model by any of its names, a config, a file's path, lines of an engine's log.

`read_given` tells which it is, and reads it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from kvviz.base.errors import KvvizError
from kvviz.memory.calculator import MOST_MODELS, Config
from kvviz.memory.engine_log import RELEVANT, Pool, parse
from kvviz.models.catalog.rows import ModelRow, models, near
from kvviz.models.config_fields import shown
from kvviz.models.gguf.fetch import config_in_file, config_on_the_hub, is_gguf, on_the_hub
from kvviz.models.hub_config import fetch_config
from kvviz.models.sources import HUB_ID, find_source, parse_config

TAKES = (
    "a model's id, the address of its page on the Hugging Face Hub, a config.json, the path of a config or of a GGUF "
    "file, or lines of the log of vLLM or llama.cpp"
)
LONGEST_NAME = 300  # characters of an id, an address or a path


@dataclass(frozen=True)
class Given:
    """What a text was taken for, in words, and one of three: a catalog's `model`, a `config`, or a `log`'s lines."""

    what: str
    model: str = ""
    config: Config | None = None
    log: str = ""


def read_given(text: str, *, paths: bool = True) -> tuple[Given, ...]:
    """Tell what a text is, and read it: up to six models, or the lines of a log.

    A config on the Hugging Face Hub is fetched, of a GGUF file there the header. `paths`: whether files and folders of
    this machine may be read. Raises KvvizError, a sentence on what can't be read.
    """
    text = text.strip()
    if not text:
        raise KvvizError(f"nothing is given; give {TAKES}")
    if text[:1] in ("{", "[") or _PRINTED.match(text):
        return (_config(text),)
    if len(text) <= LONGEST_NAME and (row := _in_catalog(text)):
        return (Given(f"the model {row.id} of the catalog", model=row.id),)
    if paths and (found := _at_path(text)):
        return (found,)
    names = [name for name in re.split(r"[,;\s]+", text) if name not in ("", "vs", "vs.", "and")]
    if 0 < len(names) <= MOST_MODELS and all(_is_name(name) for name in names):
        return tuple({each.what: each for each in map(_named, names)}.values())
    if RELEVANT.search(text):
        engine = "vLLM" if isinstance(parse(text), Pool) else "llama.cpp"
        return (Given(f"lines of the log of {engine}", log=text),)
    if len(names) == 1 and len(text) <= LONGEST_NAME:
        raise KvvizError(f"no model {text[:80]!r}: near ones of the catalog are {', '.join(near(text))}; give {TAKES}")
    raise KvvizError(f"this text, which begins with {shown(text[:60])}, can't be read; give {TAKES}")


_PRINTED = re.compile(r"\w{0,100}Config\s{0,20}(?=\{)")  # as transformers prints a config: LlamaConfig { ... }
_PAGE = re.compile(
    r"(?:hf:(?://)?|(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)([\w.-]{1,96}(?:/[\w.-]{1,96})?)(?:[/?#].*)?"
)
_KINDS = {"datasets": "a data set", "spaces": "a Space", "papers": "a paper", "docs": "documentation"}


def _config(text: str) -> Given:
    printed = _PRINTED.match(text)
    config = parse_config(text[printed.end() :] if printed else text, "this config")
    if "base_model_name_or_path" in config and "model_type" not in config:
        base = shown(config["base_model_name_or_path"])
        raise KvvizError(f"this is the config of an adapter, which keeps no cache: give the model under it, {base}")
    name = config.get("model_type")
    return Given(f"the config of a model of type {name[:60]}" if isinstance(name, str) else "a config", config=config)


def _in_catalog(text: str) -> ModelRow | None:
    """The catalog's row of that id, title or Hugging Face id."""
    wanted = text.casefold()
    rows = models()
    if wanted in rows:
        return rows[wanted]
    same = (row for row in rows.values() if wanted and wanted in (row.title.casefold(), (row.hub or "").casefold()))
    return next(same, None)


def _repository(name: str) -> str | None:
    """The id of a model on the Hugging Face Hub that a name or the address of a page says; None for another text."""
    if page := _PAGE.fullmatch(name):
        return page[1]
    return name if HUB_ID.fullmatch(name) and ".." not in name else None


def _is_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and bool(_in_catalog(name) or on_the_hub(name) or _repository(name))


def _named(name: str) -> Given:
    """The model of a name that `_is_name` knows."""
    if found := on_the_hub(name):
        return Given(
            f"the GGUF file {found[2]} of {found[0]} on the Hugging Face Hub", config=config_on_the_hub(*found)
        )
    repo = _repository(name) or name
    if row := _in_catalog(repo):
        return Given(f"the model {row.id} of the catalog", model=row.id)
    owner = repo.partition("/")[0]
    if owner in _KINDS:
        raise KvvizError(f"this is the address of {_KINDS[owner]}; give that of a model, huggingface.co/owner/name")
    config = fetch_config(repo)
    return Given(f"{repo} on the Hugging Face Hub", config={**config, "_name_or_path": repo.rpartition("/")[2]})


def _at_path(text: str) -> Given | None:
    """The config of a file or folder of this machine; None if none has that name."""
    if "\n" in text or "\0" in text or len(text) > LONGEST_NAME:
        return None
    try:
        path = Path(text).expanduser()
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, RuntimeError):  # a name that no file can have, or the home of nobody
        return None
    if is_file and is_gguf(path):
        return Given(f"the GGUF file {path.name} of this machine", config=config_in_file(path, path.name))
    if not is_file and not is_folder:
        return None
    source = find_source(text)
    return Given(f"the config at {text}", config={"_name_or_path": path.name, **(source.config or {})})
