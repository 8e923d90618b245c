"""The small parts: a matrix to multiply by, a table to look up in, LayerNorm and RMSNorm written out.

Their weights come from a checkpoint; nothing is drawn here.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Linear(nn.Module):
    """Times a matrix, plus a bias where there is one: (..., from_width) -> (..., to_width)."""

    def __init__(self, from_width, to_width, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(to_width, from_width))
        self.bias = nn.Parameter(torch.empty(to_width)) if bias else None

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Table(nn.Module):
    """A row for each number: (...) -> (..., width)."""

    def __init__(self, rows, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))

    def forward(self, numbers):
        return self.weight[numbers]


class RMSNorm(nn.Module):
    """x over its root mean square, times a learned weight. https://arxiv.org/abs/1910.07467"""

    def __init__(self, width, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x):
        exact = x.float()  # in half precision the squares would not fit
        size = (exact.square().mean(-1, keepdim=True) + self.eps).sqrt()  # (..., 1)
        return self.weight * (exact / size).to(x.dtype)  # (..., width)


class LayerNorm(nn.Module):
    """x less its mean, over its standard deviation, times a weight and plus a bias. https://arxiv.org/abs/1607.06450"""

    def __init__(self, width, eps, bias):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias else 0.0

    def forward(self, x):
        exact = x.float()
        centred = exact - exact.mean(-1, keepdim=True)  # (..., width)
        spread = (centred.square().mean(-1, keepdim=True) + self.eps).sqrt()  # (..., 1)
        return (centred / spread * self.weight + self.bias).to(x.dtype)  # (..., width)


def norm_of(design, width):
    """The norm that a design asks for."""
    return RMSNorm(width, design.eps) if design.norm == "rms" else LayerNorm(width, design.eps, design.norm_bias)
