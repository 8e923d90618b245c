"""A memory figure as a LaTeX formula with its numbers, and the config field that each number came from."""

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from kvviz.base.precision import Precision, precision
from kvviz.memory.engine_views import rows_bytes
from kvviz.memory.formula import LayerMemory, Memory
from kvviz.models.layers import LayerSpec
from kvviz.models.rows import Rows
from kvviz.models.spec import ModelSpec

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
KIND_WORDS: dict[str, str] = _WORDS["kinds"]
_FACTORS = ("layers", "sequence", "sequences", "tokens", "KV heads", "K and V", "head dim", "bytes each")


@dataclass(frozen=True)
class Term:
    """Layers that keep the same: their number, one of them as a row and as a format, and the bytes of all of them."""

    count: int
    row: LayerMemory
    layer: LayerSpec
    nbytes: int


def terms(spec: ModelSpec, memory: Memory) -> tuple[Term, ...]:
    """The layers of a memory document, equal ones together, in the order in which they first occur."""
    same: dict[object, list[int]] = {}
    for number, row in enumerate(memory.layers):
        alike = (row.kind, row.kv_heads, row.key_dim, row.value_dim, row.window, row.held, row.state_bytes, row.nbytes)
        same.setdefault((alike, spec.layers[number].states), []).append(number)
    return tuple(
        Term(len(n), memory.layers[n[0]], spec.layers[n[0]], sum(memory.layers[i].nbytes for i in n))
        for n in same.values()
    )


def equation(spec: ModelSpec, memory: Memory) -> str:
    """The sum with this model's numbers: a line for each term, and the total."""
    lines = [_product(term, memory) for term in terms(spec, memory) if term.nbytes]
    if not lines:
        return r"0\ \text{B}"
    total = rf"\textbf{{{memory.total_bytes:,} B}}"  # in math a comma would not be bold
    if len(lines) == 1:
        product = lines[0].replace(r"\times\;", r"\allowbreak{\times}\;")  # a second line begins with the sign
        return rf"{product} \;\allowbreak{{=}}\; {total}"
    body = r" \\ ".join(rf"{'+' if i else ''}\;& {line}" for i, line in enumerate(lines))
    return rf"\begin{{aligned}} {body} \\ =\;& {total} \end{{aligned}}"


def _product(term: Term, memory: Memory) -> str:
    row, layer, kind, sequences = term.row, term.layer, precision(memory.dtype), memory.batch * memory.beams
    values = precision(memory.llama_cpp.values) if memory.llama_cpp and memory.llama_cpp.values else kind
    each = (row.nbytes - row.state_bytes) // sequences // max(row.held, 1)
    plain = kind.row(layer.kv_heads, layer.key_dim) + values.row(layer.kv_heads, layer.value_dim)
    packed = bool(row.held) and each != plain  # in an engine's own way
    if packed or row.state_bytes // sequences < rows_bytes(layer, row.seen, kind):
        layer = replace(layer, rows=())
    parts = states = [*_row_terms(row, layer, kind), *_state_terms(row, layer, kind, sequences)]
    if row.kv_heads and row.held:
        token = _under(each, "bytes, packed") if packed else _token(row, layer, kind, values)
        parts = [rf"{_under(row.held, _held_word(row))} \;\times\; {token}", *states]
    one = " + ".join(parts)
    factors = [_under(term.count, "layers"), _under(sequences, "sequences" if sequences > 1 else "sequence")]
    return r" \;\times\; ".join([*factors, rf"\left({one}\right)" if states else one])


def _held_word(row: LayerMemory) -> str:
    if row.kind == "cross":
        return "encoder tokens"
    return "tokens" if row.window is None or row.held < row.window - 1 else "tokens of the window"


def _token(row: LayerMemory, layer: LayerSpec, kind: Precision, values: Precision) -> str:
    """Bytes of one held token in one layer, its keys of one `kind` and its values perhaps of another."""
    scale = rf" + {_under(kind.head_bytes, 'scale')}" if kind.head_bytes else ""
    index = "".join(f" + {_under(rows.width, rows.name)}{scale}" for rows in layer.rows if _is_of_token(rows))
    text = rf"{_under(row.kv_heads, 'KV heads')} \;\times\; {_pair(row, kind)}"
    if values != kind and not layer.latent:
        both = ((row.key_dim, "d_k", kind), (row.value_dim, "d_v", values))
        each = " + ".join(rf"{_under(dim, word)} \times {_element(own)}" for dim, word, own in both)
        return rf"{_under(row.kv_heads, 'KV heads')} \;\times\; ({each})"
    if layer.latent:
        text = rf"{_under(row.key_dim, 'latent')}{scale} + {_under(row.value_dim, 'rotary key')}{scale}"
    if index or layer.latent:
        text = rf"\left({text}{index}\right)"
    return text if kind.head_bytes else rf"{text} \;\times\; {_element(kind)}"


