"""Configs whose model type brings its own code: they are read by their fields, as plain attention, with a caution.

The code never runs here. A field that says that layers are not plain attention is refused by its name.
"""

import re

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import Fields, shown
from kvviz.models.layer_kinds import uses_window

# Fields of layers that do more, or keep less, than plain attention.
_NOT_PLAIN = re.compile(
    r"attn_types?|attention_types|attn_layer|block_configs?|pattern|hybrid|mamba|ssm|conv|linear_att|lightning|recurren"
    r"|rwkv|compress|sparse_att|^index|indexer|kv_shar|shared?_kv|cross_att|window|local_att|attention_chunk|prefix_len"
)
_WINDOW = ("sliding_window", "max_window_layers", "use_sliding_window")


def is_custom(fields: Fields) -> bool:
    """Whether the config is of a model type that transformers does not have and that names code of its own."""
    return not fields.known and bool(fields.model_type) and "auto_map" in fields.given


def check_known(fields: Fields) -> None:
    """Raise ConfigError for a model whose own code would have to run."""
    if is_custom(fields):
        raise ConfigError(f"{shown(fields.model_type)} brings its own code, which kvviz never runs")


def check_plain(fields: Fields) -> None:
    """Raise ConfigError for a field that plain attention does not have."""
    unused = () if fields.has("sliding_window") and uses_window(fields) else _WINDOW
    for name, value in fields.given.items():
        if value and name not in unused and name != "layer_types" and _NOT_PLAIN.search(name):
            raise ConfigError(
                f"{shown(fields.model_type)} brings its own code, which kvviz never runs, and its {name} says that its "
                "layers are not plain attention"
            )


def caution(fields: Fields) -> str:
    """Say what a figure that was read from the fields alone is worth."""
    read = "plain attention" if fields.has("num_key_value_heads") else "plain attention, a KV head for each query head"
    read = "latent attention" if fields.has("kv_lora_rank") else read
    return (
        f"{shown(fields.model_type)} brings its own code, which kvviz never runs: its fields are read as {read}; the "
        "code may keep more or less."
    )
