"""What each layer of a decoder keeps in its cache, read from a config alone.

Standard library only. A `ModelSpec` is one `LayerSpec` per layer; it knows no tensor, no device and
no number of tokens. What it can't read it refuses with a `ConfigError` that names the field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.errors import ConfigError

KINDS = ("full", "sliding", "chunked", "latent", "linear", "hybrid", "indexed", "cross", "shared", "none")


@dataclass(frozen=True)
class LayerSpec:
    """One layer's cache format: for each token it holds, `kv_heads` x (`key_dim` + `value_dim`) elements.

    `window` is the number of tokens that attention can reach (None: all of them).
    """

    kind: str
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"layer kind {self.kind!r} is unknown; it is one of {', '.join(KINDS)}")
        for name in ("kv_heads", "key_dim", "value_dim"):
            _check_size(name, getattr(self, name), least=0)
        if self.window is not None:
            _check_size("window", self.window, least=1)

    @property
    def elements_per_token(self) -> int:
        """Elements (not bytes) that one held token takes: keys plus values."""
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class ModelSpec:
    """A decoder as its cache sees it: its layers, its context limit (tokens), its vocabulary and its source."""

    name: str
    layers: tuple[LayerSpec, ...]
    source: str = ""
    vocab_size: int | None = None
    context: int | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, name: str = "", source: str = "") -> "ModelSpec":
        """Read a Hugging Face config (the dict of a config.json).

        Raises ConfigError with one sentence naming the field where the config can't be read.
        """
        if not isinstance(config, Mapping):
            raise ConfigError("a config is a JSON object, with fields such as num_hidden_layers")
        inner = config.get("text_config") or {}
        if not isinstance(inner, Mapping):
            raise ConfigError("text_config has to be an object, the config of the text decoder")
        text = {**config, **inner}
        kinds = _layer_kinds(text)
        return cls(
            name=name or str(config.get("model_type", "model")),
            layers=tuple(_layer(text, kind) for kind in kinds),
            source=source,
            vocab_size=_optional_size(text, "vocab_size"),
            context=_optional_size(text, "max_position_embeddings", "n_positions", "seq_length"),
        )


def _check_size(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**40:
        raise ConfigError(f"{name} is {value!r}; it is a whole number of at least {least}")
    return value


def _optional_size(config: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        if config.get(name) is not None:
            return _check_size(name, config[name])
    return None


def _size(config: Mapping[str, Any], *names: str) -> int:
    value = _optional_size(config, *names)
    if value is None:
        raise ConfigError(f"the config has no {names[0]}; a decoder's config.json gives it")
    return value


# Fields that change what is kept in a way that is not read here: refused, never guessed.
_STATE = ("linear_num_value_heads", "ssm_state_size", "mamba_d_state", "state_size", "conv_L_cache", "time_step_rank")
_UNREAD = {
    **dict.fromkeys(_STATE, "layers keep a recurrent state"),
    "block_types": "layers are of several kinds",
    "num_kv_shared_layers": "layers share their keys and values",
    "global_head_dim": "layers differ in their head dim",
    "cross_attention_layers": "layers attend to an image",
    "no_rope_layers": "layers differ in their attention",
    "new_decoder_architecture": "query heads are cached one by one",
}

_KIND_OF_TYPE = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
}


def _layer_kinds(config: Mapping[str, Any]) -> list[str]:
    """The kind of each layer, from `layer_types` or from the window fields of the family."""
    for name, says in _UNREAD.items():
        if config.get(name):
            raise ConfigError(f"{name} says that {says}, which is not read yet")
    count = _size(config, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    if "kv_lora_rank" in config and config["kv_lora_rank"] is not None:
        return ["latent"] * count
    types = config.get("layer_types")
    if types is not None:
        return [_kind_of_type(t) for t in _checked_types(types, count)]
    if _window(config) is None:
        return ["full"] * count
    if config.get("model_type") in _QWEN:  # these window only the layers from max_window_layers on
        first = _check_size("max_window_layers", config.get("max_window_layers", 28), least=0)
        return ["full" if i < first else "sliding" for i in range(count)]
    return _patterned(config, count)


def _checked_types(types: Any, count: int) -> list[str]:
    if not isinstance(types, list | tuple) or len(types) != count:
        raise ConfigError(f"layer_types has to be a list of {count} names, one for each layer")
    return list(types)


def _kind_of_type(layer_type: Any) -> str:
    if not isinstance(layer_type, str) or layer_type not in _KIND_OF_TYPE:
        raise ConfigError(f"layer_types holds {layer_type!r}; kvviz reads {', '.join(_KIND_OF_TYPE)}")
    return _KIND_OF_TYPE[layer_type]


# How families without `layer_types` place their windows: every n-th layer is full, counted from `first`.
# gemma2 and gpt_oss alternate starting with a window; gemma3 has five windows, then one full layer.
_EVERY = {"cohere2": 4, "gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "gemma3": 6}


def _patterned(config: Mapping[str, Any], count: int) -> list[str]:
    every = _optional_size(config, "sliding_window_pattern") or _EVERY.get(str(config.get("model_type")))
    if every is None:
        return ["sliding"] * count
    return ["full" if (i + 1) % every == 0 else "sliding" for i in range(count)]


_QWEN = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")

# What a family's config class fills in where the published file is silent.
_DEFAULT_WINDOW = {"mistral": 4096, "gemma2": 4096, "gpt_oss": 128, "gemma3_text": 4096, "gemma3": 4096}


def _window(config: Mapping[str, Any]) -> int | None:
    if config.get("use_sliding_window") is False:
        return None
    model_type = str(config.get("model_type"))
    if model_type in _QWEN and not config.get("use_sliding_window"):
        return None
    if "sliding_window" not in config:
        return _DEFAULT_WINDOW.get(model_type)
    return _optional_size(config, "sliding_window")


def _layer(config: Mapping[str, Any], kind: str) -> LayerSpec:
    if kind == "latent":
        # Multi-head latent attention keeps one compressed row and the rotary part of the key, shared by all heads.
        return LayerSpec("latent", 1, _size(config, "kv_lora_rank"), _size(config, "qk_rope_head_dim"))
    dim = _head_dim(config)
    window = _window(config) if kind == "sliding" else None
    if kind == "sliding" and window is None:
        raise ConfigError("layer_types names sliding_attention, so sliding_window has to be a number of tokens")
    if kind == "chunked":
        window = _size(config, "attention_chunk_size")
    return LayerSpec(kind, _kv_heads(config), dim, dim, window)


def _heads(config: Mapping[str, Any]) -> int:
    return _size(config, "num_attention_heads", "n_head", "num_heads", "n_heads")


def _kv_heads(config: Mapping[str, Any]) -> int:
    if config.get("multi_query") is True:
        return 1
    return _optional_size(config, "num_key_value_heads", "num_kv_heads", "n_head_kv") or _heads(config)


_DEFAULT_HEAD_DIM = {
    "qwen3": 128,
    "qwen3_moe": 128,
    "gemma2": 256,
    "gemma3_text": 256,
    "gemma3": 256,
    "gpt_oss": 64,
}


def _head_dim(config: Mapping[str, Any]) -> int:
    explicit = _optional_size(config, "head_dim") or _DEFAULT_HEAD_DIM.get(str(config.get("model_type")))
    if explicit:
        return explicit
    hidden, heads = _size(config, "hidden_size", "n_embd", "d_model"), _heads(config)
    if hidden % heads:
        raise ConfigError(f"{heads} attention heads do not divide a hidden size of {hidden}; give head_dim")
    return hidden // heads
