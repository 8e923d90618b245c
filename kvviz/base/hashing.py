"""Hashes of values: SHA-256 over JSON that is always written the same way, or over data in memory."""

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass

ARRAYS = {float: "d", int: "q"}  # the types of a column of numbers, and of the array that holds it
SCALARS = {str, float, int, bool, type(None)}


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; infinities as Python writes them, other values unknown to JSON as `str`."""
    plain = json.loads(json.dumps(value, default=str, skipkeys=True))  # every key is a text now and can be sorted
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def config_hash(config: Mapping[str, object]) -> str:
    """The hash of a model's config.json; the order of its fields does not matter."""
    return digest(dict(config))


def data_digest(value: object) -> bytes:
    """SHA-256 of data: of numbers, texts, and the lists, tuples, dicts and dataclasses that hold them.

    Two values have the same digest if they have the same types and Python writes them alike (`repr`). Of columns of
    10,000 numbers, a digest takes a tenth of the time that `repr` takes. Don't keep it: it depends on the machine.
    """
    parts: list[bytes] = []
    _add_parts(value, parts)
    return hashlib.sha256(b"".join(parts)).digest()


def _add_parts(value: object, found: list[bytes]) -> None:
    inner: Iterable[object]
    if isinstance(value, list | tuple):
        if (numbers := _column(value)) is not None:
            found += [f"{type(value).__name__}{len(value)}{numbers.typecode}".encode(), numbers.tobytes()]
            return
        inner = value
    elif isinstance(value, dict):
        found.append(repr(list(value)).encode())
        inner = value.values()
    elif is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, field.name) for field in fields(value)]
    else:
        found.append(f"{value!r},".encode())
        return
    found.append(f"{type(value).__qualname__}(".encode())
    for each in inner:
        if type(each) in SCALARS:
            found.append(f"{each!r},".encode())
        else:
            _add_parts(each, found)
    found.append(b")")


def _column(values: list[object] | tuple[object, ...]) -> array | None:
    """Return numbers of one type as an array; return None for any other values."""
    kinds = set(map(type, values))
    try:
        return array(ARRAYS[kinds.pop()], values) if len(kinds) == 1 and kinds <= ARRAYS.keys() else None
    except OverflowError:  # a whole number beyond 64 bits
        return None
