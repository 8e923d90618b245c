"""The fields of a config as its family means them. Standard library only.

A field is looked up under its own name, under the name that the family gives it (GPT-2's `n_head`), then in the
defaults of the family's config class (`catalog/families.json`). Each answer is remembered with where it came from.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.models.catalog.rows import HERE

LARGEST = 2**40
LONGEST_LIST = 2_000  # entries, each looked through for each layer; the deepest published models have a tenth of them

# Other names of a field that published files use, whatever the family.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
    "max_position_embeddings": ("n_positions", "n_ctx", "seq_length", "max_seq_len", "max_sequence_length"),
}


# Fields of widths and experts that a file may hold though its family's code never asks for them.
WIDTHS = (
    *("intermediate_size", "moe_intermediate_size", "shared_intermediate_size", "shared_expert_intermediate_size"),
    *("num_experts", "num_local_experts", "n_routed_experts", "n_shared_experts", "num_shared_experts"),
    *("first_k_dense_replace", "num_dense_layers", "mlp_only_layers", "mlp_layer_types", "decoder_sparse_step"),
    *("moe_layers", "moe_layer_freq", "interleave_moe_layer_step", "intermediate_size_mlp", "q_lora_rank"),
    *("ffn_dim", "n_inner", "d_ff", "dim_ff", "dff", "ffn_hidden_size", "decoder_ffn_dim", "word_embed_proj_dim"),
)


@cache
def families() -> dict[str, dict[str, Any]]:
    """By model_type: `defaults` of its config class, its `aliases`, the fields that its code `ignores`, its `parts`.

    `widths`: those of WIDTHS that its code asks for; `whole_head`: it computes the head for every position.
    `encoder`: without `is_decoder` in its config it is an encoder.
    """
    return json.loads((HERE / "families.json").read_text(encoding="utf-8"))["families"]


class Fields:
    """One decoder's fields. `origin` says for each field that was read where its value stood, `values` what it was.

    `inner`: they are a part of a composite config, which may leave more to its family's defaults; `crossing`: of one
    that has an encoder beside them.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        model_type: str,
        changes: Mapping[str, Any] | None = None,
        *,
        inner: bool = False,
        crossing: bool = False,
    ) -> None:
        self.model_type, self.inner, self.crossing = model_type, inner, crossing
        self.given, self.changes = given, changes or {}
        family = families().get(model_type, {})
        self.known, self.encoder = model_type in families(), bool(family.get("encoder"))
        self._defaults = family.get("defaults", {})
        self._aliases = family.get("aliases", {})
        self._ignores = frozenset(family.get("ignores", ())) | frozenset(WIDTHS if family else ()).difference(
            family.get("widths", ())
        )
        self.origin: dict[str, str] = {}
        self.values: dict[str, str] = {}

    def changed(self, changes: Any) -> "Fields":
        """The same fields with those of one layer put over them."""
        if not isinstance(changes, Mapping):
            raise ConfigError("per_layer_config maps a layer's number to an object of fields")
        other = Fields(self.given, self.model_type, changes, inner=self.inner, crossing=self.crossing)
        other.origin, other.values = self.origin, self.values
        return other

    def has(self, name: str) -> bool:
        """Whether the field is there and not null, as given or by the family's default."""
        return self.raw(name) is not None

    def stated(self, name: str) -> bool:
        """Whether the file itself says the field, null included."""
        return any(key in self.changes or key in self.given for key in self._names(name))

    def raw(self, name: str) -> Any:
        """The value as it stands, of any type; None where there is none or where the family's code ignores it."""
        for key in self._names(name):
            for values in (self.changes, self.given):
                if key in values:
                    return self._noted(name, values[key], key)
        for key in self._names(name):
            if key in self._defaults:
                return self._noted(name, self._defaults[key], f"{key}, absent: {self.model_type}'s default")
        return None

    def _noted(self, name: str, value: Any, origin: str) -> Any:
        if value is not None:
            self.note(name, value, origin)
        return value

    def note(self, name: str, value: Any, origin: str) -> None:
        """Remember where a quantity came from, and its value as a page shows it."""
        self.origin[name], self.values[name] = origin, shown(value)

    def _names(self, name: str) -> tuple[str, ...]:
        own = self._aliases.get(name)
        others = () if self.known and own else ALIASES.get(name, ())
        names = (name, own) if own else (name, *others)  # transformers sets a common name last, so it wins
        return tuple(key for key in names if key not in self._ignores)

    def optional(self, name: str, least: int = 1) -> int | None:
        """A whole number of at least `least`, None where there is none."""
        value = self.raw(name)
        if value is None:
            return None
        return checked(self._said(name), value, least)

    def size(self, name: str, least: int = 1) -> int:
        """As `optional`, and it has to be there."""
        value = self.optional(name, least)
        if value is None:
            raise ConfigError(f"the config has no {name}; a decoder's config.json gives it")
        return value

    def number(self, name: str) -> float:
        """A finite number above 0, such as a factor of widths."""
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST:
            raise ConfigError(f"{name} is {shown(value)}; it is a number above 0")
        return value

    def flag(self, name: str) -> bool:
        """A truth value; False where there is none."""
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{name} is {shown(value)}; it is true or false")
        return bool(value)

    def names(self, name: str) -> list[str] | None:
        """A list of strings, None where there is none."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
            raise ConfigError(f"{name} is {shown(value)}; it is a list of names, one for each layer")
        return list(_short(name, value))

    def indices(self, name: str, least: int = 0) -> list[int] | None:
        """A list of whole numbers of at least `least`, None where there is none."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} is {shown(value)}; it is a list of whole numbers")
        return [checked(name, entry, least) for entry in _short(name, value)]

    def _said(self, name: str) -> str:
        """The name under which the file gave the field: the one that a user has to look for."""
        return self.origin.get(name, name).partition(",")[0]


def _short(name: str, values: Any) -> Any:
    if len(values) > LONGEST_LIST:
        raise ConfigError(f"{name} is a list of {len(values):,}; kvviz reads at most {LONGEST_LIST:,}")
    return values


def checked(name: str, value: Any, least: int = 1) -> int:
    """A whole number between `least` and 2^40. Raises ConfigError naming the field."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < LARGEST:
        raise ConfigError(f"{name} is {shown(value)}; it is a whole number of at least {least}")
    return value


def shown(value: Any) -> str:
    """A value in a sentence: short, whatever it is."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"a number of {value.bit_length()} bits"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."
