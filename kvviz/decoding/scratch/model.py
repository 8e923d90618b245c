"""The whole decoder, from a design: token ids in, logits out, with or without a cache for each layer."""

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvviz.decoding.scratch.attention import Attention, Mask, causal
from kvviz.decoding.scratch.cache import Cache, LayerCache
from kvviz.decoding.scratch.design import Design
from kvviz.decoding.scratch.parts import norm_of
from kvviz.decoding.scratch.positions import SCHEMES, Encoding

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class MLP(nn.Module):
    """Widen, activate, narrow: each token for itself."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[design.activation]
        self.up = nn.Linear(design.width, design.mlp_width, bias=design.mlp_bias)
        self.down = nn.Linear(design.mlp_width, design.width, bias=design.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))  # (B, T, W)


class GatedMLP(MLP):
    """The same with a gate; with SiLU it is SwiGLU. https://arxiv.org/abs/2002.05202"""

    def __init__(self, design: Design) -> None:
        super().__init__(design)
        self.gate = nn.Linear(design.width, design.mlp_width, bias=design.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))  # (B, T, W)


class Block(nn.Module):
    """One layer: attention mixes the tokens, then the MLP works on each; both only add to what was there."""

    def __init__(self, design: Design, attention: type[Attention] = Attention) -> None:
        super().__init__()
        self.attention_norm = norm_of(design, design.width)
        self.attention = attention(design)
        self.mlp_norm = norm_of(design, design.width)
        self.mlp = GatedMLP(design) if design.gated else MLP(design)

    def forward(self, x: Tensor, encoding: Encoding, cache: Cache | None, mask: Mask) -> Tensor:
        x = x + self.attention(self.attention_norm(x), encoding, cache, mask)  # (B, T, W)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, W)


class Transformer(nn.Module):
    """A decoder. `caches` has one Cache for each layer, which every forward extends; None keeps nothing.

    By default the positions `at` (T,) of the new tokens continue those in the caches, and `mask` is causal. The head
    of a tied design has the weights of the table of tokens.
    """

    def __init__(self, design: Design, attention: type[Attention] = Attention) -> None:
        super().__init__()
        self.design = design
        self.tokens = nn.Embedding(design.vocab, design.width)
        self.positions = SCHEMES[design.positions](design)
        self.blocks = nn.ModuleList(Block(design, attention) for _ in range(design.layers))
        self.norm = norm_of(design, design.width)
        self.head = nn.Linear(design.width, design.vocab, bias=False)

    def new_caches(self) -> list[LayerCache]:
        """Make an empty cache for each layer."""
        return [LayerCache() for _ in self.blocks]

    def forward(
        self, ids: Tensor, caches: Sequence[Cache] | None = None, *, at: Tensor | None = None, mask: Mask = causal
    ) -> Tensor:
        """Compute the logits of every new token: (B, T) -> (B, T, vocabulary)."""
        return self.head(self.read(ids, caches, at=at, mask=mask))

    def last_logits(
        self, ids: Tensor, caches: Sequence[Cache] | None = None, *, at: Tensor | None = None, mask: Mask = causal
    ) -> Tensor:
        """Compute the logits of the last position alone, all that a decode needs: (B, T) -> (B, vocabulary)."""
        return self.head(self.read(ids, caches, at=at, mask=mask)[:, -1])

    def read(
        self, ids: Tensor, caches: Sequence[Cache] | None = None, *, at: Tensor | None = None, mask: Mask = causal
    ) -> Tensor:
        """Compute the hidden states of the new tokens, before the head: (B, T) -> (B, T, W)."""
        if at is None:
            past = caches[0].seen if caches else 0
            at = torch.arange(past, past + ids.shape[1], device=ids.device)  # (T,)
        x = self.positions.add(self.tokens(ids), at)  # (B, T, W)
        encoding = self.positions.encoding(at)
        for block, cache in zip(self.blocks, caches or itertools.repeat(None, len(self.blocks)), strict=True):
            x = block(x, encoding, cache, mask)  # (B, T, W)
        return self.norm(x)
