"""The model itself asked for its cache: built on the meta device, prefilled, stepped, and its cache read.

No weights and no memory; exact for whatever the installed transformers does, remote code never. What a model keeps
on its own modules and not in its cache (RecurrentGemma's recurrent states) is not seen.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.fx.experimental import _config as fx_config
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from kvviz.base.errors import ConfigError
from kvviz.base.precision import precision
from kvviz.base.records import LayerState
from kvviz.decoding.loading import hf_config
from kvviz.decoding.read_cache import layer_states
from kvviz.memory.formula import LayerMemory, Memory
from kvviz.models.config_fields import checked


def probe(
    config: dict[str, Any],
    *,
    tokens: int,
    batch: int = 1,
    dtype: str = "bfloat16",
    name: str = "",
    source_tokens: int | None = None,
) -> Memory:
    """The cache after `tokens` tokens: a prefill of all but one and one step, as transformers keeps it.

    `dtype` is that of weights and cache. An encoder-decoder attends to `source_tokens` positions of its encoder:
    as many as `max_source_positions` says, or else `tokens`. Raises ConfigError for what can't be built or run.
    """
    _check_numbers(tokens, batch, source_tokens)
    dtype = precision(dtype).name
    with _on_meta(), _sentence(config, tokens):
        decoder = _Decoder(_weightless(config, dtype), tokens, batch, source_tokens)
        states, per_token = _measured(decoder, tokens)
    return Memory(
        model=name or str(config.get("model_type")),
        source="transformers, meta device",
        method="probe",
        view="hf-dynamic",
        tokens=tokens,
        batch=batch,
        dtype=dtype,
        layers=tuple(_layer_memory(state, decoder.window(state)) for state in states),
        per_token_bytes=per_token,
        weights_bytes=sum(p.numel() * p.element_size() for p in decoder.model.parameters()),
        source_tokens=decoder.source_tokens if any(state.kind == "cross" for state in states) else None,
        cache_class=type(decoder.cache).__name__,
    )


def forward_flops(
    config: dict[str, Any], *, tokens: int, batch: int = 1, source_tokens: int | None = None
) -> tuple[int | None, int]:
    """FLOPs of a prefill of `tokens` - 1 and of the step after it, as torch's counter sees them.

    The head is computed for the last position only, where the model has that choice; experts are run as one product
    per token and chosen expert. An encoder is left out. No figure for a long prefill of a recurrent model, which would
    be a long loop. Raises ConfigError as `probe` does, for fewer than 2 tokens too.
    """
    _check_numbers(tokens - 1, batch, source_tokens)
    with _on_meta(), _sentence(config, tokens):
        model = _weightless(config, "bfloat16")
        for module in model.modules():
            if hasattr(getattr(module, "config", None), "_experts_implementation"):
                module.config._experts_implementation = "batched_mm"
        decoder = _Decoder(model, tokens, batch, source_tokens, logits_to_keep=1)
        prefilled = _counted(lambda: decoder.prefill(tokens - 1))
        stepped = _counted(decoder.step)
        return None if decoder.shortened else prefilled, stepped


def _counted(act: Callable[[], None]) -> int:
    with FlopCounterMode(display=False) as counter:
        act()
    return counter.get_total_flops()


def position_limit(config: dict[str, Any]) -> int | None:
    """Tokens that a decoder's table of positions has room for; None where it has none, as with rotary positions."""
    with _on_meta(), _sentence(config, 1):
        return min(_table_rows(_own_modules(_weightless(config, "bfloat16"))), default=None)


