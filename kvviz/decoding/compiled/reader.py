"""The transformer from scratch in few operations: torch's own fused ones, weights as they lie, sums added in place.

It reads any number of new tokens: the prompt, a piece of it, and the single tokens of a decode step where there is no
compiled one (`native.py`) or where a GPU replays it (`graph.py`). B sequences, T new tokens, W numbers a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kvviz.decoding.scratch.cache import Cache
from kvviz.decoding.scratch.model import ACTIVATIONS, Transformer
from kvviz.decoding.scratch.positions import SCALINGS, slopes


class Reader:
    """A transformer's forward up to the logits of the last token. The weights are `twin`'s, none is copied."""

    def __init__(self, twin: Transformer) -> None:
        self.design = design = twin.design
        self._twin, self._blocks = twin, [_Layer(block) for block in twin.blocks]
        self._bend = ACTIVATIONS[design.activation]

    def constants(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """RoPE's angles a token (D,) and ALiBi's slopes (H, 1, 1), where the model has them.

        Made anew for a forward: what a run holds from step to step is its cache alone.
        """
        design, device = self.design, self._twin.tokens.weight.device
        turns = leaning = None
        if design.rope is not None:
            pair = torch.arange(0, design.head_dim, 2, device=device).float() / design.head_dim
            turns = SCALINGS[design.rope.kind](1.0 / design.rope.theta**pair, design.rope)
            turns = torch.cat([turns, turns])  # the two numbers of a pair stand D/2 apart
        if design.positions == "alibi":
            leaning = torch.tensor(slopes(design.heads), device=device)[:, None, None]
        return turns, leaning

    def __call__(self, ids: torch.Tensor, caches: Sequence[Cache]) -> torch.Tensor:
        """(B, T) new tokens -> logits (B, vocabulary), each cache T tokens longer."""
        past, new = caches[0].seen, ids.shape[1]
        at = torch.arange(past, past + new, device=ids.device)  # (T,)
        causal = None
        if new > 1 and (
            past or self.design.positions == "alibi"
        ):  # a first piece without ALiBi is torch's own causal case
            causal = torch.arange(past + new, device=ids.device) <= at[:, None]  # (T, T_total)
        return self.read(ids, at, caches, causal, self.constants(), first=new > 1 and causal is None)

    def read(
        self,
        ids: torch.Tensor,
        at: torch.Tensor,
        caches: Sequence[Cache],
        allowed: torch.Tensor | None,
        constants: tuple[torch.Tensor | None, torch.Tensor | None],
        *,
        first: bool = False,
    ) -> torch.Tensor:
        """The same at the positions `at` (T,); `allowed` (T, T_total): what each may look at, None for all.

        `first`: they are all there are, and each may look at itself and back.
        """
        twin = self._twin
        batch, new = ids.shape
        x = F.embedding(ids, twin.tokens.weight).flatten(0, 1)  # (B*T, W), a copy that is added to in place
        if self.design.positions == "learned":
            x.view(batch, new, -1).add_(F.embedding(at, twin.positions.table.weight))
        place, leaning = self._place(at, constants[0], x.dtype), constants[1]
        for layer, cache in zip(self._blocks, caches, strict=True):
            self._block(x, batch, layer, cache, _Where(place, leaning, allowed, first))
        last = x.view(batch, new, -1)[:, -1]
        return F.linear(self._norm(last, twin.norm), twin.head.weight)

    def _place(
        self, at: torch.Tensor, turns: torch.Tensor | None, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Cosines (T, D) and sines, those of each pair's first number turned about; None without RoPE."""
        if turns is None:
            return None
        angles = at.float()[:, None] * turns
        sin = angles.sin()
        sin[:, : self.design.head_dim // 2].neg_()
        return angles.cos().to(dtype), sin.to(dtype)

    def _block(self, x: torch.Tensor, batch: int, layer: "_Layer", cache: Cache, where: "_Where") -> None:
        """One layer: adds to x (B*T, W) in place."""
        design = self.design
        q, k, v = layer.projected(self._norm(x, layer.attention_norm), batch, design.head_dim)  # (B, heads, T, D)
        if design.qk_norm:
            q, k = self._norm(q, layer.query_norm), self._norm(k, layer.key_norm)
        if where.place is not None:
            q, k = _turned(q, *where.place), _turned(k, *where.place)
        keys, values = cache.append(k, v)
        mixed = self._attended(q, keys, values, where)  # (B, H, T, D)
        _add(x, mixed.transpose(1, 2).reshape(x.shape[0], -1), layer.output)
        h = self._norm(x, layer.mlp_norm)
        up = F.linear(h, layer.up.weight, layer.up.bias)
        if layer.gate is None:
            up = self._bend(up)
        else:
            up = self._bend(F.linear(h, layer.gate.weight, layer.gate.bias)).mul_(up)
        _add(x, up, layer.down)

    def _attended(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, where: "_Where") -> torch.Tensor:
        """Attention (B, H, T, D); one token alone goes by hand, so that shared heads are read once."""
        mask = where.allowed if where.leaning is None else _leaning(q, keys, where)
        grouped = self.design.heads != self.design.kv_heads
        if q.shape[2] > 1 or not grouped or where.leaning is not None:
            return F.scaled_dot_product_attention(q, keys, values, mask, is_causal=where.first, enable_gqa=grouped)
        per_head = q.view(q.shape[0], self.design.kv_heads, -1, q.shape[3])  # (B, Hkv, H/Hkv, D)
        scores = (per_head / self.design.head_dim**0.5) @ keys.transpose(-2, -1)  # (B, Hkv, H/Hkv, T_total)
        if mask is not None:
            scores.masked_fill_(~mask, float("-inf"))
        return (scores.softmax(-1) @ values).view(q.shape)

    def _norm(self, x: torch.Tensor, norm: torch.nn.Module) -> torch.Tensor:
        if self.design.norm == "rms":
            return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)
        bias = norm.bias if isinstance(norm.bias, torch.Tensor) else None
        return F.layer_norm(x, x.shape[-1:], norm.weight, bias, norm.eps)


