"""The views: what each engine keeps of a sequence after a number of tokens, and what it reserves, by its own rules."""

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kvviz.base.errors import ConfigError
from kvviz.base.precision import Precision
from kvviz.memory.llama_cpp import USUAL, LlamaCpp, padded
from kvviz.models.layers import LayerSpec
from kvviz.models.rows import INDEXER
from kvviz.models.states import State


@dataclass(frozen=True)
class Case:
    """Each of `sequences`: tokens seen, tokens of its encoder, how elements are stored, whether states are in float32.

    `llama_cpp`: how that engine was started.
    """

    tokens: int
    source_tokens: int
    precision: Precision
    state_float32: bool = False
    sequences: int = 1
    llama_cpp: LlamaCpp = USUAL


@dataclass(frozen=True)
class Kept:
    """What one layer keeps of a sequence: tokens held, bytes of its states, all its bytes.

    `allocated`: the bytes reserved for all sequences together.
    """

    held: int
    state_bytes: int
    nbytes: int
    allocated: int


@dataclass(frozen=True)
class View:
    """A way of counting: `keep` gives one Kept for each layer of `counted`. `version`: of the code that it follows."""

    name: str
    title: str
    version: str
    rule: str
    source: str
    dtypes: Sequence[str]
    keep: Callable[[Sequence[LayerSpec], Case], list[Kept]]
    hf: bool = False

    def counted(self, layers: Sequence[LayerSpec]) -> Sequence[LayerSpec]:
        """The layers as this view counts them: as transformers stores them if `hf`."""
        return [layer.as_stored for layer in layers] if self.hf else layers


def token_bytes(layer: LayerSpec, precision: Precision) -> int:
    """Bytes of one held token's keys and values: KV heads x (key dim + value dim) elements."""
    return precision.row(layer.kv_heads, layer.key_dim) + precision.row(layer.kv_heads, layer.value_dim)


def state_bytes(layer: LayerSpec, precision: Precision) -> int:
    """Bytes of a layer's constant states, as transformers keeps them: recurrent ones in float32."""
    return sum(state.elements * state.element_bytes(precision.state_bytes) for state in layer.states)


def rows_bytes(layer: LayerSpec, tokens: int, precision: Precision) -> int:
    """Bytes of what a layer keeps beside keys and values that grows with the tokens."""
    return sum(
        rows.count(tokens) * (rows.element_bytes * rows.width or precision.row(1, rows.width))
        + rows.beside(tokens) * precision.state_bytes
        for rows in layer.rows
    )


def _reach(layer: LayerSpec, case: Case, slack: int = 0) -> int:
    """Tokens that a layer holds: all, the encoder's, or those of its window minus `slack`."""
    if layer.kind in ("none", "shared", "linear"):
        return 0
    if layer.kind == "cross":
        return case.source_tokens
    return case.tokens if layer.window is None else min(case.tokens, layer.window - slack)


def _kept(layer: LayerSpec, case: Case, held: int, cells: int) -> Kept:
    token = token_bytes(layer, case.precision)
    beside = state_bytes(layer, case.precision) + rows_bytes(layer, case.tokens, case.precision)
    return Kept(held, beside, held * token + beside, case.sequences * (cells * token + beside))


def _all_in_reach(layers: Sequence[LayerSpec], case: Case) -> list[Kept]:
    return [_kept(layer, case, held := _reach(layer, case), held) for layer in layers]


def _hf_dynamic(layers: Sequence[LayerSpec], case: Case) -> list[Kept]:
    return [_kept(layer, case, _reach(layer, case, slack=1), _reach(layer, case)) for layer in layers]


def _llama_cpp(layers: Sequence[LayerSpec], case: Case) -> list[Kept]:
    for layer in layers:
        if not (layer.latent and layer.index_dim):
            _refuse_rows(layer, "llama.cpp")
        if any(state.name not in ("convolution", "recurrent", "token shift") for state in layer.states):
            raise ConfigError("llama.cpp's layout of these states is not known to kvviz; take another view")
    found = []
    for layer, token in zip(layers, case.llama_cpp.token_bytes(layers, case.precision), strict=True):
        held = _reach(layer, case)
        cells = case.sequences * held
        if held and layer.kind != "cross":
            cells = case.llama_cpp.cells(layer.window, case.tokens, case.sequences)
        states = sum(4 * _without_newest(state) for state in layer.states)
        found.append(Kept(held, states, held * token + states, cells * token + case.sequences * states))
    return found


