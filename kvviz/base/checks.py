"""Checks of the fields of a foreign file: functions that return the value or raise `Unfit`. Standard library only.

A file is parsed under a limit, then every field is checked by name; unknown fields are dropped. Nothing in a file is
ever executed, and no message repeats what a file holds.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvviz.base.errors import KvvizError

LONGEST_LIST = 200_000  # entries

Check = Callable[[object, str], Any]  # of a value, and the name that a refusal gives it


class Unfit(Exception):
    """A field does not fit; the message names it and says what would."""


def parse(data: str | bytes, largest: int, what: str) -> Any:
    """The values of a JSON text of at most `largest` bytes. Raises KvvizError; `what` is what the file should be."""
    if len(data) > largest:
        raise KvvizError(f"this file is larger than {largest:,} bytes, which no {what} is")
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise KvvizError(f"this file is not JSON, so it is no {what} of kvviz") from error


def _no_constant(name: str) -> None:
    raise ValueError(name)


def number(least: float = -math.inf, most: float = 1e15) -> Check:
    """A finite number within these bounds."""

    def check(value: object, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise Unfit(f"{name} has to be a number from {least:g} to {most:g}")
        return value

    return check


def whole(least: int = 0, most: int = 10**15) -> Check:
    """A whole number within these bounds."""

    def check(value: object, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Unfit(f"{name} has to be a whole number from {least} to {most:g}")
        return value

    return check


def text(longest: int) -> Check:
    """A text of whole characters; half a surrogate pair could not be written to any file."""

    def check(value: object, name: str) -> str:
        if not isinstance(value, str) or len(value) > longest:
            raise Unfit(f"{name} has to be a text of at most {longest:,} characters")
        if re.search("[\ud800-\udfff]", value):
            raise Unfit(f"{name} has to be a text of whole characters")
        return value

    return check


def short_name(value: object, name: str) -> str:
    """A name such as a mode's."""
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_-]{0,40}", value):
        raise Unfit(f"{name} has to be a short name in lower case")
    return value


def flag(value: object, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Unfit(f"{name} has to be true or false")
    return value


def list_of(check: Check, most: int = LONGEST_LIST) -> Check:
    """A list of at most `most` such values."""

    def checked(value: object, name: str) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise Unfit(f"{name} has to be a list of at most {most:,}")
        return [check(item, name) for item in value]

    return checked


def maybe(check: Check) -> Check:
    """Null or such a value."""
    return lambda value, name: None if value is None else check(value, name)


def object_of(fields: Mapping[str, Check], optional: Sequence[str] = ()) -> Check:
    """An object with these fields, in its own order; unknown fields are dropped, optional ones may be missing."""

    def check(value: object, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unfit(f"{name} has to be an object")
        missing = next((field for field in fields if field not in value and field not in optional), None)
        if missing is not None:
            raise Unfit(f"{name} lacks {missing}")
        return {field: fields[field](inner, field) for field, inner in value.items() if field in fields}

    return check


def by_name(check: Check, least: int = 0) -> Check:
    """An object with such a value for each of at most 40 short names, such as modes."""

    def checked(value: object, name: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not least <= len(value) <= 40:
            raise Unfit(f"{name} has to be an object of {least} to 40 named values")
        return {short_name(key, name): check(item, key) for key, item in value.items()}

    return checked
