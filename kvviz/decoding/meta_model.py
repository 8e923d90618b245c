"""Build models on the meta device, without weights, and read how many positions their tables hold."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from kvviz.base.errors import ConfigError
from kvviz.decoding.loading import hf_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


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


def built_eager(config: "PreTrainedConfig", dtype: torch.dtype) -> "PreTrainedModel":
    """Build a config's model with eager attention, or only its text part if a library for images is missing."""
    kind = _model_class(config)
    if "shared_kv_states" in inspect.signature(kind.forward).parameters:
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
    """Build a model on the meta device; a few old constructors ignore the default device and dtype."""
    model = built_eager(hf_config(config), getattr(torch, dtype))
    stray = any(not parameter.is_meta for parameter in model.parameters())
    return model.to("meta", getattr(torch, dtype)) if stray else model


def _model_class(config: "PreTrainedConfig") -> "type[PreTrainedModel]":
    from transformers.models.auto import modeling_auto

    for task in _ENCODER_DECODERS if config.is_encoder_decoder else _DECODERS:
        found = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING", {}).get(type(config), None)
        if found is not None:
            return found[0] if isinstance(found, tuple) else found
    raise ConfigError(f"transformers has no model that decodes text for model_type {config.model_type}")
