"""Load the model of a Source so that it is ready to decode: only safetensors, never remote code.

No other module loads weights. A model that can't be loaded raises KvvizError with one sentence.
"""

import io
import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch

from kvviz.base.errors import ConfigError, KvvizError, in_a_line
from kvviz.base.records import LONGEST_NOTE, SPLIT, Environment
from kvviz.decoding import split
from kvviz.decoding.split import Spread
from kvviz.device.environment import environment_for
from kvviz.device.memory import is_out_of_memory
from kvviz.models.config_fields import shown
from kvviz.models.family_facts import facts_of
from kvviz.models.layers import MOST_LAYERS
from kvviz.models.pulled_folder import MANIFEST, read_manifest
from kvviz.models.sources import Source
from kvviz.models.spec import ModelSpec
from kvviz.models.text import ByteCodec, Codec, TokenizerCodec
from kvviz.models.weight_files import damage

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
    from transformers.models.auto.auto_factory import _BaseAutoModelClass


@dataclass(frozen=True)
class Loaded:
    """A model on its device, in eval mode, with its spec and its codec; `note` is what a reader should know of it.

    A model that was to be split has a `spread`, which says where its layers lie; `device` is then the one that takes
    its inputs.
    """

    model: "PreTrainedModel"
    spec: ModelSpec
    codec: Codec
    source: Source
    params: int
    device: str
    dtype: str
    stop_ids: frozenset[int]
    note: str = ""
    spread: Spread | None = None

    @property
    def environment(self) -> Environment:
        """What a measurement of this model depends on."""
        here = environment_for(str(self.model.config._attn_implementation), self.device, self.dtype)
        return replace(here, device=SPLIT, device_name=self.spread.name) if self.spread and self.is_split else here

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that may have queued work of a step."""
        return self.spread.places if self.spread else (self.device,)

    @property
    def is_split(self) -> bool:
        """Whether a part of the weights lies elsewhere than on the device that takes the inputs."""
        return self.spread is not None and self.spread.places != (self.device,)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Parameters and buffers: the tensors that exist before and after a run."""
        return [*self.model.parameters(), *self.model.buffers()]


def count_params(config: Mapping[str, object]) -> int:
    """Count the parameters of a config's model on the meta device, without weights or memory."""
    with torch.device("meta"):
        return built(hf_config(config)).num_parameters()


Progress = Callable[[dict[str, object]], None]


def load(
    source: Source,
    *,
    dtype: str,
    device: str,
    attn: str,
    seed: int = 0,
    progress: Progress = lambda record: None,
    room: Mapping[str, int] | None = None,
) -> Loaded:
    """Load a source's weights, or initialise random ones. Raises KvvizError with one sentence.

    With `room`, the bytes of weights that each device may hold, the model is split over these devices.
    """
    if source.weights == "hub":
        source = replace(source, folder=_downloaded(source, progress))
    if source.weights == "local" and source.folder is not None and (source.folder / MANIFEST).is_file():
        read_manifest(source.folder).check_sums()
    model = (_drawn if source.weights == "random" else _stored)(source, dtype, device, attn, seed, room).eval()
    spec = ModelSpec.from_config(model.config.to_dict(), name=source.model, source=source.origin)
    codec, where = _codec(source, spec), None if room is None else split.spread_of(model, len(spec.layers))
    notes = (codec.note, "" if model._supports_sdpa else ONLY_EAGER, _unclamped(model), where.note if where else "")
    note, device = _joined(*notes), where.main if where else device
    return Loaded(model, spec, codec, source, _params(model, where), device, dtype, _stop_ids(model), note, where)


def _params(model: "PreTrainedModel", where: Spread | None) -> int:
    """Count the parameters; a model counts tied weights on the disk twice, so there its config's are counted."""
    on_disk = where is not None and split.DISK in where.places
    return count_params(model.config.to_dict()) if on_disk else model.num_parameters()


def _joined(*notes: str) -> str:
    """Join what is said of a model; a kept run whose note is longer than allowed could not be read again."""
    return shorten(" ".join(notes), LONGEST_NOTE, placeholder=" …")


ONLY_EAGER = "transformers has only eager attention for this model, so it runs with that."


def _unclamped(model: "PreTrainedModel") -> str:
    """Lift the lower limit of a recurrent layer's time step where only the reading of several tokens applies it.

    With it a prompt and single tokens would be computed by different rules. Returns a sentence that says so, or "".
    """
    if facts_of(model.config.model_type).limits_every_step:
        return ""
    for module in model.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, math.inf)
    return (
        "transformers limits the time step of this model's recurrent layers where it reads several tokens and not "
        "where it reads one; here neither is limited, so that both compute the same."
    )


