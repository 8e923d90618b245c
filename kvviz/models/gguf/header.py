"""Read the header of a GGUF file: what it says of the model, and the type and shape of each tensor, but no weights.

The package gguf maps a whole file and trusts its counts. This reader reads forward, never further than the header,
keeps none of the vocabulary, and reserves no memory for a number that the file states. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import struct
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import shown

MAGIC = b"GGUF"
LARGEST_HEADER = 64 * 2**20  # bytes; with a vocabulary of 262,144 tokens a header has about 16 MiB
VERSIONS = (2, 3)
MOST_KEYS, MOST_TENSORS = 2_000, 100_000  # published files have at most about 100 and 3,000
MOST_STRINGS = 2_000_000  # in all lists together; a vocabulary of 262,144 tokens has about 515,000 merges beside it
LONGEST_NAME, LONGEST_KEY = 64, 1_000  # bytes; the format allows the first, and published keys have under 100
LONGEST_ENTRY = 2**20  # bytes of a text in a list
KEPT_TEXT = 1_000  # bytes of a text that is kept; longer ones are chat templates and the like
KEPT_LIST = 2_000  # numbers of a list that is kept, which is one for each layer
MOST_KEPT = 200_000  # numbers of all those lists together
ALIGNMENT = 32

Value = int | float | bool | str | tuple[int | float | bool, ...]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _LIST = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class TensorType(NamedTuple):
    """A type of tensors: `block` elements take `block_bytes`."""

    name: str
    block: int
    block_bytes: int


_TYPES = {
    number: TensorType(name, block, size)
    for name, (number, block, size) in tomllib.loads(
        Path(__file__).with_name("tensor_types.toml").read_text(encoding="utf-8")
    ).items()
}


class Tensor(NamedTuple):
    """One tensor: its name, its type and its shape, the innermost dimension first."""

    name: str
    type: TensorType
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its bytes in the file and in memory, without what pads it to the next tensor."""
        return self.elements // self.type.block * self.type.block_bytes


@dataclass(frozen=True)
class Header:
    """A GGUF file's header. `counts` has the length of every list; `metadata` only short texts and lists."""

    version: int
    metadata: Mapping[str, Value]
    counts: Mapping[str, int]
    tensors: tuple[Tensor, ...]


class CutOff(ConfigError):
    """The bytes end inside the header, so more of the file would be needed."""


def read_header(file: BinaryIO, what: str = "this file") -> Header:
    """Read a header from the start of a file. Raises ConfigError, a sentence on `what`, for anything but a GGUF file.

    `CutOff` says that there are too few bytes; nothing behind the header is read.
    """
    return _Reader(file, what).header()


