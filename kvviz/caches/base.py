"""The interface that all cache designs share: one layer's keys and values, and the books of their bytes.

B sequences, Hkv key/value heads, T new tokens, D numbers a head (keys and values may differ in D).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from kvviz.base.errors import KvvizError

Pair = tuple[torch.Tensor, torch.Tensor]


class KVCache(ABC):
    """What one layer keeps. `append` takes the new tokens' keys and values and hands back all to attend over.

    `window`: how many tokens back attention looks, the newest counted; None for all. `room`: tokens of each sequence
    that it is made for, where that is known. Nothing is allocated before the first append.
    """

    exact = True  # attention gets the very numbers that were appended
    gathers = False  # what attention gets is put together anew at each append: our doing, a kernel could read in place

    def __init__(self, *, window: int | None = None, room: int | None = None) -> None:
        self.window, self.room = window, room
        self.seen = 0  # tokens of each sequence that have passed
        self.held = 0  # tokens of each sequence that are still kept: the newest, and a design's sinks
        self.copied = 0  # bytes that the last append wrote into what is kept, the new tokens' own among them
        self.gathered = 0  # bytes that the last append put together for attention alone
        self.shape: tuple[int, int, int, int] | None = None  # B, Hkv, D of keys, D of values
        self.dtype: torch.dtype | None = None
        self.device: torch.device | None = None

    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Take T new tokens, k and v (B, Hkv, T, D); hand back keys and values (B, Hkv, T_all, D) to attend over.

        The last T of T_all are the new ones. Raises KvvizError where there is no room for them.
        """
        if self.shape is None:
            self.shape = (k.shape[0], k.shape[1], k.shape[3], v.shape[3])
            self.dtype, self.device = k.dtype, k.device
        self.copied = self.gathered = 0
        return self._append(k, v)

    @abstractmethod
    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """The design's own part: it also takes `seen`, `held` and the books of the copies further."""

    def span(self, new: int) -> tuple[int, int]:
        """How many tokens the next append of `new` tokens will hand back, and the position of the first: for a mask."""
        return self.held + new, self.seen - self.held

    @abstractmethod
    def filled(self) -> Mapping[str, torch.Tensor]:
        """What is kept, by name: the parts of tensors that tokens have been written to."""

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return sum(map(size, self.filled().values()))

    @property
    def allocated(self) -> int:
        """Bytes of the storages that what is kept lies in, each counted once."""
        return sum({s._cdata: s.nbytes() for s in self.storages()}.values())

    def storages(self) -> Iterable[torch.UntypedStorage]:
        """The storages of what is kept, and of what is reserved beside it."""
        return (tensor.untyped_storage() for tensor in self.filled().values())

    @property
    def stored_as(self) -> str:
        """The type in which keys and values lie: a torch dtype's name, or the design's own."""
        return str(self.dtype).removeprefix("torch.") if self.dtype else ""

    @property
    def beside_bytes(self) -> int:
        """Bytes of `nbytes` that are neither keys nor values, such as scales."""
        return 0

    def note(self, ids: list[list[int]]) -> None:  # noqa: B027 - most designs have no use for it
        """The ids of the tokens that the next append brings, a row for each sequence: of use to `prefix` alone."""

    def crop(self, tokens: int) -> None:
        """Take the newest `tokens` of each sequence back. Raises KvvizError where the design can't."""
        if tokens:
            raise KvvizError(f"{type(self).__name__} can't take tokens back; take concat, prealloc or paged")

    def reorder(self, rows: torch.Tensor) -> None:
        """Let sequence i become a copy of the old sequence rows[i]; there may be more or fewer of them than before."""
        raise KvvizError(f"{type(self).__name__} can't change its sequences; take concat, prealloc or paged")

    def free(self) -> None:
        """Let go of everything; the next append starts anew."""
        self.seen = self.held = self.copied = self.gathered = 0
        self.shape = None

    @abstractmethod
    def picture(self) -> dict[str, Any]:
        """The memory as it is, as plain JSON values for drawing: a `kind`, and what that kind has."""

    # --- for the designs ---

    @property
    def token_bytes(self) -> int:
        """Bytes of one token of one sequence, as it was appended: heads x (D of keys + D of values) x element."""
        return 0 if self.shape is None else self.shape[1] * (self.shape[2] + self.shape[3]) * self.dtype.itemsize

    @property
    def step_bytes(self) -> int:
        """Bytes of one token of every sequence."""
        return self.token_bytes * (self.shape[0] if self.shape else 0)

    @property
    def behind(self) -> int:
        """Tokens at the front that no token to come can look back at: its window holds itself and W - 1 others."""
        return 0 if self.window is None else max(0, self.seen - self.window + 1)

    def slots_for(self, needed: int, now: int) -> int:
        """Slots of a new buffer for `needed` tokens: `room` at once; where that is not known, twice those of `now`.

        Raises KvvizError where there is no room for so many.
        """
        if self.room is None:
            return max(16, 2 * now, needed)
        if needed > self.room:
            raise KvvizError(f"this cache has room for {self.room:,} tokens of each sequence; {needed:,} do not fit")
        return self.room

    def check_crop(self, tokens: int) -> None:
        """Raise KvvizError where fewer tokens have passed, or a window has let go of what would be seen again."""
        if tokens > self.seen:
            raise KvvizError(f"{self.seen:,} tokens have passed; {tokens:,} of them can't be taken back")
        needed = 0 if self.window is None else max(0, self.seen - tokens - self.window + 1)
        if self.seen - self.held > needed:
            raise KvvizError(f"the window has let go of tokens that would be seen again {tokens:,} tokens back")


class InTensors(KVCache):
    """A design that keeps one tensor of keys and one of values, both None before the first append.

    `keys` and `values`: (B, Hkv, slots, D), of which the first `held` slots are filled, where a design says no other.
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def filled(self) -> dict[str, torch.Tensor]:
        if self.keys is None:
            return {}
        return {"keys": self.keys[:, :, : self.held], "values": self.values[:, :, : self.held]}

    def reorder(self, rows: torch.Tensor) -> None:
        if self.keys is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
            self.shape = (len(rows), *self.shape[1:])

    def free(self) -> None:
        super().free()
        self.keys = self.values = None


def size(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()
