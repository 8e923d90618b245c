"""Read the size of a cache from the model itself: build it on the meta device, prefill, step, read the cache.

This needs no weights and no memory, and is exact for the installed transformers. Remote code never runs. State that a
model keeps on its own modules instead of its cache (RecurrentGemma's recurrent states) is not counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kvviz.base.errors import ConfigError, in_a_line
from kvviz.base.precision import precision
from kvviz.base.records import LayerState
from kvviz.decoding.meta_decoder import Decoder
from kvviz.decoding.meta_model import on_meta, own_modules, table_rows, weightless
from kvviz.memory.formula import LayerMemory, Memory
from kvviz.models.config_fields import checked


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
    dtype = precision(dtype).name
    with on_meta(), in_one_sentence(config, tokens):
        decoder = Decoder(weightless(config, dtype), tokens, batch, source_tokens)
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


def position_limit(config: Mapping[str, object]) -> int | None:
    """Number of rows in a decoder's position table; None without such a table, as with rotary positions."""
    with on_meta(), in_one_sentence(config, 1):
        return min(table_rows(own_modules(weightless(config, "bfloat16"))), default=None)


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


def _measured(decoder: Decoder, tokens: int) -> tuple[tuple[LayerState, ...], int]:
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
