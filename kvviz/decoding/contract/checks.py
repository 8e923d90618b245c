"""The contract of a cache design, part by part.

A check says what holds, or what was expected, what came instead, and where to look.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import KVCache
from kvviz.caches.designs import Design
from kvviz.caches.hf_layer import DesignCache
from kvviz.caches.own_designs import blamed
from kvviz.decoding.contract.feeding import (
    CAPACITY,
    HEADS,
    KEY_DIM,
    PIECES,
    PROMPT,
    VALUE_DIM,
    WINDOW,
    Broken,
    check_numbers,
    distinct_ids,
    fed,
    seeded_text,
    storages_below,
)
from kvviz.decoding.contract.goals import GOALS
from kvviz.decoding.loading import Loaded, load
from kvviz.decoding.read_cache import LiveTensors
from kvviz.models.sources import find_source

MODELS = ("tiny-llama", "tiny-gemma3")  # grouped queries; windows and full layers in turn
WRITTEN = 12  # tokens that each of them writes


class Check(NamedTuple):
    """One part of the contract: `ok` is None where it could not be tried."""

    name: str
    ok: bool | None
    says: str


def check(design: Design) -> Iterator[Check]:
    """Yield each part of the contract as it is tried. Raises KvvizError for a file that can't be loaded."""
    cls, path = design.implementation(), Path(design.cls.rpartition(":")[0])
    parts: dict[str, Callable[[Design], str]] = {
        "declared": _declared,
        "numbers": _numbers,
        "heads": _heads,
        "batch": _batch,
        "bytes": _bytes,
        "windows": _windows,
        "crop": _crop,
        "leak": _leak,
        "tokens": _tokens,
    }
    if exercise := getattr(cls, "exercise", ""):
        if exercise not in GOALS:
            raise KvvizError(f"exercise is {exercise!r} in {path.name}; the exercises are {', '.join(GOALS)}")
        parts["goal"] = GOALS[exercise]
    first = ""  # what all other checks need
    for name, part in parts.items():
        if first:
            yield Check(name, None, f"Not tried: {first} comes first.")
            continue
        try:
            with torch.inference_mode(), _one_thread():
                found = Check(name, True, part(design))
        except (Broken, KvvizError) as error:
            found = Check(name, False, str(error))
        except Exception as error:
            found = Check(name, False, f"The code stopped with an error: {blamed(error, path)}.")
        if not found.ok and name in ("declared", "numbers"):
            first = name
        yield found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: so small products are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _declared(design: Design) -> str:
    cache = design.new(capacity=CAPACITY)
    if cache.seen or cache.nbytes or cache.allocated:
        raise Broken("A new cache must be empty; memory is taken at the first append, when shapes are known.")
    return (
        "Exact: attention is promised the very numbers that came." if design.exact else "Declared lossy: exact = False."
    )


def _numbers(design: Design) -> str:
    for dtype in (torch.float32, torch.bfloat16):
        text = seeded_text(dtype=dtype)
        for done, got in fed(design.new(capacity=CAPACITY), text):
            check_numbers(design, got, text, done, f"After {done} tokens")
    words = "came back unchanged" if design.exact else "came back finite and in the right shapes"
    return f"A prefill of {PROMPT} tokens and {len(PIECES) - 1} appends after it: keys and values {words}."


def _heads(design: Design) -> str:
    for heads in (1, 4):
        text = seeded_text(1, heads=heads)
        for done, got in fed(design.new(capacity=CAPACITY), text):
            check_numbers(design, got, text, done, f"With {heads} KV head{'s' * (heads > 1)}")
    return f"1 and 4 KV heads (grouped queries share them), keys of {KEY_DIM} numbers and values of {VALUE_DIM}."


def _batch(design: Design) -> str:
    text, cache = seeded_text(3), design.new(capacity=CAPACITY)
    for done, got in fed(cache, text, PIECES[:4]):
        check_numbers(design, got, text, done, "With 3 sequences")
    rows = torch.tensor([2, 0])
    try:
        cache.reorder(rows)
    except KvvizError:
        return "3 sequences stay apart; it can't change its sequences, and says so."
    left = (text[0][rows], text[1][rows])
    got = cache.append(*(part[:, :, done : done + 1] for part in left))
    if got[0].shape[0] != 2:
        raise Broken(f"After `reorder` to 2 of 3 sequences, `_append` returned {got[0].shape[0]} rows.")
    check_numbers(design, got, left, done + 1, "After `reorder` to sequences 3 and 1")
    return "3 sequences stay apart, and can be chosen anew."


