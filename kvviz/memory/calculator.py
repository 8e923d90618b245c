"""What the calculator is asked, as one value: from a link and back to it, and the answers. Standard library only."""

import base64
import binascii
import csv
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS, weight_bytes
from kvviz.memory.formula import LayerMemory, Memory, kv_memory
from kvviz.memory.views import VIEWS
from kvviz.models.catalog.rows import models
from kvviz.models.config_fields import shown
from kvviz.models.sources import LARGEST_CONFIG, check_depth, find_source
from kvviz.models.spec import ModelSpec

MOST_MODELS = 6
LONGEST_LINK = 6_000  # characters of a packed config; browsers and proxies take about 8,000 for a whole address
LONGEST_NAME = 60  # characters of what a config calls itself
_OWN = "z:"


@dataclass(frozen=True)
class Asked:
    """The calculator's inputs. `models` are catalog ids, or configs packed by `pack`; the first is the main one."""

    models: tuple[str, ...] = ("llama-3.1-8b", "qwen3-4b", "gemma-3-12b")
    tokens: int = 8192
    batch: int = 1
    dtype: str = "bfloat16"
    weights: str = "bfloat16"
    view: str = "architecture"
    beams: int = 1
    tensor_parallel: int = 1
    source_tokens: int | None = None
    gpu: str = "h100-sxm"


@dataclass(frozen=True)
class Answer:
    """One model's part of the answer: its config, its spec and its memory, or the sentence why there is none."""

    key: str
    title: str
    config: dict[str, Any]
    params: int | None = None
    spec: ModelSpec | None = None
    memory: Memory | None = None
    problem: str = ""


def pack(config: Mapping[str, Any]) -> str:
    """A config as a word of letters, digits, - and _, which a link can hold."""
    text = json.dumps(config, separators=(",", ":"))
    return _OWN + base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpack(word: str) -> dict[str, Any]:
    """The config that `pack` packed. Raises ConfigError for a word that holds none."""
    body = word.removeprefix(_OWN)
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        stream = zlib.decompressobj()
        text = stream.decompress(data, LARGEST_CONFIG)
        if not stream.eof:
            raise ValueError("cut off, or larger than any config")
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ConfigError("the link's config can't be unpacked; it may have been cut off") from error
    return parse_config(text.decode("utf-8", "replace"))


def is_own(key: str) -> bool:
    """Whether a model of `Asked.models` is a packed config."""
    return key.startswith(_OWN)


def own_title(config: Mapping[str, Any]) -> str:
    """What a config of the user's own is called."""
    names = (config.get(key) for key in ("_name_or_path", "model_type"))
    name = next((name for name in names if name and isinstance(name, str)), "a config")
    return f"{name[:LONGEST_NAME]} (yours)"


def parse_config(text: str) -> dict[str, Any]:
    """The object of a pasted or dropped config.json. Raises ConfigError for what is none."""
    if len(text) > LARGEST_CONFIG:
        raise ConfigError(f"this is larger than {LARGEST_CONFIG:,} characters, which no config.json is")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(f"this can't be read as JSON{where}; paste a whole config.json, from {{ to }}") from error
    if not isinstance(config, dict):
        raise ConfigError("this is JSON but no object; a config.json starts with {")
    check_depth(config)
    return config


