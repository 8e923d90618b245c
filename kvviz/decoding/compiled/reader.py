"""The transformer from scratch in few operations: torch's fused ones, on the weights as they lie, added in place.

It reads any number of new tokens: the prompt, a chunk of it, and the single tokens of a decode step that is not
compiled (`native.py`) or that a GPU replays (`graph.py`). B sequences, T new tokens, W numbers a token.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvviz.decoding.scratch.cache import Cache
from kvviz.decoding.scratch.model import ACTIVATIONS, Block, GatedMLP, Transformer
from kvviz.decoding.scratch.parts import LayerNorm, RMSNorm
from kvviz.decoding.scratch.positions import Learned, radians_per_token, slopes

Constants = tuple[Tensor | None, Tensor | None]
Rotation = tuple[Tensor, Tensor] | None  # cosines and sines (T, D); None without RoPE
Mask = Tensor | None  # (T, T_total), with ALiBi (H, T, T_total); None: each token attends to itself and those before it


class Reader:
    """A transformer's forward up to the logits of the last token. It copies none of the weights of `twin`."""

    def __init__(self, twin: Transformer) -> None:
        self.design, self.twin = twin.design, twin
        self._layers = [_Layer(block) for block in twin.blocks if isinstance(block, Block)]
        self._activation = ACTIVATIONS[twin.design.activation]

    def constants(self) -> Constants:
        """RoPE's angles a token (D,) and ALiBi's slopes (H, 1, 1), each None for a model without them.

        Every forward makes them anew: a run holds nothing but its cache from step to step.
        """
        design, device = self.design, self.twin.tokens.weight.device
        turns = leaning = None
        if design.rope is not None:
            turns = radians_per_token(design, device).repeat(2)  # the two numbers of a pair stand D/2 apart
        if design.positions == "alibi":
            leaning = torch.tensor(slopes(design.heads), device=device)[:, None, None]
        return turns, leaning

    def __call__(self, ids: Tensor, caches: Sequence[Cache]) -> Tensor:
        """(B, T) new tokens -> logits (B, vocabulary), each cache T tokens longer."""
        past, new = caches[0].seen, ids.shape[1]
        at = torch.arange(past, past + new, device=ids.device)  # (T,)
        allowed = None
        if self.design.positions == "alibi" or (new > 1 and past):  # else all, or torch's own causal case
            allowed = torch.arange(past + new, device=ids.device) <= at[:, None]  # (T, T_total)
        return self.read(ids, at, caches, allowed, self.constants())

    def read(self, ids: Tensor, at: Tensor, caches: Sequence[Cache], allowed: Mask, constants: Constants) -> Tensor:
        """Read at the positions `at` (T,); `allowed` (T, T_total) is what each token may attend to."""
        twin, (turns, leaning) = self.twin, constants
        batch, new = ids.shape
        x = F.embedding(ids, twin.tokens.weight).flatten(0, 1)  # (B*T, W), a copy that is added to in place
        if isinstance(twin.positions, Learned):
            x.view(batch, new, -1).add_(F.embedding(at, twin.positions.table.weight))
        rotation, mask = self._rotation(at, turns, x.dtype), allowed
        if leaning is not None and allowed is not None:
            mask = _distance_bias(leaning, allowed).to(x.dtype)
        for layer, cache in zip(self._layers, caches, strict=True):
            self._block(x, batch, layer, cache, rotation, mask)
        last = x.view(batch, new, -1)[:, -1]
        return F.linear(_norm(last, twin.norm), twin.head.weight)

    def _rotation(self, at: Tensor, turns: Tensor | None, dtype: torch.dtype) -> Rotation:
        """Cosines and sines (T, D), the sines of each pair's first number negated."""
        if turns is None:
            return None
        angles = at.float()[:, None] * turns
        sin = angles.sin()
        sin[:, : self.design.head_dim // 2].neg_()
        return angles.cos().to(dtype), sin.to(dtype)

    def _block(self, x: Tensor, batch: int, layer: "_Layer", cache: Cache, rotation: Rotation, mask: Mask) -> None:
        """Run one layer, which adds to x (B*T, W) in place."""
        block, attention, mlp = layer.block, layer.block.attention, layer.block.mlp
        q, k, v = layer.projected(_norm(x, block.attention_norm), batch, self.design.head_dim)  # (B, heads, T, D)
        q, k = _norm(q, attention.query_norm), _norm(k, attention.key_norm)
        if rotation is not None:
            q, k = _rotated(q, *rotation), _rotated(k, *rotation)
        mixed = self._attended(q, *cache.append(k, v), mask)  # (B, H, T, D)
        _add(x, mixed.transpose(1, 2).reshape(x.shape[0], -1), attention.output)
        h = _norm(x, block.mlp_norm)
        up = F.linear(h, mlp.up.weight, mlp.up.bias)
        if isinstance(mlp, GatedMLP):
            up = self._activation(F.linear(h, mlp.gate.weight, mlp.gate.bias)).mul_(up)
        else:
            up = self._activation(up)
        _add(x, up, mlp.down)

    def _attended(self, q: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        """Attention (B, H, T, D); a single token is done by hand, so that shared heads are read once."""
        causal, grouped = mask is None and q.shape[2] > 1, self.design.heads != self.design.kv_heads
        if q.shape[2] > 1 or not grouped:
            return F.scaled_dot_product_attention(q, keys, values, mask, is_causal=causal, enable_gqa=grouped)
        per_head = q.view(q.shape[0], self.design.kv_heads, -1, q.shape[3])  # (B, Hkv, H/Hkv, D)
        scores = (per_head / self.design.head_dim**0.5) @ keys.transpose(-2, -1)  # (B, Hkv, H/Hkv, T_total)
        if mask is not None:
            scores.masked_fill_(~mask, float("-inf"))
        return (scores.softmax(-1) @ values).view(q.shape)


class _Layer:
    """A block; its query, key and value are one product if the checkpoint keeps them in one tensor."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._three = block.attention.query, block.attention.key, block.attention.value
        self._sizes = [part.weight.shape[0] for part in self._three]
        self._fused, self._bias = one_product(self._three)

    def projected(self, h: Tensor, batch: int, head_dim: int) -> list[Tensor]:
        """Project h (B*T, W) to queries, keys and values, each (B, heads, T, D)."""
        if self._fused is None:
            three = [F.linear(h, part.weight, part.bias) for part in self._three]
        else:
            three = list(F.linear(h, self._fused, self._bias).split(self._sizes, dim=-1))
        return [one.view(batch, -1, one.shape[-1] // head_dim, head_dim).transpose(1, 2) for one in three]


def one_product(parts: Sequence[nn.Linear]) -> tuple[Tensor | None, Tensor | None]:
    """Return the weight and the bias of products that lie one behind the other in memory; no weight if they don't."""
    weight = joined([part.weight for part in parts])
    biases = [part.bias for part in parts if part.bias is not None]
    bias = joined(biases) if len(biases) == len(parts) else None
    return (None, None) if biases and bias is None else (weight, bias)


def joined(parts: Sequence[Tensor]) -> Tensor | None:
    """View tensors that lie one behind the other in one storage as one tensor; None if they don't lie so."""
    head, end = parts[0], parts[0].storage_offset()
    for part in parts:
        same = part.untyped_storage().data_ptr() == head.untyped_storage().data_ptr()
        alike = part.stride() == head.stride() and part.shape[1:] == head.shape[1:]
        if not same or not alike or part.storage_offset() != end:
            return None
        end += part.shape[0] * part.stride(0)
    return head.as_strided((sum(part.shape[0] for part in parts), *head.shape[1:]), head.stride())


def _norm(x: Tensor, norm: RMSNorm | LayerNorm | nn.Identity) -> Tensor:
    if isinstance(norm, RMSNorm):
        return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)
    if isinstance(norm, nn.Identity):
        return x
    bias = norm.bias if isinstance(norm.bias, Tensor) else None
    return F.layer_norm(x, x.shape[-1:], norm.weight, bias, norm.eps)


def _distance_bias(leaning: Tensor, allowed: Tensor) -> Tensor:
    """ALiBi's addition to the scores, (H, T, T_total); it counts from the first token, since softmax drops a shift."""
    added = leaning * torch.arange(allowed.shape[1], device=allowed.device)
    return added.masked_fill(~allowed, float("-inf"))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys (B, heads, T, D) rotated by their position; a roll swaps the two numbers of each pair."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _add(x: Tensor, h: Tensor, part: nn.Linear) -> None:
    """Add h times a weight, plus its bias, to x (B*T, W) in place."""
    if part.bias is None:
        x.addmm_(h, part.weight.t())
    else:
        x.add_(F.linear(h, part.weight, part.bias))
