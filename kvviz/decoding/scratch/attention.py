"""One layer's attention, to be read aloud: a query is compared with every key so far and takes a share of every value.

B sequences, T new tokens, T_total tokens so far (the new ones among them), W numbers a token;
H query heads and Hkv key/value heads of D numbers each. Shapes stand at the end of the lines.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kvviz.decoding.scratch.cache import Cache
from kvviz.decoding.scratch.design import Design
from kvviz.decoding.scratch.parts import norm_of
from kvviz.decoding.scratch.positions import Encoding

Mask = Callable[[int, int, torch.device], Tensor]


def causal(T: int, T_total: int, device: torch.device | None = None) -> Tensor:
    """Each new token may attend to itself and to all before it: (T, T_total), the new ones being the last T."""
    return torch.ones(T, T_total, dtype=torch.bool, device=device).tril(diagonal=T_total - T)


class Attention(nn.Module):
    """Multi-head, grouped-query or multi-query attention: they differ in the numbers H and Hkv alone."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = design.heads, design.kv_heads, design.head_dim
        self.query = nn.Linear(design.width, self.heads * self.head_dim, bias=design.qkv_bias)
        self.key = nn.Linear(design.width, self.kv_heads * self.head_dim, bias=design.qkv_bias)
        self.value = nn.Linear(design.width, self.kv_heads * self.head_dim, bias=design.qkv_bias)
        self.query_norm = norm_of(design, self.head_dim) if design.qk_norm else nn.Identity()
        self.key_norm = norm_of(design, self.head_dim) if design.qk_norm else nn.Identity()
        self.output = nn.Linear(self.heads * self.head_dim, design.width, bias=design.output_bias)

    def split(self, x: Tensor) -> Tensor:
        """Give each head a row of its own: (B, T, heads*D) -> (B, heads, T, D)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def share(self, x: Tensor) -> Tensor:
        """Repeat each key/value head for the query heads that it serves: (B, Hkv, T_total, D) -> (B, H, T_total, D)."""
        return x if self.heads == self.kv_heads else x.repeat_interleave(self.heads // self.kv_heads, dim=1)

    def forward(self, x: Tensor, encoding: Encoding, cache: Cache | None = None, mask: Mask = causal) -> Tensor:
        # project: each new token becomes a query, a key and a value
        q, k, v = self.query(x), self.key(x), self.value(x)  # q (B, T, H*D), k v (B, T, Hkv*D)

        # split: every head gets D numbers of its own
        q, k, v = self.split(q), self.split(k), self.split(v)  # q (B, H, T, D), k v (B, Hkv, T, D)

        # norm: some models bring q and k to one length first
        q, k = self.query_norm(q), self.key_norm(k)  # q (B, H, T, D), k (B, Hkv, T, D)

        # turn: RoPE rotates q and k by their position; other schemes leave them as they are
        q, k = encoding.rotate(q), encoding.rotate(k)  # q (B, H, T, D), k (B, Hkv, T, D)

        # append: the cache takes the new keys and values and hands back all of them
        keys, values = (k, v) if cache is None else cache.append(k, v)  # keys values (B, Hkv, T_total, D)

        # share: with fewer key/value heads than query heads, each serves several
        keys, values = self.share(keys), self.share(values)  # keys values (B, H, T_total, D)

        # score: how well does each query fit each key?
        scores = q @ keys.transpose(-2, -1) / self.head_dim**0.5  # scores (B, H, T, T_total)

        # lean: ALiBi lowers the scores of keys far back; other schemes leave them as they are
        scores = encoding.bias(scores)  # scores (B, H, T, T_total)

        # mask: no query may attend to a token that comes after it
        allowed = mask(q.shape[2], keys.shape[2], x.device)  # allowed (T, T_total)
        masked = scores.masked_fill(~allowed, float("-inf"))  # masked (B, H, T, T_total)

        # softmax: scores become shares that add up to 1
        weights = masked.softmax(dim=-1)  # weights (B, H, T, T_total)

        # mix: each query takes its share of every value
        mixed = weights @ values  # mixed (B, H, T, D)

        # merge: the heads side by side again
        merged = mixed.transpose(1, 2).flatten(2)  # merged (B, T, H*D)

        # output: back to the width of the model
        return self.output(merged)  # out (B, T, W)