def _bytes(design: Design) -> str:
    for batch in (1, 2):
        text, cache = seeded_text(batch), design.new(capacity=CAPACITY)
        for done, _ in fed(cache, text):
            _three_figures(design, cache, batch, done)
    return f"The formula gives the bytes of the tensors after each append: {cache.nbytes:,} B at {done} tokens."


def _three_figures(design: Design, cache: KVCache, batch: int, done: int) -> None:
    """Raise Broken unless formula, tensors and storages agree as far as they have to."""
    element = cache.dtype.itemsize if cache.dtype else 0
    formula = batch * type(cache).formula(done, cache.window, HEADS, KEY_DIM, VALUE_DIM, element)
    if cache.nbytes != formula:
        named = itertools.islice(cache.filled().items(), 4)
        tensors = ", ".join(f"{name} {tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for name, x in named)
        raise Broken(
            f"After {done} tokens of {batch} sequence{'s' * (batch > 1)}, `formula` gives {formula:,} B, but the "
            f"tensors of `filled()` hold {cache.nbytes:,} B ({tensors}). Which of the two did you mean?"
        )
    below = storages_below(cache)
    hidden = sum(below.values()) - cache.allocated
    if hidden > 0:
        raise Broken(
            f"After {done} tokens the object holds {hidden:,} B in tensors that `filled()` does not name. Name them "
            "there, or let go of them: memory that nobody counts is a leak."
        )
    if cache.allocated < cache.nbytes:
        raise Broken("`storages` has to be the memory of what `filled()` names; it is smaller than the tensors.")


def _windows(design: Design) -> str:
    if design.windows != "own":
        whose = "kvviz's ring" if design.windows == "ring" else "transformers' own layer"
        return f"A layer with a window gets {whose}, as the class says."
    cache, text = design.new(window=WINDOW, capacity=CAPACITY), seeded_text(1, 200)
    held = dict[int, int]()
    for done, (keys, _) in fed(cache, text, (PROMPT, *[1] * 165)):
        held[done] = cache.held
        wanted = text[0][:, :, max(0, done - WINDOW) : done]
        if design.exact and not _has_all(keys, wanted):
            raise Broken(
                f"With a window of {WINDOW}, the newest token looks at {wanted.shape[2]} tokens, itself included, and "
                f"after {done} tokens one of them is missing. Keep the newest {WINDOW - 1}: `self.behind` counts the "
                "tokens at the front that nobody will look at again."
            )
    if held[200] > max(most for done, most in held.items() if done <= 100) + WINDOW:
        raise Broken(
            f"A window of {WINDOW} never looks further back, but after 100 tokens {held[100]} are held and after 200 "
            f"{held[200]}. Drop what is behind the window (`self.behind`), or leave such layers to kvviz's ring: "
            'windows = "ring".'
        )
    return f"With a window of {WINDOW} it holds {held[200]} of 200 tokens, and all that are looked at."


def _has_all(keys: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether each wanted key (1, Hkv, T, D) is among the keys, in whatever order."""
    return bool((keys[0, 0, :, None] == wanted[0, 0, None]).all(-1).any(0).all())


def _crop(design: Design) -> str:
    text, cache = seeded_text(), design.new(capacity=CAPACITY)
    if not cache.crops:
        return "It says that it can't take tokens back (crops = False), so it can't serve speculative decoding."
    for tokens in (1, 4):
        cache = design.new(capacity=CAPACITY)
        done = [done for done, _ in fed(cache, text, (PROMPT, 20))][-1]
        cache.crop(tokens)
        left = done - tokens
        where = f"After {done} tokens, of which the newest {tokens} {'were' if tokens > 1 else 'was'} taken back"
        k, v = (part[:, :, left : left + 1] for part in text)
        cache.note([[row] for row in range(2)])
        got = cache.append(k, v)
        if got[0].shape[2] > left + 1 or (design.exact and got[0].shape[2] <= left):
            raise Broken(
                f"{where}, attention must see {left} tokens and the new one; it saw {got[0].shape[2]}. `_crop` has to "
                "remove those from what is kept, and no others."
            )
        check_numbers(design, got, text, left + 1, where)
        if design.exact:
            _three_figures(design, cache, 2, left + 1)
    return "Tokens can be taken back, and the text goes on as if they had never been."


def _leak(design: Design) -> str:
    text = seeded_text()
    fused = torch.cat([*text, text[0]], dim=3)  # keys and values as slices of one product, as some models make them
    cache = design.new(capacity=CAPACITY)
    k, v = fused[:, :, :PROMPT, :KEY_DIM], fused[:, :, :PROMPT, KEY_DIM : KEY_DIM + VALUE_DIM]
    cache.note(distinct_ids(2, PROMPT))
    cache.append(k, v)
    if fused.untyped_storage()._cdata in storages_below(cache):
        raise Broken(
            "After a prefill the cache holds a view of the tensor that came, which keeps all of it alive, here queries "
            "too. Copy the tokens: `k.clone()`, or write them into memory of your own."
        )
    other = design.new(capacity=CAPACITY)
    if other.seen or other.nbytes:
        raise Broken("A second cache is not empty: what is kept belongs into `self`, not into the class or the module.")
    cache.free()
    pieces = [(k.clone(), v.clone()) for k, v in zip(*(part.split(PIECES, dim=2) for part in text), strict=True)]
    ids = torch.tensor(distinct_ids(2, sum(PIECES))).split(PIECES, dim=1)
    with LiveTensors(part for piece in pieces for part in piece) as made:
        for piece, new in zip(pieces, ids, strict=True):
            cache.note(new.tolist())
            cache.append(*piece)
            if (more := made.live_bytes() - cache.allocated) > 0:
                raise Broken(
                    f"After the append of token {cache.seen}, {more:,} B of tensors outlive it that the cache does not "
                    "count. What keeps them: a list in the module or in the class?"
                )
    cache.free()
    if left := made.live_bytes():
        raise Broken(f"After `free()`, {left:,} B are still alive. Release every tensor there, after super().free().")
    for done, got in fed(cache, text, PIECES[:3]):
        check_numbers(design, got, text, done, "In a second run after `free()`")
    return "Nothing outlives a step but what is counted, and nothing outlives `free()`."


@functools.cache
def _tiny(name: str) -> Loaded:
    """A tiny model with seeded weights."""
    return load(find_source(name, "random"), dtype="float32", device="cpu", attn="sdpa")


def _tokens(design: Design) -> str:
    said = []
    for name in MODELS:
        loaded = _tiny(name)
        model, batch = loaded.model, 2
        ids = torch.randint(0, 256, (batch, PROMPT), generator=torch.Generator().manual_seed(5))
        under = DesignCache(design, model.config, capacity=PROMPT + WRITTEN)
        whole, new, right = ids, ids, 0
        for step in range(WRITTEN):
            under.note(new)
            logits = model(input_ids=new, past_key_values=under, use_cache=True).logits[:, -1]
            without = model(input_ids=whole, use_cache=False).logits[:, -1].argmax(-1)
            if not logits.isfinite().all():
                raise Broken(f"{loaded.source.title}: the logits of token {step + 1} are not finite.")
            same = torch.equal(logits.argmax(-1), without)
            right += same
            if design.exact and not same:
                raise Broken(
                    f"{loaded.source.title}: token {step + 1} is another than without a cache. Every number came back "
                    "right above, so look at what this model has beside: windows, several sequences, their order."
                )
            new = without[:, None]  # both read the same text, also where a lossy cache would have gone another way
            whole = torch.cat([whole, new], dim=1)
        said.append(f"{loaded.source.title} {right} of {WRITTEN}")
    words = "the same tokens as without a cache" if design.exact else "as lossy as it says; the same next token"
    return f"{words[0].upper()}{words[1:]}: {', '.join(said)}."