def adopt(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase | None" = None) -> Loaded:
    """Use a loaded transformers model unchanged: its device or its map of devices, its dtype, its weights."""
    config = model.config.get_text_config().to_dict()
    try:
        spec = ModelSpec.from_config(model.config.to_dict(), name=type(model).__name__)
    except ConfigError:  # the formula can't predict this cache, but the cache itself can be read
        spec = ModelSpec(type(model).__name__, (), vocab_size=config.get("vocab_size"))
    name = model.config.name_or_path or type(model).__name__
    several = len(set(getattr(model, "hf_device_map", {}).values())) > 1
    where = split.spread_of(model, len(spec.layers)) if several else None
    params = _params(model, where)
    source = Source(name, type(model).__name__, "given", config=config, params=params, origin="given")
    codec = TokenizerCodec(tokenizer) if tokenizer is not None else ByteCodec(spec.vocab_size)
    first = next(model.parameters())
    dtype = str(first.dtype).removeprefix("torch.")
    device = where.main if where else str(first.device)
    note = _joined(codec.note, where.note if where else "")
    return Loaded(model, spec, codec, source, params, device, dtype, _stop_ids(model), note, where)


def fetched(source: Source) -> Source:
    """Complete a hub source with its config, from the Hub or the local cache, and its parameter count."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(source.hub, trust_remote_code=False, local_files_only=_offline())
    except Exception as error:
        raise KvvizError(_why_not(source, error)) from error
    fields = config.to_dict()
    return replace(source, config=fields, params=count_params(fields))


@cache
def _offline() -> bool:
    """Whether the Hub's host name does not resolve, so that only the local cache is available."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.getaddrinfo(host.hostname, host.port or 443)
    except OSError:
        return True
    return False


# A download fetches weights in safetensors, configs and the tokenizer, never code and never pickles.
_WANTED = ["*.safetensors", "*.json", "tokenizer.model", "*.txt"]


def _downloaded(source: Source, progress: Progress) -> Path:
    """Return the folder of a hub model; download what the local cache lacks."""
    from huggingface_hub import snapshot_download

    if source.hub is None:
        raise KvvizError(f"{source.model} has no id on the Hugging Face Hub")
    bar = _reporter(progress)
    try:
        return Path(snapshot_download(source.hub, allow_patterns=_WANTED, local_files_only=_offline(), tqdm_class=bar))
    except Exception as error:
        raise KvvizError(_why_not(source, error)) from error


def _reporter(progress: Progress) -> type:
    """Make a tqdm class that draws nothing and reports the bytes to `progress`, at most twice a second."""
    from tqdm import tqdm

    class Reporter(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "file": io.StringIO(), "mininterval": 0.5})

        def display(self, *args: object, **kwargs: object) -> None:
            if self.unit == "B" and self.total:
                progress({"t": "download", "bytes": int(self.n), "of": int(self.total)})

    return Reporter


def hf_config(config: Mapping[str, object]) -> "PreTrainedConfig":
    """Make a transformers config from a dict, without the fields that would load code or other weights."""
    from transformers import AutoConfig

    fields = _inert(config)
    _check_layers(fields)
    model_type = fields.pop("model_type", None)
    if not isinstance(model_type, str):
        raise ConfigError("the config has no model_type, so it does not say which architecture it is")
    try:
        return AutoConfig.for_model(model_type, **fields)
    except Exception as error:
        raise ConfigError(f"transformers can't read this config: {in_a_line(error)}") from error


_LEFT_OUT = (
    "auto_map",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "architectures",
    "quantization_config",
    "attn_implementation",  # may name a repository with compiled code
    "_attn_implementation",
    "experts_implementation",
    "_experts_implementation",
    "use_kernels",
    "custom_generate",
    "use_pretrained_backbone",
)


def _inert(value: Any) -> Any:
    """Copy a config or a part of one, without the fields that would fetch or run something."""
    if isinstance(value, Mapping):
        return {name: _inert(field) for name, field in value.items() if name not in _LEFT_OUT}
    return [_inert(item) for item in value] if isinstance(value, list) else value


