"""The same model with other heads, latent rows or other windows, as a ModelSpec, and what each change saves.

States do not change, nor do layers that reuse another's keys and values.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.base.precision import PRECISIONS
from kvviz.memory.engine_views import view_named
from kvviz.memory.formula import Memory, kv_memory
from kvviz.models.config_fields import checked
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec


@dataclass(frozen=True)
class Idea:
    """One change: `memory` with it, its reserved bytes as a `factor` of the unchanged model's, and the bytes `saved`.

    `factor` 0.25 is a quarter of the bytes; `saved` is negative if the change takes more.
    """

    name: str
    sentence: str
    memory: Memory
    factor: float
    saved: int

    @property
    def of_dtype(self) -> bool:
        """Whether the model stays as it is, and only its cache has another precision."""
        return self.name in PRECISIONS


def with_kv_heads(spec: ModelSpec, heads: int | None = None) -> ModelSpec:
    """Every layer that caches keys and values by head gets `heads` KV heads: https://arxiv.org/abs/2305.13245.

    Without a number: one for each query head, https://arxiv.org/abs/1706.03762. Raises ConfigError if they don't divide
    the query heads, or no layer has KV heads.
    """
    if not any(layer.kv_heads and not layer.latent for layer in spec.layers):
        raise ConfigError(f"no layer of {spec.name or 'this model'} caches keys and values by head")
    if spec.heads is None:
        raise ConfigError("the query heads are unknown; the config's num_attention_heads says them")
    each = spec.heads if heads is None else checked("heads", heads)
    if spec.heads % each:
        raise ConfigError(f"{each} KV heads do not divide the {spec.heads} query heads; take a divisor of {spec.heads}")
    return replace(spec, layers=tuple(_with_heads(layer, each) for layer in spec.layers))


def _with_heads(layer: LayerSpec, heads: int) -> LayerSpec:
    """The layer with that many KV heads; its stored form changes too, unless that has a number of heads of its own."""
    if not layer.kv_heads or layer.latent or not layer.value_dim:
        return layer
    stored = layer.stored
    if stored is not None and stored.kv_heads == layer.kv_heads:
        stored = _with_heads(stored, heads)
    return replace(layer, kv_heads=heads, stored=stored)


def as_latent(spec: ModelSpec, rank: int = 512, rotary: int = 64) -> ModelSpec:
    """Every layer of self-attention keeps one row of rank + rotary elements: https://arxiv.org/abs/2405.04434."""

    def latent(layer: LayerSpec) -> LayerSpec:
        kind = "latent" if layer.kind == "full" else layer.kind
        return replace(layer, kind=kind, kv_heads=1, key_dim=rank, value_dim=rotary, latent=True)

    return replace(spec, layers=tuple(_own(layer, latent) for layer in spec.layers))


def without_windows(spec: ModelSpec) -> ModelSpec:
    """Every layer reaches all tokens."""

    def unbounded(layer: LayerSpec) -> LayerSpec:
        whole = "latent" if layer.latent else "full"
        return replace(layer, kind=whole if layer.kind in ("sliding", "chunked") else layer.kind, window=None)

    return replace(spec, layers=tuple(_own(layer, unbounded) for layer in spec.layers))


def with_window(spec: ModelSpec, window: int, full_each: int | None = None) -> ModelSpec:
    """Every layer of self-attention reaches `window` tokens at most: https://arxiv.org/abs/2310.06825.

    With `full_each` N, every N-th of them stays as it is: https://arxiv.org/abs/2503.19786 has N = 6.
    """
    checked("window", window)
    attending = [number for number, layer in enumerate(spec.layers) if _attends(layer)]
    kept = set(attending[full_each - 1 :: full_each]) if full_each else set()

    def slid(layer: LayerSpec) -> LayerSpec:
        if layer.window is not None and layer.window <= window:
            return layer
        kind = "sliding" if layer.kind in ("full", "latent", "chunked") else layer.kind
        return replace(layer, kind=kind, window=window)

    layers = (layer if i in kept else _own(layer, slid) for i, layer in enumerate(spec.layers))
    return replace(spec, layers=tuple(layers))


def attending(spec: ModelSpec) -> list[LayerSpec]:
    """The layers that cache keys and values of the decoder's own tokens."""
    return [layer for layer in spec.layers if _attends(layer)]


