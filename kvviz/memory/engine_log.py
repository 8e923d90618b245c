"""Lines of an engine's log in, the KV cache that they tell of out, and whether the formula agrees with it.

Standard library only. vLLM's and llama.cpp's lines, with whatever timestamps and prefixes stand before them. Formats:
https://github.com/vllm-project/vllm/blob/001cabc1/vllm/v1/core/kv_cache_utils.py and
https://github.com/ggml-org/llama.cpp/blob/02c28f53/src/llama-kv-cache.cpp
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.base.precision import PRECISIONS, precision
from kvviz.memory.formula import kv_memory
from kvviz.memory.views import BLOCK, CELLS, UBATCH, view_named
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec

GIB, MIB = 2**30, 2**20
LARGEST_TEXT = 1_000_000  # characters
MOST = 10**12  # tokens, cells or GiB
MOST_PARTS = 50  # caches of which one start prints a size


@dataclass(frozen=True)
class Part:
    """One cache that llama.cpp prints a size of. `name`: all, full (non-SWA), window (SWA) or states.

    `tolerance_bytes` is half a unit of the last digit printed; dtypes are as printed (f16, q8_0); `streams`: how often
    the cells are there.
    """

    name: str
    printed: str
    nbytes: int
    tolerance_bytes: int
    cells: int | None = None
    layers: int | None = None
    streams: int = 1
    key_dtype: str | None = None
    value_dtype: str | None = None


@dataclass(frozen=True)
class EngineLog:
    """What a log says of the KV cache. `engine` is vllm or llama.cpp; what was not printed is None.

    `nbytes`: vLLM's pool, or the sum of llama.cpp's parts. `lines`: those that were read.
    """

    engine: str
    lines: tuple[str, ...]
    nbytes: int | None = None
    tolerance_bytes: int = 0
    tokens: int | None = None
    blocks: int | None = None
    request_tokens: int | None = None
    concurrency: float | None = None
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Whether the formula agrees with a log; None where the log alone can't tell. `printed` is the log's figure."""

    agrees: bool | None
    printed: str
    sentence: str
    expected_bytes: int | None = None
    expected_tokens: int | None = None


_READ = (
    'vLLM\'s "GPU KV cache size: … tokens", "Maximum concurrency for … tokens per request: …x", "Available KV cache '
    'memory: … GiB" and "# GPU blocks: …", llama.cpp\'s "KV self size = … MiB" and "llama_kv_cache: size = … MiB ('
    '… cells, … layers, … seqs), K (…): …"'
)


def parse(text: str) -> EngineLog:
    """Read the lines of one engine. Raises KvvizError naming the lines that are read where there is none."""
    if len(text) > LARGEST_TEXT:
        raise KvvizError(f"the text has {len(text):,} characters; paste the lines about the KV cache alone")
    lines = [line.strip() for line in text.splitlines() if _TELLING.search(line)]
    found = [log for log in (_vllm_log(lines), _llama_log(lines)) if log is not None]
    if not found:
        raise KvvizError(f"no line about a KV cache's size is among these; kvviz reads {_READ}")
    if len(found) > 1:
        raise KvvizError("lines of vLLM and of llama.cpp are mixed; paste those of one engine")
    return found[0]


_TELLING = re.compile("KV cache|blocks:|concurrency|size", re.I)  # what every line that is read has one of
_POOL = re.compile(r"(?:Available KV cache memory:|reserved for KV Cache is)\s*(-?\d[\d,]*(?:\.\d+)?)\s*GiB", re.I)
_TOKENS = re.compile(r"GPU KV cache size:\s*(\d[\d,]*)\s*tokens", re.I)
_BLOCKS = re.compile(r"# (?!CPU )\w+ blocks:\s*(\d[\d,]*)")
_REQUESTS = re.compile(r"Maximum concurrency for\s*(\d[\d,]*)\s*tokens per request:\s*(\d[\d,]*(?:\.\d+)?)\s*x", re.I)


