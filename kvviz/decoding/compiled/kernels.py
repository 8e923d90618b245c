"""A whole decode step as one compiled function: every sum of a decoder, for one new token of each sequence.

Nothing here knows torch: weights and caches are addresses, which `native.py` reads off the tensors; the caller has to
keep those alive. All numbers are float32. B sequences; `past` tokens have been seen.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import carray, config, get_num_threads, njit, prange, set_num_threads, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Kernel = TypeVar("Kernel", bound=Callable[..., object])


def _compiled(*signature: object, **options: object) -> Callable[[Kernel], Kernel]:
    """numba's `njit`; the compiled code is kept for the next process if numba finds a folder to keep it in."""

    def wrap(function: Kernel) -> Kernel:
        try:
            return njit(*signature, cache=True, **options)(function)
        except RuntimeError:  # numba found no folder that it may write to
            return njit(*signature, **options)(function)

    return wrap


# Sums may be taken in any order and a product and a sum in one rounding, as every matrix library does; infinities and
# NaN are kept as they are.
_FAST = {"fastmath": {"reassoc", "contract", "nsz"}, "nogil": True, "error_model": "numpy"}
SPLIT = 2**17  # elements below which a product is not worth handing to several threads
_TILE = 4096  # columns at a time, so that with several sequences the rows stay in a near cache

# The types of some functions, which numba would otherwise compile again for each constant that they are called with.
_PART = "void(f4[:,::1], i8[::1], f4[:,::1], b1, i8, i8)"
_PRODUCT = "void(f4[:,::1], i8[::1], f4[:,::1], b1, i8)"
_ATTEND = "void(i8, i8[::1], i8[::1], i8, i8, f4[::1], f4[:,::1], f4[:,::1])"

# A layer's rows in the table, one a weight.
ATTENTION_NORM, QUERY, KEY, VALUE, QUERY_NORM, KEY_NORM, OUTPUT, MLP_NORM, UP, GATE, DOWN = range(11)
# The rows of the model's own table.
TOKENS, PLACES, NORM, HEAD = range(4)
# The columns of a row: the address, the numbers from one row of the weight to the next, whether those rows are the
# input's, and the address of a bias.
ADDRESS, STRIDE, ACROSS, BIAS = range(4)
# The sizes and choices that decide how a decoder computes; JOINED: query, key and value are parts of one weight.
LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB, CONTEXT, RMS, ROTARY, QK_NORM, JOINED, ACTIVATION = range(13)
GELU, GELU_TANH, SILU = range(3)


@intrinsic
def _pointer(_: Any, address: Any) -> object:
    """Turn an address into a pointer to float32."""

    def code(context: Any, builder: Any, signature: Any, args: list[Any]) -> object:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(address), code


@_compiled(**_FAST)
def _at(address: int, count: int) -> Floats:
    """View so many numbers from an address on as an array."""
    return carray(_pointer(address), count)


