"""Keys and values as small whole numbers: 8, 4 or 2 bits an element, the newest tokens in full precision.

    code = round((x - zero) / scale),  x' = code * scale + zero,  zero = min,  scale = (max - min) / (2^bits - 1)

With 4 bits, the numbers -1.0, 0.2 and 2.0 have zero = -1.0 and scale = 3.0 / 15 = 0.2, so their codes are 0, 6 and 15.

Keys have channels that stand out at every token, so a scale serves one channel over a group of tokens; values have
none, so a scale serves one token over its channels. The newest tokens wait in full precision until a group is full.
KIVI, https://arxiv.org/abs/2402.02750

Another way with channels that stand out: rotate each head before it becomes codes and back after, so that what was in
one channel is spread over all. Then a scale for each token does for keys too. QuaRot, https://arxiv.org/abs/2404.00456
"""

import math
from functools import reduce
from typing import NamedTuple

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import InTensors, Pair, Picture
from kvviz.caches.designs import GROUP, RESIDUAL

BY_CHANNEL, BY_TOKEN = 3, 4  # the axis of (B, Hkv, groups, GROUP, D) that shares a scale: of keys, of values


class Codes(NamedTuple):
    """Whole groups of tokens: `codes` (B, Hkv, tokens x bits / 8, D) in bytes, and the `scale` and `zero` they need."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor, bits: int, axis: int) -> "Codes":
        """Quantize x (B, Hkv, groups, GROUP, D); the numbers along `axis` (BY_CHANNEL or BY_TOKEN) share a scale."""
        low, high = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
        half = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16
        levels = 2**bits - 1
        zero, scale = low.to(half), ((high - low).float() / levels).clamp(min=1e-7).to(half)
        codes = ((x.float() - zero.float()) / scale.float()).round().clamp(0, levels).to(torch.uint8)
        return cls(*(part.flatten(2, 3) for part in (_packed(codes, bits), scale, zero)))

    def numbers(self, bits: int, axis: int, dtype: torch.dtype) -> torch.Tensor:
        """The numbers (B, Hkv, tokens, D) that the codes stand for."""
        codes = _unpacked(self.codes, bits).unflatten(2, (-1, GROUP))  # (B, Hkv, groups, GROUP, D)
        scales = 1 if axis == BY_CHANNEL else GROUP  # of a group
        scale, zero = (part.unflatten(2, (-1, scales)).float() for part in (self.scale, self.zero))
        return (codes * scale + zero).to(dtype).flatten(2, 3)

    def then(self, later: "Codes") -> "Codes":
        """These groups followed by later ones."""
        return Codes(*(torch.cat(pair, dim=2) for pair in zip(self, later, strict=True)))

    def without(self, groups: int, of: int) -> "Codes":
        """These `of` groups without the first `groups`, in memory of their own."""
        return Codes(*(part[:, :, part.shape[2] // of * groups :].clone() for part in self))

    def rows(self, rows: torch.Tensor) -> "Codes":
        """The codes of these sequences, in this order."""
        return Codes(*(part.index_select(0, rows) for part in self))


def _packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Put the codes of 8 / bits tokens in a byte: (B, Hkv, groups, GROUP, D) -> (B, Hkv, groups, GROUP x bits / 8, D).

    The first token takes the lowest bits: codes 6 and 15 of 4 bits become 15 * 16 + 6 = 246.
    """
    each = 8 // bits
    return reduce(torch.bitwise_or, (codes[:, :, :, i::each] << bits * i for i in range(each)))