def _vllm_log(lines: list[str]) -> EngineLog | None:
    """vLLM's lines; where several workers print one, the least counts, as it does for vLLM."""
    kept = tuple(line for line in lines if any(form.search(line) for form in (_POOL, _TOKENS, _BLOCKS, _REQUESTS)))
    if not kept:
        return None
    pool, tokens, blocks = (_least(form, kept) for form in (_POOL, _TOKENS, _BLOCKS))
    request = next((match for line in kept if (match := _REQUESTS.search(line))), None)
    return EngineLog(
        "vllm",
        kept,
        nbytes=round(_number(pool) * GIB) if pool else None,
        tolerance_bytes=_half_a_digit(pool, GIB) if pool else 0,
        tokens=int(_number(tokens)) if tokens else None,
        blocks=int(_number(blocks)) if blocks else None,
        request_tokens=int(_number(request[1])) if request else None,
        concurrency=_number(request[2]) if request else None,
    )


def _least(form: re.Pattern[str], lines: tuple[str, ...]) -> str | None:
    return min((match[1] for line in lines if (match := form.search(line))), key=_number, default=None)


def _number(printed: str) -> float:
    value = float(printed.replace(",", ""))
    if value > MOST:
        raise KvvizError(f"{printed[:40]} is more than any cache has; paste the lines as the engine printed them")
    return value