@contextmanager
def _sentence(config: dict[str, Any], tokens: int) -> Iterator[None]:
    """Whatever a model's own code raises becomes a ConfigError of one sentence."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0][:160]
        asked = f"{config.get('model_type')} can't be run over {tokens} tokens"
        limit = next((name for name in _LIMITS if isinstance(config.get(name), int) and config[name] < tokens), None)
        beyond = f", more than its {limit} of {config[limit]}" if limit else ""
        raise ConfigError(f"{asked}{beyond} ({type(error).__name__}: {said})") from error


# Fields that say how long a context may be, by the names that models give them.
_LIMITS = ("max_seq_len", "max_position_embeddings", "n_positions", "seq_length")


def _check_numbers(tokens: Any, batch: Any, source_tokens: Any) -> None:
    counts = {"tokens": tokens, "batch": batch, "source_tokens": 1 if source_tokens is None else source_tokens}
    for name, value in counts.items():
        checked(name, value)


def _measured(decoder: "_Decoder", tokens: int) -> tuple[tuple[LayerState, ...], int]:
    """The cache's layers after `tokens` tokens, and the bytes that one more token adds.

    Where a model's context ends with them there is no next token: then it is the bytes that the last one added.
    """
    decoder.prefill(tokens - 1)
    before = decoder.states()
    decoder.step()
    states = decoder.states()
    try:
        decoder.step()
    except Exception:  # whatever the model raises there
        return states, _nbytes(states) - _nbytes(before)
    return states, _nbytes(decoder.states()) - _nbytes(states)


def _nbytes(states: Sequence[LayerState]) -> int:
    return sum(state.nbytes for state in states)


@contextmanager
def _on_meta() -> Iterator[None]:
    """Inside, tensors are made without memory, and a forward that asks for values gets an answer."""
    with torch.device("meta"), _MetaAnswers(), torch.no_grad(), fx_config.patch(meta_nonzero_assume_all_nonzero=True):
        yield


class _MetaAnswers(TorchDispatchMode):
    """Answers the questions that a forward asks of values which a meta tensor does not have.

    A truth value is true, a count is 1, no index is found: enough for a shape to come out, and only shapes are read.
    """

    def __torch_dispatch__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in _ANSWERS and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return _ANSWERS[name](func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _scalar(func: Callable, tensor: torch.Tensor) -> bool | int:
    return True if tensor.dtype is torch.bool else 1


def _copy(func: Callable, tensor: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """A copy to the CPU, as `tolist` makes one, is all zeros."""
    if kwargs.get("device") != torch.device("cpu"):
        return func(tensor, **kwargs)
    return torch.zeros(tensor.shape, dtype=kwargs.get("dtype") or tensor.dtype, device="cpu")


def _split(func: Callable, tensor: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> Any:
    """Parts whose sizes came from values, and so are all zero: the first takes everything."""
    return func(tensor, sizes if any(sizes) else [tensor.shape[dim], *sizes[1:]], dim)


def _grouped(func: Callable, left: torch.Tensor, right: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Experts' products, (rows, in) x (experts, in, out), in any precision; the kernel for meta wants bfloat16."""
    return left.new_empty(*left.shape[:-1], right.shape[-1])


_ANSWERS: dict[str, Callable] = {
    "_local_scalar_dense": _scalar,
    "nonzero": lambda func, tensor: torch.empty(0, tensor.dim(), dtype=torch.int64, device="meta"),
    "equal": lambda func, tensor, other: True,
    "_to_copy": _copy,
    "split_with_sizes": _split,
    "_grouped_mm": _grouped,
}


