"""Read the size of a cache from the model itself: build it on the meta device, prefill, step, read the cache.

This needs no weights and no memory, and is exact for the installed transformers. Remote code never runs. State that a
model keeps on its own modules instead of its cache (RecurrentGemma's recurrent states) is not counted.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from kvviz.base.errors import ConfigError, in_a_line
from kvviz.base.precision import precision
from kvviz.base.records import LayerState
from kvviz.decoding.loading import hf_config
from kvviz.decoding.meta_model import (
    check_decodes,
    check_length,
    drafts,
    on_meta,
    own_modules,
    table_rows,
    weightless,
)
from kvviz.decoding.read_cache import layer_states
from kvviz.memory.formula import LayerMemory, Memory
from kvviz.models.config_fields import checked

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def probe(
    config: Mapping[str, object],
    *,
    tokens: int,
    batch: int = 1,
    dtype: str = "bfloat16",
    name: str = "",
    source_tokens: int | None = None,
) -> Memory:
    """Find the cache after `tokens` tokens (a prefill of all but one, then one step), as transformers keeps it.

    `dtype` is that of weights and cache. An encoder-decoder attends to `source_tokens` positions of its encoder; the
    default is `max_source_positions`, or else `tokens`. Raises ConfigError for a model that can't be built or run.
    """
    checked("tokens", tokens)
    checked("batch", batch)
    if source_tokens is not None:
        checked("source_tokens", source_tokens)
    empty = Memory(
        model=name or str(config.get("model_type")),
        source="transformers, meta device",
        method="probe",
        view="hf-dynamic",
        tokens=tokens,
        batch=batch,
        dtype=precision(dtype).name,
        layers=(),
        per_token_bytes=0,
    )
    with on_meta(), in_one_sentence(config, tokens):
        known = hf_config(config)
        if drafts(known):
            depth = known.get_text_config().num_hidden_layers
            return replace(empty, layers=tuple(_layer_memory(_shared(i, tokens), None) for i in range(depth)))
        decoder = Decoder(weightless(config, empty.dtype), tokens, batch, source_tokens)
        states, per_token = _measured(decoder, tokens)
    return replace(
        empty,
        layers=tuple(_layer_memory(state, decoder.window(state)) for state in states),
        per_token_bytes=per_token,
        weights_bytes=sum(p.numel() * p.element_size() for p in decoder.model.parameters()),
        source_tokens=decoder.source_tokens if any(state.kind == "cross" for state in states) else None,
        cache_class=type(decoder.cache).__name__,
    )


def position_limit(config: Mapping[str, object]) -> int | None:
    """Number of rows in a decoder's position table; None without such a table, as with rotary positions."""
    with on_meta(), in_one_sentence(config, 1):
        if drafts(hf_config(config)):
            return None
        return min(table_rows(own_modules(weightless(config, "bfloat16"))), default=None)


def _shared(index: int, seen: int) -> LayerState:
    """The row of a layer that reads another's keys and values and keeps none."""
    return LayerState(index, "shared", (), (), "", seen=seen, held=0, nbytes=0, allocated=0, state_bytes=0)