def slim(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what never decides a size: token ids, dropout, label names; of code only that there is some."""
    gone = (
        "id2label",
        "label2id",
        "task_specific_params",
        "architectures",
        "vision_config",
        "audio_config",
    )
    return {
        key: _slimmed(key, value)
        for key, value in config.items()
        if key not in gone and not key.endswith(("_token_id", "dropout", "_pdrop"))
    }


def _slimmed(key: str, value: Any) -> Any:
    if key == "auto_map":
        return {}
    return slim(value) if isinstance(value, Mapping) and key != "per_layer_config" else value


def from_params(params: Mapping[str, str]) -> tuple[Asked, list[str]]:
    """What a link asks, and a sentence for each part of it that can't be read (the default stands in its place)."""
    asked, problems = Asked(), []
    readers = {"models": _models, "dtype": _one_of(PRECISIONS), "weights": _one_of(WEIGHT_BITS), "view": _one_of(VIEWS)}
    for field in fields(Asked):
        if field.name not in params:
            continue
        read = readers.get(field.name, str if field.name == "gpu" else _count)
        try:
            asked = replace(asked, **{field.name: read(params[field.name])})
        except ConfigError as error:
            problems.append(f"{field.name} of the link: {error}")
    return asked, problems


def in_link(asked: Asked) -> tuple[str, ...]:
    """The models that a link can hold: all but configs that are too long for one."""
    return tuple(key for key in asked.models if len(key) <= LONGEST_LINK)


def to_params(asked: Asked) -> dict[str, str]:
    """The link that asks this: all that differs from the defaults, and the models."""
    usual = Asked()
    params = {
        f.name: str(getattr(asked, f.name)) for f in fields(Asked) if getattr(asked, f.name) != getattr(usual, f.name)
    }
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


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:15]) < 2**40 or len(text) > 13:
        raise ConfigError(f"{shown(text)} is no whole number of at least 1")
    return int(text)


def _one_of(known: Iterable[str]) -> Any:
    def read(text: str) -> str:
        if text not in known:
            raise ConfigError(f"{shown(text)} is not one of {', '.join(known)}")
        return text

    return read


def answers(asked: Asked) -> tuple[Answer, ...]:
    """One answer for each model, a sentence in place of a figure where there is none."""
    return tuple(answer(asked, key) for key in asked.models)


def answer(asked: Asked, key: str) -> Answer:
    """The answer for one model."""
    try:
        known = _known(key)
    except KvvizError as error:
        return Answer(key, "a config", {}, problem=str(error))
    try:
        spec = ModelSpec.from_config(known.config, name=known.title)
        return replace(known, spec=spec, memory=memory_of(spec, asked, known.params))
    except ConfigError as error:
        return replace(known, problem=str(error))


def _known(key: str) -> Answer:
    """A model's name, config and parameters."""
    if is_own(key):
        config = unpack(key)
        return Answer(key, own_title(config), config)
    if key not in models():  # a browser can send what no list offers: never a folder's name
        raise ConfigError(f"{shown(key)} is no model of the catalog")
    source = find_source(key)
    return Answer(key, source.title, source.config or {}, source.params)


def memory_of(spec: ModelSpec, asked: Asked, params: int | None = None, **changes: Any) -> Memory:
    """The memory of a spec as asked, with `changes` (tokens, batch, view, ...) to the case."""
    case = {
        "batch": asked.batch,
        "dtype": asked.dtype,
        "view": asked.view,
        "beams": asked.beams,
        "tensor_parallel": asked.tensor_parallel,
        "source_tokens": asked.source_tokens,
        **changes,
    }
    known = params is not None and case["tensor_parallel"] == 1
    weights = weight_bytes(params, asked.weights) if known and params is not None else None
    return kv_memory(spec, case.pop("tokens", asked.tokens), weights_bytes=weights, **case)


def as_json(found: Iterable[Answer]) -> str:
    """The documents of all answers, as `calc --json` prints each."""
    return json.dumps([answer.memory.to_dict() for answer in found if answer.memory], indent=1)


def as_csv(found: Iterable[Answer]) -> str:
    """One row for each layer of each answer."""
    out = io.StringIO()
    columns = [field.name for field in fields(LayerMemory)]
    writer = csv.writer(out)
    writer.writerow(["model", "view", "dtype", "tokens", "batch", *columns])
    for memory in (answer.memory for answer in found if answer.memory):
        head = [memory.model, memory.view, memory.dtype, memory.tokens, memory.batch]
        writer.writerows([*head, *(_cell(getattr(row, name)) for name in columns)] for row in memory.layers)
    return out.getvalue()


def _cell(value: Any) -> Any:
    return "x".join(map(str, value)) if isinstance(value, tuple) else value
