"""Sequences with equally many new tokens as one batch of a transformers model, the shorter ones padded at their left.

For models whose attention function can't be replaced: each computes with a mask of its own making, so all that is left
is what they offer to everybody, a batch of padded rows. A step then takes a forward for each number of new tokens.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache

from kvviz.caches.base import Pair

Memory = dict[int, torch.Tensor]  # by layer, (blocks, tokens of a block, Hkv, D)


class Row(NamedTuple):
    """The tokens of one sequence in a batch, of which the last `new` are computed now, and the blocks of all."""

    blocks: list[int]
    tokens: int
    new: int


class PaddedBatch(DynamicCache):
    """Rows of a memory in blocks, as the cache of one forward; all rows have equally many new tokens.

    `attention_mask`, (rows, longest), and `position_ids`, (rows, new), are the forward's.
    """

    def __init__(self, rows: Sequence[Row], block: int, blocks: int, keys: Memory, values: Memory, device: Any) -> None:
        super().__init__()
        self._shape, self._keys, self._values = (blocks, block), keys, values
        self._new, longest = rows[0].new, max(row.tokens for row in rows)
        self._longest = longest
        tokens = torch.tensor([row.tokens for row in rows], device=device)[:, None]
        self.attention_mask = (torch.arange(longest, device=device) >= longest - tokens).long()
        self.position_ids = tokens - self._new + torch.arange(self._new, device=device)
        slots = [
            [0] * (longest - row.tokens) + [row.blocks[at // block] * block + at % block for at in range(row.tokens)]
            for row in rows
        ]
        self._slots = torch.tensor(slots, device=device)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens before the new ones, padding included."""
        return self._longest - self._new

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Tokens that the mask spans, and where they begin."""
        return self._longest, 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **more: Any
    ) -> Pair:
        """Write a layer's new keys and values, (rows, Hkv, new, D); return all of each row, (rows, Hkv, longest, D)."""
        return self._through(self._keys, key_states, layer_idx), self._through(self._values, value_states, layer_idx)

    def _through(self, stored: Memory, new: torch.Tensor, layer: int) -> torch.Tensor:
        tokens = new.transpose(1, 2).flatten(0, 1)
        if layer not in stored:  # zeros: what is masked must be a number
            stored[layer] = new.new_zeros(*self._shape, *tokens.shape[1:])
        memory = stored[layer].flatten(0, 1)
        memory.index_copy_(0, self._slots[:, -self._new :].flatten(), tokens)
        return memory.index_select(0, self._slots.flatten()).unflatten(0, self._slots.shape).transpose(1, 2)
