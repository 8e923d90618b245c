"""The naive cache: new keys and values are joined on to the old, in a new tensor each time.

A step at context T copies all T tokens, so writing n tokens after one another copies n (n + 1) / 2 of them. It is what
`torch.cat` in a loop does, and what transformers' DynamicCache does
(https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/cache_utils.py).
"""

from typing import Any

import torch

from kvviz.caches.base import InTensors, Pair, size


class Concat(InTensors):
    """`keys` and `values`, (B, Hkv, held, D), are new tensors after each append.

    Of a window of W the newest W - 1 are kept, as a view of what the append has joined, until the next one.
    """

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        old = [] if self.keys is None else [(self.keys, self.values)]
        keys, values = (torch.cat(parts, dim=2) for parts in zip(*old, (k, v), strict=True))  # (B, Hkv, T_all, D)
        self.copied = size(keys) + size(values)
        self.seen += k.shape[2]
        self.held = min(keys.shape[2], self.seen - self.behind)
        self.keys, self.values = (x[:, :, x.shape[2] - self.held :] for x in (keys, values))
        return keys, values

    def crop(self, tokens: int) -> None:
        self.check_crop(tokens)
        self.seen, self.held = self.seen - tokens, self.held - tokens
        if self.keys is not None:
            self.keys, self.values = self.keys[:, :, : self.held], self.values[:, :, : self.held]

    def picture(self) -> dict[str, Any]:
        """One buffer, as long as it has to be; `copied` of its tokens were written by the last append."""
        slots = self.allocated // self.step_bytes if self.held else 0
        return {
            "kind": "buffer",
            "slots": slots,
            "used": self.held,
            "first_position": self.seen - self.held,
            "copied_tokens": self.copied // self.step_bytes if self.held else 0,
        }
