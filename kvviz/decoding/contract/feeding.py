"""Feeds a cache design small seeded tensors, and holds what comes back to what went in."""

from collections.abc import Iterator, Mapping

import torch

from kvviz.caches.base import KVCache, Pair
from kvviz.caches.designs import Design

HEADS, KEY_DIM, VALUE_DIM = 3, 8, 6  # of the small tensors; unequal widths, as latent rows have them
PROMPT = 35  # tokens of a prefill: over several blocks of 16
WINDOW = 20
PIECES = (PROMPT, *[1] * 6, 20, *[1] * 8)  # tokens of each append; one verifies several at once
CAPACITY = 1024


class Broken(Exception):
    """The contract is not met; the message teaches."""


def seeded_text(
    batch: int = 2, tokens: int = sum(PIECES), heads: int = HEADS, dtype: torch.dtype = torch.float32
) -> Pair:
    """Keys and values of a text, (B, Hkv, T, D), seeded."""
    seeded = torch.Generator().manual_seed(7)
    keys, values = (torch.randn(batch, heads, tokens, dim, generator=seeded) for dim in (KEY_DIM, VALUE_DIM))
    return keys.to(dtype), values.to(dtype)


def distinct_ids(batch: int, tokens: int) -> list[list[int]]:
    """Return ids that are all different, so that no two sequences have a common prefix."""
    return torch.arange(batch * tokens).view(batch, tokens).tolist()


def fed(cache: KVCache, text: Pair, pieces: tuple[int, ...] = PIECES) -> Iterator[tuple[int, Pair]]:
    """Append a text in pieces; yield the number of tokens so far, and what the append returned."""
    done, ids = 0, distinct_ids(text[0].shape[0], text[0].shape[2])
    for count in pieces:
        k, v = (part[:, :, done : done + count].clone() for part in text)
        cache.note([row[done : done + count] for row in ids])
        spanned, _ = cache.span(count)
        got = cache.append(k, v)
        done += count
        _check_pair(got, k, v, spanned, done)
        if cache.seen != done:
            raise Broken(f"After {done} tokens `self.seen` must be {done}; it is {cache.seen}. `_append` has to add T.")
        if not 0 < cache.held <= done:
            raise Broken(
                f"`self.held` is {cache.held} after {done} tokens; it is how many tokens of each sequence are still "
                "kept, at least the newest. `_append` has to set it."
            )
        yield done, got


def _check_pair(got: object, k: torch.Tensor, v: torch.Tensor, spanned: int, done: int) -> None:
    """Raise Broken unless an append returned two tensors as the mask will expect them."""
    if not (isinstance(got, tuple) and len(got) == 2 and all(isinstance(x, torch.Tensor) for x in got)):
        raise Broken(f"`_append` must return two tensors, keys and values; it returned {type(got).__name__}.")
    for name, x, new in zip(("keys", "values"), got, (k, v), strict=True):
        if x.dim() != 4 or x.shape[:2] != new.shape[:2] or x.shape[3] != new.shape[3]:
            wanted = f"({new.shape[0]}, {new.shape[1]}, {done}, {new.shape[3]})"
            raise Broken(
                f"`_append` must return {name} of shape (B, Hkv, T_all, D), here {wanted}; it returned "
                f"{tuple(x.shape)}. Tokens are joined along dim=2, and {name} have the width D of their own."
            )
        if x.dtype != new.dtype:
            raise Broken(f"The new {name} are {new.dtype}, and `_append` returned {x.dtype}: convert them back.")
        if x.shape[2] != spanned and x.shape[2] == new.shape[2] < done:
            raise Broken(
                f"After {done} tokens attention needs the {name} of all that are kept; `_append` returned the "
                f"{new.shape[2]} new one{'s' * (new.shape[2] > 1)} alone. Join what was kept before to what comes."
            )
        if x.shape[2] != spanned:
            raise Broken(
                f"After {done} tokens `_append` returned the {name} of {x.shape[2]}, but `span` had announced "
                f"{spanned} to the mask: those held before and the new ones. Look at `self.held`: it counts what is "
                "kept for the next append."
            )


def check_numbers(design: Design, got: Pair, text: Pair, done: int, where: str) -> None:
    """Raise Broken unless an exact design returned the very numbers of the last tokens, a lossy one finite ones."""
    for name, x, whole in zip(("keys", "values"), got, text, strict=True):
        if not x.isfinite().all():
            raise Broken(f"{where}, the {name} that came back are not finite. Look for a division by zero.")
        if not design.exact:
            continue
        if x.shape[2] != done:
            raise Broken(
                f"{where}, attention needs the {name} of {done} tokens, and `_append` returned {x.shape[2]}. If the "
                "design is meant to drop some, it says so: exact = False."
            )
        right = whole[:, :, :done]
        if torch.equal(x, right):
            continue
        row, head, token, at = [int(i) for i in (x != right).nonzero()[0]]
        came, wanted = x[row, head, token, at].item(), right[row, head, token, at].item()
        raise Broken(
            f"{where}, the {name} of token {token + 1} in sequence {row + 1} came back as "
            f"{came:.4g} instead of {wanted:.4g} (head {head + 1}). Has another token, sequence or head taken its "
            "place? If the design is meant to lose something, it says so: exact = False."
        )


def storages_below(thing: object) -> dict[int, int]:
    """Bytes of the storage of every tensor that an object holds, however deep, by the storage."""
    found, seen, left = dict[int, int](), set[int](), [thing]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            found[one.untyped_storage()._cdata] = one.untyped_storage().nbytes()
        elif isinstance(one, Mapping):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            left += one
        elif hasattr(one, "__dict__") and not isinstance(one, type):
            left += vars(one).values()
    return found
