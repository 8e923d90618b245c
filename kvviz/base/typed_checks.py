"""Checks of foreign JSON, derived from the types of our own records. Standard library only.

A TypedDict names its fields once: mypy reads their types, and `check_of` reads from the same annotations what a file
from elsewhere may hold in them. `Annotated[int, whole(1, 64)]` gives a bound, `Absent(None)` what stands for a field
that a file lacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from kvviz.base.checks import Check, Unfit, by_name, flag, list_of, maybe, object_of


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
        return next((given for given in inner[1:] if callable(given)), None) or check_of(inner[0])
    if origin is NotRequired:
        return check_of(inner[0])
    if origin in (Union, UnionType) and NoneType in inner and len(inner) == 2:
        return maybe(check_of(next(part for part in inner if part is not NoneType)))
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
        return _object(form)
    if isinstance(form, type) and is_dataclass(form):
        fields = object_of({name: check_of(hint) for name, hint in get_type_hints(form, include_extras=True).items()})
        return lambda value, name: form(**fields(value, name))
    raise TypeError(f"{form!r} has no check; annotate it with one")


def _object(form: type) -> Check:
    """An object with the fields of a TypedDict, missing ones filled in where `Absent` says with what."""
    hints = get_type_hints(form, include_extras=True)
    absent = {
        name: found.value for name, hint in hints.items() for found in get_args(hint) if isinstance(found, Absent)
    }
    optional: frozenset[str] = getattr(form, "__optional_keys__")  # noqa: B009, mypy knows it of no bare type
    check = object_of({name: check_of(hint) for name, hint in hints.items()}, (*optional, *absent))
    if not absent:
        return check

    def filled(value: object, name: str) -> Mapping[str, object]:
        known = check(value, name)
        return {**known, **{field: absent[field] for field in absent if field not in known}}

    return filled


def _one_of(allowed: tuple[object, ...]) -> Check:
    def check(value: object, name: str) -> object:
        if value not in allowed:
            raise Unfit(f"{name} has to be {' or '.join(map(str, allowed))}")
        return value

    return check
