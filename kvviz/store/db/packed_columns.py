"""Packs the numbers of a run as compressed columns of little-endian float64 or int64, each with its shape.

A packed blob is zlib over one line of JSON, `{name: [type, shape]}`, and the raw numbers of each name in that order.
"""

import json
import math
import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

TYPES = {int: "q", float: "d"}  # int64, float64


def take_columns(fields: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split an object into the part that stays JSON and its columns; in the JSON part each column is None."""
    columns = {name: value for name, value in fields.items() if _as_array(value) is not None}
    return {name: None if name in columns else value for name, value in fields.items()}, columns


def pack(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Pack lists of numbers, or rectangular lists of such lists, into one blob. Raises ValueError for anything else."""
    head, body = {}, b""
    for name, values in columns.items():
        found = _as_array(values)
        if found is None:
            raise ValueError(f"{name} is no column of numbers")
        head[name] = [found[0].typecode, found[1]]
        body += _little(found[0]).tobytes()
    return zlib.compress(json.dumps(head).encode() + b"\n" + body)


def unpack(blob: bytes) -> dict[str, list[Any]]:
    """Unpack the blob that `pack` made."""
    head, _, body = zlib.decompress(blob).partition(b"\n")
    columns, start = {}, 0
    for name, (typecode, shape) in json.loads(head).items():
        end = start + 8 * math.prod(shape)
        numbers = _little(array(typecode, body[start:end])).tolist()
        columns[name], start = _shaped(numbers, shape), end
    return columns


def _as_array(values: Any) -> tuple[array, list[int]] | None:
    """Flatten a column of numbers and return it with its shape; return None for any other value."""
    if not isinstance(values, list | tuple) or not values:
        return None
    shape, flat = [len(values)], values
    if all(isinstance(row, list | tuple) for row in values):
        shape.append(len(values[0]))
        flat = [number for row in values for number in row]
        if {len(row) for row in values} != {shape[1]}:
            return None
    kinds = set(map(type, flat))
    if len(kinds) != 1 or not kinds <= set(TYPES):
        return None
    try:
        return array(TYPES[kinds.pop()], flat), shape
    except OverflowError:  # beyond 64 bits
        return None


def _shaped(numbers: list[Any], shape: Sequence[int]) -> list[Any]:
    if len(shape) == 1:
        return numbers
    rows, width = shape
    return [numbers[row * width : (row + 1) * width] for row in range(rows)]


def _little(numbers: array) -> array:
    """Swap to or from little-endian on a big-endian machine."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
