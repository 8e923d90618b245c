"""The naive cache: each append joins the new keys and values to the old ones in a new tensor.

A step at context T copies all T tokens, so writing n tokens one by one copies n (n + 1) / 2 of them. `torch.cat` in a
loop does this, and so does transformers' DynamicCache
(https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/cache_utils.py).
"""

import torch

from kvviz.caches.base import InTensors, Pair


class Concat(InTensors):
    """`keys` and `values`, (B, Hkv, held, D), are new tensors after each append.

    With a window of W, the newest W - 1 tokens are kept: a view of the joined tensor, until the next append.
    """

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        old = ([self.keys], [self.values]) if self.seen else ([], [])
        keys, values = torch.cat([*old[0], k], dim=2), torch.cat([*old[1], v], dim=2)  # (B, Hkv, T_all, D)
        self.copied = keys.nbytes + values.nbytes
        self.seen += k.shape[2]
        self.held = min(keys.shape[2], self.seen - self.behind)
        self.keys, self.values = (x[:, :, x.shape[2] - self.held :] for x in (keys, values))
        return keys, values

    def _crop(self, tokens: int) -> None:
        self.keys, self.values = (x[:, :, : self.held - tokens] for x in (self.keys, self.values))