class _Decoder:
    """A model and the cache that it keeps, fed token after token the way transformers' `generate` does."""

    def __init__(self, model: Any, tokens: int, batch: int, source_tokens: int | None, **options: Any) -> None:
        _check_decodes(model)
        _check_length("tokens", tokens, model, _own_modules(model))
        self.model = model
        self.config = model.config.get_text_config(decoder=True)
        self.source_tokens = source_tokens or getattr(model.config, "max_source_positions", None) or tokens
        self._batch, self._options, self.shortened = batch, options, False
        self._takes = inspect.signature(model.forward).parameters
        self._name = next((name for name in _CACHES if name in self._takes), _CACHES[0])
        self._source = self._encoded() if "encoder_outputs" in self._takes and model.config.is_encoder_decoder else {}
        self._start()

    def _start(self) -> None:
        """An empty cache, as `generate` makes it, be it used or not; None where the model makes its own."""
        from transformers import DynamicCache

        takes_one = getattr(self.model, "_supports_default_dynamic_cache", lambda: True)()
        own = self.model.config.is_encoder_decoder or not takes_one
        self.cache = None if own else DynamicCache(config=self.config)
        self._seen = 0

    def states(self) -> tuple[LayerState, ...]:
        """The cache's layers as they are now; those that read another layer's keys and values are `shared`."""
        modes = getattr(self.config, "kv_sharing_modes", None) or ()
        shared = {index for index, mode in enumerate(modes) if mode == "reuse"}
        rows = layer_states(_by_layer(self.cache, self.config), seen=self._seen)
        return tuple(replace(row, kind="shared") if row.kind == "none" and row.index in shared else row for row in rows)

    def window(self, state: LayerState) -> int | None:
        """The tokens that a layer's attention can reach, where its cache layer has a window."""
        own = getattr(self.cache, "self_attention_cache", self.cache)
        layers = getattr(own, "layers", ()) if state.kind != "cross" else ()
        return getattr(layers[state.index], "sliding_window", None) if state.index < len(layers) else None

    def prefill(self, count: int) -> None:
        """`count` tokens at once, if any; of those that a loop would feed, most are appended to their layers."""
        short = min(count, _SHORT) if self._loops() else count
        if short:
            self._feed(short)
        if count > short:
            self.shortened = True
            for layer in getattr(self.cache, "layers", ()):
                _append(layer, count - short)
            self._seen += count - short

    def step(self) -> None:
        """One more token; to a model that can't be stepped, all of them again."""
        if self.config.model_type not in _UNSTEPPED:
            return self._feed(1)
        seen = self._seen
        self._start()
        return self._feed(seen + 1)

    def _feed(self, count: int) -> None:
        """One forward over `count` new tokens; the cache is the one that it returns, or else the one it was given."""
        self._seen += count
        offered = {"use_cache": True, **self._options, **({} if self.cache is None else {self._name: self.cache})}
        asked = {"use_cache", self._name} if "kwargs" in self._takes else set()
        given = {name: value for name, value in offered.items() if name in self._takes or name in asked}
        out = self.model(**self._ids(count), **self._source, **given)
        self.cache = self.cache if out.get(self._name) is None else out[self._name]

    def _ids(self, count: int) -> dict[str, torch.Tensor]:
        """Token ids, (B, count) but for decoders of several codebooks."""
        count = self._seen if self.config.model_type in _WHOLE else count
        shape = _CODEBOOKS.get(self.config.model_type, lambda config, batch, count: (batch, count))
        name = "decoder_input_ids" if self.model.config.is_encoder_decoder else "input_ids"
        return {name: torch.zeros(shape(self.config, self._batch, count), dtype=torch.int64)}

    def _encoded(self) -> dict[str, Any]:
        """What an encoder would hand over, (B, source tokens, its hidden size), without running it."""
        from transformers.modeling_outputs import BaseModelOutput

        encoder = self.model.get_encoder()
        _check_length("source_tokens", self.source_tokens, self.model, encoder.modules())
        hidden = getattr(encoder, "config", self.model.config).get_text_config().hidden_size
        output = BaseModelOutput(torch.empty(self._batch, self.source_tokens, hidden, dtype=self.model.dtype))
        output.attention_mask = output.router_logits = None  # what some encoders hand over too
        return {"encoder_outputs": output}

    def _loops(self) -> bool:
        """Whether layers keep a recurrent state, so that a long prefill would be a long loop."""
        layers = getattr(self.cache, "layers", ())
        return self.config.model_type in _LOOPING or any(hasattr(layer, "update_conv_state") for layer in layers)


# The names by which models take and return their cache; transformers' own list of them is ALL_CACHE_NAMES.
_CACHES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")
# Of a long prompt, decoders with a recurrent state are fed so many tokens, since many loop over them in Python.
_SHORT = 64
# Such decoders that make their cache themselves, so that it can't be asked before the first forward.
_LOOPING = ("minimax", "rwkv", "xlstm")
# Decoders whose step looks for the cached tokens with the new one's hash: values, which a meta tensor does not have.
_UNSTEPPED = ("reformer",)
# Decoders whose forward cuts off what is cached by itself: they are given the whole sequence at every step.
_WHOLE = ("cpmant",)
# Decoders that take ids for each codebook, and the shape of those.
_CODEBOOKS: dict[str, Callable[[Any, int, int], tuple[int, ...]]] = {
    "musicgen_decoder": lambda config, batch, count: (batch * config.num_codebooks, count),
    "musicgen_melody_decoder": lambda config, batch, count: (batch * config.num_codebooks, count),
    "dia_decoder": lambda config, batch, count: (batch, count, config.num_channels),
}


def _append(layer: Any, count: int) -> None:
    """`count` more tokens for a layer, by its own methods; a recurrent state stays as it is."""
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if keys is not None and keys.dim() == 4:
        layer.update(*(t[:, :, -1:].expand(-1, -1, count, -1) for t in (keys, values)))
    if getattr(layer, "indexer_keys", None) is not None:
        layer.update_indexer(layer.indexer_keys[:, -1:].expand(-1, count, -1))
    if getattr(layer, "indexer_position_ids", None) is not None:
        positions = layer.indexer_position_ids
        layer.indexer_position_ids = torch.cat([positions, positions[..., -1:].expand(-1, -1, count)], dim=-1)


