"""The compiled step of `kernels.py` on the weights of a loaded model: it reads their addresses and keeps them alive."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from kvviz.decoding.compiled.ahead import one_at_a_time
from kvviz.decoding.compiled.reader import one_product
from kvviz.decoding.scratch.cache import SlotCache
from kvviz.decoding.scratch.design import Design
from kvviz.decoding.scratch.model import Block, GatedMLP, Transformer
from kvviz.decoding.scratch.positions import Learned, radians_per_token, slopes

with one_at_a_time():  # the import compiles, unless an earlier one has
    from kvviz.decoding.compiled import kernels as k

_ACTIVATIONS = {"gelu": k.GELU, "gelu_tanh": k.GELU_TANH, "silu": k.SILU}

k.use_threads(torch.get_num_threads())  # has numba start its threads now, before anything is timed


class NativeStep:
    """`step(ids, caches)` computes the logits after one more token a sequence: ids (B, 1) -> (B, vocabulary)."""

    def __init__(self, twin: Transformer) -> None:
        design, self._alive = twin.design, twin
        self._sizes, self._eps = _sizes(design), np.float32(design.eps)
        blocks = [block for block in twin.blocks if isinstance(block, Block)]
        self._sizes[k.JOINED] = all(map(_is_joined, blocks))
        self._table = np.array([_layer_rows(block) for block in blocks], np.int64)
        places = twin.positions.table if isinstance(twin.positions, Learned) else None
        self._own = np.array([_address(part) for part in (twin.tokens, places, twin.norm, twin.head)], np.int64)
        self._turns = radians_per_token(design).numpy().copy()  # the tensor itself would count as kept by the run
        leaning = slopes(design.heads) if design.positions == "alibi" else [0.0] * design.heads
        self._slopes = np.array(leaning, np.float32)
        self._vocab = design.vocab

    def __call__(self, ids: torch.Tensor, caches: Sequence[SlotCache]) -> torch.Tensor:
        past = caches[0].seen
        tokens, logits = ids[:, 0].contiguous().numpy(), torch.empty(ids.shape[0], self._vocab)
        kept = np.array([(cache.k.data_ptr(), cache.v.data_ptr()) for cache in caches], np.int64)
        threads, model = k.use_threads(torch.get_num_threads()), (self._sizes, self._eps, self._table, self._own)
        places = caches[0].max_cache_len, self._turns, self._slopes
        k.step(tokens, past, *model, kept, *places, threads, logits.numpy())
        for cache in caches:
            cache.seen = past + 1
        return logits


def _sizes(design: Design) -> NDArray[np.int64]:
    sizes = np.zeros(k.ACTIVATION + 1, np.int64)
    sizes[k.LAYERS], sizes[k.WIDTH], sizes[k.HEADS] = design.layers, design.width, design.heads
    sizes[k.KV_HEADS], sizes[k.HEAD_DIM] = design.kv_heads, design.head_dim
    sizes[k.MLP], sizes[k.VOCAB], sizes[k.CONTEXT] = design.mlp_width, design.vocab, design.context
    sizes[k.RMS], sizes[k.ROTARY] = design.norm == "rms", design.positions == "rotary"
    sizes[k.QK_NORM], sizes[k.ACTIVATION] = design.qk_norm, _ACTIVATIONS[design.activation]
    return sizes


def _is_joined(block: Block) -> bool:
    """Whether a layer's query, key and value lie in memory as one product."""
    attention = block.attention
    weight, _ = one_product((attention.query, attention.key, attention.value))
    return weight is not None


def _layer_rows(block: Block) -> list[list[int]]:
    """A layer's rows, in the order of their names in `kernels`."""
    attention, mlp = block.attention, block.mlp
    products = attention.query, attention.key, attention.value
    norms = attention.query_norm, attention.key_norm
    gate = mlp.gate if isinstance(mlp, GatedMLP) else None
    parts = block.attention_norm, *products, *norms, attention.output, block.mlp_norm, mlp.up, gate, mlp.down
    return [_address(part) for part in parts]


def _address(module: torch.nn.Module | None) -> list[int]:
    """Where a module's weight and bias lie; 0 for a missing one."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if weight is None:
        return [0, 0, 0, 0]
    across = weight.dim() == 2 and weight.stride(1) != 1
    stride = weight.stride(1 if across else 0)
    return [weight.data_ptr(), stride, int(across), bias.data_ptr() if isinstance(bias, torch.Tensor) else 0]
