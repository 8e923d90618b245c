"""Read what an engine's log says of its KV cache. `check_engine_log.py` compares it with the formula.

It reads vLLM's and llama.cpp's lines, with any timestamps and prefixes before them. Formats:
https://github.com/vllm-project/vllm/blob/001cabc1/vllm/v1/core/kv_cache_utils.py and
https://github.com/ggml-org/llama.cpp/blob/02c28f53/src/llama-kv-cache.cpp
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvviz.base.errors import KvvizError

GIB, MIB = 2**30, 2**20
LARGEST_TEXT = 1_000_000  # characters
LARGEST_NUMBER = 10**12  # tokens, cells or GiB
MOST_CACHES = 50  # whose sizes one start of llama.cpp prints


@dataclass(frozen=True)
class Pool:
    """vLLM's pool of blocks, by what the log prints of it; what it does not print is None.

    `tolerance_bytes` is half a unit of the last digit printed. `requests` of `request_tokens` tokens each fit.
    """

    nbytes: int | None
    tolerance_bytes: int
    tokens: int | None
    blocks: int | None
    request_tokens: int | None
    requests: float | None


@dataclass(frozen=True)
class PrintedCache:
    """One cache whose size llama.cpp prints. `name`: all, full (non-SWA), window (SWA) or states.

    `tolerance_bytes` is half a unit of the last digit printed; dtypes are as printed (f16, q8_0); `streams`: how many
    sequences have these cells each.
    """

    name: str
    printed: str
    nbytes: int
    tolerance_bytes: int
    cells: int | None
    layers: int | None
    streams: int
    key_dtype: str | None
    value_dtype: str | None


Caches = tuple[PrintedCache, ...]

_READABLE = (
    'vLLM\'s "GPU KV cache size: … tokens", "Maximum concurrency for … tokens per request: …x", "Available KV cache '
    'memory: … GiB" and "# GPU blocks: …", llama.cpp\'s "KV self size = … MiB" and "llama_kv_cache: size = … MiB ('
    '… cells, … layers, … seqs), K (…): …"'
)
RELEVANT = re.compile("KV cache|blocks:|concurrency|size", re.I)  # each line that is read has one of these words


def parse(text: str) -> Pool | Caches:
    """Read the lines of one engine. Raises KvvizError that names the readable lines if there are none."""
    if len(text) > LARGEST_TEXT:
        raise KvvizError(f"the text has {len(text):,} characters; paste the lines about the KV cache alone")
    lines = [line.strip() for line in text.splitlines() if RELEVANT.search(line)]
    pool, caches = _read_pool(lines), _read_caches(lines)
    if pool and caches:
        raise KvvizError("lines of vLLM and of llama.cpp are mixed; paste those of one engine")
    if not pool and not caches:
        raise KvvizError(f"no line about a KV cache's size is among these; kvviz reads {_READABLE}")
    return pool or caches


def _number(printed: str) -> float:
    value = float(printed.replace(",", ""))
    if value > LARGEST_NUMBER:
        raise KvvizError(f"{printed[:40]} is more than any cache has; paste the lines as the engine printed them")
    return value


def _whole(printed: str | None) -> int | None:
    return int(_number(printed)) if printed else None


def _half_a_digit(printed: str, unit: int) -> int:
    """Half a unit of the last digit in bytes, rounded up: "6.51" GiB lies within 0.005 GiB of the true size."""
    return -(-unit // (2 * 10 ** len(printed.partition(".")[2])))


_POOL = re.compile(r"(?:Available KV cache memory:|reserved for KV Cache is)\s*(-?\d[\d,]*(?:\.\d+)?)\s*GiB", re.I)
_TOKENS = re.compile(r"GPU KV cache size:\s*(\d[\d,]*)\s*tokens", re.I)
_BLOCKS = re.compile(r"# (?!CPU )\w+ blocks:\s*(\d[\d,]*)")
_REQUESTS = re.compile(r"Maximum concurrency for\s*(\d[\d,]*)\s*tokens per request:\s*(\d[\d,]*(?:\.\d+)?)\s*x", re.I)


def _read_pool(lines: Iterable[str]) -> Pool | None:
    """vLLM's lines. If several workers print a figure, the least one counts, as it does for vLLM."""

    def least(form: re.Pattern[str]) -> str | None:
        return min((match[1] for line in lines if (match := form.search(line))), key=_number, default=None)

    size, tokens, blocks = least(_POOL), least(_TOKENS), least(_BLOCKS)
    request = next((match for line in lines if (match := _REQUESTS.search(line))), None)
    if not (size or tokens or blocks or request):
        return None
    return Pool(
        nbytes=round(_number(size) * GIB) if size else None,
        tolerance_bytes=_half_a_digit(size, GIB) if size else 0,
        tokens=_whole(tokens),
        blocks=_whole(blocks),
        request_tokens=_whole(request[1]) if request else None,
        requests=_number(request[2]) if request else None,
    )


_KIND = re.compile(r"creating\s+(non-)?SWA KV cache", re.I)
_SIZE = re.compile(
    r"size\s*=\s*(\d+(?:\.\d+)?)\s*MiB\s*\(\s*(\d+) cells,\s*(\d+) layers,\s*\d+(?:\s*/\s*(\d+))? seqs?"
    r"(?:\s+(\d+) rs_seq)?\s*\)(.*)",
    re.I,
)
_SELF_SIZE = re.compile(r"KV self size\s*=\s*(\d+(?:\.\d+)?)\s*Mi?B()()()()(.*)", re.I)  # the oldest: MB means MiB
_DTYPE = re.compile(r"(?<![\w^])(K|V|R|S|c\^KV) \((\w+)\)")


def _read_caches(lines: Iterable[str]) -> Caches:
    """llama.cpp's lines. It prints a cache twice, for a trial and for the true start; that counts once."""
    name, found = "all", dict[PrintedCache, None]()
    for line in lines:
        if match := _KIND.search(line):
            name = "full" if match[1] else "window"
        elif match := _SIZE.search(line) or _SELF_SIZE.search(line):
            found[_cache(match, name)] = None
            name = "all"
    if len(found) > MOST_CACHES:
        raise KvvizError(f"these lines name {len(found):,} caches; paste those of one start of llama.cpp")
    unnamed = [cache for cache in found if cache.name == "all"]
    if len(unnamed) == 2:  # no line says which is which: the one without a window is made first
        names = dict(zip(unnamed, ("full", "window"), strict=True))
        return tuple(replace(cache, name=names.get(cache, cache.name)) for cache in found)
    return tuple(found)


def _cache(match: re.Match[str], name: str) -> PrintedCache:
    """The cache whose size a line prints."""
    size, cells, layers, streams, earlier_states, rest = match.groups()
    dtypes = dict(_DTYPE.findall(rest))
    both = dtypes.get("c^KV")  # a latent row is key and value
    return PrintedCache(
        name="states" if {"R", "S"} & dtypes.keys() else name,
        printed=f"{size} MiB",
        nbytes=round(_number(size) * MIB),
        tolerance_bytes=_half_a_digit(size, MIB),
        cells=_whole(cells),
        layers=_whole(layers),
        streams=(_whole(streams) or 1) * (1 + (_whole(earlier_states) or 0)),
        key_dtype=dtypes.get("K", both),
        value_dtype=dtypes.get("V", both),
    )
