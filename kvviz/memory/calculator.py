"""The calculator's inputs as one value, which a link can hold, and its answers."""

import base64
import binascii
import csv
import io
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS, weight_bytes
from kvviz.memory.engine_views import VIEWS
from kvviz.memory.formula import LayerMemory, Memory, kv_memory
from kvviz.memory.llama_cpp import UBATCH, LlamaCpp
from kvviz.models.catalog.rows import models
from kvviz.models.config_fields import shown
from kvviz.models.gguf.config import FileWeights, weights_in
from kvviz.models.sources import LARGEST_CONFIG, find_source, parse_config
from kvviz.models.spec import ModelSpec

MOST_MODELS = 6
LONGEST_LINK = 6_000  # characters of a packed config; browsers and proxies take about 8,000 for a whole address
_PACKED = "z:"
Config = dict[str, object]


@dataclass(frozen=True)
class Asked:
    """The calculator's inputs. `models` are catalog ids, or configs packed by `pack`; the first is the main one.

    The last five are options of llama.cpp, which only its view has: -ctv (empty: as the keys), -fa, --swa-full,
    --kv-unified, -ub.
    """

    models: tuple[str, ...] = ("llama-3.1-8b", "llama-2-7b", "deepseek-v3")
    tokens: int = 8192
    batch: int = 1
    dtype: str = "bfloat16"
    weights: str = "bfloat16"
    view: str = "architecture"
    beams: int = 1
    tensor_parallel: int = 1
    source_tokens: int | None = None
    gpu: str = "h100-sxm"
    values: str = ""
    flash_attention: bool = True
    swa_full: bool = False
    unified: bool = False
    ubatch: int = UBATCH

    @property
    def llama_cpp(self) -> LlamaCpp | None:
        """How llama.cpp is started, in its view."""
        if self.view != "llama.cpp":
            return None
        return LlamaCpp(self.values, self.flash_attention, self.swa_full, self.unified, self.ubatch)


@dataclass(frozen=True)
class Answer:
    """The answer for one model: its config, its spec and its memory, or a `problem` in their place.

    `file`: the weights of the GGUF file that the config was read from.
    """

    key: str
    title: str
    config: Config
    params: int | None = None
    file: FileWeights | None = None
    spec: ModelSpec | None = None
    memory: Memory | None = None
    problem: str = ""


def pack(config: Mapping[str, object]) -> str:
    """A config as one word of letters, digits, - and _, for a link."""
    text = json.dumps(config, separators=(",", ":"))
    return _PACKED + base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpack(word: str) -> Config:
    """The config that `pack` packed. Raises ConfigError if the word holds none."""
    body = word.removeprefix(_PACKED)
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        stream = zlib.decompressobj()
        text = stream.decompress(data, LARGEST_CONFIG)
        if not stream.eof:
            raise ValueError("cut off, or larger than any config")
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ConfigError("the link's config can't be unpacked; it may have been cut off") from error
    return parse_config(text)


def is_own(key: str) -> bool:
    """Whether a model of `Asked.models` is a packed config."""
    return key.startswith(_PACKED)


def own_title(config: Mapping[str, object]) -> str:
    """The title of a user's own config."""
    names = (config.get(key) for key in ("_name_or_path", "model_type"))
    name = next((name for name in names if name and isinstance(name, str)), "a config")
    return f"{name[:60]} (yours)"


_IRRELEVANT = ("id2label", "label2id", "task_specific_params", "architectures", "vision_config", "audio_config")


def slim(config: Mapping[str, object]) -> Config:
    """A config without what never decides a size: token ids, dropout, label names; its code becomes an empty field."""
    kept: Config = {}
    for key, value in config.items():
        if key == "auto_map":
            kept[key] = {}
        elif key not in _IRRELEVANT and not key.endswith(("_token_id", "dropout", "_pdrop")):
            kept[key] = slim(value) if isinstance(value, Mapping) and key != "per_layer_config" else value
    return kept


def from_params(params: Mapping[str, str]) -> tuple[Asked, list[str]]:
    """The inputs in a link, and a sentence for each that can't be read and has its default instead."""
    asked, problems = Asked(), []
    for name in (field.name for field in fields(Asked) if field.name in params):
        try:
            asked = replace(asked, **{name: _read(name, params[name])})
        except ConfigError as error:
            problems.append(f"{name} of the link: {error}")
    return asked, problems


