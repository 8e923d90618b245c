"""The model itself asked for its cache: built on the meta device, prefilled, stepped, and its cache read.

No weights and no memory; exact for whatever the installed transformers does, remote code never.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kvviz.errors import ConfigError
from kvviz.memory import LayerMemory, Memory
from kvviz.models import built, hf_config
from kvviz.records import LayerState
from kvviz.snapshot import snapshot


class _MetaAnswers(TorchDispatchMode):
    """Answers the questions that a forward asks of values which a meta tensor does not have.

    A truth value is true, a count is 1, no index is found: enough for a shape to come out, and only shapes are read.
    """

    def __torch_dispatch__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            if name == "_local_scalar_dense":
                return True if args[0].dtype is torch.bool else 1
            if name == "nonzero":
                return torch.empty(0, args[0].dim(), dtype=torch.int64, device="meta")
            if name == "equal":
                return True
        return func(*args, **(kwargs or {}))


def probe(config: dict[str, Any], *, tokens: int, batch: int = 1, dtype: str = "bfloat16", name: str = "") -> Memory:
    """The cache after `tokens` tokens: a prefill of all but one and one step, as transformers keeps it.

    `dtype` is that of weights and cache. Raises ConfigError for a model that can't be built or run this way.
    """
    model, (states, longer) = _run(config, (tokens, tokens + 1), batch, dtype)
    return Memory(
        model=name or str(config.get("model_type")),
        source="transformers, meta device",
        method="probe",
        view="hf-dynamic",
        tokens=tokens,
        batch=batch,
        dtype=dtype,
        layers=tuple(_layer_memory(state) for state in states),
        per_token_bytes=sum(row.nbytes for row in longer) - sum(row.nbytes for row in states),
        weights_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
    )


def _run(
    config: dict[str, Any], lengths: Sequence[int], batch: int, dtype: str
) -> tuple[Any, list[tuple[LayerState, ...]]]:
    """The model, and its cache's layers after each of the given numbers of tokens."""
    try:
        with torch.device("meta"), _MetaAnswers(), torch.inference_mode():
            model = built(hf_config(config), dtype=getattr(torch, dtype), attn_implementation="eager").eval()
            return model, [snapshot(_cache_after(model, tokens, batch)) for tokens in lengths]
    except ConfigError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:160]
        raise ConfigError(f"this model can't be run without weights ({type(error).__name__}: {first})") from error


def _cache_after(model: Any, tokens: int, batch: int) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    for count in (tokens - 1, 1) if tokens > 1 else (1,):
        model(input_ids=torch.zeros(batch, count, dtype=torch.int64), past_key_values=cache, use_cache=True)
    return cache


def _layer_memory(state: LayerState) -> LayerMemory:
    heads, key_dim = (state.key_shape[1], state.key_shape[3]) if state.key_shape else (0, 0)
    return LayerMemory(
        index=state.index,
        kind=state.kind,
        kv_heads=heads,
        key_dim=key_dim,
        value_dim=state.value_shape[3] if state.value_shape else 0,
        window=None,
        seen=state.seen,
        held=state.held,
        key_shape=state.key_shape,
        value_shape=state.value_shape,
        state_bytes=0,
        nbytes=state.nbytes,
        allocated=state.allocated,
    )