@contextmanager
def in_one_sentence(config: Mapping[str, object], tokens: int) -> Iterator[None]:
    """Turn any error of a model's own code into a ConfigError of one sentence."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        asked = f"{config.get('model_type')} can't be run over {tokens} tokens"
        limits = ((name, config.get(name)) for name in _LIMITS)
        exceeded = ((name, limit) for name, limit in limits if isinstance(limit, int) and limit < tokens)
        beyond = next((f", more than its {name} of {limit}" for name, limit in exceeded), "")
        raise ConfigError(f"{asked}{beyond} ({in_a_line(error)})") from error


# Models' names for the field with the maximum context.
_LIMITS = ("max_seq_len", "max_position_embeddings", "n_positions", "seq_length")


def _measured(decoder: "Decoder", tokens: int) -> tuple[tuple[LayerState, ...], int]:
    """Read the cache's layers after `tokens` tokens, and the bytes that one more token adds.

    If the context is full and the model can take no more tokens, the bytes are those that the last token added.
    """
    decoder.prefill(tokens - 1)
    before = decoder.states()
    decoder.step()
    states = decoder.states()
    try:
        decoder.step()
    except Exception:  # a model can raise anything beyond its context
        return states, _nbytes(states) - _nbytes(before)
    return states, _nbytes(decoder.states()) - _nbytes(states)


def _nbytes(states: Sequence[LayerState]) -> int:
    return sum(state.nbytes for state in states)


def _layer_memory(state: LayerState, window: int | None) -> LayerMemory:
    heads, key_dim = (state.key_shape[1], state.key_shape[3]) if state.key_shape else (0, 0)
    value_dim = state.value_shape[3] if state.value_shape else 0
    same = {name: value for name, value in vars(state).items() if name != "dtype"}
    return LayerMemory(**same, kv_heads=heads, key_dim=key_dim, value_dim=value_dim, window=window)


class Decoder:
    """A model and its cache, fed as `generate` does. `shortened`: part of a long prefill was appended unrun."""

    def __init__(
        self, model: "PreTrainedModel", tokens: int, batch: int, source_tokens: int | None, **options: object
    ) -> None:
        check_decodes(model)
        check_length("tokens", tokens, model, own_modules(model))
        self.model = model
        self.config = model.config.get_text_config(decoder=True)
        self.source_tokens = source_tokens or getattr(model.config, "max_source_positions", None) or tokens
        self._batch, self._options, self.shortened = batch, options, False
        self._takes = inspect.signature(model.forward).parameters
        self._name = next((name for name in CACHES if name in self._takes), CACHES[0])
        self._source = self._encoded() if "encoder_outputs" in self._takes and model.config.is_encoder_decoder else {}
        self._start()

    def _start(self) -> None:
        """Make an empty cache, as `generate` does; None for a model that makes its own."""
        from transformers import DynamicCache

        takes_one = getattr(self.model, "_supports_default_dynamic_cache", lambda: True)()
        own = self.model.config.is_encoder_decoder or not takes_one
        self.cache: Any = None if own else DynamicCache(config=self.config)  # its class depends on the model
        self._seen = 0

    def states(self) -> tuple[LayerState, ...]:
        """Read the cache's layers in their current state; a layer that reads another's keys and values is `shared`."""
        modes = getattr(self.config, "kv_sharing_modes", None) or ()
        shared = {index for index, mode in enumerate(modes) if mode == "reuse"}
        rows = layer_states(by_layer(self.cache, self.config), seen=self._seen)
        return tuple(replace(row, kind="shared") if row.kind == "none" and row.index in shared else row for row in rows)

    def window(self, state: LayerState) -> int | None:
        """Window of a layer's cache in tokens; None for a layer without a window."""
        own = getattr(self.cache, "self_attention_cache", self.cache)
        layers = getattr(own, "layers", ()) if state.kind != "cross" else ()
        return getattr(layers[state.index], "sliding_window", None) if state.index < len(layers) else None

    def prefill(self, count: int) -> None:
        """Feed `count` tokens at once; a model that would loop over them gets a few and appends the rest."""
        short = min(count, _SHORT) if self._loops() else count
        if short:
            self._feed(short)
        if count > short:
            self.shortened = True
            for layer in getattr(self.cache, "layers", ()):
                _append(layer, count - short)
            self._seen += count - short

    def step(self) -> None:
        """Feed one more token; a model that can't be stepped gets all tokens again."""
        if self.config.model_type not in _UNSTEPPED:
            return self._feed(1)
        seen = self._seen
        self._start()
        return self._feed(seen + 1)

    def _feed(self, count: int) -> None:
        """Run one forward over `count` new tokens; keep the cache it returns, or else the one it was given."""
        self._seen += count
        offered = {"use_cache": True, **self._options, **({} if self.cache is None else {self._name: self.cache})}
        asked = {"use_cache", self._name} if "kwargs" in self._takes else set()
        given = {name: value for name, value in offered.items() if name in self._takes or name in asked}
        out = self.model(**self._ids(count), **self._source, **given)
        self.cache = self.cache if out.get(self._name) is None else out[self._name]

    def _ids(self, count: int) -> dict[str, torch.Tensor]:
        """Make token ids (B, count); decoders with several codebooks take other shapes."""
        count = self._seen if self.config.model_type in _WHOLE else count
        shape = _CODEBOOKS.get(self.config.model_type, lambda config, batch, count: (batch, count))
        name = "decoder_input_ids" if self.model.config.is_encoder_decoder else "input_ids"
        return {name: torch.zeros(shape(self.config, self._batch, count), dtype=torch.int64)}

    def _encoded(self) -> dict[str, object]:
        """Make an encoder's output (B, source tokens, hidden size of the encoder) without running it."""
        from transformers.modeling_outputs import BaseModelOutput

        encoder = self.model.get_encoder()
        check_length("source_tokens", self.source_tokens, self.model, encoder.modules())
        hidden = getattr(encoder, "config", self.model.config).get_text_config().hidden_size
        output = BaseModelOutput(torch.empty(self._batch, self.source_tokens, hidden, dtype=self.model.dtype))
        output.attention_mask = output.router_logits = None  # some encoders return these too
        return {"encoder_outputs": output}

    def _loops(self) -> bool:
        """Whether layers keep a recurrent state, so that a long prefill would be a long Python loop."""
        layers = getattr(self.cache, "layers", ())
        return self.config.model_type in _LOOPING or any(hasattr(layer, "update_conv_state") for layer in layers)


