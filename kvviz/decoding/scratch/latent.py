"""Multi-head latent attention (MLA), to be read aloud: one short row a token, from which every head makes its keys.

A score is a product of three: query, matrix, latent row. `Expanded` multiplies matrix and row first, so that each head
has keys and values of its own to cache. `Absorbed` multiplies query and matrix first, and caches the row itself. The
results are the same. DeepSeek-V2, section 2.1: https://arxiv.org/abs/2405.04434

B sequences, T new tokens, T_total tokens so far (the new ones among them), W numbers a token; H heads. A head's query
and key have Dn numbers without a position and Dr that are rotated by it, its value Dv; a latent row has C numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kvviz.decoding.scratch.attention import causal
from kvviz.decoding.scratch.cache import Cache
from kvviz.decoding.scratch.parts import RMSNorm


@dataclass(frozen=True)
class LatentDesign:
    """The sizes of one layer, with the letters above; `query_rank` is the width that queries pass through."""

    width: int
    heads: int
    query_rank: int
    latent: int
    plain: int
    rotated: int
    value: int
    theta: float
    eps: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "LatentDesign":
        """Read them from a DeepSeek config of transformers, as a dict."""
        return cls(
            width=config["hidden_size"],
            heads=config["num_attention_heads"],
            query_rank=config["q_lora_rank"],
            latent=config["kv_lora_rank"],
            plain=config["qk_nope_head_dim"],
            rotated=config["qk_rope_head_dim"],
            value=config["v_head_dim"],
            theta=config["rope_parameters"]["rope_theta"],
            eps=config["rms_norm_eps"],
        )


class LatentAttention(nn.Module):
    """What both ways share: the weights, the queries, and what a new token is compressed to."""

    def __init__(self, design: LatentDesign) -> None:
        super().__init__()
        self.design, heads = design, design.heads
        self.scale = (design.plain + design.rotated) ** -0.5
        self.query_down = nn.Linear(design.width, design.query_rank, bias=False)
        self.query_norm = RMSNorm(design.query_rank, design.eps)
        self.query_up = nn.Linear(design.query_rank, heads * (design.plain + design.rotated), bias=False)
        self.down = nn.Linear(design.width, design.latent + design.rotated, bias=False)
        self.latent_norm = RMSNorm(design.latent, design.eps)
        self.key_up = nn.Parameter(torch.empty(heads, design.plain, design.latent))
        self.value_up = nn.Parameter(torch.empty(heads, design.value, design.latent))
        self.output = nn.Linear(heads * design.value, design.width, bias=False)

    def queries(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Each head's query: (B, H, T, Dn) without a position, and (B, H, T, Dr) rotated by it."""
        both = self.query_up(self.query_norm(self.query_down(x))).unflatten(-1, (self.design.heads, -1)).transpose(1, 2)
        plain, rotated = both.split([self.design.plain, self.design.rotated], dim=-1)
        return plain, self.rotate(rotated, at)

    def compress(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """One latent row for all heads, (B, 1, T, C), and one rotated key for all heads, (B, 1, T, Dr)."""
        latent, rotated = self.down(x).unsqueeze(1).split([self.design.latent, self.design.rotated], dim=-1)
        return self.latent_norm(latent), self.rotate(rotated, at)

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """RoPE on pairs that stand side by side, by the positions `at` (T,): (B, heads, T, Dr)."""
        pair = torch.arange(0, self.design.rotated, 2, device=x.device).float() / self.design.rotated  # (Dr/2,)
        angles = torch.outer(at.float(), self.design.theta**-pair)  # (T, Dr/2)
        left, right, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), angles.sin()
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class Expanded(LatentAttention):
    """Every head caches keys and values of its own: H (Dn + Dr + Dv) numbers a token."""

    def forward(self, x: Tensor, at: Tensor, cache: Cache) -> Tensor:
        # query: a part without a position, a part rotated by it
        q, q_rotated = self.queries(x, at)  # q (B, H, T, Dn), q_rotated (B, H, T, Dr)

        # compress: one latent row and one rotated key, for all heads
        latent, k_rotated = self.compress(x, at)  # latent (B, 1, T, C), k_rotated (B, 1, T, Dr)

        # expand: each head makes a key and a value of its own
        k, v = latent @ self.key_up.mT, latent @ self.value_up.mT  # k (B, H, T, Dn), v (B, H, T, Dv)
        k = torch.cat([k, k_rotated.expand(-1, k.shape[1], -1, -1)], dim=-1)  # k (B, H, T, Dn+Dr)

        # append: the cache keeps the keys and values of all heads
        keys, values = cache.append(k, v)  # keys (B, H, T_total, Dn+Dr), values (B, H, T_total, Dv)

        # score: how well does each query fit each key?
        scores = torch.cat([q, q_rotated], dim=-1) @ keys.mT * self.scale  # scores (B, H, T, T_total)

        # softmax: scores become shares, none of them for a later token
        hidden = ~causal(scores.shape[2], scores.shape[3], x.device)  # hidden (T, T_total)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)  # weights (B, H, T, T_total)

        # mix: each query takes its share of every value
        mixed = weights @ values  # mixed (B, H, T, Dv)

        # output: the heads side by side, back to the width of the model
        return self.output(mixed.transpose(1, 2).flatten(2))  # out (B, T, W)


