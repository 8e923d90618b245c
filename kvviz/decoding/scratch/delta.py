"""A gated delta layer, to be read aloud: in place of a list of keys and values, a matrix that each token corrects.

The matrix answers a key with a value. A token fades it, asks it for its own key, and writes down the error of the
answer: the delta rule. Its size does not depend on the number of tokens. Gated DeltaNet: https://arxiv.org/abs/2412.06464

B sequences, W numbers a token; H heads, each with a matrix of Dk by Dv. Fewer heads, Hk, have a query and a key, so
that several share them. C numbers pass through a convolution over the last K tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvviz.decoding.scratch.parts import RMSNorm


@dataclass(frozen=True)
class DeltaDesign:
    """The sizes of one layer, with the letters above."""

    width: int
    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    window: int
    eps: float

    @property
    def parts(self) -> list[int]:
        """How the C numbers are divided among queries, keys and values."""
        keys = self.key_heads * self.key_dim
        return [keys, keys, self.heads * self.value_dim]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "DeltaDesign":
        """Read them from a Qwen3-Next config of transformers, as a dict."""
        return cls(
            width=config["hidden_size"],
            heads=config["linear_num_value_heads"],
            key_heads=config["linear_num_key_heads"],
            key_dim=config["linear_key_head_dim"],
            value_dim=config["linear_value_head_dim"],
            window=config["linear_conv_kernel_dim"],
            eps=config["rms_norm_eps"],
        )


class State:
    """All that a layer keeps of the tokens so far: `matrix` (B, H, Dk, Dv), `window` (B, C, K) for the convolution."""

    def __init__(self, design: DeltaDesign, batch: int = 1) -> None:
        self.matrix = torch.zeros(batch, design.heads, design.key_dim, design.value_dim)
        self.window = torch.zeros(batch, sum(design.parts), design.window)

    @property
    def nbytes(self) -> int:
        """The bytes of both, the same after any number of tokens."""
        return self.matrix.nbytes + self.window.nbytes


class GatedDelta(nn.Module):
    """The recurrent form: it reads one token and leaves the state as it is after that."""

    def __init__(self, design: DeltaDesign) -> None:
        super().__init__()
        self.design = design
        self.qkv = nn.Linear(design.width, sum(design.parts), bias=False)
        self.gate = nn.Linear(design.width, design.heads * design.value_dim, bias=False)
        self.strength = nn.Linear(design.width, design.heads, bias=False)
        self.decay = nn.Linear(design.width, design.heads)
        self.log_rate = nn.Parameter(torch.empty(design.heads))
        self.conv = nn.Parameter(torch.empty(sum(design.parts), design.window))
        self.norm = RMSNorm(design.value_dim, design.eps)
        self.output = nn.Linear(design.heads * design.value_dim, design.width, bias=False)

    def split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give each head a row of its own; queries and keys have length 1, and serve the heads that share them."""
        q, k, v = mixed.split(self.design.parts, dim=-1)
        share = self.design.heads // self.design.key_heads
        q, k = (x.unflatten(-1, (-1, self.design.key_dim)).repeat_interleave(share, dim=1) for x in (q, k))
        q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
        return q.unsqueeze(-2), k.unsqueeze(-2), v.unflatten(-1, (-1, 1, self.design.value_dim))

    def forward(self, x: Tensor, state: State) -> Tensor:
        # convolve: the token's numbers are mixed with those of the few before it
        state.window = torch.cat([state.window[..., 1:], self.qkv(x).unsqueeze(-1)], dim=-1)
        mixed = F.silu((state.window * self.conv).sum(-1))  # mixed (B, C)

        # split: every head gets a query, a key and a value
        q, k, v = self.split(mixed)  # q k (B, H, 1, Dk), v (B, H, 1, Dv)

        # pace: how much of the matrix to keep, and how strongly to correct it
        keep = torch.exp(-self.log_rate.exp() * F.softplus(self.decay(x)))[..., None, None]  # keep (B, H, 1, 1)
        strength = self.strength(x).sigmoid()[..., None, None]  # strength (B, H, 1, 1)

        # forget: all that was written before fades
        faded = keep * state.matrix  # faded (B, H, Dk, Dv)

        # recall: what does the matrix answer to this key?
        answer = k @ faded  # answer (B, H, 1, Dv)

        # write: the error of the answer is put under the key, so that next time it is smaller
        delta = strength * (v - answer)  # delta (B, H, 1, Dv)
        state.matrix = written = faded + k.mT @ delta  # written (B, H, Dk, Dv)

        # read: the matrix answers the query
        read = q @ written / self.design.key_dim**0.5  # read (B, H, 1, Dv)

        # gate: brought to one length, and let through as far as the token's own gate is open
        gated = self.norm(read) * F.silu(self.gate(x)).view_as(read)  # gated (B, H, 1, Dv)

        # output: back to the width of the model
        return self.output(gated.flatten(1))  # out (B, W)


def delta_twin(theirs: nn.Module, design: DeltaDesign) -> GatedDelta:
    """The same layer on the weights of a layer of transformers (`Qwen3NextGatedDeltaNet`)."""
    with torch.device("meta"):
        ours = GatedDelta(design)
    state, each = theirs.state_dict(), design.heads // design.key_heads * design.value_dim
    # transformers keeps what belongs to one head of keys together: its q, k, v and gate
    grouped = state["in_proj_qkvz.weight"].unflatten(0, (design.key_heads, -1))
    *qkv, gate = (part.flatten(0, 1) for part in grouped.split([design.key_dim, design.key_dim, each, each], dim=1))
    strength, decay = state["in_proj_ba.weight"].unflatten(0, (design.key_heads, 2, -1)).transpose(0, 1)
    weights = {
        "qkv.weight": torch.cat(qkv),
        "gate.weight": gate,
        "strength.weight": strength.flatten(0, 1),
        "decay.weight": decay.flatten(0, 1),
        "decay.bias": state["dt_bias"],
        "log_rate": state["A_log"],
        "conv": state["conv1d.weight"].squeeze(1),
        "norm.weight": state["norm.weight"],
        "output.weight": state["out_proj.weight"],
    }
    ours.load_state_dict(weights, assign=True)
    return ours.eval()