def _read(name: str, text: str) -> Any:
    """The value of one input in a link. Raises ConfigError."""
    if name == "models":
        return _models(text)
    if name == "gpu":
        return text
    known = _WORDS.get(name)
    if known is None:
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:15]) < 2**40 or len(text) > 13:
            raise ConfigError(f"{shown(text)} is no whole number from 1 to {2**40 - 1:,}")
        return int(text)
    if text not in known:
        raise ConfigError(f"{shown(text)} is not one of {', '.join(known)}")
    return text == "True" if known == _SWITCH else text


_SWITCH = ("True", "False")
_WORDS: Mapping[str, Collection[str]] = {
    **{"dtype": PRECISIONS, "values": ("", *PRECISIONS), "weights": WEIGHT_BITS, "view": VIEWS},
    **dict.fromkeys(("flash_attention", "swa_full", "unified"), _SWITCH),
}


def in_link(asked: Asked) -> tuple[str, ...]:
    """The models that a link can hold: all except configs that are too long."""
    return tuple(key for key in asked.models if len(key) <= LONGEST_LINK)


def to_params(asked: Asked) -> dict[str, str]:
    """The query of the link: the models, and whatever differs from the defaults."""
    usual = asdict(Asked())
    params = {name: str(value) for name, value in asdict(asked).items() if value != usual[name]}
    return {**params, "models": ",".join(in_link(asked))}


def _models(text: str) -> tuple[str, ...]:
    keys = tuple(dict.fromkeys(key for key in text.split(",") if key))
    for key in keys:
        if is_own(key):
            unpack(key)
        elif key not in models():
            raise ConfigError(f"{shown(key)} is no model of the catalog")
    if not 1 <= len(keys) <= MOST_MODELS:
        raise ConfigError(f"one to {MOST_MODELS} models are shown side by side, not {len(keys)}")
    return keys


def answers(asked: Asked) -> tuple[Answer, ...]:
    """One answer for each model."""
    return tuple(answer(asked, key) for key in asked.models)


def answer(asked: Asked, key: str) -> Answer:
    """The answer for one model."""
    found = Answer(key, "a config", {})
    try:
        if is_own(key):
            config = unpack(key)
            file = weights_in(config)
            found = Answer(key, own_title(config), config, file.parameters if file else None, file)
        elif key in models():
            source = find_source(key)
            found = Answer(key, source.title, source.config or {}, source.params)
        else:  # a browser can send what no list offers: never a folder's name
            raise ConfigError(f"{shown(key)} is no model of the catalog")
        spec = ModelSpec.from_config(found.config, name=found.title)
        return replace(found, spec=spec, memory=memory_of(spec, asked, found.params, found.file))
    except KvvizError as error:
        return replace(found, problem=str(error))


def memory_of(spec: ModelSpec, asked: Asked, params: int | None = None, file: FileWeights | None = None) -> Memory:
    """The memory of a spec as asked, with the bytes of its weights if they are known and one device holds them.

    They are those of the `file`, or follow from `params` and the dtype of the weights.
    """
    names = ("batch", "dtype", "view", "beams", "tensor_parallel", "source_tokens", "llama_cpp")
    nbytes = file.nbytes if file else weight_bytes(params or 0, asked.weights)
    known = nbytes if (file or params is not None) and asked.tensor_parallel == 1 else None
    return kv_memory(spec, asked.tokens, **{name: getattr(asked, name) for name in names}, weights_bytes=known)


def as_json(answered: Iterable[Answer]) -> str:
    """The documents of all answers, each as `calc --json` prints it."""
    return json.dumps([answer.memory.to_dict() for answer in answered if answer.memory], indent=1)


def as_csv(answered: Iterable[Answer]) -> str:
    """The answers as CSV, a row for each layer."""
    out, columns = io.StringIO(), [field.name for field in fields(LayerMemory)]
    writer = csv.writer(out)
    writer.writerow(["model", "view", "dtype", "tokens", "batch", *columns])
    for memory in (answer.memory for answer in answered if answer.memory):
        head = [memory.model, memory.view, memory.dtype, memory.tokens, memory.batch]
        for row in memory.layers:
            cells = (getattr(row, name) for name in columns)
            writer.writerow([*head, *("x".join(map(str, cell)) if isinstance(cell, tuple) else cell for cell in cells)])
    return out.getvalue()
