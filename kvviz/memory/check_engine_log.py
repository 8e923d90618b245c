"""Compare an engine's log with the formula, and say what would explain a difference. Standard library only."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvviz.base.errors import ConfigError
from kvviz.base.precision import PRECISIONS, precision
from kvviz.memory.engine_log import GIB, MIB, EngineLog, Part
from kvviz.memory.engine_views import BLOCK, CELLS, UBATCH, llama_cpp_cells, padded, view_named
from kvviz.memory.formula import check_dtype, kv_memory
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec


@dataclass(frozen=True)
class Verdict:
    """Whether the formula agrees with a log; None if the log alone can't tell. `printed` is the log's figure."""

    agrees: bool | None
    printed: str
    sentence: str
    expected_bytes: int | None = None
    expected_tokens: int | None = None


def judge(log: EngineLog, spec: ModelSpec, *, tokens: int, batch: int, dtype: str, tensor_parallel: int = 1) -> Verdict:
    """Compare a log with the formula; `tokens`, `batch` and `dtype` stand in for what the log does not say."""
    try:
        if log.engine == "vllm":
            return _judge_vllm(log, spec, dtype, tensor_parallel)
        return _judge_llama(log, spec, tokens, batch, dtype)
    except ConfigError as error:
        printed = " + ".join(part.printed for part in log.parts) or log.lines[0]
        return Verdict(None, printed, f"kvviz can't work out what this log would have to say: {error}.")


def _other_dtypes(view: str, dtype: str) -> list[str]:
    """The view's dtypes of another size, the first of each size."""
    own, sizes = precision(dtype), dict[tuple[int, int, int], str]()
    for name in view_named(view).dtypes:
        row = PRECISIONS[name]
        sizes.setdefault((row.block_bytes, row.block, row.head_bytes), name)
    sizes.pop((own.block_bytes, own.block, own.head_bytes), None)
    return list(sizes.values())


# --- vLLM: a pool of bytes, cut into rows of blocks ------------------------------------------------------------------

_LENGTHS = range(BLOCK, 2**20 + BLOCK, BLOCK)  # possible blocks, in tokens: with states, a block is as long as a state


