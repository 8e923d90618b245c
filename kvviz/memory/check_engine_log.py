"""Compare an engine's log with the formula, and say what would explain a difference."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvviz.base.errors import ConfigError
from kvviz.base.precision import PRECISIONS, precision
from kvviz.memory.engine_log import GIB, MIB, Caches, Pool, PrintedCache
from kvviz.memory.engine_views import BLOCK, view_named
from kvviz.memory.formula import check_dtype, kv_memory
from kvviz.memory.llama_cpp import CELLS, UBATCH, USUAL, padded
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec


@dataclass(frozen=True)
class Verdict:
    """Whether the formula agrees with a log, None if the log alone can't tell, and a sentence with both figures."""

    agrees: bool | None
    sentence: str


def judge(
    log: Pool | Caches, spec: ModelSpec, *, tokens: int, batch: int, dtype: str, tensor_parallel: int = 1
) -> Verdict:
    """Compare a log with the formula; `tokens`, `batch` and `dtype` stand in for what the log does not say."""
    try:
        if isinstance(log, Pool):
            return _judge_pool(log, spec, dtype, tensor_parallel)
        return _judge_caches(log, spec, tokens, batch, dtype)
    except ConfigError as error:
        return Verdict(None, f"kvviz can't work out what this log would have to say: {error}.")


def _other_dtypes(view: str, dtype: str) -> list[str]:
    """The view's dtypes of another size, the first of each size."""
    sizes = dict[tuple[int, int, int], str]()
    for name in (precision(dtype).name, *view_named(view).dtypes):
        row = PRECISIONS[name]
        sizes.setdefault((row.block_bytes, row.block, row.head_bytes), name)
    return list(sizes.values())[1:]


# --- vLLM: a pool of bytes, cut into rows of blocks ------------------------------------------------------------------

_LENGTHS = range(BLOCK, 2**20 + BLOCK, BLOCK)  # possible blocks, in tokens: with states, a block is as long as a state


def _reserved(spec: ModelSpec, tokens: int, dtype: str, devices: int) -> int:
    return kv_memory(spec, tokens, dtype=dtype, view="vllm", tensor_parallel=devices).reserved_bytes


def _row(spec: ModelSpec, dtype: str, devices: int) -> tuple[int, int]:
    """Bytes and tokens of a row, which is one block of each layer: the token after it needs a second row.

    A token of Llama 3.1-8B has 131,072 bytes in bfloat16, so a row is 16 x 131,072 bytes, and a pool of 6.51 GiB has
    3,333 rows: 53,328 tokens.
    """
    nbytes = _reserved(spec, 1, dtype, devices)
    if nbytes == _reserved(spec, _LENGTHS[-1] + 1, dtype, devices):
        raise ConfigError("this model's cache does not grow with tokens, so a pool has no number of tokens")
    block = bisect_left(_LENGTHS, True, key=lambda n: _reserved(spec, n + 1, dtype, devices) > nbytes)
    return nbytes, _LENGTHS[block]


def _every_row_kept(spec: ModelSpec) -> bool:
    """Whether no window frees blocks, so that a row is the same at any length."""
    return not any(layer.window or layer.states or layer.kind == "cross" for layer in spec.layers)


