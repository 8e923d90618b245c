"""Keys and values as small whole numbers: 8 or 4 bits an element, the newest tokens in full precision.

    code = round((x - zero) / scale),  x' = code * scale + zero,  zero = min,  scale = (max - min) / (2^bits - 1)

Keys have channels that stand out at every token, so a scale serves one channel over a group of tokens; values have
none, so a scale serves one token over its channels. The newest tokens wait in full precision until a group is full.
KIVI, https://arxiv.org/abs/2402.02750
"""

from dataclasses import dataclass
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import InTensors, Pair, size

GROUP = 32  # tokens that share a scale in each channel of the keys, as in the paper
RESIDUAL = 32  # newest tokens that always stay in full precision; the paper has 128, too many for a short run to show


@dataclass(frozen=True)
class Codes:
    """Whole groups of tokens: `codes` (B, Hkv, tokens x bits / 8, D) bytes, `scale` and `zero` of those they serve."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor, bits: int, axis: int) -> "Codes":
        """Of x (B, Hkv, groups, GROUP, D), one scale for all along `axis`: 3 the tokens of a group, 4 the channels."""
        low, high = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
        half = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16
        levels = 2**bits - 1
        zero, scale = low.to(half), ((high - low).float() / levels).clamp(min=1e-7).to(half)
        codes = ((x.float() - zero.float()) / scale.float()).round().clamp(0, levels).to(torch.uint8)
        return cls(*(part.flatten(2, 3) for part in (_packed(codes, bits), scale, zero)))

    def numbers(self, bits: int, axis: int, dtype: torch.dtype) -> torch.Tensor:
        """Back to (B, Hkv, tokens, D), as near as the codes are."""
        codes = _unpacked(self.codes, bits).unflatten(2, (-1, GROUP))  # (B, Hkv, groups, GROUP, D)
        each = 1 if axis == 3 else GROUP  # scales of a group
        scale, zero = (part.unflatten(2, (-1, each)).float() for part in (self.scale, self.zero))
        return (codes * scale + zero).to(dtype).flatten(2, 3)

    def then(self, later: "Codes") -> "Codes":
        """These groups and later ones."""
        return Codes(*(torch.cat(pair, dim=2) for pair in zip(self.parts, later.parts, strict=True)))

    def without(self, groups: int, of: int) -> "Codes":
        """These `of` groups without the first `groups`, in memory of their own."""
        return Codes(*(part[:, :, part.shape[2] // of * groups :].clone() for part in self.parts))

    def rows(self, rows: torch.Tensor) -> "Codes":
        """Of these sequences, in this order."""
        return Codes(*(part.index_select(0, rows) for part in self.parts))

    @property
    def parts(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The three tensors."""
        return self.codes, self.scale, self.zero


