import torch

from kvviz.caches.base import KVCache, Pair

NAMES = ("keys.codes", "keys.scale", "values.codes", "values.scale")


class Int8(KVCache):
    title = "Int8"
    summary = "a byte for each number, and a scale for each token of each head: lossy"
    exact = False
    windows = "theirs"  # a layer with a window stays transformers' own: this class need not think of windows
    exercise = "int8"

    parts: tuple[torch.Tensor, ...] = ()  # in the order of NAMES: (B, Hkv, T, D), (B, Hkv, T, 1), and again

    def codes(self, x: torch.Tensor) -> Pair:
        """Turn numbers (B, Hkv, T, D) into codes of the same shape and their scales (B, Hkv, T, 1) in float32."""
        # solution
        scale = x.abs().amax(dim=3, keepdim=True).float().clamp(min=1e-9) / 127
        return (x.float() / scale).round().to(torch.int8), scale
        # or, to start from
        # return x.clone(), torch.ones_like(x[..., :1], dtype=torch.float32)  # yours: these are no codes yet
        # end

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Take the T new tokens of a prefill or a step, k and v (B, Hkv, T, D); return all, (B, Hkv, T_all, D)."""
        new = (*self.codes(k), *self.codes(v))
        old = self.parts or tuple(part[:, :, :0] for part in new)
        self.parts = tuple(torch.cat(pair, dim=2) for pair in zip(old, new, strict=True))
        self.copied = sum(part.nbytes for part in self.parts)
        self.seen = self.held = self.seen + k.shape[2]
        codes_k, scale_k, codes_v, scale_v = self.parts
        keys, values = (codes_k * scale_k).to(k.dtype), (codes_v * scale_v).to(v.dtype)
        self.gathered = keys.nbytes + values.nbytes
        return keys, values

    def filled(self) -> dict[str, torch.Tensor]:
        """All that is kept, by name."""
        return dict(zip(NAMES, self.parts, strict=False))

    def _crop(self, tokens: int) -> None:
        """Forget the newest tokens."""
        self.parts = tuple(part[:, :, : self.held - tokens] for part in self.parts)

    def free(self) -> None:
        """Release everything."""
        super().free()
        self.parts = ()

    @classmethod
    def formula(cls, tokens: int, window: int | None, heads: int, key_dim: int, value_dim: int, element: int) -> int:
        """A byte for each number, and 4 bytes for each scale: one of keys, one of values."""
        return tokens * heads * (key_dim + value_dim + 2 * 4)
