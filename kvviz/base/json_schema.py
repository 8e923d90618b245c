"""The JSON Schema of a type that `kvviz.base.checks` can check: the same annotations, read for other programs.

A check tells its own part of the schema in `vars(check)`: `schema`, or `form` where it checks the fields of a type. A
check without either (one that holds a value's parts against one another) adds nothing to the schema of its type.
"""

from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from kvviz.base.checks import needed_fields

_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Any: {},
}


def schema_of(form: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type; each TypedDict and dataclass in it becomes an entry of `defs`, and a reference to it."""
    origin, inner = get_origin(form), get_args(form)
    if origin is Annotated:
        return _checked(inner[0], inner[1:], defs)
    if origin is NotRequired:
        return schema_of(inner[0], defs)
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(part, defs) for part in inner]}
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(inner[0], defs)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1], defs)}
    if origin is Literal:
        return {"enum": list(inner)}
    if form is NoneType:
        return {"type": "null"}
    if form in _PLAIN:
        return dict(_PLAIN[form])
    if isinstance(form, type) and (is_typeddict(form) or is_dataclass(form)):
        return _reference(form, defs)
    raise TypeError(f"{form!r} has no schema")


def _checked(form: Any, notes: tuple[Any, ...], defs: dict[str, Any]) -> dict[str, Any]:
    check = next((note for note in notes if callable(note)), None)
    told = getattr(check, "__dict__", {})
    if "form" in told:
        return schema_of(told["form"], defs)
    if is_dataclass(form):  # whose own constructor does the checking
        return {"type": "object"}
    return {**schema_of(form, defs), **told.get("schema", {})}


def _reference(form: type, defs: dict[str, Any]) -> dict[str, Any]:
    name = form.__name__
    if name not in defs:
        defs[name] = {}  # for a type that holds itself
        hints = get_type_hints(form, include_extras=True)
        about = {} if is_dataclass(form) or not form.__doc__ else {"description": " ".join(form.__doc__.split())}
        defs[name] = {
            "type": "object",
            **about,
            "properties": {field: schema_of(hint, defs) for field, hint in hints.items()},
            "required": needed_fields(form),
        }
    return {"$ref": f"#/$defs/{name}"}
