"""The indexer of sparse attention, to be read aloud: a small product over all tokens picks the few that are read.

DeepSeek-V3.2, section 2.1: https://arxiv.org/abs/2512.02556

B sequences, T new tokens, T_total tokens so far (the new ones among them), W numbers a token. Hi small heads have
queries of Di numbers, which are made of the Q numbers that attention's own queries are made of; all share one key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvviz.decoding.scratch.attention import causal
from kvviz.decoding.scratch.cache import Cache
from kvviz.decoding.scratch.parts import LayerNorm


@dataclass(frozen=True)
class IndexerDesign:
    """The sizes of one indexer; it picks the best `most` tokens, and rotates the first `rotated` numbers of a key."""

    width: int
    query_rank: int
    heads: int
    dim: int
    rotated: int
    most: int
    theta: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "IndexerDesign":
        """Read them from a DeepSeek-V3.2 config of transformers, as a dict."""
        return cls(
            width=config["hidden_size"],
            query_rank=config["q_lora_rank"],
            heads=config["index_n_heads"],
            dim=config["index_head_dim"],
            rotated=config["qk_rope_head_dim"],
            most=config["index_topk"],
            theta=config["rope_parameters"]["rope_theta"],
        )


class Indexer(nn.Module):
    """Attention reads the tokens that this picks, and no others. It caches one small key a token."""

    def __init__(self, design: IndexerDesign) -> None:
        super().__init__()
        self.design = design
        self.query = nn.Linear(design.query_rank, design.heads * design.dim, bias=False)
        self.key = nn.Linear(design.width, design.dim, bias=False)
        self.key_norm = LayerNorm(design.dim, 1e-6, bias=True)
        self.weight = nn.Linear(design.width, design.heads, bias=False)

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """RoPE on the first numbers, by the positions `at` (T,): (B, heads, T, Di)."""
        rotated = self.design.rotated
        pair = torch.arange(0, rotated, 2, device=x.device).float() / rotated
        angles = torch.outer(at.float(), self.design.theta**-pair)  # (T, Dr/2)
        left, right, plain = x.split([rotated // 2, rotated // 2, self.design.dim - rotated], dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([left * cos - right * sin, right * cos + left * sin, plain], dim=-1)

    def forward(self, x: Tensor, compressed: Tensor, at: Tensor, cache: Cache) -> Tensor:
        # query: a few small heads ask
        q = self.query(compressed).unflatten(-1, (self.design.heads, -1)).transpose(1, 2)  # q (B, Hi, T, Di)

        # key: one small key for each new token, for all heads
        k = self.key_norm(self.key(x)).unsqueeze(1)  # k (B, 1, T, Di)

        # append: the cache keeps the keys of all tokens, read or not
        keys, _ = cache.append(self.rotate(k, at), k[..., :0])  # keys (B, 1, T_total, Di)

        # fit: how well does each head's query fit each key? Nothing below zero counts
        fits = F.relu(self.rotate(q, at) @ keys.mT / self.design.dim**0.5)  # fits (B, Hi, T, T_total)

        # weigh: the new token says how much each head counts
        weights = self.weight(x).mT.unsqueeze(-1) / self.design.heads**0.5  # weights (B, Hi, T, 1)
        scores = (weights * fits).sum(1)  # scores (B, T, T_total)

        # mask: no later token may be picked
        hidden = ~causal(scores.shape[1], scores.shape[2], x.device)  # hidden (T, T_total)

        # pick: the best few
        most = min(self.design.most, scores.shape[2])
        return scores.masked_fill(hidden, float("-inf")).topk(most).indices  # picked (B, T, most)


def indexer_twin(theirs: nn.Module, design: IndexerDesign) -> Indexer:
    """The same indexer on the weights of one of transformers (`DeepseekV32Indexer`), which are not copied."""
    with torch.device("meta"):
        ours = Indexer(design)
    names = {"query": "wq_b", "key": "wk", "key_norm": "k_norm", "weight": "weights_proj"}
    theirs_by_name = {theirs_name: name for name, theirs_name in names.items()}
    state = {name.partition("."): tensor for name, tensor in theirs.state_dict().items()}
    weights = {f"{theirs_by_name[name]}.{suffix}": tensor for (name, _, suffix), tensor in state.items()}
    ours.load_state_dict(weights, assign=True)
    return ours.eval()
