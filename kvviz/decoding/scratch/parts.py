"""The small parts: a matrix product, a lookup table, LayerNorm and RMSNorm. Their weights come from a checkpoint."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvviz.decoding.scratch.design import Design


class Linear(nn.Module):
    """Multiply by a matrix, and add a bias if there is one: (..., from_width) -> (..., to_width)."""

    def __init__(self, from_width: int, to_width: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(to_width, from_width))
        self.bias = nn.Parameter(torch.empty(to_width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Table(nn.Module):
    """Look up a row for each number: (...) -> (..., width)."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))

    def forward(self, numbers: Tensor) -> Tensor:
        return self.weight[numbers]


class RMSNorm(nn.Module):
    """Divide x by its root mean square and multiply by a learned weight. https://arxiv.org/abs/1910.07467"""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        exact = x.float()  # in half precision the squares would not fit
        size = (exact.square().mean(-1, keepdim=True) + self.eps).sqrt()  # (..., 1)
        return self.weight * (exact / size).to(x.dtype)  # (..., width)


class LayerNorm(nn.Module):
    """Centre x, divide by its standard deviation, scale and shift. https://arxiv.org/abs/1607.06450"""

    def __init__(self, width: int, eps: float, bias: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias else 0.0

    def forward(self, x: Tensor) -> Tensor:
        exact = x.float()
        centred = exact - exact.mean(-1, keepdim=True)  # (..., width)
        spread = (centred.square().mean(-1, keepdim=True) + self.eps).sqrt()  # (..., 1)
        return (centred / spread * self.weight + self.bias).to(x.dtype)  # (..., width)


def norm_of(design: Design, width: int) -> RMSNorm | LayerNorm:
    """Build the norm that a design asks for."""
    return RMSNorm(width, design.eps) if design.norm == "rms" else LayerNorm(width, design.eps, design.norm_bias)
