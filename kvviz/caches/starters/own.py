import torch

from kvviz.caches.base import InTensors, Pair


class Own(InTensors):
    title = "Own"
    summary = "what it keeps, and what it costs, in one line"
    exact = True  # attention gets the very numbers that came; write False for a design that loses some

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Take the T new tokens of a prefill or a step, k and v (B, Hkv, T, D); return all, (B, Hkv, T_all, D)."""
        # solution
        if self.seen:
            keys, values = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
        else:
            keys, values = k.clone(), v.clone()  # as views they would keep the queries beside them in memory
        # or, to start from
        # keys, values = k, v  # yours: attention needs the tokens of the appends before, too
        # end
        self.seen += k.shape[2]
        self.held = min(keys.shape[2], self.seen - self.behind)  # a window lets go of the tokens behind it
        self.copied = keys.nbytes + values.nbytes
        self.keys, self.values = (x[:, :, x.shape[2] - self.held :] for x in (keys, values))
        return keys, values

    def _crop(self, tokens: int) -> None:
        """Forget the newest tokens."""
        self.keys, self.values = self.keys[:, :, : self.held - tokens], self.values[:, :, : self.held - tokens]

    @classmethod
    def formula(cls, tokens: int, window: int | None, heads: int, key_dim: int, value_dim: int, element: int) -> int:
        """Bytes that a layer keeps of one sequence after so many tokens; a number takes `element` bytes."""
        held = tokens if window is None else min(tokens, window - 1)
        return held * heads * (key_dim + value_dim) * element