def _attends(layer: LayerSpec) -> bool:
    """Whether it caches keys and values of the decoder's own tokens, each a row of its own or both in a latent."""
    return layer.kv_heads > 0 and layer.kind != "cross" and (layer.value_dim > 0 or layer.latent)


def _own(layer: LayerSpec, change: Callable[[LayerSpec], LayerSpec]) -> LayerSpec:
    """A layer of self-attention with the change, made to its stored form as well; any other layer unchanged."""
    if not _attends(layer):
        return layer
    changed = change(layer)
    return replace(changed, stored=_own(layer.stored, change)) if layer.stored else changed


# The name, the sentence and the change; the groups, rank and windows are those of the papers.
_VARIANTS: tuple[tuple[str, str, Callable[[ModelSpec], ModelSpec]], ...] = (
    ("MHA", "A KV head for each query head, as in the first transformers (arXiv 1706.03762).", with_kv_heads),
    (
        "GQA, 8 KV heads",
        "Query heads in 8 groups that share keys and values (arXiv 2305.13245).",
        lambda spec: with_kv_heads(spec, 8),
    ),
    ("MQA", "All query heads share one KV head (arXiv 1911.02150).", lambda spec: with_kv_heads(spec, 1)),
    ("Latent rows", "One row of 512 + 64 values a token for all heads, as DeepSeek-V2 (arXiv 2405.04434).", as_latent),
    ("No windows", "Every layer reaches all tokens.", without_windows),
    (
        "Windows of 4,096",
        "Every layer reaches the last 4,096 tokens, as Mistral 7B had it (arXiv 2310.06825).",
        lambda spec: with_window(spec, 4_096),
    ),
    (
        "Windows of 1,024 in 5 of 6 layers",
        "Each sixth layer stays as it is, the others reach 1,024 tokens, as in Gemma 3 (arXiv 2503.19786).",
        lambda spec: with_window(spec, 1_024, full_each=6),
    ),
)


def as_it_is(spec: ModelSpec) -> str:
    """Name a model's own attention by how its query heads share keys and values: MHA, GQA, MQA or latent rows."""
    own = {layer.kv_heads for layer in attending(spec)}
    if not own:
        return "As it is"
    if any(layer.latent for layer in spec.layers):
        return "As it is: latent rows"
    kind = (
        "MQA" if own == {1} else "MHA" if own == {spec.heads} else f"GQA, {' or '.join(map(str, sorted(own)))} KV heads"
    )
    return f"As it is: {kind}"


def ideas(spec: ModelSpec, memory: Memory) -> tuple[Idea, ...]:
    """Every change that has an effect and can be worked out, in the memory's own case but on one device."""
    now = again(spec, memory).reserved_bytes
    return tuple(
        Idea(name, sentence, other, other.reserved_bytes / now, now - other.reserved_bytes)
        for name, sentence, other in (_changes(spec, memory, now) if now else ())
    )


def _changes(spec: ModelSpec, memory: Memory, now: int) -> Iterator[tuple[str, str, Memory]]:
    """The variants, then the view's other precisions, except those of the same size (float16 beside bfloat16)."""
    for name, sentence, change in _VARIANTS:
        with suppress(ConfigError):
            changed = change(spec)
            if changed.layers != spec.layers:
                yield name, sentence, again(changed, memory)
    for dtype in view_named(memory.view).dtypes:
        with suppress(ConfigError):
            other = again(spec, memory, dtype=dtype)
            if other.reserved_bytes != now:
                yield dtype, f"The same cache in {dtype} instead of {memory.dtype}.", other


def again(spec: ModelSpec, memory: Memory, *, tokens: int | None = None, dtype: str = "") -> Memory:
    """The memory of a spec in the same case, or with other tokens or another dtype, on one device."""
    names = ("batch", "view", "beams", "source_tokens", "llama_cpp")
    same: dict[str, Any] = {name: getattr(memory, name) for name in names}
    if memory.llama_cpp and dtype not in ("", memory.dtype):
        same["llama_cpp"] = replace(memory.llama_cpp, values="")
    return kv_memory(spec, tokens or memory.tokens, dtype=dtype or memory.dtype, **same)
