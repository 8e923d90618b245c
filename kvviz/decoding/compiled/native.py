"""The compiled step of `kernels.c` on the weights of a loaded model: it reads their addresses and keeps them alive."""

import ctypes
import sys
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from kvviz.decoding.compiled.machine_code import kernels
from kvviz.decoding.compiled.reader import one_product
from kvviz.decoding.scratch.cache import SlotCache
from kvviz.decoding.scratch.design import Design
from kvviz.decoding.scratch.model import Block, GatedMLP, Transformer
from kvviz.decoding.scratch.positions import Learned, radians_per_token, slopes

_ACTIVATIONS = "gelu", "gelu_tanh", "silu"  # in the order of kernels.c
# Numbers of weights that are worth a thread. Threads wait for one another five times a layer: two made a small model's
# step of 60 microseconds a sixth shorter, but 300 times as long on a machine whose cores were taken by other work.
LEAST = 2**20
FEW = 128  # tokens of several sequences that one thread reads sooner than torch's two, of a small model
LINE = 16  # numbers of a cache line: a vector that begins at one is read at once
_REFUSED = {1: "there is no place for another token", 2: "a token's id is outside of the vocabulary"}


class _Model(ctypes.Structure):
    """`struct model` of kernels.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("layers", "width", "heads", "kv_heads", "head_dim", "mlp", "vocab")),
        *((name, ctypes.c_int64) for name in ("context", "rms", "rotary", "qk_norm", "joined", "activation")),
        ("eps", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("layer", "own", "turns", "slopes")),
    ]


class _Call(ctypes.Structure):
    """`struct call` of kernels.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("model", "caches", "ids", "likeliest", "logits", "room")),
        *((name, ctypes.c_int64) for name in ("past", "slots", "batch", "tokens", "threads", "parts", "arrived")),
    ]


class Weights:
    """A model's part of a call: `model` points to the rows of its layers (`table`) and of its `own` weights.

    A step reads `read` numbers: all but the table of tokens.
    """

    def __init__(self, twin: Transformer) -> None:
        design = twin.design
        blocks = [block for block in twin.blocks if isinstance(block, Block)]
        places = twin.positions.table if isinstance(twin.positions, Learned) else None
        self.table = np.array([_layer_rows(block) for block in blocks], np.int64)
        if twin.head.weight.stride(1) != 1:  # the kernels have no room for the sums of such a head's threads
            raise RuntimeError("the output layer's weight lies transposed in memory")
        self.own = np.array([_address(part) for part in (twin.tokens, places, twin.norm, twin.head)], np.int64)
        leaning = slopes(design.heads) if design.positions == "alibi" else [0.0] * design.heads
        self._turns, self._slopes = radians_per_token(design).numpy().copy(), np.array(leaning, np.float32)
        self.read = sum(w.numel() for w in twin.state_dict().values()) - twin.tokens.weight.numel()
        self.model = _Model(**_sizes(design, blocks), eps=design.eps)
        pointed = self.table, self.own, self._turns, self._slopes
        self.model.layer, self.model.own, self.model.turns, self.model.slopes = map(_at, pointed)


_weights: "WeakKeyDictionary[Transformer, Weights]" = WeakKeyDictionary()


class NativeStep:
    """`step(ids, caches)` computes the logits after more tokens of each sequence: ids (B, T) -> (B, vocabulary).

    It writes into the `caches` that it is made for. `most` is how many tokens, of all sequences together, it reads at
    once sooner than torch does. `likeliest` (B,) are the tokens that `greedy` chooses from the logits of the last call.
    """

    def __init__(self, twin: Transformer, caches: Sequence[SlotCache]) -> None:
        if twin not in _weights:
            _weights[twin] = Weights(twin)
        self.weights = _weights[twin]
        kept = np.array([(cache.k.data_ptr(), cache.v.data_ptr()) for cache in caches], np.int64)
        batch, model, self._kernels = caches[0].k.shape[0], ctypes.addressof(self.weights.model), kernels()
        threads = max(1, min(torch.get_num_threads(), self.weights.read // LEAST))
        most = sys.maxsize if batch == 1 else FEW  # several threads read parts of one sequence's tokens
        self.most = most if self.weights.read < 2 * LEAST else 0
        size = {"slots": caches[0].max_cache_len, "batch": batch}
        call = _Call(model, _at(kept), **size, threads=threads, parts=torch.get_num_threads())
        self._alive, self._call, self._address = (twin, kept), call, ctypes.addressof(call)
        self._shape = batch, twin.design.vocab
        self._room = np.empty(0, np.float32)  # a tensor would count as the run's
        self._make_room(1)

    def _make_room(self, tokens: int) -> None:
        """Get ready to read so many tokens of each sequence at once."""
        self._call.tokens = tokens
        size = self._kernels.room(self._address) + LINE
        if size > self._room.size:
            self._room = np.empty(size, np.float32)
            self._call.room = -(-_at(self._room) // (4 * LINE)) * 4 * LINE

    def __call__(self, ids: torch.Tensor, caches: Sequence[SlotCache]) -> torch.Tensor:
        ids, logits, call = ids.contiguous(), torch.empty(self._shape), self._call
        self.likeliest = torch.empty(self._shape[0], dtype=torch.int64)
        if ids.shape[1] != call.tokens:
            self._make_room(ids.shape[1])
        call.ids, call.logits, call.past = ids.data_ptr(), logits.data_ptr(), caches[0].seen
        call.likeliest = self.likeliest.data_ptr()
        if refused := self._kernels.step(self._address):
            raise IndexError(_REFUSED[refused])
        seen = call.past + call.tokens
        for cache in caches:
            cache.seen = seen
        return logits


def _at(array: "NDArray[Any]") -> int:
    return int(array.ctypes.data)


def _sizes(design: Design, blocks: Sequence[Block]) -> dict[str, int]:
    """The numbers at the head of `struct model`, by name."""
    return {
        "layers": design.layers,
        "width": design.width,
        "heads": design.heads,
        "kv_heads": design.kv_heads,
        "head_dim": design.head_dim,
        "mlp": design.mlp_width,
        "vocab": design.vocab,
        "context": design.context,
        "rms": design.norm == "rms",
        "rotary": design.positions == "rotary",
        "qk_norm": design.qk_norm,
        "joined": all(map(_is_joined, blocks)),
        "activation": _ACTIVATIONS.index(design.activation),
    }


def _is_joined(block: Block) -> bool:
    """Whether a layer's query, key and value lie in memory as one product."""
    attention = block.attention
    weight, _ = one_product((attention.query, attention.key, attention.value))
    return weight is not None


def _layer_rows(block: Block) -> list[list[int]]:
    """A layer's rows, in the order of `struct layer`."""
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