def _unpacked(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Undo `_packed`: (B, Hkv, bytes, D) -> (B, Hkv, tokens, D), a byte for each element."""
    each = [codes >> bits * i & 2**bits - 1 for i in range(8 // bits)]
    return torch.stack(each, dim=3).flatten(2, 3)


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotate each row of x (..., D) by a Hadamard matrix, in float32; the same again undoes it.

    Sums and differences of halves, log2(D) times, and no matrix is kept. A D that is no power of two is rotated in
    parts of the largest power that divides it: 80 = 5 x 16.
    """
    width, dim, span = x.shape[-1] & -x.shape[-1], x.shape[-1], 1
    x = x.float()
    while span < width:
        a, b = x.unflatten(-1, (-1, 2, span)).unbind(-2)  # (..., D / (2 span), span) each
        x, span = torch.stack([a + b, a - b], dim=-2).flatten(-3), 2 * span
    return (x / math.sqrt(width)).view(*x.shape[:-1], dim)


class Quantized(InTensors):
    """`old` is keys and values as codes, None before a group is full; `keys` and `values`, (B, Hkv, T, D), are newer.

    T is RESIDUAL to RESIDUAL + GROUP - 1 once there are codes. Each append turns all codes back into numbers for
    attention; a kernel would do that where it multiplies.
    """

    exact = False
    bits: int
    key_axis = BY_CHANNEL
    old: tuple[Codes, Codes] | None = None
    groups = 0  # groups of tokens that are held as codes
    dropped = 0  # groups that a window has moved past

    @classmethod
    def formula(cls, tokens: int, window: int | None, heads: int, key_dim: int, value_dim: int, element: int) -> int:
        """Groups of codes with their scales, and the newest tokens in full precision.

        A scale and a zero have 2 bytes each: for each channel of a group of keys (or for each token of them), and for
        each token of values.
        """
        groups = max(0, (tokens - RESIDUAL) // GROUP)
        newest = tokens - groups * GROUP
        groups -= 0 if window is None else min(groups, max(0, tokens - window + 1) // GROUP)
        codes = groups * GROUP * (key_dim + value_dim) * cls.bits // 8
        scales = 4 * groups * ((key_dim if cls.key_axis == BY_CHANNEL else GROUP) + GROUP)
        return heads * (codes + scales + newest * (key_dim + value_dim) * element)

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        keys, values = (k, v) if not self.seen else (torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2))
        self.seen += k.shape[2]
        self.held += k.shape[2]
        everything = self._with_numbers(keys, values)
        self._quantize_oldest(keys, values)
        self._drop_behind_window()
        return everything

    def _with_numbers(self, keys: torch.Tensor, values: torch.Tensor) -> Pair:
        """The numbers of all groups, followed by the newest tokens: (B, Hkv, held, D)."""
        if self.old is None:
            return keys, values
        old_keys, old_values = self.old
        keys = torch.cat([self._turned(old_keys.numbers(self.bits, self.key_axis, keys.dtype)), keys], dim=2)
        values = torch.cat([self._turned(old_values.numbers(self.bits, BY_TOKEN, values.dtype)), values], dim=2)
        self.gathered = keys.nbytes + values.nbytes
        return keys, values

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """Turn numbers (B, Hkv, T, D) into those that become codes; the same again undoes it."""
        return x

    def _quantize_oldest(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Turn the oldest whole groups into codes, so that at least RESIDUAL tokens stay in full precision."""
        count = max(0, (keys.shape[2] - RESIDUAL) // GROUP)
        done = count * GROUP
        if count:
            old = (self._turned(x[:, :, :done]) for x in (keys, values))
            grouped_keys, grouped_values = (x.unflatten(2, (count, GROUP)) for x in old)
            new = Codes.of(grouped_keys, self.bits, self.key_axis), Codes.of(grouped_values, self.bits, BY_TOKEN)
            self.old = new if self.old is None else (self.old[0].then(new[0]), self.old[1].then(new[1]))
            self.groups += count
            self.copied += sum(part.nbytes for codes in self.old for part in codes)
        # in memory of their own: a view would keep the whole prompt alive
        self.keys, self.values = keys[:, :, done:].clone(), values[:, :, done:].clone()
        self.copied += self.keys.nbytes + self.values.nbytes

    def _drop_behind_window(self) -> None:
        """Drop the groups that a window has moved past."""
        drop = min(self.behind // GROUP - self.dropped, self.groups)
        if drop <= 0 or self.old is None:
            return
        keys, values = self.old
        self.old = keys.without(drop, self.groups), values.without(drop, self.groups)
        self.dropped, self.groups = self.dropped + drop, self.groups - drop
        self.held -= drop * GROUP

    def filled(self) -> dict[str, torch.Tensor]:
        tensors = {"keys": self.keys, "values": self.values}
        for name, codes in zip(("keys", "values"), self.old or (), strict=False):
            tensors |= {f"{name}.codes": codes.codes, f"{name}.scale": codes.scale, f"{name}.zero": codes.zero}
        return tensors

    @property
    def stored_as(self) -> str:
        return f"int{self.bits}"

    @property
    def beside_bytes(self) -> int:
        return sum(t.nbytes for name, t in self.filled().items() if name.endswith(("scale", "zero")))

    def _crop(self, tokens: int) -> None:
        newest = self.keys.shape[2]
        if tokens > newest:
            raise KvvizError(f"only the newest {newest:,} tokens are still in full precision; older ones are codes")
        self.keys, self.values = self.keys[:, :, : newest - tokens], self.values[:, :, : newest - tokens]

    def reorder(self, rows: torch.Tensor) -> None:
        super().reorder(rows)
        if self.old is not None:
            self.old = self.old[0].rows(rows), self.old[1].rows(rows)

    def free(self) -> None:
        super().free()
        self.old = None
        self.groups = self.dropped = 0

    def picture(self) -> Picture:
        """Groups of codes, the tokens still in full precision, and the bytes of each part."""
        tensors = self.filled()
        return {
            "kind": "codes",
            "bits": self.bits,
            "group": GROUP,
            "groups": self.groups,
            "left_behind": self.dropped,
            "residual": self.keys.shape[2],
            "codes_bytes": sum(t.nbytes for name, t in tensors.items() if name.endswith("codes")),
            "scale_bytes": self.beside_bytes,
            "residual_bytes": sum(t.nbytes for name, t in tensors.items() if "." not in name),
        }


class Int8(Quantized):
    """A byte for each number: a quarter of float32, half of bfloat16, and a little for the scales."""

    bits = 8


class Int4(Quantized):
    """Half a byte for each number."""

    bits = 4


class Int2(Quantized):
    """A quarter of a byte for each number: four levels, which a channel that stands out would take for itself."""

    bits = 2


class Rotated2(Int2):
    """Two bits again, of rotated heads: no channel stands out, so each token of keys has one scale."""

    key_axis = BY_TOKEN

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        return rotated(x).to(x.dtype)
