"""The options that several commands share, and what their values stand for."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from kvviz.base.errors import KvvizError
from kvviz.models.catalog.rows import models
from kvviz.models.gguf.fetch import config_in_file, config_on_the_hub, is_gguf, on_the_hub
from kvviz.models.gguf.header import LARGEST_HEADER
from kvviz.models.hub_config import fetch_config
from kvviz.models.sources import Source, find_source, looks_like_hub_id

T = TypeVar("T")


def _model_path(context: typer.Context, model: str | None) -> str | None:
    """Read the config on standard input that `-` stands for, into a file that lasts as long as the command."""
    if model != "-":
        return model
    path = Path(context.with_resource(tempfile.TemporaryDirectory())) / STDIN
    stream = getattr(sys.stdin, "buffer", None)  # the bytes that come, be they text or a GGUF file's
    path.write_bytes(stream.read(LARGEST_HEADER) if stream else sys.stdin.read().encode("utf-8", "surrogateescape"))
    return str(path)


STDIN = "standard input.json"
_MODEL = "Catalog id, folder, config.json, Hugging Face id, or - for a config on standard input."
_MODEL_OR_GGUF = (
    "Catalog id, folder, config.json, GGUF file, Hugging Face id or owner/name/file.gguf, or - for a config or the "
    "first bytes of a GGUF file on standard input."
)
WEIGHTS = typer.Option(help="auto, bundled, random, hub or local.")
_DEVICES = "auto, cpu, cuda, a card by number such as cuda:1, or mps"
DEVICE = typer.Option(help=f"{_DEVICES}.")
ATTENTION = typer.Option(help="sdpa (flash where the device has it) or eager.")

ModelArgument = Annotated[str, typer.Argument(help=_MODEL, callback=_model_path)]
ModelOrGguf = Annotated[str, typer.Argument(help=_MODEL_OR_GGUF, callback=_model_path)]
ModelOption = Annotated[str, typer.Option(help=_MODEL, callback=_model_path)]
ModelsOption = Annotated[
    str | None, typer.Option(help="One model or several, separated by commas; - as for `run`.", callback=_model_path)
]
Weights = Annotated[str, WEIGHTS]
Device = Annotated[str, DEVICE]
DeviceOrSplit = Annotated[str, typer.Option(help=f"{_DEVICES}; split: over all, for a model larger than one.")]
Attention = Annotated[str, ATTENTION]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
CachedTokens = Annotated[int, typer.Option(help="Tokens in the cache of each sequence.")]
Batch = Annotated[int, typer.Option(help="Sequences decoded together.")]
SourceTokens = Annotated[int | None, typer.Option(help="Length of an encoder's output; --tokens if not given.")]
_BUDGET = "What designs that evict keep: a number of tokens, or a percentage of all such as 25%."
CacheBudget = Annotated[str | None, typer.Option("--cache-budget", help=_BUDGET)]  # `run --budget` is of seconds
Budget = Annotated[str | None, typer.Option("--budget", "--cache-budget", help=_BUDGET)]
Pyramid = Annotated[
    bool, typer.Option("--pyramid", help="Let lower layers keep more of the budget than higher ones (PyramidKV).")
]
KvEvents = Annotated[
    str | None,
    typer.Option(help="Where vLLM publishes its KV events, such as tcp://gpu:5557; after a comma its replay socket."),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Fail at once if another process is measuring.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def gguf_source(model: str) -> Source | None:
    """The model that a GGUF file's header describes, here or on the Hub; None if MODEL names no such file."""
    path = Path(model).expanduser()
    if path.is_file():
        if not is_gguf(path):
            return None
        config, origin = config_in_file(path, "standard input" if path.name == STDIN else path.name), str(path)
    elif found := on_the_hub(model):
        config, origin = config_on_the_hub(*found), f"https://huggingface.co/{found[0]}"
    else:
        return None
    return Source(str(config["_name_or_path"]), str(config["_name_or_path"]), "random", config, origin=origin)


def _called(path: str, name: str) -> Source:
    try:
        return replace(find_source(path), model=name)
    except KvvizError as error:
        raise KvvizError(str(error).replace(path, name)) from error


def names(text: str) -> tuple[str, ...]:
    """Split a list of names at its commas."""
    return tuple(name.strip() for name in text.split(","))


def counts(option: str, text: str) -> tuple[int, ...]:
    """Read a list of whole numbers, separated by commas. Raises KvvizError."""
    return _listed(option, text, int, "whole numbers")


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Read a list of numbers, separated by commas. Raises KvvizError."""
    return _listed(option, text, float, "numbers")


def _listed(option: str, text: str, read: Callable[[str], T], what: str) -> tuple[T, ...]:
    try:
        return tuple(read(each) for each in text.split(","))
    except ValueError as error:
        raise KvvizError(f"{option} is {text[:80]!r}; it takes {what}, separated by commas") from error


def source_with_config(model: str) -> Source:
    """Find MODEL and its config; the config of a Hugging Face id is downloaded.

    A config on standard input goes by that name, and not by the file's that it is kept in.
    """
    if Path(model).name == STDIN:
        return _called(model, "standard input")
    if model in models() or not looks_like_hub_id(model):
        return find_source(model)
    return replace(find_source(model, "hub"), config=fetch_config(model))