def _refuse_rows(layer: LayerSpec, engine: str) -> None:
    if layer.kind == "hidden":
        raise ConfigError(f"{engine} has no cache of hidden states; take the view architecture or hf-dynamic")
    if layer.rows:
        raise ConfigError(f"{engine}'s layout of {layer.rows[0].name}s is not known to kvviz; take another view")


def _without_newest(state: State) -> int:
    """Elements of a state; an engine keeps K - 1 past columns for a convolution with a kernel of K columns."""
    return state.elements if state.name != "convolution" else state.shape[0] * (state.shape[1] - 1)


BLOCK = 16  # tokens of a block in vLLM, and in kvviz's own paged cache

Group = tuple[str | int | None, ...]


@dataclass(frozen=True)
class _Paged:
    """One cache of a layer as vLLM sees it: keys and values, or states."""

    layer: int
    group: Group  # what layers must share to be in one group
    token: int  # bytes of a token; 0 for states
    state: int  # bytes of the states
    skipped: int  # tokens that a window has left behind
    tokens: int


def _vllm(layers: Sequence[LayerSpec], case: Case) -> list[Kept]:
    """Blocks of equal bytes: vLLM makes all pages equally large and all groups of layers equally long.

    Groups: with 30 sliding and 6 full layers, a group has 6 layers, and there are 5 + 1 groups. With 31 sliding layers
    the sixth group of them has 1 layer and 5 empty ones as padding, which take pages as well. Pages: a state of
    100,000 bytes needs a page of at least that, so blocks become longer than 16 tokens until they are as large.
    """
    if any(layer.kind == "indexed" for layer in layers):
        return _latent_with_index("vLLM", layers, case)
    parts = [_vllm_parts(number, layer, case) for number, layer in enumerate(layers)]
    every = [part for own in parts for part in own]
    page, padding, found = _page(every), _padding_layers(every), []
    for layer, own in zip(layers, parts, strict=True):
        held, states = _reach(layer, case), sum(part.state for part in own)
        pages = sum(_blocks(part, page) * (1 + padding.get((part.layer, part.group), 0)) for part in own)
        found.append(
            Kept(held, states, held * token_bytes(layer, case.precision) + states, case.sequences * pages * page)
        )
    return found


INDEXED_BLOCK = 64  # tokens of a block where an indexer chooses tokens: its kernels take no other
QUANTISED = 128  # elements of an indexer's key, or of a latent in fp8, that share a float32 scale


def _latent_with_index(engine: str, layers: Sequence[LayerSpec], case: Case) -> list[Kept]:
    """DeepSeek sparse attention in vLLM and SGLang: blocks of 64 tokens, an indexer's keys in fp8 with their scale.

    A latent of 512 and a rotary key of 64 take 1,152 B in bfloat16, and 512 + 16 + 128 = 656 B in fp8, where the rotary
    key stays in bfloat16; an indexer's key of 128 takes 132 B in either.
    """
    found = []
    for layer in layers:
        if not layer.latent or layer.window or layer.states or any(rows.name != INDEXER for rows in layer.rows):
            _refuse(engine, layer)
        if case.precision.name not in ("bfloat16", "float16", "fp8"):
            raise ConfigError(f"{engine} keeps latent rows beside an indexer in bfloat16, float16 or fp8 alone")
        row = token_bytes(layer, case.precision)
        if case.precision.name == "fp8":
            row = _with_scales(layer.key_dim) + 2 * layer.value_dim
        index = _with_scales(layer.index_dim)
        cells = case.sequences * padded(case.tokens, INDEXED_BLOCK)
        found.append(Kept(case.tokens, case.tokens * index, case.tokens * (row + index), cells * (row + index)))
    return found


def _with_scales(elements: int) -> int:
    return elements + elements // QUANTISED * 4


