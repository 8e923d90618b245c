"""Read the fields of a config as its family uses them.

A field is looked up under its common name, then under its other names (GPT-2's `n_head`), then in the defaults of the
family's config class. `catalog/families.json` and NAMES have these. Each answer is recorded with its origin.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from kvviz.base.errors import ConfigError
from kvviz.models.catalog.rows import HERE

NAMES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("field_names.toml").read_text(encoding="utf-8"))
LARGEST = 2**40
LONGEST_LIST = 2_000  # entries, each read once per layer; the deepest published models have a tenth of them


class Family(TypedDict, total=False):
    """Facts about a family that `python -m tools.families` reads from transformers' classes.

    `defaults` of its config class; its `aliases` of fields; the fields that its code `ignores`; the types of its
    `parts`; those of NAMES["widths"] that its code reads. `whole_head`: it computes the head for every position.
    `encoder`: it is an encoder unless its config sets `is_decoder`.
    """

    defaults: dict[str, object]
    aliases: dict[str, str]
    ignores: list[str]
    parts: dict[str, str]
    widths: list[str]
    whole_head: bool
    encoder: bool


@cache
def families() -> dict[str, Family]:
    """Return all families that transformers registers, by model_type."""
    return json.loads((HERE / "families.json").read_text(encoding="utf-8"))["families"]


class Fields:
    """The fields of one decoder. `origins` has for each field that was read where it came from, and its value in words.

    `inner`: the fields are a part of a composite config, which may leave more to its family's defaults. `crossing`: the
    composite config also has an encoder. `drafting`: the composite config is a head that drafts for another model.
    """

    def __init__(
        self,
        given: Mapping[str, object],
        model_type: str,
        *,
        inner: bool = False,
        crossing: bool = False,
        drafting: bool = False,
    ) -> None:
        self.given, self.model_type, self.inner = given, model_type, inner
        self.crossing, self.drafting = crossing, drafting
        self.changes: Mapping[str, object] = {}
        family = families().get(model_type, Family())
        self.known, self.encoder = model_type in families(), family.get("encoder", False)
        self._defaults, self._aliases = family.get("defaults", {}), family.get("aliases", {})
        unread = set(NAMES["widths"]).difference(family.get("widths", ())) if family else set()
        self._ignores = unread.union(family.get("ignores", ()))
        self.origins: dict[str, tuple[str, str]] = {}

    def changed(self, changes: object) -> "Fields":
        """Return the same fields, overridden by those of one layer."""
        if not isinstance(changes, Mapping):
            raise ConfigError("per_layer_config maps a layer's number to an object of fields")
        other = copy(self)
        other.changes = changes
        return other

    def has(self, name: str) -> bool:
        """Whether the field has a value other than null, from the file or from the family's default."""
        return self.raw(name) is not None

    def stated(self, name: str) -> bool:
        """Whether the file itself has the field, even with null."""
        return any(key in self.changes or key in self.given for key in self._names(name))

    def raw(self, name: str) -> object:
        """Return the value unchecked; None for a field that is absent or that the family's code ignores."""
        names = self._names(name)
        found = [(values[key], key) for key in names for values in (self.changes, self.given) if key in values]
        absent = f", absent: {self.model_type}'s default"
        found += [(self._defaults[key], key + absent) for key in names if key in self._defaults]
        value, origin = found[0] if found else (None, "")
        if value is not None:
            self.note(name, value, origin)
        return value

    def note(self, name: str, value: object, origin: str) -> None:
        """Record the origin of a quantity, and its value as a page shows it."""
        self.origins[name] = origin, shown(value)

    def name_in_file(self, name: str) -> str:
        """Return the name under which the file gives the field, so that a user can find it."""
        return self.origins.get(name, (name,))[0].partition(",")[0]

    def _names(self, name: str) -> tuple[str, ...]:
        own = self._aliases.get(name)
        others = () if self.known and own else NAMES["aliases"].get(name, ())
        others = others if self.known else (*others, *NAMES["custom_aliases"].get(name, ()))
        names = (name, own) if own else (name, *others)  # transformers sets a common name last, so it wins
        return tuple(key for key in names if key not in self._ignores)

    def optional(self, name: str, least: int = 1) -> int | None:
        """Return a whole number of at least `least`, or None for an absent field."""
        value = self.raw(name)
        return None if value is None else checked(self.name_in_file(name), value, least)

    def size(self, name: str, least: int = 1) -> int:
        """Return a whole number of at least `least`. Raises ConfigError for an absent field."""
        value = self.optional(name, least)
        if value is None:
            raise ConfigError(f"the config has no {self._aliases.get(name, name)}; a decoder's config.json gives it")
        return value

    def first(self, *names: str, least: int = 1) -> int | None:
        """Return the size under the first of these names that has a value; None if none has."""
        return next((self.size(name, least) for name in names if self.has(name)), None)

    def number(self, name: str) -> float:
        """Return a finite number above 0, such as a factor of widths."""
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST:
            raise ConfigError(f"{name} is {shown(value)}; it is a number above 0")
        return value

    def flag(self, name: str) -> bool:
        """Return a truth value; False for an absent field."""
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{name} is {shown(value)}; it is true or false")
        return bool(value)

    def names(self, name: str) -> list[str] | None:
        """Return a list of strings, or None for an absent field."""
        return self._list(name, "names, one for each layer", lambda entry: isinstance(entry, str))

    def indices(self, name: str, least: int = 0) -> list[int] | None:
        """Return a list of whole numbers of at least `least`, or None for an absent field."""
        values = self._list(name, "whole numbers", lambda entry: True)
        return None if values is None else [checked(name, entry, least) for entry in values]

    def _list(self, name: str, what: str, fits: Callable[[object], bool]) -> list[Any] | None:
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(map(fits, value)):
            raise ConfigError(f"{name} is {shown(value)}; it is a list of {what}")
        if len(value) > LONGEST_LIST:
            raise ConfigError(f"{name} is a list of {len(value):,}; kvviz reads at most {LONGEST_LIST:,}")
        return list(value)


def checked(name: str, value: object, least: int = 1) -> int:
    """Check for a whole number between `least` and 2^40. Raises ConfigError naming the field."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < LARGEST:
        raise ConfigError(f"{name} is {shown(value)}; it is a whole number from {least:,} to {LARGEST - 1:,}")
    return value


def shown(value: object) -> str:
    """Format a value for a sentence, at most 60 characters long."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"a number of {value.bit_length()} bits"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."