def _judge_pool(log: Pool, spec: ModelSpec, dtype: str, devices: int) -> Verdict:
    nbytes, block = _row(spec, dtype, devices)
    held = _tokens_held(log, block)
    if log.nbytes is None:
        blocks = -(-(held or 0) // block)
        sentence = (
            f"{held:,} tokens are {blocks:,} blocks of {block} tokens, for which kvviz works out "
            f"{blocks * nbytes / GIB:.2f} GiB in {dtype}{'' if _every_row_kept(spec) else ', were every block kept'}; "
            'with the line "Available KV cache memory" it could compare.'
        )
        return Verdict(None, sentence)
    printed = f"{log.nbytes / GIB:.2f} GiB"
    if log.nbytes <= 0:
        return Verdict(None, f"vLLM found no room for a cache ({printed}), so there is nothing to compare.")
    expected = log.nbytes // nbytes * block
    each = f"{nbytes:,} bytes for {block} tokens in {dtype}"
    if held is None:
        sentence = f"A pool of {printed} holds {expected:,} tokens, by kvviz at {each}"
        return Verdict(None, f"{sentence}; the log has no number of tokens.")
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
    return Verdict(agrees, sentence)


def _tokens_held(log: Pool, block: int) -> int | None:
    """Tokens that the log says the pool holds: as printed, or from the blocks or the requests."""
    if log.tokens is not None:
        return log.tokens
    if log.blocks is not None:
        return log.blocks * block
    return None if log.requests is None or log.request_tokens is None else round(log.requests * log.request_tokens)


def _agrees(log: Pool, held: int, spec: ModelSpec, dtype: str, devices: int) -> bool | None:
    """Whether a pool holds that many tokens; None if they lie in the range that windows and states leave open."""
    try:
        nbytes, block = _row(spec, dtype, devices)
    except ConfigError:
        return False
    pool, tolerance, request = log.nbytes or 0, log.tolerance_bytes, log.request_tokens
    least, most = (max(0, size) // nbytes * block for size in (pool - tolerance, pool + tolerance))
    if log.tokens is None and log.blocks is None and request:  # 1.04x stands for 1.035 to 1.045
        least, most = least - request // 200, most + request // 200
    if request:  # newer versions multiply the requests that fit by a request's tokens, unpadded
        least = least * request // padded(request, block)
    if least - block <= held <= most + block:
        return True
    if held < least or _every_row_kept(spec):
        return False
    # The most tokens that fit, if a request took no more than it keeps at its last token.
    length = request or max(spec.context or 0, 0) or 2**20
    return None if held <= (pool + tolerance) * length // _reserved(spec, length, dtype, devices) else False


def _would_agree(log: Pool, held: int, spec: ModelSpec, dtype: str, devices: int) -> str:
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

    part: PrintedCache
    layers: tuple[LayerSpec, ...]
    states: int
    keys: str
    values: str
    tokens: int
    batch: int

    @property
    def nbytes(self) -> int:
        """The bytes that kvviz works out."""
        part = self.part
        if part.name == "states":
            return (part.cells or self.batch) * part.streams * self.states
        if part.cells is not None:
            return part.cells * part.streams * sum(map(self._cell_bytes, self.layers))
        return sum(
            USUAL.cells(layer.window, self.tokens, self.batch) * self._cell_bytes(layer) for layer in self.layers
        )

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
        window, notes = max((layer.window or 0 for layer in self.layers), default=0), []
        if part.cells is None:
            what = f"{self.tokens:,} tokens" + (f" x {self.batch}" if self.batch > 1 else "")
            if (cells := padded(self.tokens, CELLS)) != self.tokens:
                notes.append(f"padded to {cells:,} cells")
            if window:
                notes.append(f"a window with {UBATCH} cells more, padded to {CELLS}")
        else:
            streams = f" x {part.streams} sequences" if part.streams > 1 else ""
            what = f"{part.cells:,} cells{streams} x {len(self.layers)} layers"
            if part.name == "window" and window and part.cells == padded(window + UBATCH, CELLS):
                notes.append(f"a window of {window:,} has {part.cells:,} cells: {UBATCH} more, padded to {CELLS}")
        return f"{size} in {dtype} for {what}" + (f" ({', '.join(notes)})" if notes else "")

    def causes(self) -> Iterator[str]:
        """Whatever would explain a difference, the likeliest first."""
        part = self.part
        if self.agrees or part.name == "states":
            return
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


def _judge_caches(log: Caches, spec: ModelSpec, tokens: int, batch: int, dtype: str) -> Verdict:
    rows = kv_memory(spec, tokens, batch=batch, view="llama.cpp", dtype="float16").layers  # refuses what the view does
    states = sum(row.state_bytes for row in rows) // batch
    caches = [_cache(part, spec, states, tokens, batch, dtype) for part in log]
    words = "; ".join(cache.words for cache in caches)
    if all(cache.agrees for cache in caches):
        return Verdict(True, f"kvviz agrees: {words}.")
    more = sum(part.nbytes for part in log) - sum(cache.nbytes for cache in caches)
    printed = f"{' + '.join(part.printed for part in log)}, {abs(more) / MIB:,.2f} MiB {'more' if more > 0 else 'less'}"
    why = next((f"; {cause}" for cache in caches for cause in cache.causes()), "")
    return Verdict(False, f"kvviz works out {words}; llama.cpp printed {printed}{why}.")


def _cache(part: PrintedCache, spec: ModelSpec, states: int, tokens: int, batch: int, dtype: str) -> _Cache:
    """Pair a printed cache with its layers. If the log does not name their kind, their number tells which they are."""
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