# Names of the argument and output that hold a model's cache; transformers' own list is ALL_CACHE_NAMES.
CACHES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")
# Tokens of a long prompt that a decoder with a recurrent state is fed, because many loop over tokens in Python.
_SHORT = 64
# Recurrent decoders that make their cache themselves, so that it can't be inspected before the first forward.
_LOOPING = ("minimax", "rwkv", "xlstm")
# Decoders whose step compares hash values of tokens; a meta tensor has no values.
_UNSTEPPED = ("reformer",)
# Decoders whose forward drops the cached tokens itself, so that they need the whole sequence at every step.
_WHOLE = ("cpmant",)
# Decoders that take ids for each codebook, with the shape of those ids.
_CODEBOOKS: dict[str, Callable[["PreTrainedConfig", int, int], tuple[int, ...]]] = {
    "musicgen_decoder": lambda config, batch, count: (batch * config.num_codebooks, count),
    "musicgen_melody_decoder": lambda config, batch, count: (batch * config.num_codebooks, count),
    "dia_decoder": lambda config, batch, count: (batch, count, config.num_channels),
}


def _append(layer: Any, count: int) -> None:
    """Append `count` tokens to a layer by its own methods; a recurrent state does not change."""
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if keys is not None and values is not None and keys.dim() == 4:
        layer.update(*(t[:, :, -1:].expand(-1, -1, count, -1) for t in (keys, values)))
    if getattr(layer, "indexer_keys", None) is not None:
        layer.update_indexer(layer.indexer_keys[:, -1:].expand(-1, count, -1))
    if getattr(layer, "indexer_position_ids", None) is not None:
        positions = layer.indexer_position_ids
        layer.indexer_position_ids = torch.cat([positions, positions[..., -1:].expand(-1, -1, count)], dim=-1)


def by_layer(cache: Any, config: "PreTrainedConfig") -> object:
    """Rearrange a cache that is a bare list of tensors into one item per layer; return any other cache unchanged."""
    if config.model_type == "rwkv" and cache is not None:  # five tensors of (B, hidden, layers)
        return [[tensor[:, :, index] for tensor in cache] for index in range(config.num_hidden_layers)]
    if config.model_type == "xlnet" and cache is not None:  # hidden states (T, B, d_model) instead of keys and values
        return [{"keys": states.transpose(0, 1)[:, None]} for states in cache]
    return cache
