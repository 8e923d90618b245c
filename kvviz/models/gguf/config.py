"""Turn a GGUF header into the config that transformers would have for the model, as llama.cpp understands it.

Layer types, windows and heads are those by which llama.cpp sizes its cache, so each layer is written out. What the file
weighs stands under `gguf`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import checked, shown
from kvviz.models.family_facts import facts_of
from kvviz.models.gguf.header import Header, Value
from kvviz.models.layer_kinds import CHUNKED, CONV, FULL, HYBRID, INDEXED, LINEAR, MLP, SLIDING
from kvviz.models.layers import MOST_LAYERS

Config = dict[str, object]

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("architectures.toml").read_text(encoding="utf-8"))
FAMILIES: Mapping[str, str] = {**dict.fromkeys(_TABLES["plain"]["architectures"], "llama"), **_TABLES["families"]}
REFUSED: Mapping[str, str] = {arch: row["why"] for row in _TABLES["refused"] for arch in row["architectures"]}

# Fields of a config, and the keys whose value they have; the architecture stands before each.
_SIZES = {
    "hidden_size": "embedding_length",
    "max_position_embeddings": "context_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "n_shared_experts": "expert_shared_count",
    "q_lora_rank": "attention.q_lora_rank",
    "conv_L_cache": "shortconv.l_cache",
}
_WIDTHS = {"intermediate_size": "feed_forward_length", "moe_intermediate_size": "expert_feed_forward_length"}


def config_of(header: Header, title: str = "", others: Sequence[Header] = ()) -> Config:
    """The config of the model that a header describes. Raises ConfigError naming the key that can't be read.

    `others` are the headers of a split file's other parts, which have the rest of the tensors.
    """
    return _Model(header).config(title) | {"gguf": _weights(header, others)}


def parts_of(header: Header) -> int:
    """How many files the model is split into."""
    return checked("split.count", header.metadata.get("split.count", 1), 0) or 1


def _weights(header: Header, others: Sequence[Header]) -> Config:
    """What the files say of the weights: parameters and bytes, in all and by tensor type; null if parts are lacking."""
    by_type: dict[str, list[int]] = {}
    for tensor in (tensor for each in (header, *others) for tensor in each.tensors):
        row = by_type.setdefault(tensor.type.name, [0, 0, 0])
        for place, number in enumerate((1, tensor.elements, tensor.nbytes)):
            row[place] += number
    parts = parts_of(header)
    whole = parts == len(others) + 1
    return {
        "architecture": header.metadata["general.architecture"],
        "parts": parts,
        "parameters": sum(row[1] for row in by_type.values()) if whole else None,
        "weights_bytes": sum(row[2] for row in by_type.values()) if whole else None,
        "types": dict(sorted(by_type.items(), key=lambda item: -item[1][2])),
    }


@dataclass(frozen=True)
class FileWeights:
    """The weights of a GGUF file: the rows of `types` are a tensor type, its tensors, elements and bytes."""

    parameters: int
    nbytes: int
    types: tuple[tuple[str, int, int, int], ...]


def weights_in(config: Mapping[str, object]) -> FileWeights | None:
    """The weights that a config from a GGUF header states; None for another config, or with parts lacking."""
    stated = config.get("gguf")
    if not isinstance(stated, Mapping) or stated.get("weights_bytes") is None:
        return None
    parameters, nbytes = (checked(f"gguf.{name}", stated.get(name), 0) for name in ("parameters", "weights_bytes"))
    types = stated.get("types")
    if not isinstance(types, Mapping) or not all(isinstance(row, list) and len(row) == 3 for row in types.values()):
        raise ConfigError("gguf.types has for each tensor type its tensors, elements and bytes")
    rows = []
    for name, row in types.items():
        tensors, elements, size = (checked("gguf.types", number, 0) for number in row)
        rows.append((str(name)[:20], tensors, elements, size))
    return FileWeights(parameters, nbytes, tuple(rows))


def notes_of_file(config: Mapping[str, object]) -> list[str]:
    """What has to be said beside the figures of a config from a GGUF header; nothing for another config."""
    stated = config.get("gguf")
    if not isinstance(stated, Mapping):
        return []
    notes = []
    if (arch := stated.get("architecture")) in _TABLES["plain"]["architectures"]:
        notes.append(f"transformers has no {arch}; what it keeps is counted as llama.cpp keeps it.")
    if stated.get("weights_bytes") is None:
        notes.append("The file is a part of several; what the weights take in all is known once all parts are read.")
    return notes


class _Model:
    """The keys of one header, by their names without the architecture before them."""

    def __init__(self, header: Header) -> None:
        self.header = header
        found = header.metadata.get("general.architecture")
        part = header.metadata.get("split.no")
        if not isinstance(found, str) or not found:
            if isinstance(part, int) and part > 0:
                raise ConfigError(f"this is part {part + 1} of a GGUF file; the first part has the model's description")
            raise ConfigError("this GGUF file has no general.architecture, so it does not say which model it is")
        self.arch = found
        self.rule_of_windows: dict[str, Any] | None = _TABLES["windows"].get(found)
        self.rule_of_states: dict[str, Any] | None = _TABLES["states"].get(found)
        kind = header.metadata.get("general.type", "model")
        if kind != "model":
            raise ConfigError(f"general.type is {shown(kind)}; kvviz reads the file of a whole model")
        if why := REFUSED.get(found):
            raise ConfigError(f"general.architecture is {found}: {why}")
        if found not in FAMILIES:
            raise ConfigError(f"general.architecture is {shown(found)}, which kvviz does not know")

    def raw(self, name: str) -> Value | None:
        """A key's value; None for one that is absent, or that llama.cpp does not read for this architecture."""
        if self.arch not in _TABLES["readers"].get(name, (self.arch,)):
            return None
        return self.header.metadata.get(f"{self.arch}.{name}")

    def size(self, name: str, least: int = 1) -> int:
        """A whole number. Raises ConfigError for an absent key."""
        value = self.optional(name, least)
        if value is None:
            raise ConfigError(f"the GGUF file has no {self.arch}.{name}")
        return value

    def optional(self, name: str, least: int = 0) -> int | None:
        """A whole number, or None for an absent key."""
        value = self.raw(name)
        return None if value is None else checked(f"{self.arch}.{name}", value, least)

    def each(self, name: str, count: int) -> list[int] | None:
        """A whole number for each of `count` layers, which the file lists or gives once; None for an absent key."""
        value = self.raw(name)
        if value is None and f"{self.arch}.{name}" not in self.header.counts:
            return None
        if not isinstance(value, tuple):
            return [checked(f"{self.arch}.{name}", value, 0)] * count
        listed = count // self.loops
        if len(value) < listed:
            raise ConfigError(f"{self.arch}.{name} lists {len(value):,} layers and the model has {listed:,}")
        numbers = (int(entry) if isinstance(entry, bool) else entry for entry in value[:listed])
        return [checked(f"{self.arch}.{name}", number, 0) for number in numbers] * self.loops

    @cached_property
    def loops(self) -> int:
        """How often a text passes the layers, each time with a cache of its own."""
        return self.optional("num_loops", 1) or 1

    def config(self, title: str) -> Config:
        """The fields that transformers would have, but for those of the weights."""
        depth = (self.size("block_count") - (self.optional("nextn_predict_layers") or 0)) * self.loops
        if not 1 <= depth <= MOST_LAYERS:
            raise ConfigError(f"{self.arch}.block_count leaves {depth:,} layers; kvviz reads 1 to {MOST_LAYERS:,}")
        name = self.header.metadata.get("general.name")
        config: Config = {
            "model_type": self._family(),
            "_name_or_path": title or (name if isinstance(name, str) else "") or self.arch,
            "num_hidden_layers": depth,
            "vocab_size": self._vocabulary(),
        }
        config |= {field: value for field, key in _SIZES.items() if (value := self.optional(key))}
        for field, key in _WIDTHS.items():
            widths = self.each(key, depth)
            if widths and max(widths):
                config[field] = max(widths)
        config |= self._layers(depth)
        return {field: value for field, value in config.items() if value is not None} | {
            "kv_lora_rank": config.get("kv_lora_rank")  # null, or the family's default would count
        }

    def _family(self) -> str:
        """The family of transformers, which for two architectures depends on a further key."""
        found = FAMILIES[self.arch]
        if self.optional("expert_count"):
            found = _TABLES["experts"].get(self.arch, found)
        return found if self.raw("attention.key_length_mla") else _TABLES["expanded"].get(self.arch, found)

    def _vocabulary(self) -> int | None:
        """Tokens of the vocabulary: as stated, as listed, or the rows of the embeddings."""
        listed = self.optional("vocab_size") or self.header.counts.get("tokenizer.ggml.tokens")
        rows = (
            tensor.shape[1] for tensor in self.header.tensors if tensor.name == "token_embd.weight" and tensor.shape[1:]
        )
        return listed or next(rows, None)

    def _layers(self, depth: int) -> Config:
        """The fields that give each layer its type, its heads and its widths."""
        heads = self.each("attention.head_count", depth) or [0] * depth
        kv_heads = self.each("attention.head_count_kv", depth) or heads
        types = self._types(depth, kv_heads)
        config: Config = {"layer_types": types, **self._states(types, heads)}
        windows = {SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}
        config |= {field: self._window() if kind in types else None for kind, field in windows.items()}
        config |= self._shared(depth)
        if self.arch in ("mpt", "dbrx"):
            config["attn_config"] = {"kv_n_heads": kv_heads[0]}
        if self.arch == "falcon":
            config |= {"multi_query": kv_heads[0] == 1, "new_decoder_architecture": 1 < kv_heads[0] < heads[0]}
        if not any(heads):
            return config
        if (mla := self.optional("attention.key_length_mla")) is not None:
            return config | self._latent(mla, heads)
        rows = [self._attention(i, types[i], heads, kv_heads) for i in range(depth)]
        base = next((row for row in rows if row["num_key_value_heads"]), rows[0])
        others = {str(i): row for i, row in enumerate(rows) if row != base and row["num_key_value_heads"]}
        return config | base | ({"per_layer_config": others} if others else {})

    def _attention(self, layer: int, kind: str, heads: list[int], kv_heads: list[int]) -> dict[str, int]:
        """Heads and widths of one layer; a layer with a window can have widths of its own."""
        usual = self.size("embedding_length") // (heads[0] or 1)
        times = 1
        key, value = (self.optional(f"attention.{name}_length") or usual for name in ("key", "value"))
        if kind == SLIDING:
            key = self.optional("attention.key_length_swa") or key
            value = self.optional("attention.value_length_swa") or value
            times = facts_of(FAMILIES[self.arch]).sliding_kv_factor  # which the family's code applies once more
        return {
            "num_attention_heads": heads[layer],
            "num_key_value_heads": kv_heads[layer] // times,
            "head_dim": key,
            "v_head_dim": value,
        }

    def _latent(self, head_dim: int, heads: list[int]) -> Config:
        """Multi-head latent attention: a row of the latent and the rotary key, which `key_length` counts together."""
        rank = self.size("attention.kv_lora_rank")
        rotary = self.size("attention.key_length") - rank
        return {
            "num_attention_heads": max(heads),
            "num_key_value_heads": max(heads),
            "kv_lora_rank": rank,
            "qk_rope_head_dim": checked(f"{self.arch}.attention.key_length - kv_lora_rank", rotary),
            "qk_nope_head_dim": head_dim - rotary,
            "v_head_dim": self.size("attention.value_length_mla"),
            **self._indexer(),
        }

    def _indexer(self) -> Config:
        size = self.optional("attention.indexer.key_length")
        if not size:
            return {}
        types = self.raw("attention.indexer.types")
        named = ["full" if kind else "shared" for kind in types] if isinstance(types, tuple) else None
        return {"index_head_dim": size, "indexer_types": named}

    def _types(self, depth: int, kv_heads: list[int]) -> list[str]:
        """The type of each layer, by llama.cpp's rules."""
        states, windows = self._with_state(depth, kv_heads), self._with_window(depth)
        kind = CONV if self.optional("shortconv.l_cache") else LINEAR
        attending = INDEXED if self.optional("attention.indexer.key_length") else FULL
        sliding = CHUNKED if (self.rule_of_windows or {}).get("chunked") else SLIDING
        beside = (self.rule_of_states or {}).get("layers") == "beside attention"
        feed_forward = self.each("feed_forward_length", depth) or [0] * depth
        types = []
        for layer in range(depth):
            if self.arch.startswith("nemotron_h") and feed_forward[layer]:
                types.append(MLP)
            elif states[layer]:
                types.append(HYBRID if beside else kind)
            elif not kv_heads[layer]:
                types.append(MLP)
            else:
                types.append(sliding if windows[layer] else attending)
        return types

    def _with_state(self, depth: int, kv_heads: list[int]) -> list[bool]:
        """Which layers keep a recurrent state."""
        rule = self.rule_of_states
        if rule is None:
            return [False] * depth
        if (listed := self.each("attention.recurrent_layers", depth)) is not None:
            return [bool(entry) for entry in listed]
        if rule["layers"] == "without KV heads":
            return [not heads for heads in kv_heads]
        if rule["layers"] == "interval":
            interval = self.optional("full_attention_interval", 1) or rule["interval"]
            return [(layer + 1) % interval != 0 for layer in range(depth)]
        return [True] * depth

    def _window(self) -> int | None:
        """Tokens of a window; None for a model without."""
        rule = self.rule_of_windows
        stated = self.optional("attention.sliding_window")
        if rule is None or stated == 0:
            return None
        window = rule.get("fixed") or stated or rule.get("window")
        return window if stated or "window" in rule or rule.get("chunked") else None

    def _with_window(self, depth: int) -> list[bool]:
        """Which layers have a window."""
        rule, pattern = self.rule_of_windows, self.raw("attention.sliding_window_pattern")
        if rule is None or self._window() is None or rule.get("layers", depth) != depth:
            return [False] * depth
        if isinstance(pattern, tuple):
            return [bool(entry) for entry in self.each("attention.sliding_window_pattern", depth) or ()]
        every = self.optional("attention.sliding_window_pattern") if pattern is not None else rule.get("every")
        if every is None:
            raise ConfigError(f"the GGUF file has no {self.arch}.attention.sliding_window_pattern")
        place = 0 if rule.get("first") else every - 1
        return [not every or layer % every != place for layer in range(depth)]

    def _shared(self, depth: int) -> Config:
        """How many layers reuse the keys and values of earlier ones."""
        shared = self.optional("attention.shared_kv_layers")
        if self.arch in _TABLES["own_layers"]:
            shared = max(0, depth - _TABLES["own_layers"][self.arch])
        return {"num_kv_shared_layers": shared} if shared is not None else {}

    def _states(self, types: list[str], heads: list[int]) -> Config:
        """The sizes of recurrent states."""
        if self.arch == "minimax-01" or not {LINEAR, HYBRID} & set(types):  # MiniMax's follow from its heads
            return {}
        if head := self.optional("wkv.head_size", 1):
            shifts = self.optional("token_shift_count", 1) or 2
            return {"wkv_head_size": head, "token_shift_count": shifts}
        kernel = self.size("ssm.conv_kernel")
        if self.arch in _TABLES["readers"]["kda.head_dim"]:
            dim = self.size("kda.head_dim")
            attending = [layer + 1 for layer, kind in enumerate(types) if kind != LINEAR]
            others = [layer + 1 for layer, kind in enumerate(types) if kind == LINEAR]
            inner = {"num_heads": heads[0], "head_dim": dim, "short_conv_kernel_size": kernel}
            return {"linear_attn_config": {**inner, "full_attn_layers": attending, "kda_layers": others}}
        inner_size, state = self.size("ssm.inner_size"), self.size("ssm.state_size")
        groups, ranks = self.optional("ssm.group_count"), self.optional("ssm.time_step_rank")
        if self.arch.startswith("qwen3"):
            values = self.size("ssm.time_step_rank")
            return {
                "linear_conv_kernel_dim": kernel,
                "linear_key_head_dim": state,
                "linear_num_key_heads": self.size("ssm.group_count"),
                "linear_num_value_heads": values,
                "linear_value_head_dim": inner_size // values,
            }
        sizes: Config = {"mamba_d_state": state, "mamba_d_conv": kernel, "mamba_d_ssm": inner_size}
        if self.arch.startswith("nemotron_h"):  # its own names for them, by which transformers builds it
            sizes |= {"ssm_state_size": state, "conv_kernel": kernel, "n_groups": groups}
        if groups:  # of Mamba-2, whose state has heads
            sizes |= {"mamba_n_groups": groups, "mamba_num_heads": ranks, "mamba_head_dim": inner_size // (ranks or 1)}
        return sizes