def _packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Of 4 bits each, two tokens in a byte: (B, Hkv, groups, GROUP, D) -> (B, Hkv, groups, GROUP / 2, D)."""
    return codes if bits == 8 else codes[:, :, :, 0::2] | codes[:, :, :, 1::2] << 4


def _unpacked(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """A byte for each element: (B, Hkv, bytes, D) -> (B, Hkv, tokens, D)."""
    return codes if bits == 8 else torch.stack([codes & 15, codes >> 4], dim=3).flatten(2, 3)


class Quantized(InTensors):
    """`old_keys` and `old_values` in codes; `keys` and `values` as they came, (B, Hkv, T, D).

    T is RESIDUAL to RESIDUAL + GROUP - 1 once there are codes. Attention gets numbers that are made from the codes anew
    at each append; a kernel would do that where it multiplies.
    """

    exact = False
    gathers = True
    bits: int

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.old_keys: Codes | None = None
        self.old_values: Codes | None = None
        self.groups = 0  # of tokens, that are there as codes
        self.gone = 0  # groups that a window has left behind

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        keys, values = (k, v) if self.keys is None else (torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2))
        self.seen += k.shape[2]
        self.held += k.shape[2]
        everything = self._with_codes(keys, values)
        self._settle(keys, values)
        self._leave()
        return everything

    def _with_codes(self, keys: torch.Tensor, values: torch.Tensor) -> Pair:
        """The numbers of all groups, and after them the newest tokens as they are: (B, Hkv, held, D)."""
        if self.old_keys is None:
            return keys, values
        keys = torch.cat([self.old_keys.numbers(self.bits, 3, keys.dtype), keys], dim=2)
        values = torch.cat([self.old_values.numbers(self.bits, 4, values.dtype), values], dim=2)
        self.gathered = size(keys) + size(values)
        return keys, values

    def _settle(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep the newest tokens as they are; the oldest groups of what is too many become codes."""
        count = max(0, (keys.shape[2] - RESIDUAL) // GROUP)
        done = count * GROUP
        if count:
            grouped = (x[:, :, :done].unflatten(2, (count, GROUP)) for x in (keys, values))
            new_keys, new_values = (Codes.of(x, self.bits, axis) for x, axis in zip(grouped, (3, 4), strict=True))
            self.old_keys = new_keys if self.old_keys is None else self.old_keys.then(new_keys)
            self.old_values = new_values if self.old_values is None else self.old_values.then(new_values)
            self.groups += count
            self.copied += sum(size(part) for codes in (self.old_keys, self.old_values) for part in codes.parts)
        # in memory of their own, lest a view keep the whole prompt
        self.keys, self.values = keys[:, :, done:].clone(), values[:, :, done:].clone()
        self.copied += size(self.keys) + size(self.values)

    def _leave(self) -> None:
        """Let go of groups that a window has left behind."""
        drop = min(self.behind // GROUP - self.gone, self.groups)
        if drop <= 0:
            return
        self.old_keys = self.old_keys.without(drop, self.groups)
        self.old_values = self.old_values.without(drop, self.groups)
        self.gone, self.groups = self.gone + drop, self.groups - drop
        self.held -= drop * GROUP

    def filled(self) -> dict[str, torch.Tensor]:
        if self.keys is None:
            return {}
        found = {"keys": self.keys, "values": self.values}
        for name, codes in (("keys", self.old_keys), ("values", self.old_values)):
            if codes is not None:
                found |= {f"{name}.codes": codes.codes, f"{name}.scale": codes.scale, f"{name}.zero": codes.zero}
        return found

    @property
    def stored_as(self) -> str:
        return f"int{self.bits}"

    @property
    def beside_bytes(self) -> int:
        return sum(size(t) for name, t in self.filled().items() if name.endswith(("scale", "zero")))

    def crop(self, tokens: int) -> None:
        self.check_crop(tokens)
        left = 0 if self.keys is None else self.keys.shape[2]
        if tokens > left:
            raise KvvizError(f"the newest {left:,} tokens are still as they came; further back only codes are left")
        self.seen, self.held = self.seen - tokens, self.held - tokens
        self.keys, self.values = self.keys[:, :, : left - tokens], self.values[:, :, : left - tokens]

    def reorder(self, rows: torch.Tensor) -> None:
        super().reorder(rows)
        if self.old_keys is not None:
            self.old_keys, self.old_values = self.old_keys.rows(rows), self.old_values.rows(rows)

    def free(self) -> None:
        super().free()
        self.old_keys = self.old_values = None
        self.groups = self.gone = 0

    def picture(self) -> dict[str, Any]:
        """Groups of codes, the tokens still in full precision, and bytes by what they are."""
        tensors = self.filled()
        return {
            "kind": "codes",
            "bits": self.bits,
            "group": GROUP,
            "groups": self.groups,
            "left_behind": self.gone,
            "residual": 0 if self.keys is None else self.keys.shape[2],
            "codes_bytes": sum(size(t) for name, t in tensors.items() if name.endswith("codes")),
            "scale_bytes": self.beside_bytes,
            "residual_bytes": sum(size(t) for name, t in tensors.items() if "." not in name),
        }


class Int8(Quantized):
    """A byte for each number: a quarter of float32, half of bfloat16, and a little for the scales."""

    bits = 8


class Int4(Quantized):
    """Half a byte for each number."""

    bits = 4