@_compiled(**_FAST)
def _sums(x: Floats, a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[Any, ...]:
    """Four products: a row with four others."""
    s0 = s1 = s2 = s3 = np.float32(0)
    for i in range(x.shape[0]):
        e = x[i]
        s0 += e * a[i]
        s1 += e * b[i]
        s2 += e * c[i]
        s3 += e * d[i]
    return s0, s1, s2, s3


@_compiled(**_FAST)
def _sums_of_two(x: Floats, y: Floats, a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[Any, ...]:
    """Eight products: each of two rows with four others, which are read once for both."""
    s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = np.float32(0)
    for i in range(x.shape[0]):
        e, f = x[i], y[i]
        s0 += e * a[i]
        s1 += e * b[i]
        s2 += e * c[i]
        s3 += e * d[i]
        t0 += f * a[i]
        t1 += f * b[i]
        t2 += f * c[i]
        t3 += f * d[i]
    return s0, s1, s2, s3, t0, t1, t2, t3


@_compiled(**_FAST)
def _put(row: Ints, bias: Floats, y: Floats, add: bool, j: int, total: Any) -> None:
    """Write one output of one sequence: its sum, its bias, and what was there if `add`."""
    start = bias[j] if row[BIAS] else np.float32(0)
    y[j] = (y[j] if add else np.float32(0)) + (total + start)


@_compiled(**_FAST)
def _rows(x: Floats, row: Ints, y: Floats, add: bool, low: int, high: int) -> None:
    """Outputs low..high of y = x W (+ y), for a weight whose rows in memory are those of the outputs.

    Four rows are read at once, far from one another: the processor fetches each ahead by itself, and so reads memory
    half as fast again as with one row after the other.
    """
    batch, inputs = x.shape
    stride, apart = row[STRIDE], (high - low) // 4
    weight, bias = _at(row[ADDRESS], (high - 1) * stride + inputs), _at(row[BIAS], high)
    for j in range(low, low + apart):
        j1, j2, j3 = j + apart, j + 2 * apart, j + 3 * apart
        a, b = weight[j * stride : j * stride + inputs], weight[j1 * stride : j1 * stride + inputs]
        c, d = weight[j2 * stride : j2 * stride + inputs], weight[j3 * stride : j3 * stride + inputs]
        for n in range(0, batch - 1, 2):
            s0, s1, s2, s3, t0, t1, t2, t3 = _sums_of_two(x[n], x[n + 1], a, b, c, d)
            _put(row, bias, y[n], add, j, s0)
            _put(row, bias, y[n], add, j1, s1)
            _put(row, bias, y[n], add, j2, s2)
            _put(row, bias, y[n], add, j3, s3)
            _put(row, bias, y[n + 1], add, j, t0)
            _put(row, bias, y[n + 1], add, j1, t1)
            _put(row, bias, y[n + 1], add, j2, t2)
            _put(row, bias, y[n + 1], add, j3, t3)
        if batch % 2:
            s0, s1, s2, s3 = _sums(x[batch - 1], a, b, c, d)
            _put(row, bias, y[batch - 1], add, j, s0)
            _put(row, bias, y[batch - 1], add, j1, s1)
            _put(row, bias, y[batch - 1], add, j2, s2)
            _put(row, bias, y[batch - 1], add, j3, s3)
    for j in range(low + 4 * apart, high):
        one = weight[j * stride : j * stride + inputs]
        for n in range(batch):
            new, total = x[n], np.float32(0)
            for i in range(inputs):
                total += new[i] * one[i]
            _put(row, bias, y[n], add, j, total)


@_compiled(**_FAST)
def _across(x: Floats, row: Ints, y: Floats, add: bool, low: int, high: int) -> None:
    """The same for a weight whose rows in memory are those of the inputs: eight at a time, for two sequences."""
    batch, inputs = x.shape
    stride, n, apart = row[STRIDE], high - low, inputs // 8
    weight, bias = _at(row[ADDRESS], (inputs - 1) * stride + high), _at(row[BIAS], high)
    for b in range(batch):
        out = y[b, low:high]
        for j in range(n):
            out[j] = (out[j] if add else np.float32(0)) + (bias[low + j] if row[BIAS] else np.float32(0))
    step = apart * stride
    for i in range(apart):
        p = i * stride + low
        w0, w1 = weight[p : p + n], weight[p + step : p + step + n]
        w2, w3 = weight[p + 2 * step : p + 2 * step + n], weight[p + 3 * step : p + 3 * step + n]
        p += 4 * step
        w4, w5 = weight[p : p + n], weight[p + step : p + step + n]
        w6, w7 = weight[p + 2 * step : p + 2 * step + n], weight[p + 3 * step : p + 3 * step + n]
        for b in range(0, batch - 1, 2):
            out, other, e, f = y[b, low:high], y[b + 1, low:high], x[b, i:], x[b + 1, i:]
            e0, e1, e2, e3 = e[0], e[apart], e[2 * apart], e[3 * apart]
            e4, e5, e6, e7 = e[4 * apart], e[5 * apart], e[6 * apart], e[7 * apart]
            f0, f1, f2, f3 = f[0], f[apart], f[2 * apart], f[3 * apart]
            f4, f5, f6, f7 = f[4 * apart], f[5 * apart], f[6 * apart], f[7 * apart]
            for j in range(n):
                first = e0 * w0[j] + e1 * w1[j] + e2 * w2[j] + e3 * w3[j]
                second = f0 * w0[j] + f1 * w1[j] + f2 * w2[j] + f3 * w3[j]
                out[j] += first + (e4 * w4[j] + e5 * w5[j] + e6 * w6[j] + e7 * w7[j])
                other[j] += second + (f4 * w4[j] + f5 * w5[j] + f6 * w6[j] + f7 * w7[j])
        if batch % 2:
            out, e = y[batch - 1, low:high], x[batch - 1, i:]
            e0, e1, e2, e3 = e[0], e[apart], e[2 * apart], e[3 * apart]
            e4, e5, e6, e7 = e[4 * apart], e[5 * apart], e[6 * apart], e[7 * apart]
            for j in range(n):
                first = e0 * w0[j] + e1 * w1[j] + e2 * w2[j] + e3 * w3[j]
                out[j] += first + (e4 * w4[j] + e5 * w5[j] + e6 * w6[j] + e7 * w7[j])
    for i in range(8 * apart, inputs):
        last = weight[i * stride + low : i * stride + high]
        for b in range(batch):
            out = y[b, low:high]
            for j in range(n):
                out[j] += x[b, i] * last[j]


@_compiled(_PART, **_FAST)
def _part(x: Floats, row: Ints, y: Floats, add: bool, low: int, high: int) -> None:
    if not row[ACROSS]:
        _rows(x, row, y, add, low, high)
        return
    tile = high - low if x.shape[0] == 1 else _TILE
    for start in range(low, high, tile):
        _across(x, row, y, add, start, min(start + tile, high))


@_compiled(_PRODUCT, parallel=True, **_FAST)
def _product(x: Floats, row: Ints, y: Floats, add: bool, threads: int) -> None:
    """y (B, out) = x (B, in) times a weight, plus its bias, plus the old y if `add`."""
    outputs = y.shape[1]
    if threads == 1 or outputs * x.shape[1] < SPLIT:
        _part(x, row, y, add, 0, outputs)
    else:
        step = (outputs // threads + 15) // 16 * 16
        for part in prange(threads):
            if part * step < outputs:
                last = outputs if part == threads - 1 else min((part + 1) * step, outputs)
                _part(x, row, y, add, part * step, last)


@_compiled(**_FAST)
def _norm(x: Floats, row: Ints, rms: int, eps: np.float32, y: Floats) -> None:
    """RMSNorm or LayerNorm of one row of numbers."""
    n = x.shape[0]
    weight, bias = _at(row[ADDRESS], n), _at(row[BIAS], n)
    mean = np.float32(0)
    if not rms:
        for i in range(n):
            mean += x[i]
        mean /= np.float32(n)
    square = np.float32(0)
    for i in range(n):
        square += (x[i] - mean) * (x[i] - mean)
    scale = np.float32(1) / np.sqrt(square / np.float32(n) + eps)
    for i in range(n):
        y[i] = (x[i] - mean) * scale * weight[i] + (bias[i] if row[BIAS] else np.float32(0))


@_compiled(**_FAST)
def _rotate(x: Floats, cos: Floats, sin: Floats) -> None:
    """RoPE, in place, of one head."""
    half = cos.shape[0]
    for i in range(half):
        left, right = x[i], x[i + half]
        x[i] = left * cos[i] - right * sin[i]
        x[i + half] = right * cos[i] + left * sin[i]


@_compiled(**_FAST)
def _head(query: Floats, keys: Floats, values: Floats, slope: np.float32, mixed: Floats) -> None:
    """One query head: its weights over the keys, and `mixed`, the values by those weights."""
    tokens, width = keys.shape
    scores = np.empty(tokens, np.float32)
    highest = np.float32(-np.inf)
    scale = np.float32(1) / np.sqrt(np.float32(width))
    for t in range(tokens):
        key = keys[t]
        total = np.float32(0)
        for d in range(width):
            total += query[d] * key[d]
        scores[t] = total * scale + slope * np.float32(t - tokens + 1)
        highest = max(highest, scores[t])
    total = np.float32(0)
    for t in range(tokens):
        scores[t] = math.exp(scores[t] - highest)
        total += scores[t]
    for d in range(width):
        mixed[d] = np.float32(0)
    for t in range(tokens):
        value, share = values[t], scores[t] / total
        for d in range(width):
            mixed[d] += share * value[d]


@_compiled(_ATTEND, **_FAST)
def _attend(
    index: int, sizes: Ints, cache: Ints, slots: int, tokens: int, slopes: Floats, query: Floats, mixed: Floats
) -> None:
    """The query heads that share one key/value head of one sequence."""
    kv_heads, width = sizes[KV_HEADS], sizes[HEAD_DIM]
    group = sizes[HEADS] // kv_heads
    b, kv = index // kv_heads, index % kv_heads
    start = 4 * index * slots * width
    keys = _at(cache[0] + start, tokens * width).reshape(tokens, width)
    values = _at(cache[1] + start, tokens * width).reshape(tokens, width)
    for h in range(kv * group, (kv + 1) * group):
        part = slice(h * width, (h + 1) * width)
        _head(query[b, part], keys, values, slopes[h], mixed[b, part])


@_compiled(parallel=True, **_FAST)
def _attention(
    sizes: Ints, cache: Ints, slots: int, tokens: int, slopes: Floats, query: Floats, mixed: Floats, threads: int
) -> None:
    count = query.shape[0] * sizes[KV_HEADS]
    if threads == 1 or query.size * tokens * 2 < SPLIT:
        for index in range(count):
            _attend(index, sizes, cache, slots, tokens, slopes, query, mixed)
    else:
        for index in prange(count):
            _attend(index, sizes, cache, slots, tokens, slopes, query, mixed)


@_compiled(**_FAST)
def _keep(cache: Ints, sizes: Ints, slots: int, past: int, key: Floats, value: Floats) -> None:
    """Write the new token's keys and values into their slot."""
    width = sizes[HEAD_DIM]
    for b in range(key.shape[0]):
        for kv in range(sizes[KV_HEADS]):
            start = 4 * ((b * sizes[KV_HEADS] + kv) * slots + past) * width
            keys, values = _at(cache[0] + start, width), _at(cache[1] + start, width)
            for d in range(width):
                keys[d], values[d] = key[b, kv * width + d], value[b, kv * width + d]


@_compiled(**_FAST)
def _activate(kind: int, x: Floats) -> None:
    """Apply the activation in place."""
    for i in range(x.shape[0]):
        v = x[i]
        if kind == SILU:
            x[i] = v / (np.float32(1) + math.exp(-v))
        elif kind == GELU_TANH:
            y = np.float32(0.7978845608028654) * (v + np.float32(0.044715) * v * v * v)
            x[i] = v / (np.float32(1) + math.exp(np.float32(-2) * y))  # (1 + tanh y) / 2 is 1 / (1 + exp(-2y))
        else:
            x[i] = np.float32(0.5) * v * (np.float32(1) + math.erf(v * np.float32(0.7071067811865476)))


@_compiled(**_FAST)
def _norm_and_rotate(x: Floats, weights: Ints, sizes: Ints, eps: np.float32, cos: Floats, sin: Floats) -> None:
    """Normalise and rotate each head of queries or keys (B, heads*D), if the model does so."""
    width = sizes[HEAD_DIM]
    for b in range(x.shape[0]):
        for start in range(0, x.shape[1], width):
            head = x[b, start : start + width]
            if sizes[QK_NORM]:
                _norm(head, weights, sizes[RMS], eps, head)
            if sizes[ROTARY]:
                _rotate(head, cos, sin)


# The types of the step, which is compiled for them at once, so that no step has to wait for it.
_STEP = "void(i8[::1], i8, i8[::1], f4, i8[:,:,::1], i8[:,::1], i8[:,::1], i8, f4[::1], f4[::1], i8, f4[:,::1])"


@_compiled(_STEP, **_FAST)
def step(
    ids: Ints,
    past: int,
    sizes: Ints,
    eps: np.float32,
    table: Ints,
    own: Ints,
    caches: Ints,
    slots: int,
    turns: Floats,
    slopes: Floats,
    threads: int,
    logits: Floats,
) -> None:
    """Do one decode step: read ids (B,), write logits (B, vocabulary), make each cache one token longer.

    Raises IndexError before it would read outside of the weights or the caches.
    """
    if past >= slots or (own[PLACES, ADDRESS] and past >= sizes[CONTEXT]):
        raise IndexError("there is no place for another token")
    for b in range(ids.shape[0]):
        if ids[b] < 0 or ids[b] >= sizes[VOCAB]:
            raise IndexError("a token's id is outside of the vocabulary")
    batch, width, head_dim = ids.shape[0], sizes[WIDTH], sizes[HEAD_DIM]
    x, h = np.empty((batch, width), np.float32), np.empty((batch, width), np.float32)
    queries, keys = (batch, sizes[HEADS] * head_dim), (batch, sizes[KV_HEADS] * head_dim)
    query, mixed = np.empty(queries, np.float32), np.empty(queries, np.float32)
    key, value = np.empty(keys, np.float32), np.empty(keys, np.float32)
    three = np.empty((batch, queries[1] + 2 * keys[1]), np.float32)
    up, gate = np.empty((batch, sizes[MLP]), np.float32), np.empty((batch, sizes[MLP]), np.float32)
    cos, sin = np.cos(turns * np.float32(past)), np.sin(turns * np.float32(past))
    for b in range(batch):
        token = _at(own[TOKENS, ADDRESS] + 4 * ids[b] * own[TOKENS, STRIDE], width)
        for i in range(width):
            x[b, i] = token[i]
        if own[PLACES, ADDRESS]:
            place = _at(own[PLACES, ADDRESS] + 4 * past * own[PLACES, STRIDE], width)
            for i in range(width):
                x[b, i] += place[i]
    for layer in range(sizes[LAYERS]):
        row, cache = table[layer], caches[layer]
        for b in range(batch):
            _norm(x[b], row[ATTENTION_NORM], sizes[RMS], eps, h[b])
        if sizes[JOINED]:
            _product(h, row[QUERY], three, False, threads)
            for b in range(batch):
                query[b] = three[b, : queries[1]]
                key[b] = three[b, queries[1] : queries[1] + keys[1]]
                value[b] = three[b, queries[1] + keys[1] :]
        else:
            _product(h, row[QUERY], query, False, threads)
            _product(h, row[KEY], key, False, threads)
            _product(h, row[VALUE], value, False, threads)
        _norm_and_rotate(query, row[QUERY_NORM], sizes, eps, cos, sin)
        _norm_and_rotate(key, row[KEY_NORM], sizes, eps, cos, sin)
        _keep(cache, sizes, slots, past, key, value)
        _attention(sizes, cache, slots, past + 1, slopes, query, mixed, threads)
        _product(mixed, row[OUTPUT], x, True, threads)
        for b in range(batch):
            _norm(x[b], row[MLP_NORM], sizes[RMS], eps, h[b])
        _product(h, row[UP], up, False, threads)
        if row[GATE, ADDRESS]:
            _product(h, row[GATE], gate, False, threads)
        for b in range(batch):
            if row[GATE, ADDRESS]:
                _activate(sizes[ACTIVATION], gate[b])
                for i in range(sizes[MLP]):
                    up[b, i] *= gate[b, i]
            else:
                _activate(sizes[ACTIVATION], up[b])
        _product(up, row[DOWN], x, True, threads)
    for b in range(batch):
        _norm(x[b], own[NORM], sizes[RMS], eps, h[b])
    _product(h, own[HEAD], logits, False, threads)


def use_threads(wanted: int) -> int:
    """Share the work among so many threads, at most as many as numba has; return their number."""
    threads = max(1, min(wanted, config.NUMBA_NUM_THREADS))
    if threads != get_num_threads():
        set_num_threads(threads)
    return threads