@dataclass(frozen=True)
class _Rows:
    """A row is one block of each layer: `nbytes` bytes hold `block` tokens. `plain`: this is true at any length.

    A token of Llama 3.1-8B has 131,072 bytes in bfloat16, so a row is 16 x 131,072 bytes, and a pool of 6.51 GiB has
    3,333 rows: 53,328 tokens.
    """

    nbytes: int
    block: int
    plain: bool

    def tokens(self, pool: int) -> int:
        """Tokens that a pool holds, if no window freed a block."""
        return max(0, pool) // self.nbytes * self.block

    def bytes_for(self, tokens: int) -> int:
        """Bytes of the rows for a number of tokens."""
        return -(-tokens // self.block) * self.nbytes


def _reserved(spec: ModelSpec, tokens: int, dtype: str, devices: int) -> int:
    return kv_memory(spec, tokens, dtype=dtype, view="vllm", tensor_parallel=devices).reserved_bytes


def _rows(spec: ModelSpec, dtype: str, devices: int) -> _Rows:
    """Find a row's bytes, those of one token, and its length: the next token needs a second row."""
    nbytes = _reserved(spec, 1, dtype, devices)
    if nbytes == _reserved(spec, _LENGTHS[-1] + 1, dtype, devices):
        raise ConfigError("this model's cache does not grow with tokens, so a pool has no number of tokens")
    block = bisect_left(_LENGTHS, True, key=lambda n: _reserved(spec, n + 1, dtype, devices) > nbytes)
    plain = not any(layer.window or layer.states or layer.kind == "cross" for layer in spec.layers)
    return _Rows(nbytes, _LENGTHS[block], plain)


def _judge_vllm(log: EngineLog, spec: ModelSpec, dtype: str, devices: int) -> Verdict:
    rows = _rows(spec, dtype, devices)
    held = _tokens_held(log, rows)
    if log.nbytes is None:
        pool = rows.bytes_for(held or 0)
        sentence = (
            f"{held:,} tokens are {pool // rows.nbytes:,} blocks of {rows.block} tokens, for which kvviz works out "
            f"{pool / GIB:.2f} GiB in {dtype}{'' if rows.plain else ', were every block kept'}; with the line "
            '"Available KV cache memory" it could compare.'
        )
        return Verdict(None, f"{held:,} tokens", sentence, expected_bytes=pool, expected_tokens=held)
    printed = f"{log.nbytes / GIB:.2f} GiB"
    if log.nbytes <= 0:
        return Verdict(None, printed, f"vLLM found no room for a cache ({printed}), so there is nothing to compare.")
    expected = rows.tokens(log.nbytes)
    each = f"{rows.nbytes:,} bytes for {rows.block} tokens in {dtype}"
    if held is None:
        sentence = (
            f"A pool of {printed} holds {expected:,} tokens, by kvviz at {each}; the log has no number of tokens."
        )
        return Verdict(None, printed, sentence, expected_tokens=expected)
    agrees = _agrees(log, held, spec, dtype, devices)
    if agrees:
        comparison = ", the same within the rounding of the pool and one block"
    elif agrees is None:
        comparison = (
            ", which lies between all blocks kept and the least that windows and states leave; what a request needs on "
            "top depends on how many tokens vLLM prefills at once"
        )
    else:
        more = f", {abs(held - expected):,} {'more' if held > expected else 'fewer'}"
        comparison = more + _would_agree(log, held, spec, dtype, devices)
    sentence = f"kvviz works out {expected:,} tokens for {printed}, at {each}; vLLM printed {held:,}{comparison}."
    return Verdict(agrees, f"{printed} for {held:,} tokens", sentence, rows.bytes_for(held), expected)


def _tokens_held(log: EngineLog, rows: _Rows) -> int | None:
    """Tokens that the log says the pool holds: as printed, or from the blocks or the requests."""
    if log.tokens is not None:
        return log.tokens
    if log.blocks is not None:
        return log.blocks * rows.block
    if log.concurrency is None or log.request_tokens is None:
        return None
    return round(log.concurrency * log.request_tokens)


def _agrees(log: EngineLog, held: int, spec: ModelSpec, dtype: str, devices: int) -> bool | None:
    """Whether a pool holds that many tokens; None if they lie in the range that windows and states leave open."""
    try:
        rows = _rows(spec, dtype, devices)
    except ConfigError:
        return False
    pool, tolerance, request = log.nbytes or 0, log.tolerance_bytes, log.request_tokens
    least, most = rows.tokens(pool - tolerance), rows.tokens(pool + tolerance)
    if log.tokens is None and log.blocks is None and request:  # 1.04x stands for 1.035 to 1.045
        least, most = least - request // 200, most + request // 200
    if request:  # newer versions multiply the requests that fit by a request's tokens, unpadded
        least = least * request // (-(-request // rows.block) * rows.block)
    if least - rows.block <= held <= most + rows.block:
        return True
    if rows.plain or held < least:
        return False
    # The most tokens that fit, if a request took no more than it keeps at its last token.
    length = request or max(spec.context or 0, 0) or 2**20
    return None if held <= (pool + tolerance) * length // _reserved(spec, length, dtype, devices) else False


def _would_agree(log: EngineLog, held: int, spec: ModelSpec, dtype: str, devices: int) -> str:
    """The other dtypes and numbers of devices for which a log is right, as the end of a sentence."""
    dtypes = [name for name in _other_dtypes("vllm", dtype) if _agrees(log, held, spec, name, devices)]
    shared = [n for n in (1, 2, 4, 8) if n != devices and _agrees(log, held, spec, dtype, n)]
    causes = [f"a cache in {name}" for name in dtypes] + [f"a tensor_parallel of {n}" for n in shared]
    return f"; it would agree for {' or '.join(causes)}" if causes else ""


# --- llama.cpp: cells, each with the keys and values of one token in all layers of a kind ----------------------------


@dataclass(frozen=True)
class _Cache:
    """A printed cache beside what kvviz takes it to hold: these layers, in these dtypes.

    `tokens` and `batch` are the calculator's, for a log that does not print its cells. `states` are the bytes of one
    sequence's states.
    """

    part: Part
    layers: tuple[LayerSpec, ...]
    states: int
    keys: str
    values: str
    tokens: int
    batch: int

    @property
    def nbytes(self) -> int:
        """The bytes that kvviz works out."""
        if self.part.name == "states":
            return (self.part.cells or self.batch) * self.part.streams * self.states
        return sum(self.cells(layer) * self._cell_bytes(layer) for layer in self.layers)

    def cells(self, layer: LayerSpec) -> int:
        """The cells of a layer, over all sequences."""
        if self.part.cells is not None:
            return self.part.cells * self.part.streams
        return llama_cpp_cells(layer, self.tokens) * self.batch

    def _cell_bytes(self, layer: LayerSpec) -> int:
        keys, values = precision(self.keys), precision(self.values)
        if layer.latent:  # one row, of the keys' dtype
            return keys.row(1, layer.key_dim + layer.value_dim)
        return keys.row(layer.kv_heads, layer.key_dim) + values.row(layer.kv_heads, layer.value_dim)

    @property
    def agrees(self) -> bool:
        """Whether both are equal, within the last digit and what llama.cpp's 32-bit division leaves."""
        try:
            nbytes = self.nbytes
        except ConfigError:  # a row that a dtype can't pack
            return False
        return abs(self.part.nbytes - nbytes) <= self.part.tolerance_bytes + (nbytes >> 23)

    @property
    def words(self) -> str:
        """The bytes with what they follow from."""
        part, size = self.part, f"{self.nbytes / MIB:,.2f} MiB"
        if part.name == "states":
            return f"{size} of states"
        dtype = self.keys if self.keys == self.values else f"{self.keys} keys and {self.values} values"
        window = max((layer.window or 0 for layer in self.layers), default=0)
        if part.cells is None:
            batch = f" x {self.batch}" if self.batch > 1 else ""
            cells = padded(self.tokens, CELLS)
            added = [f"padded to {cells:,} cells"] if cells != self.tokens else []
            added += [f"a window with {UBATCH} cells more, padded to {CELLS}"] if window else []
            return f"{size} in {dtype} for {self.tokens:,} tokens{batch}" + (f" ({', '.join(added)})" if added else "")
        streams = f" x {part.streams} sequences" if part.streams > 1 else ""
        usual = padded(window + UBATCH, CELLS)
        slack = ""
        if part.name == "window" and window and part.cells == usual:
            slack = f" (a window of {window:,} has {usual:,} cells: {UBATCH} more, padded to {CELLS})"
        return f"{size} in {dtype} for {part.cells:,} cells{streams} x {len(self.layers)} layers{slack}"

    @property
    def why(self) -> str:
        """One cause that would explain a difference, as the end of a sentence; empty if there is none."""
        if self.agrees or self.part.name == "states":
            return ""
        return next((f"; {cause}" for cause in self._causes()), "")

    def _causes(self) -> Iterator[str]:
        part = self.part
        if not part.key_dtype:
            for name in _other_dtypes("llama.cpp", self.keys):
                if replace(self, keys=name, values=name).agrees:
                    yield f"it would agree for {name}"
        if part.layers not in (None, len(self.layers)):
            yield f"its cache has {part.layers} layers, the model {len(self.layers)} of this kind"
        tokens = self._tokens_printed()
        if tokens and replace(self, tokens=tokens).agrees:
            yield f"it would agree for {tokens:,} tokens"
        latent = tuple(replace(layer, key_dim=2 * layer.key_dim) for layer in self.layers if layer.latent)
        if latent and replace(self, layers=latent).agrees:
            yield "it would agree with the latent part kept twice, as a key and as a value, as versions of mid-2025 did"

    def _tokens_printed(self) -> int | None:
        """The context of the printed size, if the log does not print the cells: windows are full, the rest grows."""
        growing = sum(self._cell_bytes(layer) * self.batch for layer in self.layers if layer.window is None)
        if self.part.cells is not None or not growing:
            return None
        windows = tuple(layer for layer in self.layers if layer.window is not None)
        full = replace(self, layers=windows, tokens=2**40).nbytes
        return max(1, round((self.part.nbytes - full) / growing / CELLS)) * CELLS


def _judge_llama(log: EngineLog, spec: ModelSpec, tokens: int, batch: int, dtype: str) -> Verdict:
    rows = kv_memory(spec, tokens, batch=batch, view="llama.cpp", dtype="float16").layers  # refuses what the view does
    states = sum(row.state_bytes for row in rows) // batch
    caches = [_cache(part, spec, states, tokens, batch, dtype) for part in log.parts]
    printed = " + ".join(part.printed for part in log.parts)
    words, expected = "; ".join(cache.words for cache in caches), sum(cache.nbytes for cache in caches)
    if all(cache.agrees for cache in caches):
        return Verdict(True, printed, f"kvviz agrees: {words}.", expected_bytes=expected)
    more = (log.nbytes or 0) - expected
    differ = f"llama.cpp printed {printed}, {abs(more) / MIB:,.2f} MiB {'more' if more > 0 else 'less'}"
    why = next((cache.why for cache in caches if cache.why), "")
    return Verdict(False, printed, f"kvviz works out {words}; {differ}{why}.", expected_bytes=expected)


def _cache(part: Part, spec: ModelSpec, states: int, tokens: int, batch: int, dtype: str) -> _Cache:
    """A printed cache with its layers; if it does not say which, those that are as many as it has."""
    every = tuple(layer for layer in spec.layers if layer.kv_heads and layer.kind != "cross")
    windowed = tuple(layer for layer in every if layer.window is not None)
    full = tuple(layer for layer in every if layer.window is None)
    as_many = next((some for some in (every, full, windowed) if len(some) == part.layers), every)
    layers = {"full": full, "window": windowed}.get(part.name, as_many)
    keys, values = precision(part.key_dtype or dtype).name, precision(part.value_dtype or dtype).name
    if part.name != "states" and part.cells is None:
        check_dtype(keys, "llama.cpp")
        check_dtype(values, "llama.cpp")
    return _Cache(part, layers, states, keys, values, tokens, batch)
