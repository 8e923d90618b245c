"""Checks of the fields of a foreign file: functions that return the value or raise `Unfit`.

A file is parsed under a limit, then every field is checked by name; unknown fields are dropped. Nothing in a file is
ever executed, and no message repeats what a file holds.

A TypedDict or dataclass of ours names its fields once: mypy reads their types, and `check_of` reads from the same
annotations what a file from elsewhere may hold in them. `Annotated[int, whole(1, 64)]` gives a bound, `Absent(None)`
what stands for a field that a file lacks.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from kvviz.base.errors import KvvizError

LONGEST_LIST = 200_000  # entries

Check = Callable[[object, str], Any]  # of a value, and the name that a refusal gives it


def _told(check: Check, **told: object) -> Check:
    """Note on a check what `kvviz.base.json_schema` makes of it: a part of a `schema`, or the `form` it checks."""
    vars(check).update(told)
    return check


def _bounds(least: float, most: float) -> dict[str, float]:
    return {"maximum": most} if least == -math.inf else {"minimum": least, "maximum": most}


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

    return _told(check, schema={"type": "number", **_bounds(least, most)})


def whole(least: int = 0, most: int = 10**15) -> Check:
    """A whole number within these bounds."""

    def check(value: object, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Unfit(f"{name} has to be a whole number from {least} to {most:g}")
        return value

    return _told(check, schema={"type": "integer", **_bounds(least, most)})


def text(longest: int) -> Check:
    """A text of whole characters; half a surrogate pair could not be written to any file."""

    def check(value: object, name: str) -> str:
        if not isinstance(value, str) or len(value) > longest:
            raise Unfit(f"{name} has to be a text of at most {longest:,} characters")
        if re.search("[\ud800-\udfff]", value):
            raise Unfit(f"{name} has to be a text of whole characters")
        return value

    return _told(check, schema={"type": "string", "maxLength": longest})


_SHORT_NAME = "[a-z][a-z0-9_-]{0,40}"


def short_name(value: object, name: str) -> str:
    """A name such as a mode's."""
    if not isinstance(value, str) or not re.fullmatch(_SHORT_NAME, value):
        raise Unfit(f"{name} has to be a short name in lower case")
    return value


_told(short_name, schema={"type": "string", "pattern": f"^{_SHORT_NAME}$"})


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

    item = {"items": vars(check)["schema"]} if "schema" in getattr(check, "__dict__", {}) else {}
    return _told(checked, schema={"type": "array", "maxItems": most, **item})


def by_name(check: Check, least: int = 0) -> Check:
    """An object with such a value for each of at most 40 short names, such as modes."""

    def checked(value: object, name: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not least <= len(value) <= 40:
            raise Unfit(f"{name} has to be an object of {least} to 40 named values")
        return {short_name(key, name): check(item, key) for key, item in value.items()}

    return checked


@dataclass(frozen=True)
class Absent:
    """What stands for a field that a file lacks; the field is then optional in files and present in our own values."""

    value: object


def check_of(form: object) -> Check:
    """The check of a type; a dataclass is made of its fields, and a tuple of a list.

    Known are TypedDict, dataclass, list, tuple, dict by name, bool, Literal, `| None`, and Annotated with a check.
    """
    origin, inner = get_origin(form), get_args(form)
    if origin is Annotated:
        return next((check for check in inner[1:] if callable(check)), None) or check_of(inner[0])
    if origin is NotRequired:
        return check_of(inner[0])
    if origin in (Union, UnionType) and NoneType in inner and len(inner) == 2:
        given = check_of(next(part for part in inner if part is not NoneType))
        return lambda value, name: None if value is None else given(value, name)
    if origin is list:
        return list_of(check_of(inner[0]))
    if origin is tuple:
        items = list_of(check_of(inner[0]))
        return lambda value, name: tuple(items(value, name))
    if origin is dict:
        return by_name(check_of(inner[1]))
    if origin is Literal:
        return _one_of(inner)
    if form is bool:
        return flag
    if isinstance(form, type) and is_typeddict(form):
        return fields_of(form)
    if isinstance(form, type) and is_dataclass(form):
        fields = fields_of(form)
        return lambda value, name: form(**fields(value, name))
    raise TypeError(f"{form!r} has no check; annotate it with one")


def fields_of(form: type) -> Check:
    """An object with the fields of a TypedDict or a dataclass, in its own order; unknown fields are dropped.

    Missing ones are filled in where `Absent` says with what.
    """
    hints = get_type_hints(form, include_extras=True)
    fields = {name: check_of(hint) for name, hint in hints.items()}
    absent = _absent(hints)
    needed = needed_fields(form)

    def check(value: object, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unfit(f"{name} has to be an object")
        missing = next((field for field in needed if field not in value), None)
        if missing is not None:
            raise Unfit(f"{name} lacks {missing}")
        known = {field: fields[field](inner, field) for field, inner in value.items() if field in fields}
        return {**known, **{field: absent[field] for field in absent if field not in known}}

    return _told(check, form=form)


def _absent(hints: Mapping[str, object]) -> dict[str, object]:
    return {name: found.value for name, hint in hints.items() for found in get_args(hint) if isinstance(found, Absent)}


def needed_fields(form: type) -> list[str]:
    """The fields of a TypedDict or a dataclass that a file may not lack."""
    hints = get_type_hints(form, include_extras=True)
    optional = {*_absent(hints), *getattr(form, "__optional_keys__", ())}
    return [name for name in hints if name not in optional]


def _one_of(allowed: tuple[object, ...]) -> Check:
    def check(value: object, name: str) -> object:
        if value not in allowed:
            raise Unfit(f"{name} has to be {' or '.join(map(str, allowed))}")
        return value

    return check