def _pair(row: LayerMemory, kind: Precision) -> str:
    """Keys and values of one head: twice the head dim, their two widths, or the one row that is kept for both."""
    if not row.value_dim:
        scale = f" + {_under(kind.head_bytes, 'scale')}" if kind.head_bytes else ""
        text = _under(row.key_dim, "hidden size" if row.kind == "hidden" else "K and V in one")
        return rf"\left({text}{scale}\right)" if scale else text
    if kind.head_bytes:
        scale = _under(kind.head_bytes, "scale")
        return rf"\left({_under(row.key_dim, 'd_k')} + {_under(row.value_dim, 'd_v')} + 2 \times {scale}\right)"
    if row.key_dim == row.value_dim:
        return rf"{_under(2, 'K and V')} \;\times\; {_under(row.key_dim, 'head dim')}"
    return rf"({_under(row.key_dim, 'd_k')} + {_under(row.value_dim, 'd_v')})"


def _element(kind: Precision) -> str:
    if kind.block == 1:
        return _under(kind.block_bytes, "bytes each")
    return _labelled(rf"\tfrac{{{kind.block_bytes}}}{{{kind.block}}}", _word("bytes each"))


def _is_of_token(rows: Rows) -> bool:
    """Whether there is a row for each token, in the cache's dtype, as of an indexer's keys."""
    return rows.every == 1 and not rows.element_bytes


def _row_terms(row: LayerMemory, layer: LayerSpec, kind: Precision) -> list[str]:
    """What grows with the tokens by another rule than keys and values: complete rows, and what waits for the next."""
    found = []
    for rows in layer.rows:
        if not _is_of_token(rows) and (count := rows.count(row.seen)):
            width = _under(rows.width, "elements" if rows.every > 1 else "numbers")
            if kind.head_bytes and not rows.element_bytes:
                each = rf"\left({width} + {_under(kind.head_bytes, 'scale')}\right)"
            else:
                each = (
                    rf"{width} \times {_under(rows.element_bytes, 'bytes') if rows.element_bytes else _element(kind)}"
                )
            found.append(rf"{_under(count, f'{rows.name}s')} \times {each}")
        if beside := rows.beside(row.seen):
            found.append(rf"{_under(beside, 'elements of waiting tokens')} \times {_under(kind.state_bytes, 'bytes')}")
    return found


def _state_terms(row: LayerMemory, layer: LayerSpec, kind: Precision, sequences: int) -> list[str]:
    """The states by their shapes, or as one number if a view keeps them in another form."""
    sized = [(state.shape, state.element_bytes(kind.state_bytes)) for state in layer.states]
    stated = row.state_bytes // sequences - rows_bytes(layer, row.seen, kind)
    if sum(math.prod(shape) * size for shape, size in sized) != stated:
        return [_under(stated, "bytes of states")]
    return [r" \;\times\; ".join([*(_number(n) for n in shape), _under(size, "bytes")]) for shape, size in sized]


def _under(value: int, word: str) -> str:
    """A number with its word below it; an empty comma keeps all words on one line."""
    return _labelled(rf"\vphantom{{,}}{_number(value)}", _word(word))


def _word(word: str) -> str:
    """A label; those of the usual factors take the same width, so that the signs between them are evenly spaced."""
    if word in _FACTORS:
        return rf"\hspace{{1.7em}}\mathclap{{\text{{{word}}}}}\hspace{{1.7em}}"
    return word if word.startswith("d_") else rf"\text{{{word}}}"


def _labelled(what: str, label: str) -> str:
    """A label below something, as high as the tallest letters are; even a number wider than its label stands apart."""
    return rf"\underset{{\vphantom{{\text{{Aly}}}}{label}}}{{\;{what}\;}}"


def _number(value: int) -> str:
    return f"{value:,}".replace(",", "{,}")


_STATE_FIELDS = ("mamba_", "linear_", "conv", "ssm_", "state_size", "expand", "n_groups", "lru_", "cca_")


def origins(spec: ModelSpec) -> list[tuple[str, str, str]]:
    """For each number in a model's formula: what it is, its value, and the config field that has it."""
    words = dict(_WORDS["fields"])
    if any(layer.latent for layer in spec.layers):  # one row for all heads
        words.pop("num_key_value_heads", None)
    elif any(layer.kv_heads and not layer.value_dim for layer in spec.layers):  # one row is key and value
        words["hidden_size"] = "hidden size"
    elif not {"num_key_value_heads", "multi_query"} & spec.origins.keys():  # a KV head for each query head
        words["num_attention_heads"] = "KV heads"
    # Of several fields for one thing, the last counts.
    names = {what: name for name, what in words.items() if name in spec.origins}
    states = [("a state's", name) for name in spec.origins if name.startswith(_STATE_FIELDS)]
    return [(what, spec.origins[name][1], spec.origins[name][0]) for what, name in [*names.items(), *states]]
