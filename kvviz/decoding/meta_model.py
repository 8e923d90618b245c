"""Models on the meta device: tensors have no memory, and reads of their values get made-up answers.

It also reads how many positions a model's tables hold, since a step beyond their end goes unnoticed there.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch.fx.experimental import _config as fx_config
from torch.utils._python_dispatch import TorchDispatchMode

from kvviz.base.errors import ConfigError
from kvviz.decoding.loading import hf_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

Answer = Callable[..., object]  # takes the operation and its arguments


@contextmanager
def on_meta() -> Iterator[None]:
    """Create tensors without memory inside `with`, and answer a forward that reads values."""
    before = fx_config.meta_nonzero_assume_all_nonzero
    fx_config.meta_nonzero_assume_all_nonzero = True
    try:
        with torch.device("meta"), _MetaAnswers(), torch.no_grad():
            yield
    finally:
        fx_config.meta_nonzero_assume_all_nonzero = before


class _MetaAnswers(TorchDispatchMode):
    """Answers a forward that reads values: a truth is true, a count 1, no index is found. Only shapes are read then."""

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        name = func.overloadpacket.__name__
        if name in _ANSWERS and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return _ANSWERS[name](func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _scalar(func: OpOverload, tensor: torch.Tensor) -> bool | int:
    return True if tensor.dtype is torch.bool else 1


def _copy(func: OpOverload, tensor: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """Return zeros for a copy to the CPU, such as `tolist` makes."""
    if kwargs.get("device") != torch.device("cpu"):
        return func(tensor, **kwargs)
    return torch.zeros(tensor.shape, dtype=kwargs.get("dtype") or tensor.dtype, device="cpu")


def _split(func: OpOverload, tensor: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> object:
    """Give everything to the first part if all sizes came from values and are therefore zero."""
    return func(tensor, sizes if any(sizes) else [tensor.shape[dim], *sizes[1:]], dim)


def _grouped(
    func: OpOverload, left: torch.Tensor, right: torch.Tensor, *args: object, **kwargs: object
) -> torch.Tensor:
    """Return an empty product of (rows, in) x (experts, in, out) in any dtype; torch's kernel takes only bfloat16."""
    return left.new_empty(*left.shape[:-1], right.shape[-1])


_ANSWERS: dict[str, Answer] = {
    "_local_scalar_dense": _scalar,
    "nonzero": lambda func, tensor: torch.empty(0, tensor.dim(), dtype=torch.int64, device="meta"),
    "equal": lambda func, tensor, other: True,
    "_to_copy": _copy,
    "split_with_sizes": _split,
    "_grouped_mm": _grouped,
}


def own_modules(model: "PreTrainedModel") -> list[nn.Module]:
    """List the modules of a model's decoder, without encoders of text, images or sound."""
    others = set(model.get_encoder().modules()) if model.config.is_encoder_decoder else set()
    senses = ("vision", "visual", "image", "audio")
    named = model.named_modules()
    return [module for name, module in named if module not in others and not any(sense in name for sense in senses)]


def check_decodes(model: "PreTrainedModel") -> None:
    """Raise ConfigError for a model with bidirectional attention, which can't use a KV cache."""
    config = model.config
    says = getattr(config, "is_decoder", None) is False and not config.is_encoder_decoder  # some decoders say so too
    if says and any(getattr(module, "is_decoder", None) is False for module in model.modules()):
        raise ConfigError(f"is_decoder is not true, so this {config.model_type} is an encoder, which keeps no KV cache")


# Names of models' position tables, learned or computed once. A step beyond the end of such a table fails.
_TABLES = (
    "embed_positions",
    "pos_emb",
    "pos_encoding",
    "position_embeddings",
    "positional_embedding",
    "positions_embed",
    "wpe",
)


def table_rows(modules: Iterable[nn.Module]) -> Iterator[int]:
    """Yield the number of positions of each table that is a direct child of one of the modules."""
    for module in modules:
        for name, table in module.named_children():
            if name in _TABLES and isinstance(table, nn.Embedding) and not hasattr(table, "make_weight"):
                padding = 0 if table.padding_idx is None else table.padding_idx + 1
                yield table.num_embeddings - getattr(table, "offset", padding)  # the first rows are for padding
        for name, buffer in module.named_buffers(recurse=False):
            if name in _TABLES and buffer.dim() == 2:
                yield buffer.shape[0]


def check_length(name: str, count: int, model: "PreTrainedModel", modules: Iterable[nn.Module]) -> None:
    """Raise ConfigError if a position table ends before `count`; on the meta device that goes unnoticed."""
    limit = min(table_rows(modules), default=count)
    if count > limit:
        raise ConfigError(f"{name} is {count}, but {_limit_field(model.config, limit)} gives it {limit} positions")


def _limit_field(config: "PreTrainedConfig", limit: int) -> str:
    """Name the config's field for the number of positions; some fields also count a few padding rows."""
    fields = {**config.to_dict(), **config.get_text_config(decoder=True).to_dict()}
    near = [name for name, value in fields.items() if "pos" in name and value in range(limit, limit + 3)]
    return near[0] if near else f"the table of {config.model_type}"


# transformers' mappings from a config's class to a model, in the order in which they are tried.
_DECODERS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
_ENCODER_DECODERS = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "TEXT_TO_WAVEFORM", *_DECODERS)


def drafts(config: "PreTrainedConfig") -> bool:
    """Whether a model's forward takes another model's keys and values, and has no argument for a cache of its own."""
    takes = inspect.signature(_model_class(config).forward).parameters
    return "shared_kv_states" in takes and "past_key_values" not in takes


def built_eager(config: "PreTrainedConfig", dtype: torch.dtype) -> "PreTrainedModel":
    """Build a config's model with eager attention, or only its text part if a library for images is missing."""
    kind = _model_class(config)
    if drafts(config):
        raise ConfigError(f"{config.model_type} drafts with another model's keys and values and keeps none of its own")
    parts = [part for part in vars(config).values() if isinstance(part, kind.config_class)]
    try:
        model = kind._from_config(parts[0] if parts else config, dtype=dtype, attn_implementation="eager")
    except ImportError:
        text = config.get_text_config(decoder=True)
        if text is config:
            raise
        return built_eager(text, dtype)
    return model.eval()


def weightless(config: Mapping[str, object], dtype: str) -> "PreTrainedModel":
    """Build a model on the meta device; a few old constructors ignore the default device and dtype.

    Reformer's makes its tables of positions in float32, which loading its weights would turn into the model's dtype.
    """
    model = built_eager(hf_config(config), getattr(torch, dtype))
    stray = model.config.model_type == "reformer" or any(not parameter.is_meta for parameter in model.parameters())
    return model.to("meta", getattr(torch, dtype)) if stray else model


def _model_class(config: "PreTrainedConfig") -> "type[PreTrainedModel]":
    from transformers.models.auto import modeling_auto

    for task in _ENCODER_DECODERS if config.is_encoder_decoder else _DECODERS:
        found = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING", {}).get(type(config), None)
        if found is not None:
            return found[0] if isinstance(found, tuple) else found
    raise ConfigError(f"transformers has no model that decodes text for model_type {config.model_type}")
