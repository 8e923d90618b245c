"""Read what an engine's log says of its KV cache. `check_engine_log.py` compares it with the formula.

Standard library only. It reads vLLM's and llama.cpp's lines, with any timestamps and prefixes before them. Formats:
https://github.com/vllm-project/vllm/blob/001cabc1/vllm/v1/core/kv_cache_utils.py and
https://github.com/ggml-org/llama.cpp/blob/02c28f53/src/llama-kv-cache.cpp
"""

import re
from dataclasses import dataclass, replace

from kvviz.base.errors import KvvizError

GIB, MIB = 2**30, 2**20
LARGEST_TEXT = 1_000_000  # characters
LARGEST_NUMBER = 10**12  # tokens, cells or GiB
MOST_CACHES = 50  # whose sizes one start of llama.cpp prints


@dataclass(frozen=True)
class Part:
    """One cache whose size llama.cpp prints. `name`: all, full (non-SWA), window (SWA) or states.

    `tolerance_bytes` is half a unit of the last digit printed; dtypes are as printed (f16, q8_0); `streams`: how many
    sequences have these cells each.
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


_READABLE = (
    'vLLM\'s "GPU KV cache size: … tokens", "Maximum concurrency for … tokens per request: …x", "Available KV cache '
    'memory: … GiB" and "# GPU blocks: …", llama.cpp\'s "KV self size = … MiB" and "llama_kv_cache: size = … MiB ('
    '… cells, … layers, … seqs), K (…): …"'
)
_RELEVANT = re.compile("KV cache|blocks:|concurrency|size", re.I)  # each line that is read has one of these words


def parse(text: str) -> EngineLog:
    """Read the lines of one engine. Raises KvvizError that names the readable lines if there are none."""
    if len(text) > LARGEST_TEXT:
        raise KvvizError(f"the text has {len(text):,} characters; paste the lines about the KV cache alone")
    lines = [line.strip() for line in text.splitlines() if _RELEVANT.search(line)]
    vllm, llama = _vllm_log(lines), _llama_log(lines)
    if vllm and llama:
        raise KvvizError("lines of vLLM and of llama.cpp are mixed; paste those of one engine")
    log = vllm or llama
    if log is None:
        raise KvvizError(f"no line about a KV cache's size is among these; kvviz reads {_READABLE}")
    return log


def _number(printed: str) -> float:
    value = float(printed.replace(",", ""))
    if value > LARGEST_NUMBER:
        raise KvvizError(f"{printed[:40]} is more than any cache has; paste the lines as the engine printed them")
    return value


def _half_a_digit(printed: str, unit: int) -> int:
    """Half a unit of the last digit in bytes, rounded up: "6.51" GiB lies within 0.005 GiB of the true size."""
    return -(-unit // (2 * 10 ** len(printed.partition(".")[2])))


_POOL = re.compile(r"(?:Available KV cache memory:|reserved for KV Cache is)\s*(-?\d[\d,]*(?:\.\d+)?)\s*GiB", re.I)
_TOKENS = re.compile(r"GPU KV cache size:\s*(\d[\d,]*)\s*tokens", re.I)
_BLOCKS = re.compile(r"# (?!CPU )\w+ blocks:\s*(\d[\d,]*)")
_REQUESTS = re.compile(r"Maximum concurrency for\s*(\d[\d,]*)\s*tokens per request:\s*(\d[\d,]*(?:\.\d+)?)\s*x", re.I)


def _vllm_log(lines: list[str]) -> EngineLog | None:
    """vLLM's lines. If several workers print a figure, the least one counts, as it does for vLLM."""
    kept = tuple(line for line in lines if any(form.search(line) for form in (_POOL, _TOKENS, _BLOCKS, _REQUESTS)))
    if not kept:
        return None

    def least(form: re.Pattern[str]) -> str | None:
        return min((match[1] for line in kept if (match := form.search(line))), key=_number, default=None)

    pool, tokens, blocks = least(_POOL), least(_TOKENS), least(_BLOCKS)
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


_KIND = re.compile(r"creating\s+(non-)?SWA KV cache", re.I)
_SIZE = re.compile(
    r"size\s*=\s*(\d+(?:\.\d+)?)\s*MiB\s*\(\s*(\d+) cells,\s*(\d+) layers,\s*\d+(?:\s*/\s*(\d+))? seqs?"
    r"(?:\s+(\d+) rs_seq)?\s*\)(.*)",
    re.I,
)
_SELF_SIZE = re.compile(r"KV self size\s*=\s*(\d+(?:\.\d+)?)\s*Mi?B(.*)", re.I)  # the oldest say MB and mean MiB
_DTYPE = re.compile(r"(?<![\w^])(K|V|R|S|c\^KV) \((\w+)\)")


def _llama_log(lines: list[str]) -> EngineLog | None:
    """llama.cpp's lines. It prints a cache twice, for a trial and for the true start; that counts once."""
    name, found, kept = "all", dict[Part, None](), list[str]()
    for line in lines:
        if match := _KIND.search(line):
            name = "full" if match[1] else "window"
        elif part := _part(line, name):
            found[part] = None
            kept.append(line)
            name = "all"
    parts = tuple(found)
    if not parts:
        return None
    if len(parts) > MOST_CACHES:
        raise KvvizError(f"these lines name {len(parts):,} caches; paste those of one start of llama.cpp")
    unnamed = [part for part in parts if part.name == "all"]
    if len(unnamed) == 2:  # no line says which is which: the one without a window is made first
        names = dict(zip(unnamed, ("full", "window"), strict=True))
        parts = tuple(replace(part, name=names.get(part, part.name)) for part in parts)
    total, tolerance = sum(part.nbytes for part in parts), sum(part.tolerance_bytes for part in parts)
    return EngineLog("llama.cpp", tuple(kept), total, tolerance, parts=parts)


def _part(line: str, name: str) -> Part | None:
    """The cache whose size a line prints; None for a line of another form."""
    new, old = _SIZE.search(line), _SELF_SIZE.search(line)
    match = new or old
    if match is None:
        return None
    dtypes = dict(_DTYPE.findall(match[6] if new else match[2]))
    both = dtypes.get("c^KV")  # a latent row is key and value
    part = Part(
        "states" if {"R", "S"} & dtypes.keys() else name,
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