def _check_layers(config: object) -> None:
    """Refuse a config with more layers than kvviz reads, before any layer is built."""
    for name, value in config.items() if isinstance(config, dict) else ():
        counts = isinstance(name, str) and name.endswith(("layers", "n_layer", "num_blocks"))
        if counts and isinstance(value, int) and value > MOST_LAYERS:
            raise ConfigError(f"{name} is {shown(value)}; kvviz builds at most {MOST_LAYERS:,} layers")
    parts = config.values() if isinstance(config, dict) else config if isinstance(config, list) else ()
    for part in parts:
        _check_layers(part)


Room = Mapping[str, int] | None


def _drawn(source: Source, dtype: str, device: str, attn: str, seed: int, room: Room) -> "PreTrainedModel":
    """Build the real architecture with seeded random weights.

    Their standard deviation is 1.6 / sqrt(hidden), a little wider than for training: with the usual 0.02 a model
    repeats one token for ever, and then identical tokens would say nothing about equivalence. Those of a model that is
    to be split are drawn in the host's memory.
    """
    config = hf_config(source.config or {})
    config.initializer_range = 1.6 / math.sqrt(config.get_text_config().hidden_size)
    torch.manual_seed(seed)
    with torch.device(device if room is None else "cpu"):
        model = built(config, dtype=getattr(torch, dtype), attn_implementation=attn)
    if room is not None:
        split.spread(model, room)
    return model


def built(config: "PreTrainedConfig", **options: object) -> "PreTrainedModel":
    """Build a config's decoder, and its encoder if it has one, on the default device (meta: no weights)."""
    try:
        return _auto_class(config).from_config(config, trust_remote_code=False, **options)
    except Exception as error:  # a model's constructor can raise anything for an inconsistent config
        if is_out_of_memory(error):
            raise
        raise ConfigError(f"transformers can't build a decoder from this config: {in_a_line(error)}") from error


def _auto_class(config: "PreTrainedConfig") -> "type[_BaseAutoModelClass]":
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq
    from transformers.models.auto.modeling_auto import MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES

    if not config.is_encoder_decoder:
        return AutoModelForCausalLM
    speech = config.model_type in MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES
    return AutoModelForSpeechSeq2Seq if speech else AutoModelForSeq2SeqLM


def attention_of(config: Mapping[str, object], asked: str) -> str:
    """Return the attention that a config's model can compute: the one asked for, or eager if it has no other."""
    read = hf_config(config)
    kind = _auto_class(read)._model_mapping.get(type(read), None)
    return "eager" if asked == "sdpa" and not getattr(kind, "_supports_sdpa", True) else asked


def _stored(source: Source, dtype: str, device: str, attn: str, seed: int, room: Room) -> "PreTrainedModel":
    from transformers import AutoModelForCausalLM

    form = {"dtype": getattr(torch, dtype), "attn_implementation": attn}
    safe = {"use_safetensors": True, "trust_remote_code": False, "local_files_only": True}
    read = partial(AutoModelForCausalLM.from_pretrained, str(source.folder), **safe, **form)
    try:
        model = read() if room is None else split.read_spread(read, room)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise KvvizError(_why_not(source, error)) from error
    return model.to(device) if room is None else model


def _why_not(source: Source, error: Exception) -> str:
    if source.weights == "hub":
        if _offline():
            return (
                f"{source.hub} is not in the local cache and the Hugging Face Hub can't be reached from here: "
                "take a catalog model with random weights, or a local folder"
            )
        return f"{source.hub} can't be had from the Hugging Face Hub (unknown id, or no access): {in_a_line(error)}"
    cause = damage(source.folder) if source.folder is not None else None
    why = cause or f"the weights of {source.model} can't be loaded: {in_a_line(error)}"
    return why.replace(str(source.folder), source.model)  # clients must not learn where a server keeps its models


def _codec(source: Source, spec: ModelSpec) -> Codec:
    """Return the tokenizer that comes with the weights; the byte codec for weights without one."""
    if source.folder is None or source.weights == "random":
        return ByteCodec(spec.vocab_size)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(source.folder), trust_remote_code=False, local_files_only=True)
    except Exception as error:  # a broken or missing tokenizer can raise anything; bytes always work
        there = any((source.folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
        why = f"The tokenizer that comes with this model can't be read ({type(error).__name__}). " if there else ""
        return ByteCodec(spec.vocab_size, why)
    return TokenizerCodec(tokenizer)


def _stop_ids(model: "PreTrainedModel") -> frozenset[int]:
    eos = getattr(model.generation_config, "eos_token_id", None)
    return frozenset([] if eos is None else [eos] if isinstance(eos, int) else eos)
