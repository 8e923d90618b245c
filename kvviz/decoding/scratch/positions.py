"""How a model knows the order of its tokens: a learned vector each, RoPE, or ALiBi.

A scheme has two parts: what it adds to the tokens' vectors (`add`), and what it does within attention (`encoding`).
`at` are the positions of the new tokens, (T,): they continue those of the cache.
"""

import math

import torch
from torch import Tensor, nn

from kvviz.decoding.scratch.design import Design, Rope


class Encoding:
    """The positions of the new tokens, as attention meets them. This one changes nothing."""

    def rotate(self, x: Tensor) -> Tensor:
        """Queries or keys (B, heads, T, D), rotated by their position."""
        return x

    def bias(self, scores: Tensor) -> Tensor:
        """Scores (B, H, T, T_total), lowered with the distance."""
        return scores


class Scheme(nn.Module):
    """A way to give tokens their order. This one gives them none."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.design = design

    def add(self, x: Tensor, at: Tensor) -> Tensor:
        return x

    def encoding(self, at: Tensor) -> Encoding:
        return Encoding()


class Learned(Scheme):
    """Add a learned vector for each position to the token's vector, once, before the first layer."""

    def __init__(self, design: Design) -> None:
        super().__init__(design)
        self.table = nn.Embedding(design.context, design.width)

    def add(self, x: Tensor, at: Tensor) -> Tensor:
        return x + self.table(at)  # (B, T, W)


class Rotary(Scheme):
    """RoPE: rotate queries and keys in pairs by angles that grow with the position. https://arxiv.org/abs/2104.09864"""

    def encoding(self, at: Tensor) -> Encoding:
        return _Rotation(torch.outer(at.float(), radians_per_token(self.design, at.device)))  # (T, D/2)


class _Rotation(Encoding):
    def __init__(self, angles: Tensor) -> None:
        self.cos, self.sin = angles.cos(), angles.sin()  # (T, D/2)

    def rotate(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)  # the two numbers of a pair stand D/2 apart
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)  # (B, heads, T, D)


def radians_per_token(design: Design, device: torch.device | None = None) -> Tensor:
    """How far each pair of a head rotates from one token to the next: (D/2,), empty without RoPE."""
    if design.rope is None:
        return torch.zeros(0, device=device)
    pair = torch.arange(0, design.head_dim, 2, device=device).float() / design.head_dim  # (D/2,)
    return SCALINGS[design.rope.kind](1.0 / design.rope.theta**pair, design.rope)


def _linear(turns: Tensor, rope: Rope) -> Tensor:
    """Move all positions closer together. https://arxiv.org/abs/2306.15595"""
    return turns / rope.factor


def _llama3(turns: Tensor, rope: Rope) -> Tensor:
    """Slow down slow rotations, keep fast ones, blend those between. https://arxiv.org/abs/2407.21783"""
    periods = rope.original_context * turns / (2 * math.pi)  # in the context that the model was trained with
    kept = ((periods - rope.low) / (rope.high - rope.low)).clamp(0, 1)
    return turns * kept + turns / rope.factor * (1 - kept)


SCALINGS = {"default": lambda turns, rope: turns, "linear": _linear, "llama3": _llama3}


class Alibi(Scheme):
    """ALiBi: lower a key's score the further back it stands, by each head's slope. https://arxiv.org/abs/2108.12409"""

    def encoding(self, at: Tensor) -> Encoding:
        return _DistanceBias(at, slopes(self.design.heads))


class _DistanceBias(Encoding):
    def __init__(self, at: Tensor, slopes: list[float]) -> None:
        self.at = at
        self.slopes = torch.tensor(slopes, device=at.device)[:, None, None]  # (H, 1, 1)

    def bias(self, scores: Tensor) -> Tensor:
        keys = torch.arange(scores.shape[-1], device=scores.device)  # (T_total,)
        distance = keys - self.at[:, None]  # (T, T_total), 0 at the token itself, below 0 before it
        return scores + (self.slopes * distance).to(scores.dtype)  # (B, H, T, T_total)


def slopes(heads: int) -> list[float]:
    """ALiBi's slope of each head: a falling series from 2^(-8/n); with terms between them if n is no power of 2."""
    power = 2 ** math.ceil(math.log2(heads))
    series = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return series if power == heads else (series[1::2] + series[::2])[:heads]


SCHEMES: dict[str, type[Scheme]] = {"learned": Learned, "rotary": Rotary, "alibi": Alibi}
