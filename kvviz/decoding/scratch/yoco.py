"""YOCO, you only cache once, to be read aloud: the lower half of the layers writes one cache, the upper half reads it.

The lower half, the self-decoder, has attention with a window and so keeps few tokens. What it makes becomes keys and
values once, the only ones of all tokens, and every layer of the upper half, the cross-decoder, reads those. YOCO, with
sliding-window attention: https://arxiv.org/abs/2405.05254, section 2. transformers has no such model, so that none of
these weights was trained or published, and this is our reading of the paper.

B sequences, T new tokens, T_total tokens so far (the new ones among them), W numbers a token;
H query heads and Hkv key/value heads of D numbers each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kvviz.decoding.scratch.attention import causal
from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.design import Design
from kvviz.decoding.scratch.model import Block, GatedMLP
from kvviz.decoding.scratch.parts import norm_of
from kvviz.decoding.scratch.positions import SCHEMES, Encoding


class WindowCache(LayerCache):
    """Keeps the last `window` - 1 tokens between two steps: with the newest one, those that a query may see."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.most = window - 1

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().append(k, v)
        self.k, self.v = keys[:, :, -self.most :].clone(), values[:, :, -self.most :].clone()
        return keys, values


class Window:
    """The mask of a self-decoder: each new token sees itself and the `window` - 1 tokens before it."""

    def __init__(self, window: int) -> None:
        self.window = window

    def __call__(self, T: int, T_total: int, device: torch.device | None = None) -> Tensor:
        seen = causal(T, T_total, device)
        return seen & ~seen.tril(T_total - T - self.window)


class CrossAttention(nn.Module):
    """Attention that makes queries alone: keys and values are given."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = design.heads, design.kv_heads, design.head_dim
        self.query = nn.Linear(design.width, design.heads * design.head_dim, bias=False)
        self.output = nn.Linear(design.heads * design.head_dim, design.width, bias=False)

    def forward(self, x: Tensor, encoding: Encoding, keys: Tensor, values: Tensor) -> Tensor:
        q = encoding.rotate(self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2))  # q (B, H, T, D)
        keys, values = (one.repeat_interleave(self.heads // self.kv_heads, dim=1) for one in (keys, values))
        scores = q @ keys.mT / self.head_dim**0.5  # (B, H, T, T_total)
        weights = scores.masked_fill(~causal(q.shape[2], keys.shape[2], x.device), float("-inf")).softmax(dim=-1)
        return self.output((weights @ values).transpose(1, 2).flatten(2))  # out (B, T, W)


class CrossBlock(nn.Module):
    """One layer of the cross-decoder."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.attention_norm, self.attention = norm_of(design, design.width), CrossAttention(design)
        self.mlp_norm, self.mlp = norm_of(design, design.width), GatedMLP(design)

    def forward(self, x: Tensor, encoding: Encoding, keys: Tensor, values: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), encoding, keys, values)  # (B, T, W)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, W)


class Yoco(nn.Module):
    """A decoder of a self-decoder and a cross-decoder, half of the layers each."""

    def __init__(self, design: Design, window: int) -> None:
        super().__init__()
        self.design, self.mask, half = design, Window(window), design.layers // 2
        self.tokens = nn.Embedding(design.vocab, design.width)
        self.positions = SCHEMES[design.positions](design)
        self.self_decoder = nn.ModuleList(Block(design) for _ in range(half))
        self.global_norm = norm_of(design, design.width)
        self.key = nn.Linear(design.width, design.kv_heads * design.head_dim, bias=False)
        self.value = nn.Linear(design.width, design.kv_heads * design.head_dim, bias=False)
        self.cross_decoder = nn.ModuleList(CrossBlock(design) for _ in range(design.layers - half))
        self.norm = norm_of(design, design.width)
        self.head = nn.Linear(design.width, design.vocab, bias=False)

    def new_caches(self) -> list[LayerCache]:
        """Make an empty cache for each layer of the self-decoder, and the global one, which comes last."""
        return [*(WindowCache(self.mask.window) for _ in self.self_decoder), LayerCache()]

    def split(self, x: Tensor) -> Tensor:
        """Give each key/value head a row of its own: (B, T, Hkv*D) -> (B, Hkv, T, D)."""
        return x.unflatten(-1, (self.design.kv_heads, -1)).transpose(1, 2)

    def forward(self, ids: Tensor, caches: Sequence[LayerCache], last: bool = False) -> Tensor:
        # enter: the new tokens, whose positions go on from those in the global cache
        x, seen = self.tokens(ids), caches[-1].seen  # x (B, T, W)
        at = torch.arange(seen, seen + ids.shape[1])  # at (T,)
        encoding = self.positions.encoding(at)

        # window: the self-decoder; each of its layers keeps a few tokens
        for block, cache in zip(self.self_decoder, caches, strict=False):
            x = block(x, encoding, cache, self.mask)

        # write: keys and values of all tokens, made once
        z = self.global_norm(x)  # z (B, T, W)
        k, v = encoding.rotate(self.split(self.key(z))), self.split(self.value(z))  # k v (B, Hkv, T, D)
        keys, values = caches[-1].append(k, v)  # keys values (B, Hkv, T_total, D)

        # leave: a prefill is over here for all tokens but the last, because nobody asks for their logits
        if last:
            x, encoding = x[:, -1:], self.positions.encoding(at[-1:])

        # read: the cross-decoder; each of its layers reads the same keys and values
        for block in self.cross_decoder:
            x = block(x, encoding, keys, values)

        # output: from the last layer to logits
        return self.head(self.norm(x))
