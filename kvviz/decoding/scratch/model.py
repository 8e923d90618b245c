"""The whole decoder, from a design: token ids in, logits out, with or without a cache for each layer."""

import torch
import torch.nn.functional as F
from torch import nn

from kvviz.decoding.scratch.attention import Attention, causal
from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.parts import Linear, Table, norm_of
from kvviz.decoding.scratch.positions import SCHEMES

ACTIVATIONS = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


class MLP(nn.Module):
    """Wider, bent, back: each token for itself."""

    def __init__(self, design):
        super().__init__()
        self.bend = ACTIVATIONS[design.activation]
        self.up = Linear(design.width, design.mlp_width, bias=design.mlp_bias)
        self.down = Linear(design.mlp_width, design.width, bias=design.mlp_bias)

    def forward(self, x):
        return self.down(self.bend(self.up(x)))  # (B, T, W)


class GatedMLP(MLP):
    """The same with a gate, SwiGLU where it bends with SiLU. https://arxiv.org/abs/2002.05202"""

    def __init__(self, design):
        super().__init__(design)
        self.gate = Linear(design.width, design.mlp_width, bias=design.mlp_bias)

    def forward(self, x):
        return self.down(self.bend(self.gate(x)) * self.up(x))  # (B, T, W)


class Block(nn.Module):
    """One layer: the tokens look at one another, then each thinks for itself; both only add to what was there."""

    def __init__(self, design):
        super().__init__()
        self.attention_norm = norm_of(design, design.width)
        self.attention = Attention(design)
        self.mlp_norm = norm_of(design, design.width)
        self.mlp = GatedMLP(design) if design.gated else MLP(design)

    def forward(self, x, place, cache, mask):
        x = x + self.attention(self.attention_norm(x), place, cache, mask)  # (B, T, W)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, W)


class Transformer(nn.Module):
    """A decoder. `caches` has one Cache for each layer, taken further by every forward; None keeps nothing.

    `at`, the positions (T,) of the new tokens, goes on from what the caches have seen, and `mask` lets each token
    look at itself and back, unless something else is given. A design with a tied head has the table's weights there.
    """

    def __init__(self, design):
        super().__init__()
        self.design = design
        self.tokens = Table(design.vocab, design.width)
        self.positions = SCHEMES[design.positions](design)
        self.blocks = nn.ModuleList(Block(design) for _ in range(design.layers))
        self.norm = norm_of(design, design.width)
        self.head = Linear(design.width, design.vocab)

    def new_caches(self):
        """An empty cache for each layer."""
        return [LayerCache() for _ in self.blocks]

    def forward(self, ids, caches=None, *, at=None, mask=causal):
        """Logits of every new token: (B, T) -> (B, T, vocabulary)."""
        return self.head(self.read(ids, caches, at=at, mask=mask))

    def read(self, ids, caches=None, *, at=None, mask=causal):
        """What the model makes of the new tokens, before the head: (B, T) -> (B, T, W)."""
        if at is None:
            past = caches[0].seen if caches else 0
            at = torch.arange(past, past + ids.shape[1], device=ids.device)  # (T,)
        x = self.positions.add(self.tokens(ids), at)  # (B, T, W)
        place = self.positions.place(at)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, place, cache, mask)  # (B, T, W)
        return self.norm(x)
