"""LayerNorm and RMSNorm. Their weights come from a checkpoint."""

import torch
from torch import Tensor, nn

from kvviz.decoding.scratch.design import Design


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
