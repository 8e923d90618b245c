"""How a model knows the order of its tokens: a learned vector each, RoPE, or ALiBi.

Each scheme answers two questions: what is added to the tokens' vectors (`add`), and what attention has to know of
where the new tokens stand (`place`). `at` are the positions of the new tokens, (T,): they go on from the cache's.
"""

import math

import torch
from torch import nn

from kvviz.decoding.scratch.parts import Table


class Place:
    """Where the new tokens stand, as attention meets it: here in no way at all."""

    def turn(self, x):
        """Queries or keys (B, heads, T, D), turned by their position."""
        return x

    def lean(self, scores):
        """Scores (B, H, T, T_total), lowered with the distance."""
        return scores


class Learned(nn.Module):
    """A learned vector for each position, added to the token's once, at the very beginning."""

    def __init__(self, design):
        super().__init__()
        self.table = Table(design.context, design.width)

    def add(self, x, at):
        return x + self.table(at)  # (B, T, W)

    def place(self, at):
        return Place()


class Rotary(nn.Module):
    """RoPE: queries and keys are turned, pair by pair, by angles that grow with the position.

    https://arxiv.org/abs/2104.09864
    """

    def __init__(self, design):
        super().__init__()
        self.rope, self.head_dim = design.rope, design.head_dim

    def add(self, x, at):
        return x

    def place(self, at):
        pair = torch.arange(0, self.head_dim, 2, device=at.device).float() / self.head_dim  # (D/2,)
        turns = SCALINGS[self.rope.kind](1.0 / self.rope.theta**pair, self.rope)  # radians a token
        return _Turned(torch.outer(at.float(), turns))  # (T, D/2)


class _Turned(Place):
    def __init__(self, angles):
        self.cos, self.sin = angles.cos(), angles.sin()  # (T, D/2)

    def turn(self, x):
        left, right = x.chunk(2, dim=-1)  # the two numbers of a pair stand D/2 apart
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)  # (B, heads, T, D)


def _as_trained(turns, rope):
    return turns


def _linear(turns, rope):
    """All positions closer together. https://arxiv.org/abs/2306.15595"""
    return turns / rope.factor


def _llama3(turns, rope):
    """Slow turns are slowed further, fast ones stay, those between go over smoothly. https://arxiv.org/abs/2407.21783"""
    periods = rope.original_context * turns / (2 * math.pi)  # in the context that the model was trained with
    kept = ((periods - rope.low) / (rope.high - rope.low)).clamp(0, 1)
    return turns * kept + turns / rope.factor * (1 - kept)


SCALINGS = {"default": _as_trained, "linear": _linear, "llama3": _llama3}


class Alibi(nn.Module):
    """ALiBi: a key counts for less the further back it stands, for each head by its own slope.

    https://arxiv.org/abs/2108.12409
    """

    def __init__(self, design):
        super().__init__()
        self.slopes = slopes(design.heads)

    def add(self, x, at):
        return x

    def place(self, at):
        return _Leaning(at, self.slopes)


class _Leaning(Place):
    def __init__(self, at, slopes):
        self.at = at
        self.slopes = torch.tensor(slopes, device=at.device)[:, None, None]  # (H, 1, 1)

    def lean(self, scores):
        keys = torch.arange(scores.shape[-1], device=scores.device)  # (T_total,)
        distance = keys - self.at[:, None]  # (T, T_total), 0 at the token itself, below 0 before it
        return scores + (self.slopes * distance).to(scores.dtype)  # (B, H, T, T_total)


def slopes(heads):
    """ALiBi's slope of each head: a falling series from 2^(-8/n); between the terms where n is no power of 2."""
    power = 2 ** math.ceil(math.log2(heads))
    series = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return series if power == heads else (series[1::2] + series[::2])[:heads]


SCHEMES = {"learned": Learned, "rotary": Rotary, "alibi": Alibi}