@dataclass(frozen=True)
class _Where:
    """Where the new tokens stand, as attention has to know it."""

    place: tuple[torch.Tensor, torch.Tensor] | None
    leaning: torch.Tensor | None
    allowed: torch.Tensor | None
    first: bool


class _Layer:
    """One block's parts; its query, key and value as one product where the checkpoint keeps them in one tensor."""

    def __init__(self, block: torch.nn.Module) -> None:
        attention, mlp = block.attention, block.mlp
        self.attention_norm, self.mlp_norm = block.attention_norm, block.mlp_norm
        self.query_norm, self.key_norm = attention.query_norm, attention.key_norm
        self.output, self.up, self.down, self.gate = attention.output, mlp.up, mlp.down, getattr(mlp, "gate", None)
        self._three = attention.query, attention.key, attention.value
        self._sizes = [part.weight.shape[0] for part in self._three]
        self._fused = joined([part.weight for part in self._three])
        biases = [part.bias for part in self._three]
        self._bias = None if biases[0] is None else joined(biases)
        if biases[0] is not None and self._bias is None:
            self._fused = None

    def projected(self, h: torch.Tensor, batch: int, head_dim: int) -> list[torch.Tensor]:
        """Queries, keys and values, each (B, heads, T, D), of h (B*T, W)."""
        if self._fused is None:
            three = [F.linear(h, part.weight, part.bias) for part in self._three]
        else:
            three = F.linear(h, self._fused, self._bias).split(self._sizes, dim=-1)
        return [one.view(batch, -1, one.shape[-1] // head_dim, head_dim).transpose(1, 2) for one in three]


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Tensors that lie one behind the other in one storage as one tensor, a view; None where they don't."""
    head, end = parts[0], parts[0].storage_offset()
    for part in parts:
        same = part.untyped_storage().data_ptr() == head.untyped_storage().data_ptr()
        if not same or part.stride() != head.stride() or part.shape[1:] != head.shape[1:]:
            return None
        if part.storage_offset() != end:
            return None
        end += part.shape[0] * part.stride(0)
    return head.as_strided((sum(part.shape[0] for part in parts), *head.shape[1:]), head.stride())


def _leaning(q: torch.Tensor, keys: torch.Tensor, where: _Where) -> torch.Tensor:
    """ALiBi as what is added to the scores, (H, T, T_total): a row's shift changes no share."""
    places = torch.arange(keys.shape[2], device=q.device)
    added = (where.leaning * places).expand(-1, q.shape[2], -1)
    return (added if where.allowed is None else added.masked_fill(~where.allowed, float("-inf"))).to(q.dtype)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Queries or keys (B, heads, T, D) turned by their position: each pair's numbers changed about are a roll."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _add(x: torch.Tensor, h: torch.Tensor, part: torch.nn.Module) -> None:
    """x (B*T, W) += h times a weight, plus its bias."""
    if part.bias is None:
        x.addmm_(h, part.weight.t())
    else:
        x.add_(F.linear(h, part.weight, part.bias))
