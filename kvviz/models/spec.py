"""The cache format of a decoder, read from its config: one LayerSpec per layer, no tensor, no number of tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import LARGEST, Family, Fields, families
from kvviz.models.custom_code import caution, is_custom
from kvviz.models.family_facts import facts_of
from kvviz.models.gguf.config import notes_of_file
from kvviz.models.heads import query_heads
from kvviz.models.layers import LayerSpec, crosses, read_layers
from kvviz.models.read_lately import kept_lately

# Fields under which a composite config keeps its decoder.
PARTS = ("text_config", "thinker_config", "decoder", "decoder_config", "language_config", "llm_config")


@dataclass(frozen=True)
class ModelSpec:
    """A decoder's layers, its context limit (tokens), its vocabulary, its query heads and its source.

    `origins` maps each quantity to the field of the config that gave it, and its value. `crossing`: the second half of
    the layers attends to an encoder, whose output has `source_tokens` tokens if the architecture fixes that number.
    `state_float32`: the config asks for recurrent states in float32. `notes`: what has to be said beside its figures.
    """

    name: str
    layers: tuple[LayerSpec, ...]
    source: str = ""
    vocab_size: int | None = None
    context: int | None = None
    heads: int | None = None
    source_tokens: int | None = None
    crossing: bool = False
    state_float32: bool = False
    notes: tuple[str, ...] = ()
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict, compare=False)

    @property
    def decoder_layers(self) -> int:
        """Number of decoder layers; one that also attends to an encoder counts once."""
        return len(self.layers) // 2 if self.crossing else len(self.layers)

    @staticmethod
    @kept_lately
    def from_config(config: Mapping[str, object], name: str, source: str) -> "ModelSpec":
        """Read the dict of a config.json. Raises ConfigError with a sentence naming the field that can't be read."""
        fields = decoder_fields(config)
        layers, crossing = read_layers(fields), crosses(fields)
        return ModelSpec(
            name=name or str(config.get("model_type", "model")),
            layers=layers,
            source=source,
            vocab_size=fields.optional("vocab_size"),
            context=_context(fields),
            heads=query_heads(fields),
            source_tokens=fields.optional("max_source_positions") if crossing else None,
            crossing=crossing,
            state_float32="float32" in (fields.raw("mamba_ssm_dtype"), fields.raw("mamba_ssm_cache_dtype")),
            notes=_notes(fields),
            origins=dict(fields.origins),
        )


def _context(fields: Fields) -> int | None:
    """Tokens that the model was made for; positions that the config stretches by YaRN count as stretched."""
    stated = fields.optional("max_target_positions") or fields.optional("max_position_embeddings", least=-1)
    rope = fields.raw("rope_parameters") or fields.raw("rope_scaling")
    if not isinstance(rope, Mapping) or "yarn" not in (rope.get("rope_type"), rope.get("type")):
        return stated
    factor, short = rope.get("factor"), rope.get("original_max_position_embeddings")
    if isinstance(factor, int | float) and isinstance(short, int) and 1 <= factor * short < LARGEST:
        return max(stated or 0, int(factor * short))
    return stated


def _notes(fields: Fields) -> tuple[str, ...]:
    if fields.drafting:
        return ("It drafts for another model, whose keys and values its layers read, and keeps none of its own.",)
    return (*([caution(fields)] if is_custom(fields) else []), *notes_of_file(fields.given))


DEEPEST = 4  # levels of nested parts; published composite configs have two


def decoder_fields(
    config: Mapping[str, object], depth: int = 0, *, crossing: bool = False, drafting: bool = False
) -> Fields:
    """Return the fields of a config's decoder: its own, or those of its text part."""
    if not isinstance(config, Mapping):
        raise ConfigError("a config is a JSON object, with fields such as num_hidden_layers")
    model_type = config.get("model_type", "")
    if not isinstance(model_type, str):
        raise ConfigError("model_type has to be a name, such as llama")
    known, facts = families().get(model_type, Family()).get("parts", {}), facts_of(model_type)
    if facts.refusal:
        raise ConfigError(f"model_type {model_type} can't be read by the formula, because {facts.refusal}")
    for name in PARTS:
        part = config.get(name)
        if part is None and (name not in known or "num_hidden_layers" in config):
            continue
        if part is not None and not isinstance(part, Mapping):
            raise ConfigError(f"{name} has to be an object, the config of the text decoder")
        if depth == DEEPEST:
            raise ConfigError(f"{name} stands in itself more than {DEEPEST} times; no config is built so")
        beside = name.startswith("decoder") and not facts.encoder_is_prefix
        beside = beside and Fields(config, model_type).flag("is_encoder_decoder")
        inner = {"model_type": known.get(name) or model_type, **(part or {})}
        return decoder_fields(inner, depth + 1, crossing=crossing or beside, drafting=drafting or facts.drafts)
    return Fields(config, model_type, inner=depth > 0, crossing=crossing, drafting=drafting)
