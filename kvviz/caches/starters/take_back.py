import torch

from kvviz.caches.base import InTensors, Pair


class TakeBack(InTensors):
    title = "TakeBack"
    summary = "joins new tokens to the old ones, and can take proposals back that were rejected"
    exercise = "take-back"

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Take the T new tokens of a prefill or a step, k and v (B, Hkv, T, D); return all, (B, Hkv, T_all, D)."""
        old_keys, old_values = (self.keys, self.values) if self.seen else (k[:, :, :0], v[:, :, :0])
        keys, values = torch.cat([old_keys, k], dim=2), torch.cat([old_values, v], dim=2)
        self.copied = keys.nbytes + values.nbytes
        self.seen += k.shape[2]
        self.held = min(keys.shape[2], self.seen - self.behind)  # a window lets go of the tokens behind it
        self.keys, self.values = (x[:, :, x.shape[2] - self.held :] for x in (keys, values))
        return keys, values

    def _crop(self, tokens: int) -> None:
        """Take the newest tokens back: `held` still counts them here, and is lowered afterwards."""
        # solution
        left = self.held - tokens
        self.keys, self.values = self.keys[:, :, :left], self.values[:, :, :left]
        # or, to start from
        # pass  # yours: the rejected tokens are still in self.keys and self.values
        # end
