"""The compiled step of `kernels.py` for a transformer from scratch: where its weights lie, read off its tensors.

No weight is copied: the addresses are those of the model that was loaded, which this keeps alive.
"""

from collections.abc import Sequence

import numpy as np
import torch

from kvviz.decoding.compiled import kernels as k
from kvviz.decoding.compiled.cache import SlotCache
from kvviz.decoding.scratch.design import Design
from kvviz.decoding.scratch.model import Transformer
from kvviz.decoding.scratch.positions import SCALINGS, slopes

_ACTIVATIONS = {"gelu": k.GELU, "gelu_tanh": k.GELU_TANH, "silu": k.SILU}


k.use_threads(torch.get_num_threads())  # has numba start its threads now, before anything is timed


class NativeStep:
    """`step(ids, caches)` is the logits after one more token of each sequence: ids (B, 1) -> (B, vocabulary)."""

    def __init__(self, twin: Transformer) -> None:
        design, self._alive = twin.design, twin
        self._sizes, self._eps = _sizes(design), np.float32(design.eps)
        self._table = np.array([_layer_rows(block) for block in twin.blocks], np.int64)
        self._own = np.array(_own_rows(twin), np.int64)
        self._turns = _turns(design)
        leaning = slopes(design.heads) if design.positions == "alibi" else [0.0] * design.heads
        self._slopes = np.array(leaning, np.float32)
        self._vocab = design.vocab

    def __call__(self, ids: torch.Tensor, caches: Sequence[SlotCache]) -> torch.Tensor:
        past = caches[0].seen
        logits = torch.empty(ids.shape[0], self._vocab)
        k.step(
            ids[:, 0].contiguous().numpy(),
            past,
            self._sizes,
            self._eps,
            self._table,
            self._own,
            np.array([(cache.k.data_ptr(), cache.v.data_ptr()) for cache in caches], np.int64),
            caches[0].max_cache_len,
            self._turns,
            self._slopes,
            k.use_threads(torch.get_num_threads()),
            logits.numpy(),
        )
        for cache in caches:
            cache.seen = past + 1
        return logits


def _sizes(design: Design) -> np.ndarray:
    sizes = np.zeros(k.ACTIVATION + 1, np.int64)
    sizes[k.LAYERS], sizes[k.WIDTH], sizes[k.HEADS] = design.layers, design.width, design.heads
    sizes[k.KV_HEADS], sizes[k.HEAD_DIM] = design.kv_heads, design.head_dim
    sizes[k.MLP], sizes[k.VOCAB], sizes[k.CONTEXT] = design.mlp_width, design.vocab, design.context
    sizes[k.RMS], sizes[k.ROTARY] = design.norm == "rms", design.positions == "rotary"
    sizes[k.QK_NORM], sizes[k.ACTIVATION] = design.qk_norm, _ACTIVATIONS[design.activation]
    return sizes


def _turns(design: Design) -> np.ndarray:
    """RoPE's angles a token, (D/2,), in float32 as `scratch.positions` has them."""
    if design.rope is None:
        return np.zeros(0, np.float32)
    pair = torch.arange(0, design.head_dim, 2).float() / design.head_dim
    return SCALINGS[design.rope.kind](1.0 / design.rope.theta**pair, design.rope).numpy().copy()


def _layer_rows(block: torch.nn.Module) -> list[list[int]]:
    attention, mlp = block.attention, block.mlp
    rows = [[0] * 4 for _ in range(k.PARTS)]
    rows[k.ATTENTION_NORM], rows[k.MLP_NORM] = _row(block.attention_norm), _row(block.mlp_norm)
    rows[k.QUERY], rows[k.KEY], rows[k.VALUE] = _row(attention.query), _row(attention.key), _row(attention.value)
    rows[k.QUERY_NORM], rows[k.KEY_NORM] = _row(attention.query_norm), _row(attention.key_norm)
    rows[k.OUTPUT], rows[k.UP], rows[k.DOWN] = _row(attention.output), _row(mlp.up), _row(mlp.down)
    rows[k.GATE] = _row(getattr(mlp, "gate", None))
    return rows


def _own_rows(twin: Transformer) -> list[list[int]]:
    table = getattr(twin.positions, "table", None)
    return [_row(twin.tokens), _row(table), _row(twin.norm), _row(twin.head)]


def _row(module: torch.nn.Module | None) -> list[int]:
    """Where a module's weight lies, and its bias; nought for what is not there."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if weight is None:
        return [0, 0, 0, 0]
    across = weight.dim() == 2 and weight.stride(1) != 1
    stride = weight.stride(1 if across else 0)
    return [weight.data_ptr(), stride, int(across), bias.data_ptr() if isinstance(bias, torch.Tensor) else 0]