def _refuse(engine: str, layer: LayerSpec) -> NoReturn:
    raise ConfigError(f"{engine}'s layout of {layer.kind} layers is not known to kvviz; take another view")


def _pages_of(engine: str, page: int, kinds: Sequence[str]) -> Callable[[Sequence[LayerSpec], Case], list[Kept]]:
    """Whole pages of each layer's keys and values, in an engine whose other layouts are not known here."""

    def keep(layers: Sequence[LayerSpec], case: Case) -> list[Kept]:
        if engine == "SGLang" and any(layer.kind == "indexed" for layer in layers):
            return _latent_with_index(engine, layers, case)
        found = []
        for layer in layers:
            if layer.kind not in kinds:
                _refuse(engine, layer)
            held = _reach(layer, case)
            found.append(_kept(layer, case, held, padded(held, page)))
        return found

    return keep


def _vllm_parts(number: int, layer: LayerSpec, case: Case) -> list[_Paged]:
    _refuse_rows(layer, "vLLM")
    if layer.latent and case.precision.name == "nvfp4":
        raise ConfigError("vLLM's layout of latent rows in nvfp4 is not known to kvviz; take bfloat16 or fp8")
    parts = []
    if layer.kv_heads:
        tokens = case.source_tokens if layer.kind == "cross" else case.tokens
        group = (layer.kind == "cross", layer.window, layer.kv_heads, layer.key_dim, layer.value_dim)
        token = token_bytes(layer, case.precision)
        parts.append(_Paged(number, group, token, 0, _skipped(layer, tokens), tokens))
    if layer.states:
        usual = case.precision.state_bytes
        recurrent = 4 if case.state_float32 else usual
        size = sum(_without_newest(state) * (recurrent if state.float32 else usual) for state in layer.states)
        parts.append(_Paged(number, ("state",), 0, size, 0, 1))
    return parts


def _skipped(layer: LayerSpec, tokens: int) -> int:
    """Tokens at the front that the newest token can no longer attend to."""
    window = layer.window or tokens
    return (tokens - 1) // window * window if layer.kind == "chunked" else max(0, tokens - window)


def _page(parts: list[_Paged]) -> int:
    """Bytes of a page: a block of the widest layer, lengthened until the largest state fits."""
    widest = max((part.token for part in parts), default=0)
    state = max((part.state for part in parts), default=0)
    if not widest:
        return state
    page = widest * max(BLOCK, padded(-(-state // widest), BLOCK))
    for part in parts:
        if part.token and page % (part.token * BLOCK):
            raise ConfigError("vLLM can't give these layers pages of one size: one token's bytes don't divide evenly")
    return page


def _blocks(part: _Paged, page: int) -> int:
    if not part.token:
        return 1
    size = page // part.token  # tokens of one block
    return -(-part.tokens // size) - part.skipped // size


def _padding_layers(parts: list[_Paged]) -> dict[tuple[int, Group], int]:
    """How many empty layers fill the last group of each type; the type's last layer accounts for them."""
    counts = Counter(part.group for part in parts)
    if len(counts) < 2:
        return {}
    least, most = min(counts.values()), max(counts.values())
    size = most if most < 1.5 * least else least
    last = {part.group: part.layer for part in parts}
    return {(last[group], group): -count % size for group, count in counts.items()}


_RULES = {
    "architecture": _all_in_reach,
    "hf-dynamic": _hf_dynamic,
    "hf-static": _all_in_reach,
    "vllm": _vllm,
    "sglang": _pages_of("SGLang", 1, ("full", "latent", "shared", "none")),
    "tensorrt-llm": _pages_of("TensorRT-LLM", 32, ("full", "shared", "none")),
    "mlx": _pages_of("mlx-lm", 256, ("full", "none")),
    "llama.cpp": _llama_cpp,
}
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
VIEWS: Mapping[str, View] = {name: View(name, **table, keep=_RULES[name]) for name, table in _TABLES.items()}


def view_named(name: str) -> View:
    """The view with that name. Raises ConfigError, which lists the names, for an unknown one."""
    if name not in VIEWS:
        raise ConfigError(f"view is {name!r}; it is one of {', '.join(VIEWS)}")
    return VIEWS[name]
