"""The interface that all cache designs share: one layer's keys and values, and an account of their bytes.

B sequences, Hkv key/value heads, T new tokens, D numbers a head (keys and values may differ in D).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import torch

from kvviz.base.errors import KvvizError

Pair = tuple[torch.Tensor, torch.Tensor]
Picture = dict[str, object]  # plain JSON values


class KVCache(ABC):
    """What one layer keeps. `append` takes the new tokens' keys and values and returns all to attend over.

    `window`: how many tokens back attention looks, the newest included; None for all. `capacity`: the most tokens of
    each sequence, or None if that is unknown. Nothing is allocated before the first append.
    """

    exact = True  # attention gets the very numbers that were appended
    crops = True  # the newest tokens can be removed

    def __init__(self, *, window: int | None = None, capacity: int | None = None) -> None:
        self.window, self.capacity = window, capacity
        self.number = 0  # which of a model's caches it is
        self.seen = 0  # tokens of each sequence so far
        self.held = 0  # tokens of each sequence that are still kept: the newest, and a design's sinks
        self.copied = 0  # bytes that the last append wrote into what is kept, including the new tokens' own
        self.gathered = 0  # bytes that the last append copied for attention alone
        self.shape: tuple[int, int, int, int] | None = None  # B, Hkv, D of keys, D of values
        self.dtype: torch.dtype | None = None
        self.device: torch.device | None = None

    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Take T new tokens, k and v (B, Hkv, T, D); return keys and values (B, Hkv, T_all, D) to attend over.

        The last T of T_all are the new ones. Raises KvvizError if they exceed the capacity.
        """
        if self.shape is None:
            self.shape = (k.shape[0], k.shape[1], k.shape[3], v.shape[3])
            self.dtype, self.device = k.dtype, k.device
        self.copied = self.gathered = 0
        return self._append(k, v)

    @abstractmethod
    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Do the design's own part of `append`; it also updates `seen`, `held`, `copied` and `gathered`."""

    def span(self, new: int) -> tuple[int, int]:
        """How many tokens the next append of `new` tokens returns, and the first one's position: for a mask."""
        return self.held + new, self.seen - self.held

    @abstractmethod
    def filled(self) -> Mapping[str, torch.Tensor]:
        """What is kept, by name: the parts of tensors that tokens have been written to."""

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return sum(tensor.nbytes for tensor in self.filled().values())

    @property
    def allocated(self) -> int:
        """Bytes of the storages that hold what is kept, each counted once."""
        return sum({s._cdata: s.nbytes() for s in self.storages()}.values())

    def storages(self) -> Iterable[torch.UntypedStorage]:
        """The storages of what is kept, with whatever is reserved in them."""
        return (tensor.untyped_storage() for tensor in self.filled().values())

    @property
    def stored_as(self) -> str:
        """The type in which keys and values are stored: a torch dtype's name, or the design's own."""
        return str(self.dtype).removeprefix("torch.") if self.dtype else ""

    @property
    def beside_bytes(self) -> int:
        """Bytes of `nbytes` that are neither keys nor values, such as scales."""
        return 0

    def note(self, ids: list[list[int]]) -> None:  # noqa: B027 - most designs have no use for it
        """Learn the ids of the tokens that the next append brings, a row for each sequence. Only `prefix` uses them."""

    def crop(self, tokens: int) -> None:
        """Remove the newest `tokens` of each sequence. Raises KvvizError if the design can't, or has dropped too much.

        A window may have dropped some tokens that would be needed again.
        """
        if tokens and not self.crops:
            raise KvvizError(f"{type(self).__name__} can't take tokens back; take concat, prealloc or paged")
        if tokens > self.seen:
            raise KvvizError(f"{self.seen:,} tokens have passed; {tokens:,} of them can't be taken back")
        needed = 0 if self.window is None else max(0, self.seen - tokens - self.window + 1)
        if tokens and self.seen - self.held > needed:
            raise KvvizError(f"the window has let go of tokens that would be seen again {tokens:,} tokens back")
        self._crop(tokens)
        self.seen, self.held = self.seen - tokens, self.held - tokens

    def _crop(self, tokens: int) -> None:  # noqa: B027 - the ring has nothing to do, since it does not crop
        """Do the design's own part of `crop`."""

    def reorder(self, rows: torch.Tensor) -> None:
        """Make sequence i a copy of the old sequence rows[i]; the number of sequences may change."""
        raise KvvizError(f"{type(self).__name__} can't change its sequences; take concat, prealloc or paged")

    def free(self) -> None:
        """Release everything; the next append starts anew."""
        self.seen = self.held = self.copied = self.gathered = 0
        self.shape = None

    @classmethod
    def formula(cls, tokens: int, window: int | None, heads: int, key_dim: int, value_dim: int, element: int) -> int:
        """Bytes that one layer keeps of one sequence after `tokens` tokens; a number takes `element` bytes.

        Unless a design says otherwise: keys and values of each token that a future one can attend to.
        """
        held = tokens if window is None else min(tokens, window - 1)
        return held * heads * (key_dim + value_dim) * element

    def picture(self) -> Picture:
        """The memory as it is, as JSON values for drawing: a `kind`, and the fields of that kind.

        Unless a design says otherwise: one buffer, of whose tokens the last append wrote `copied_tokens`.
        """
        return {
            "kind": "buffer",
            "slots": self.allocated // self.step_bytes if self.shape else 0,
            "used": self.held,
            "first_position": self.seen - self.held,
            "copied_tokens": self.copied // self.step_bytes if self.held else 0,
        }

    # --- for the designs ---

    @property
    def step_bytes(self) -> int:
        """Bytes of one token of every sequence as appended: B x heads x (D of keys + D of values) x element."""
        if self.shape is None or self.dtype is None:
            return 0
        batch, heads, key_dim, value_dim = self.shape
        return batch * heads * (key_dim + value_dim) * self.dtype.itemsize

    @property
    def behind(self) -> int:
        """Tokens at the front that no future token can attend to: a window of W covers a token and W - 1 before it."""
        return 0 if self.window is None else max(0, self.seen - self.window + 1)


class InTensors(KVCache):
    """A design that keeps one tensor of keys and one of values, both empty before the first append.

    `keys` and `values`: (B, Hkv, slots, D). The first `held` slots are filled, unless the design says otherwise.
    """

    keys = values = torch.empty(0, 0, 0, 0)

    def filled(self) -> dict[str, torch.Tensor]:
        return {"keys": self.keys[:, :, : self.held], "values": self.values[:, :, : self.held]}

    def reorder(self, rows: torch.Tensor) -> None:
        if self.shape is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
            self.shape = (len(rows), *self.shape[1:])

    def free(self) -> None:
        super().free()
        self.keys = self.values = InTensors.keys
