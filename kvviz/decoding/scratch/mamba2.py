"""A Mamba-2 layer, to be read aloud: a matrix that fades and is added to, token by token or many tokens at once.

`Recurrent` reads one token and changes the matrix: that is a decode step. `Chunked` reads many at once, as attention
does, with a decay in place of the softmax: that is a prefill. The results are the same, which the paper calls
state-space duality (SSD). Mamba-2: https://arxiv.org/abs/2405.21060

B sequences, T new tokens, W numbers a token; H heads of P numbers, each with a matrix of N by P. C numbers pass through
a convolution over the last K tokens: the heads' own, and N twice for each group of heads, to address the matrix.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class MambaDesign:
    """The sizes of one layer, with the letters above; `bias`: its two projections have one."""

    width: int
    heads: int
    head_dim: int
    rows: int
    groups: int
    window: int
    eps: float
    bias: bool

    @property
    def parts(self) -> list[int]:
        """How the C numbers are divided among x, b and c."""
        return [self.heads * self.head_dim, self.groups * self.rows, self.groups * self.rows]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "MambaDesign":
        """Read them from a Mamba-2 config of transformers, as a dict."""
        return cls(
            width=config["hidden_size"],
            heads=config["num_heads"],
            head_dim=config["head_dim"],
            rows=config["state_size"],
            groups=config["n_groups"],
            window=config["conv_kernel"],
            eps=config["layer_norm_epsilon"],
            bias=config["use_bias"],
        )


class State:
    """All that a layer keeps of the tokens so far: `matrix` (B, H, N, P), `window` (B, C, K) for the convolution."""

    def __init__(self, design: MambaDesign, batch: int = 1) -> None:
        self.matrix = torch.zeros(batch, design.heads, design.rows, design.head_dim)
        self.window = torch.zeros(batch, sum(design.parts), design.window)

    @property
    def nbytes(self) -> int:
        """The bytes of both, the same after any number of tokens."""
        return self.matrix.nbytes + self.window.nbytes


class Mamba2(nn.Module):
    """What both forms share: the weights, and what stands before and after the matrix."""

    def __init__(self, design: MambaDesign) -> None:
        super().__init__()
        self.design, inner = design, design.heads * design.head_dim
        self.input = nn.Linear(design.width, inner + sum(design.parts) + design.heads, bias=design.bias)
        self.conv = nn.Parameter(torch.empty(sum(design.parts), design.window))
        self.conv_bias = nn.Parameter(torch.empty(sum(design.parts)))
        self.log_rate = nn.Parameter(torch.empty(design.heads))
        self.step_bias = nn.Parameter(torch.empty(design.heads))
        self.skip = nn.Parameter(torch.empty(design.heads))
        self.norm = nn.Parameter(torch.empty(inner))
        self.output = nn.Linear(inner, design.width, bias=design.bias)

    def project(self, hidden: Tensor) -> list[Tensor]:
        """Make a gate (B, T, H*P), what the convolution mixes (B, T, C), and a number for each step (B, T, H)."""
        parts = [self.design.heads * self.design.head_dim, sum(self.design.parts), self.design.heads]
        return list(self.input(hidden).split(parts, dim=-1))

    def slide(self, fresh: Tensor, state: State) -> Tensor:
        """Mix each number (B, T, C) with the same one of the K - 1 tokens before; the window moves on."""
        row = torch.cat([state.window, fresh.mT], dim=-1)  # (B, C, K + T)
        state.window = row[..., -self.design.window :]
        windows = row[..., 1:].unfold(-1, self.design.window, 1)  # (B, C, T, K)
        mixed = (windows * self.conv[:, None]).sum(-1) + self.conv_bias[:, None]
        return F.silu(mixed).mT

    def split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give each head a row of its own: x (B, H, T, P); b and c (B, H, T, N) serve the heads of their group."""
        x, b, c = mixed.split(self.design.parts, dim=-1)
        share = self.design.heads // self.design.groups
        b, c = (one.unflatten(-1, (-1, self.design.rows)).repeat_interleave(share, dim=2) for one in (b, c))
        return x.unflatten(-1, (-1, self.design.head_dim)).transpose(1, 2), b.transpose(1, 2), c.transpose(1, 2)

    def pace(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return each head's step size, and the logarithm of its matrix's decay factor: both (B, H, T, 1)."""
        step = F.softplus(raw + self.step_bias).mT.unsqueeze(-1)
        return step, -self.log_rate.exp()[:, None, None] * step

    def gated(self, read: Tensor, gate: Tensor) -> Tensor:
        """Join the heads, multiply by the gate, and normalise each group by its root mean square."""
        opened = read.transpose(1, 2).flatten(2) * F.silu(gate)  # (B, T, H*P)
        grouped = opened.unflatten(-1, (self.design.groups, -1))
        size = (grouped.square().mean(-1, keepdim=True) + self.design.eps).sqrt()
        return self.norm * (grouped / size).flatten(-2)


class Recurrent(Mamba2):
    """The form of a decode step: it reads one token, T = 1, and leaves the state as it is after that."""

    def forward(self, hidden: Tensor, state: State) -> Tensor:
        # project: a gate, what goes through the convolution, and a number for each head's step
        gate, fresh, raw = self.project(hidden)  # gate (B, T, H*P), fresh (B, T, C), raw (B, T, H)

        # convolve: each number is mixed with the same one of the few tokens before
        mixed = self.slide(fresh, state)  # mixed (B, T, C)

        # split: each head gets numbers x to remember; b says where to write them, c where to read
        x, b, c = self.split(mixed)  # x (B, H, T, P), b c (B, H, T, N)

        # pace: the longer a head's step, the more it writes and the more it forgets
        step, fade = self.pace(raw)  # step fade (B, H, T, 1)
        keep = fade.exp()  # keep (B, H, T, 1)

        # forget: all that was written before fades
        faded = keep * state.matrix  # faded (B, H, N, P)

        # write: x is added to each row, as strongly as b says for that row
        added = step * x  # added (B, H, T, P)
        state.matrix = written = faded + b.mT @ added  # written (B, H, N, P)

        # read: the matrix answers c, and a part of x goes past it
        answer = c @ written  # answer (B, H, T, P)
        read = answer + self.skip[:, None, None] * x  # read (B, H, T, P)

        # gate: let through as far as the token's own gate is open, and brought to one length
        gated = self.gated(read, gate)  # gated (B, T, H*P)

        # output: back to the width of the model
        return self.output(gated)  # out (B, T, W)


class Chunked(Mamba2):
    """The form of a prefill: T tokens in a few products. It is attention with a decay where the softmax would be."""

    def forward(self, hidden: Tensor, state: State) -> Tensor:
        # project: a gate, what goes through the convolution, and a number for each head's step
        gate, fresh, raw = self.project(hidden)  # gate (B, T, H*P), fresh (B, T, C), raw (B, T, H)

        # convolve: each number is mixed with the same one of the few tokens before
        mixed = self.slide(fresh, state)  # mixed (B, T, C)

        # split: b stands for a key, c for a query, x for a value
        x, b, c = self.split(mixed)  # x (B, H, T, P), b c (B, H, T, N)

        # pace: logarithms of what is kept, added up from the first token to each
        step, fade = self.pace(raw)  # step fade (B, H, T, 1)
        since = fade.cumsum(2)  # since (B, H, T, 1)

        # decay: how much of token s (across) is left at token t (down); nothing of later ones
        later = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool).triu(1)  # later (T, T)
        kept = (since - since.mT).masked_fill(later, float("-inf")).exp()  # kept (B, H, T, T)

        # weigh: how well c of one token fits b of another, and how much of that one is left
        weights = (c @ b.mT) * kept  # weights (B, H, T, T)

        # read: the new tokens' share, that of the matrix before them, and a part of x that goes past it
        added = step * x  # added (B, H, T, P)
        before = since.exp() * (c @ state.matrix)  # before (B, H, T, P)
        read = weights @ added + before + self.skip[:, None, None] * x  # read (B, H, T, P)

        # leave: the matrix after the last token, for whoever goes on from here
        left = kept[:, :, -1:].mT  # left (B, H, T, 1)
        faded = since[:, :, -1:].exp() * state.matrix  # faded (B, H, N, P)
        state.matrix = faded + (left * b).mT @ added

        # gate: let through as far as the token's own gate is open, and brought to one length
        gated = self.gated(read, gate)  # gated (B, T, H*P)

        # output: back to the width of the model
        return self.output(gated)  # out (B, T, W)


def mamba_twin(theirs: nn.Module, design: MambaDesign, form: type[Mamba2]) -> Mamba2:
    """The same layer on the weights of a layer of transformers (`Mamba2Mixer`), which are not copied."""
    with torch.device("meta"):
        ours = form(design)
    state = theirs.state_dict()
    names = {"log_rate": "A_log", "step_bias": "dt_bias", "skip": "D", "norm": "norm.weight"}
    names |= {"input.weight": "in_proj.weight", "output.weight": "out_proj.weight"}
    if design.bias:
        names |= {"input.bias": "in_proj.bias", "output.bias": "out_proj.bias"}
    conv = state["conv1d.weight"].squeeze(1)
    biases = {"conv": conv, "conv_bias": state.get("conv1d.bias", torch.zeros(len(conv)))}
    ours.load_state_dict({**{name: state[one] for name, one in names.items()}, **biases}, assign=True)
    return ours.eval()