def _by_layer(cache: Any, config: Any) -> Any:
    """A cache that is a bare list of tensors as one item a layer; any other as it is."""
    if config.model_type == "rwkv" and cache is not None:  # five of (B, hidden, layers)
        return [[tensor[:, :, index] for tensor in cache] for index in range(config.num_hidden_layers)]
    if config.model_type == "xlnet" and cache is not None:  # hidden states (T, B, d_model), not yet keys and values
        return [{"keys": states.transpose(0, 1)[:, None]} for states in cache]
    return cache


def _own_modules(model: Any) -> list[Any]:
    """The modules of a model's decoder: all but those of an encoder, be it of text, images or sound."""
    others = set(model.get_encoder().modules()) if model.config.is_encoder_decoder else set()
    senses = ("vision", "visual", "image", "audio")
    named = model.named_modules()
    return [module for name, module in named if module not in others and not any(sense in name for sense in senses)]


def _check_decodes(model: Any) -> None:
    """Raise ConfigError for a model whose attention looks both ways: what it caches would be of no use."""
    config = model.config
    says = getattr(config, "is_decoder", None) is False and not config.is_encoder_decoder  # some decoders say so too
    if says and any(getattr(module, "is_decoder", None) is False for module in model.modules()):
        raise ConfigError(f"is_decoder is not true, so this {config.model_type} is an encoder, which keeps no KV cache")


# What models call their tables of positions, learned or worked out once: a step beyond such a table fails.
_TABLES = (
    "embed_positions",
    "pos_emb",
    "pos_encoding",
    "position_embeddings",
    "positional_embedding",
    "positions_embed",
    "wpe",
)


def _table_rows(modules: Iterable[Any]) -> Iterator[int]:
    """How many positions each table has room for that is a direct part of one of the modules."""
    for module in modules:
        for name, table in module.named_children():
            if name in _TABLES and isinstance(table, torch.nn.Embedding) and not hasattr(table, "make_weight"):
                padding = 0 if table.padding_idx is None else table.padding_idx + 1
                yield table.num_embeddings - getattr(table, "offset", padding)  # the first rows are for padding
        for name, buffer in module.named_buffers(recurse=False):
            if name in _TABLES and buffer.dim() == 2:
                yield buffer.shape[0]


def _check_length(name: str, count: int, model: Any, modules: Iterable[Any]) -> None:
    """Raise ConfigError where a table of positions ends before `count`: the meta device would not notice."""
    limit = min(_table_rows(modules), default=count)
    if count > limit:
        raise ConfigError(f"{name} is {count}, but {_limit_field(model.config, limit)} gives it {limit} positions")


def _limit_field(config: Any, limit: int) -> str:
    """The field of a config that says how many positions there are; some count a few rows for padding too."""
    fields = {**config.to_dict(), **config.get_text_config(decoder=True).to_dict()}
    near = [name for name, value in fields.items() if "pos" in name and value in range(limit, limit + 3)]
    return near[0] if near else f"the table of {config.model_type}"


# transformers' mappings from a config's class to a model, in the order in which they are asked.
_DECODERS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
_ENCODER_DECODERS = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "TEXT_TO_WAVEFORM", *_DECODERS)


def _built(config: Any, dtype: torch.dtype) -> Any:
    """The model that a config describes, in eager attention; where it lacks a library for images, its text part."""
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
        return _built(text, dtype)
    return model.eval()


def _weightless(config: dict[str, Any], dtype: str) -> Any:
    """The model on the meta device; parameters of a few old constructors know neither its context nor the precision."""
    model = _built(hf_config(config), getattr(torch, dtype))
    stray = any(not parameter.is_meta for parameter in model.parameters())
    return model.to("meta", getattr(torch, dtype)) if stray else model


def _model_class(config: Any) -> Any:
    from transformers.models.auto import modeling_auto

    for task in _ENCODER_DECODERS if config.is_encoder_decoder else _DECODERS:
        found = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING", {}).get(type(config), None)
        if found is not None:
            return found[0] if isinstance(found, tuple) else found
    raise ConfigError(f"transformers has no model that decodes text for model_type {config.model_type}")


def _layer_memory(state: LayerState, window: int | None) -> LayerMemory:
    heads, key_dim = (state.key_shape[1], state.key_shape[3]) if state.key_shape else (0, 0)
    return LayerMemory(
        index=state.index,
        kind=state.kind,
        kv_heads=heads,
        key_dim=key_dim,
        value_dim=state.value_shape[3] if state.value_shape else 0,
        window=window,
        seen=state.seen,
        held=state.held,
        key_shape=state.key_shape,
        value_shape=state.value_shape,
        state_bytes=state.state_bytes,
        nbytes=state.nbytes,
        allocated=state.allocated,
    )