def _half_a_digit(printed: str, unit: int) -> int:
    """Half a unit of the last digit, in bytes, rounded up."""
    return -(-unit // (2 * 10 ** len(printed.partition(".")[2])))


_KIND = re.compile(r"creating\s+(non-)?SWA KV cache", re.I)
_SIZE = re.compile(
    r"size\s*=\s*(\d+(?:\.\d+)?)\s*MiB\s*\(\s*(\d+) cells,\s*(\d+) layers,\s*\d+(?:\s*/\s*(\d+))? seqs?"
    r"(?:\s+(\d+) rs_seq)?\s*\)(.*)",
    re.I,
)
_SELF_SIZE = re.compile(r"KV self size\s*=\s*(\d+(?:\.\d+)?)\s*Mi?B(.*)", re.I)  # the oldest say MB and mean MiB
_DTYPE = re.compile(r"(?<![\w^])(K|V|R|S|c\^KV) \((\w+)\)")


def _llama_log(lines: list[str]) -> EngineLog | None:
    """llama.cpp's lines; what it prints twice, once for a trial and once in earnest, counts once."""
    name, found, kept = "all", dict[Part, None](), list[str]()
    for line in lines:
        if match := _KIND.search(line):
            name = "full" if match[1] else "window"
        elif part := _part(line, name):
            found[part] = None
            kept.append(line)
            name = "all"
    parts = _named(tuple(found))
    if not parts:
        return None
    if len(parts) > MOST_PARTS:
        raise KvvizError(f"these lines name {len(parts):,} caches; paste those of one start of llama.cpp")
    total, tolerance = sum(part.nbytes for part in parts), sum(part.tolerance_bytes for part in parts)
    return EngineLog("llama.cpp", tuple(kept), total, tolerance, parts=parts)


def _part(line: str, name: str) -> Part | None:
    new, old = _SIZE.search(line), _SELF_SIZE.search(line)
    match = new or old
    if match is None:
        return None
    dtypes = dict(_DTYPE.findall(match[6] if new else match[2]))
    both = dtypes.get("c^KV")
    part = Part(
        "states" if {"R", "S"} & set(dtypes) else name,
        f"{match[1]} MiB",
        round(_number(match[1]) * MIB),
        _half_a_digit(match[1], MIB),
        key_dtype=dtypes.get("K", both),
        value_dtype=dtypes.get("V", both),
    )
    if new is None:
        return part
    cells, layers, streams, earlier = (int(_number(new[i] or "0")) for i in (2, 3, 4, 5))
    return replace(part, cells=cells, layers=layers, streams=(streams or 1) * (1 + earlier))  # earlier states


def _named(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Two caches without a word of which is which: the one without a window is made first."""
    plain = [part for part in parts if part.name == "all"]
    if len(plain) != 2:
        return parts
    names = {id(plain[0]): "full", id(plain[1]): "window"}
    return tuple(replace(part, name=names.get(id(part), part.name)) for part in parts)


def judge(log: EngineLog, spec: ModelSpec, *, tokens: int, batch: int, dtype: str, tensor_parallel: int = 1) -> Verdict:
    """Hold a log against the formula; `tokens`, `batch` and `dtype` stand in for what the log does not say."""
    try:
        if log.engine == "vllm":
            return _judge_vllm(log, spec, dtype, tensor_parallel)
        return _judge_llama(log, spec, tokens, batch, dtype)
    except ConfigError as error:
        printed = " + ".join(part.printed for part in log.parts) or log.lines[0]
        return Verdict(None, printed, f"kvviz can't work out what this log would have to say: {error}.")


BLOCKS = range(BLOCK, 2**20 + BLOCK, BLOCK)  # tokens; in models with states a block is as long as a state is large


# vLLM: a pool of bytes, cut into blocks; a row of blocks, one of each layer, holds the same few tokens.


@dataclass(frozen=True)
class _Rows:
    """`row` bytes hold `block` tokens in all layers; `plain`: where that is true at any length."""

    row: int
    block: int
    plain: bool

    def tokens(self, pool: int) -> int:
        """Tokens that a pool of bytes holds, counted as if no window freed a block."""
        return max(0, pool) // self.row * self.block

    def nbytes(self, tokens: int) -> int:
        """Bytes of the rows for a number of tokens."""
        return -(-tokens // self.block) * self.row


def _rows(spec: ModelSpec, dtype: str, devices: int) -> _Rows:
    def reserved(tokens: int) -> int:
        return kv_memory(spec, tokens, dtype=dtype, view="vllm", tensor_parallel=devices).reserved_bytes

    row = reserved(1)
    if row == reserved(BLOCKS[-1] + 1):
        raise ConfigError("this model's cache does not grow with tokens, so a pool has no number of tokens")
    plain = not any(layer.window or layer.states or layer.kind == "cross" for layer in spec.layers)
    block = BLOCKS[bisect_left(BLOCKS, True, key=lambda n: reserved(n + 1) > row)]
    return _Rows(row, block, plain)


def _judge_vllm(log: EngineLog, spec: ModelSpec, dtype: str, devices: int) -> Verdict:
    rows = _rows(spec, dtype, devices)
    held = _held(log, rows)
    if log.nbytes is None:
        return _pool_of(held, rows, dtype)
    printed = f"{log.nbytes / GIB:.2f} GiB"
    if log.nbytes <= 0:
        return Verdict(None, printed, f"vLLM found no room for a cache ({printed}), so there is nothing to compare.")
    expected = rows.tokens(log.nbytes)
    each = f"{rows.row:,} bytes for {rows.block} tokens in {dtype}"
    if held is None:
        sentence = (
            f"A pool of {printed} holds {expected:,} tokens, by kvviz at {each}; the log says no number to compare."
        )
        return Verdict(None, printed, sentence, expected_tokens=expected)
    printed = f"{printed} for {held:,} tokens"
    agrees, why = _compared(log, held, spec, dtype, devices)
    sentence = (
        f"kvviz works out {expected:,} tokens for {log.nbytes / GIB:.2f} GiB, at {each}; vLLM printed {held:,}{why}."
    )
    return Verdict(agrees, printed, sentence, expected_bytes=rows.nbytes(held), expected_tokens=expected)


def _held(log: EngineLog, rows: _Rows) -> int | None:
    """Tokens that the log says the pool holds, as printed or from the blocks or the requests."""
    if log.tokens is not None:
        return log.tokens
    if log.blocks is not None:
        return log.blocks * rows.block
    if log.concurrency is None or log.request_tokens is None:
        return None
    return round(log.concurrency * log.request_tokens)


def _pool_of(held: int | None, rows: _Rows, dtype: str) -> Verdict:
    """The pool that a number of tokens needs, where the log does not say it."""
    pool, blocks = rows.nbytes(held or 0), -(-(held or 0) // rows.block)
    windows = "" if rows.plain else ", were every block kept"
    sentence = (
        f"{held:,} tokens are {blocks:,} blocks of {rows.block} tokens, for which kvviz works out {pool / GIB:.2f} GiB "
        f'in {dtype}{windows}; with the line "Available KV cache memory" it could compare.'
    )
    return Verdict(None, f"{held:,} tokens", sentence, expected_bytes=pool, expected_tokens=held)


def _compared(log: EngineLog, held: int, spec: ModelSpec, dtype: str, devices: int) -> tuple[bool | None, str]:
    """Whether vLLM's tokens are kvviz's, and what follows on "vLLM printed N" in the sentence."""
    agrees = _agrees(log, held, spec, dtype, devices)
    if agrees:
        return True, ", the same within the rounding of the pool and one block"
    if agrees is None:
        return None, (
            ", which lies between all blocks kept and the least that windows and states leave; what a request needs on "
            "top depends on how many tokens vLLM prefills at once"
        )
    more = held - _rows(spec, dtype, devices).tokens(log.nbytes or 0)
    return False, f", {abs(more):,} {'more' if more > 0 else 'fewer'}{_would_agree(log, held, spec, dtype, devices)}"


def _would_agree(log: EngineLog, held: int, spec: ModelSpec, dtype: str, devices: int) -> str:
    """The other dtypes and numbers of devices for which a log is right, as the end of a sentence."""
    dtypes = [name for name in _other_dtypes("vllm", dtype) if _agrees(log, held, spec, name, devices)]
    shared = [n for n in (1, 2, 4, 8) if n != devices and _agrees(log, held, spec, dtype, n)]
    found = [f"a cache in {name}" for name in dtypes] + [f"a tensor_parallel of {n}" for n in shared]
    return f"; it would agree for {' or '.join(found)}" if found else ""


def _other_dtypes(view: str, dtype: str) -> list[str]:
    """The view's dtypes of another size, the first of each size."""
    own, sizes = precision(dtype), dict[tuple[int, int, int], str]()
    for name in view_named(view).dtypes:
        row = PRECISIONS[name]
        sizes.setdefault((row.block_bytes, row.block, row.head_bytes), name)
    sizes.pop((own.block_bytes, own.block, own.head_bytes), None)
    return list(sizes.values())


def _agrees(log: EngineLog, held: int, spec: ModelSpec, dtype: str, devices: int) -> bool | None:
    """None where the tokens lie in the range that windows and states leave open."""
    try:
        rows = _rows(spec, dtype, devices)
    except ConfigError:
        return False
    pool, tolerance = log.nbytes or 0, log.tolerance_bytes
    least, most = rows.tokens(pool - tolerance), rows.tokens(pool + tolerance)
    if log.tokens is None and log.blocks is None and log.request_tokens:  # 1.04x stands for 1.035 to 1.045
        least, most = least - log.request_tokens // 200, most + log.request_tokens // 200
    if log.request_tokens:  # newer versions multiply the requests that fit by a request's tokens, unpadded
        least = least * log.request_tokens // (-(-log.request_tokens // rows.block) * rows.block)
    if least - rows.block <= held <= most + rows.block:
        return True
    return None if not rows.plain and most < held <= _freed(log, spec, dtype, devices, pool + tolerance) else False


def _freed(log: EngineLog, spec: ModelSpec, dtype: str, devices: int, pool: int) -> int:
    """Tokens that a pool would hold if requests took no more than they keep at their last token."""
    length = log.request_tokens or (spec.context if (spec.context or 0) > 0 else None) or 2**20
    each = kv_memory(spec, length, dtype=dtype, view="vllm", tensor_parallel=devices).reserved_bytes
    return pool * length // each


# llama.cpp: cells of all layers of a kind, their number printed by its newer versions.


@dataclass(frozen=True)
class _Asked:
    """What the calculator says where the log says nothing."""

    tokens: int
    batch: int
    dtype: str


def _judge_llama(log: EngineLog, spec: ModelSpec, tokens: int, batch: int, dtype: str) -> Verdict:
    asked = _Asked(tokens, batch, dtype)
    kv_memory(spec, tokens, batch=batch, view="llama.cpp", dtype="float16")  # what the view refuses is refused
    expected = [_expected(part, spec, asked) for part in log.parts]
    agrees = all(_near(part, size) for part, size in zip(log.parts, expected, strict=True))
    printed = " + ".join(part.printed for part in log.parts)
    worked_out = "; ".join(_told(part, size, spec, asked) for part, size in zip(log.parts, expected, strict=True))
    if agrees:
        return Verdict(True, printed, f"kvviz agrees: {worked_out}.", expected_bytes=sum(expected))
    more = (log.nbytes or 0) - sum(expected)
    differ = f"llama.cpp printed {printed}, {abs(more) / MIB:,.2f} MiB {'more' if more > 0 else 'less'}"
    why = next(
        filter(None, (_why(part, size, spec, asked) for part, size in zip(log.parts, expected, strict=True))), ""
    )
    return Verdict(False, printed, f"kvviz works out {worked_out}; {differ}{why}.", expected_bytes=sum(expected))


def _near(part: Part, size: int) -> bool:
    """Within the last digit, and what llama.cpp's 32-bit division leaves of a large number."""
    return abs(part.nbytes - size) <= part.tolerance_bytes + (size >> 23)


def _expected(part: Part, spec: ModelSpec, asked: _Asked) -> int:
    """Bytes of a part's layers at the log's cells and dtypes, else those of the calculator."""
    if part.name == "states":
        rows = kv_memory(spec, 1, view="llama.cpp").layers
        return (part.cells or asked.batch) * part.streams * sum(row.state_bytes for row in rows)
    keys, values = _dtypes(part, asked)
    if part.cells is None:
        return sum(_reserved(one, asked, name) for one, name in zip(_sides(spec), (keys, values), strict=True))
    return part.cells * part.streams * sum(_cell(layer, keys, values) for layer in _layers(part, spec))


def _dtypes(part: Part, asked: _Asked) -> tuple[str, str]:
    return precision(part.key_dtype or asked.dtype).name, precision(part.value_dtype or asked.dtype).name


def _sides(spec: ModelSpec) -> tuple[ModelSpec, ModelSpec]:
    """The model with its keys alone and with its values alone, without states; a latent row is a key."""
    keys, values = [], []
    for layer in spec.layers:
        latent = layer.value_dim if layer.latent else 0
        plain = replace(layer, states=(), stored=None)
        keys.append(replace(plain, key_dim=layer.key_dim + latent, value_dim=0))
        values.append(replace(plain, key_dim=0, value_dim=layer.value_dim - latent))
    return replace(spec, layers=tuple(keys)), replace(spec, layers=tuple(values))


def _reserved(spec: ModelSpec, asked: _Asked, dtype: str) -> int:
    return kv_memory(spec, asked.tokens, batch=asked.batch, dtype=dtype, view="llama.cpp").reserved_bytes


def _cell(layer: LayerSpec, keys: str, values: str) -> int:
    """Bytes of one cell of one layer."""
    if layer.latent:
        return precision(keys).row(1, layer.key_dim + layer.value_dim)
    return precision(keys).row(layer.kv_heads, layer.key_dim) + precision(values).row(layer.kv_heads, layer.value_dim)


def _layers(part: Part, spec: ModelSpec) -> list[LayerSpec]:
    """The layers that a part holds; of a part that does not say which, those that are as many."""
    every = [layer for layer in spec.layers if layer.kv_heads and layer.kind != "cross"]
    windowed = [layer for layer in every if layer.window is not None]
    full = [layer for layer in every if layer.window is None]
    if part.name != "all":
        return windowed if part.name == "window" else full
    return next((some for some in (every, full, windowed) if len(some) == part.layers), every)


def _told(part: Part, size: int, spec: ModelSpec, asked: _Asked) -> str:
    """A part's bytes with what they follow from."""
    if part.name == "states":
        return f"{size / MIB:,.2f} MiB of states"
    keys, values = _dtypes(part, asked)
    dtype = keys if keys == values else f"{keys} keys and {values} values"
    if part.cells is None:
        each = f" x {asked.batch}" if asked.batch > 1 else ""
        return f"{size / MIB:,.2f} MiB in {dtype} for {asked.tokens:,} tokens{each}{_padding(spec, asked)}"
    streams = f" x {part.streams} sequences" if part.streams > 1 else ""
    layers = _layers(part, spec)
    cells = f"{part.cells:,} cells{streams} x {len(layers)} layers{_slack(part, layers)}"
    return f"{size / MIB:,.2f} MiB in {dtype} for {cells}"


def _padding(spec: ModelSpec, asked: _Asked) -> str:
    """What llama.cpp adds to the tokens."""
    padded = -(-asked.tokens // CELLS) * CELLS
    added = [f"padded to {padded:,} cells"] if padded != asked.tokens else []
    if any(layer.window for layer in spec.layers):
        added.append(f"a window with {UBATCH} cells more, padded to {CELLS}")
    return f" ({', '.join(added)})" if added else ""


def _slack(part: Part, layers: list[LayerSpec]) -> str:
    """Cells of a window beside its tokens."""
    window = max((layer.window or 0 for layer in layers), default=0)
    usual = -(-(window + UBATCH) // CELLS) * CELLS
    if part.name != "window" or not window or part.cells is None:
        return ""
    return (
        f" (a window of {window:,} has {usual:,} cells: {UBATCH} more, padded to {CELLS})"
        if part.cells == usual
        else ""
    )


def _why(part: Part, size: int, spec: ModelSpec, asked: _Asked) -> str:
    """One cause that explains a part's difference, as the end of a sentence; empty where none does."""
    if _near(part, size) or part.name == "states":
        return ""
    causes = (_other_dtype, _other_layers, _other_tokens, _latent_twice)
    return next(filter(None, (cause(part, spec, asked) for cause in causes)), "")


def _other_dtype(part: Part, spec: ModelSpec, asked: _Asked) -> str:
    if part.key_dtype:
        return ""
    for name in _other_dtypes("llama.cpp", asked.dtype):
        if _fits(replace(part, key_dtype=name, value_dtype=name), spec, asked):
            return f"; it would agree for {name}"
    return ""


def _fits(part: Part, spec: ModelSpec, asked: _Asked) -> bool:
    try:
        return _near(part, _expected(part, spec, asked))
    except ConfigError:
        return False


def _other_layers(part: Part, spec: ModelSpec, asked: _Asked) -> str:
    own = len(_layers(part, spec))
    if part.layers is None or part.layers == own:
        return ""
    return f"; its cache has {part.layers} layers, the model {own} of this kind"


def _other_tokens(part: Part, spec: ModelSpec, asked: _Asked) -> str:
    """Another context, where the log does not print the cells."""
    if part.cells is not None:
        return ""
    for tokens in _lengths(part, spec, asked):
        if _fits(part, spec, replace(asked, tokens=tokens)):
            return f"; it would agree for {tokens:,} tokens"
    return ""


def _lengths(part: Part, spec: ModelSpec, asked: _Asked) -> Iterator[int]:
    """The context that the printed size would be of, by the line through two lengths beyond all windows."""
    far = max((layer.window or 0 for layer in spec.layers), default=0) + 4 * UBATCH
    low, high = (_expected(part, spec, replace(asked, tokens=-(-n // CELLS) * CELLS)) for n in (far, 2 * far))
    step = (high - low) / (-(-2 * far // CELLS) - -(-far // CELLS))
    if step > 0:
        yield max(1, round(-(-far // CELLS) + (part.nbytes - low) / step)) * CELLS


def _latent_twice(part: Part, spec: ModelSpec, asked: _Asked) -> str:
    """Versions of mid-2025 kept the latent part once more, as the value."""
    layers = [replace(layer, key_dim=2 * layer.key_dim) for layer in spec.layers if layer.latent]
    if not layers or not _fits(part, replace(spec, layers=tuple(layers)), asked):
        return ""
    return "; it would agree with the latent part kept twice, as a key and as a value, as versions of mid-2025 did"