class Absorbed(LatentAttention):
    """Only the latent row and the rotated key are cached, C + Dr numbers a token; no head has keys or values."""

    def forward(self, x: Tensor, at: Tensor, cache: Cache) -> Tensor:
        # query: a part without a position, a part rotated by it
        q, q_rotated = self.queries(x, at)  # q (B, H, T, Dn), q_rotated (B, H, T, Dr)

        # compress: one latent row and one rotated key, for all heads
        latent, k_rotated = self.compress(x, at)  # latent (B, 1, T, C), k_rotated (B, 1, T, Dr)

        # append: the cache keeps just these
        latents, keys_rotated = cache.append(latent, k_rotated)  # latents (B, 1, T_total, C)

        # absorb: the matrix that would make keys is multiplied into the query
        q_latent = q @ self.key_up  # q_latent (B, H, T, C)

        # score: the query, now as wide as a latent row, meets each row
        scores = (q_latent @ latents.mT + q_rotated @ keys_rotated.mT) * self.scale  # scores (B, H, T, T_total)

        # softmax: scores become shares, none of them for a later token
        hidden = ~causal(scores.shape[2], scores.shape[3], x.device)  # hidden (T, T_total)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)  # weights (B, H, T, T_total)

        # mix: each query takes its share of every latent row
        mixed_latent = weights @ latents  # mixed_latent (B, H, T, C)

        # unfold: the matrix that makes values, once for each query
        mixed = mixed_latent @ self.value_up.mT  # mixed (B, H, T, Dv)

        # output: the heads side by side, back to the width of the model
        return self.output(mixed.transpose(1, 2).flatten(2))  # out (B, T, W)


def latent_twin(theirs: nn.Module, design: LatentDesign, kind: type[LatentAttention]) -> LatentAttention:
    """The same layer on the weights of a layer of transformers (`DeepseekV3Attention`), which are not copied."""
    with torch.device("meta"):
        ours = kind(design)
    state = theirs.state_dict()
    up = state["kv_b_proj.weight"].unflatten(0, (design.heads, design.plain + design.value))  # (H, Dn+Dv, C)
    key_up, value_up = up.split([design.plain, design.value], dim=1)
    names = {
        "query_down": "q_a_proj",
        "query_norm": "q_a_layernorm",
        "query_up": "q_b_proj",
        "down": "kv_a_proj_with_mqa",
        "latent_norm": "kv_a_layernorm",
        "output": "o_proj",
    }
    weights = {f"{ours_name}.weight": state[f"{name}.weight"] for ours_name, name in names.items()}
    ours.load_state_dict({**weights, "key_up": key_up, "value_up": value_up}, assign=True)
    return ours.eval()