class _Reader:
    """A file that is read forward; every number that it states is checked before it is used."""

    def __init__(self, file: BinaryIO, what: str) -> None:
        self._read, self._what = file.read, what
        self._used, self._strings, self._kept = 0, 0, 0
        self._counts: dict[str, int] = {}

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError(f"{self._what} can't be read as GGUF: {why}")

    def _cut_off(self, size: int) -> CutOff:
        return CutOff(
            f"{self._what} ends inside its GGUF header, after {size:,} bytes; give at least the first 32 MiB of the "
            "file, as `head -c 32M` does"
        )

    def _take(self, size: int) -> bytes:
        """The next bytes, which the caller has bounded."""
        self._used += size
        if self._used > LARGEST_HEADER:
            raise self._wrong(f"its header has more than {LARGEST_HEADER:,} bytes, which no model's has")
        data = self._read(size)
        if len(data) < size:
            raise self._cut_off(self._used - size + len(data))
        return data

    def _skip(self, size: int) -> None:
        if size > LARGEST_HEADER:
            raise self._wrong(f"its header has a value of {size:,} bytes, which no model's has")
        while size > 0:
            part = min(size, 2**20)
            self._take(part)
            size -= part

    def _u32(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def _u64(self) -> int:
        return int(_U64.unpack(self._take(8))[0])

    def _text(self, longest: int, part: str) -> str:
        size = self._u64()
        if size > longest:
            raise self._wrong(f"{part} has {size:,} bytes; kvviz reads at most {longest:,}")
        return self._take(size).decode("utf-8", "replace")

    def header(self) -> Header:
        start = self._read(4)
        if start != MAGIC:
            raise ConfigError(f"{self._what} is no GGUF file: it begins with {shown(start)[1:]}, not with 'GGUF'")
        self._used = 4
        version = self._u32()
        if version not in VERSIONS:
            if not version % 2**16:
                raise self._wrong("its numbers are big-endian; kvviz reads little-endian files, which nearly all are")
            raise self._wrong(f"its version is {version:,}; kvviz and llama.cpp read versions 2 and 3")
        tensors, keys = self._u64(), self._u64()
        for count, most, name in ((tensors, MOST_TENSORS, "tensors"), (keys, MOST_KEYS, "keys")):
            if count > most:
                raise self._wrong(f"it states {count:,} {name}; kvviz reads at most {most:,}")
        metadata = self._metadata(keys)
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
            raise self._wrong(f"general.alignment is {shown(alignment)}; it is a power of two")
        return Header(version, metadata, self._counts, self._tensors(tensors, alignment))

    def _metadata(self, count: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        seen = set[str]()
        for _ in range(count):
            key = self._text(LONGEST_KEY, "a key")
            if key in seen:
                raise self._wrong(f"the key {shown(key)} occurs twice")
            seen.add(key)
            value = self._value(key)
            if value is not None:
                found[key] = value
        return found

    def _value(self, key: str) -> Value | None:
        """The next value; None for one that is not kept."""
        kind = self._u32()
        if kind == _STRING:
            size = self._u64()
            if size > KEPT_TEXT:
                self._skip(size)
                return None
            return self._take(size).decode("utf-8", "replace")
        if kind == _LIST:
            return self._list(key)
        if kind not in _SCALARS:
            raise self._wrong(f"the value of {shown(key)} is of type {kind:,}; the format has types 0 to 12")
        return self._numbers(_SCALARS[kind], 1)[0]

    def _numbers(self, code: str, count: int) -> tuple[int | float | bool, ...]:
        form = struct.Struct(f"<{count}{code}")
        return form.unpack(self._take(form.size))

    def _list(self, key: str) -> Value | None:
        kind, count = self._u32(), self._u64()
        self._counts[key] = count
        if kind == _STRING:
            self._skip_strings(key, count)
            return None
        if kind not in _SCALARS:
            inside = "lists" if kind == _LIST else f"type {kind:,}"
            raise self._wrong(f"{shown(key)} is a list of {inside}; llama.cpp reads lists of numbers and of texts")
        code = _SCALARS[kind]
        if count <= KEPT_LIST and self._kept + count <= MOST_KEPT:
            self._kept += count
            return self._numbers(code, count)
        self._skip(count * struct.calcsize(f"<{code}"))
        return None

    def _skip_strings(self, key: str, count: int) -> None:
        """Read past a list of texts. It may have a million, so this is one plain loop."""
        self._strings += count
        if self._strings > MOST_STRINGS:
            raise self._wrong(f"{shown(key)} lists {count:,} texts; kvviz reads at most {MOST_STRINGS:,} in all")
        read, unpack, used = self._read, _U64.unpack, self._used
        for _ in range(count):
            head = read(8)
            if len(head) < 8:
                raise self._cut_off(used + len(head))
            size = unpack(head)[0]
            if size > LONGEST_ENTRY or used + size > LARGEST_HEADER:
                raise self._wrong(f"{shown(key)} lists a text of {size:,} bytes, or too many of them")
            got = len(read(size))
            used += 8 + got
            if got < size:
                raise self._cut_off(used)
        self._used = used

    def _tensors(self, count: int, alignment: int) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        names = set[str]()
        expected = 0
        for _ in range(count):
            tensor, offset = self._tensor()
            if tensor.name in names:
                raise self._wrong(f"the tensor {shown(tensor.name)} occurs twice")
            if offset != expected:
                raise self._wrong(
                    f"the tensor {shown(tensor.name)} begins at byte {offset:,} of the data; after those before it "
                    f"that is {expected:,}"
                )
            names.add(tensor.name)
            found.append(tensor)
            expected += -(-tensor.nbytes // alignment) * alignment
        return tuple(found)

    def _tensor(self) -> tuple[Tensor, int]:
        name = self._text(LONGEST_NAME, "a tensor's name")
        rank = self._u32()
        if rank > 4:
            raise self._wrong(f"the tensor {shown(name)} has {rank:,} dimensions; the format allows 4")
        shape = tuple(self._u64() for _ in range(rank))
        number = self._u32()
        kind = _TYPES.get(number)
        if kind is None:
            known = ", ".join(each.name for each in _TYPES.values())
            raise self._wrong(f"the tensor {shown(name)} is of type {number:,}; kvviz knows {known}")
        tensor = Tensor(name, kind, shape)
        if tensor.elements >= 2**53:
            raise self._wrong(f"the tensor {shown(name)} has {shown(tensor.elements)} elements, which no model's has")
        if shape and shape[0] % kind.block:
            raise self._wrong(
                f"the tensor {shown(name)} has rows of {shape[0]:,} elements; {kind.name} packs {kind.block} together"
            )
        return tensor, self._u64()
