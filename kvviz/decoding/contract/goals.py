"""What the exercises ask of a cache design beside the contract."""

import itertools
from collections.abc import Callable, Mapping

from kvviz.caches.designs import Design
from kvviz.decoding.contract.feeding import (
    CAPACITY,
    HEADS,
    KEY_DIM,
    PIECES,
    PROMPT,
    VALUE_DIM,
    Broken,
    check_numbers,
    distinct_ids,
    fed,
    seeded_text,
)


def _reserved(design: Design) -> str:
    cache, text = design.new(capacity=CAPACITY), seeded_text()
    before = None
    for done, _ in fed(cache, text):
        now = {storage._cdata for storage in cache.storages()}
        if before is not None and now != before:
            raise Broken(
                f"The append of token {done} put the cache into a new tensor of {cache.nbytes:,} B: all {done} tokens "
                "were copied. Make the tensor once, with room for `self.capacity`, and write into it."
            )
        before = now
    new = 2 * HEADS * (KEY_DIM + VALUE_DIM) * 4
    if cache.copied != new:
        raise Broken(
            f"The last step brought {new:,} B, and `self.copied` says {cache.copied:,}: count the new token alone."
        )
    return f"One buffer of {cache.allocated:,} B from the first append on; a step writes {new:,} B into it."


def _paged(design: Design) -> str:
    cache, text = design.new(capacity=CAPACITY), seeded_text()
    token = HEADS * (KEY_DIM + VALUE_DIM) * 4
    before = set[int]()
    for done, _ in fed(cache, text):
        now = {storage._cdata for storage in cache.storages()}
        if cache.allocated % (16 * token) or cache.allocated - cache.nbytes >= 2 * 16 * token:
            blocks = cache.allocated / 2 / (16 * token)
            raise Broken(
                f"After {done} tokens of each of 2 sequences, one should have {-(-done // 16)} blocks of 16 slots; its "
                f"memory is that of {blocks:.4g}. Fill the last block up before you take a new one."
            )
        if before - now:
            raise Broken(f"The append of token {done} moved a block: write into the free slots of the last one.")
        before = now
    return f"{cache.allocated // (16 * token)} blocks for 2 sequences of {done} tokens; none has moved."


def _prefix(design: Design) -> str:
    token, shared = HEADS * (KEY_DIM + VALUE_DIM) * 4, 32
    text = tuple(part.clone() for part in seeded_text(3))
    ids = distinct_ids(3, sum(PIECES))
    for part in text:
        part[1, :, :shared] = part[0, :, :shared]
    ids[1][:shared] = ids[0][:shared]
    ids[2][16:shared] = ids[0][16:shared]  # the same tokens after another beginning: other keys and values
    cache = design.new(capacity=CAPACITY)
    cache.note([row[:PROMPT] for row in ids])
    cache.append(*(part[:, :, :PROMPT] for part in text))
    cache.note([row[PROMPT : PROMPT + 1] for row in ids])
    got = cache.append(*(part[:, :, PROMPT : PROMPT + 1] for part in text))
    check_numbers(design, got, (text[0], text[1]), PROMPT + 1, "With two beginnings alike and one unlike")
    expected = (3 * (PROMPT + 1) - shared) * token
    if cache.nbytes != expected:
        raise Broken(
            f"3 sequences of {PROMPT + 1} tokens, of which two begin with the same {shared}, need {expected:,} B if "
            f"those are kept once; `filled()` holds {cache.nbytes:,} B. Which blocks do both tables point to?"
        )
    return f"{shared} shared tokens are kept once: {cache.nbytes:,} B instead of {expected + shared * token:,} B."


def _taken_back(design: Design) -> str:
    if not design.implementation().crops:
        raise Broken("The exercise is to take tokens back, and the class says crops = False.")
    text, cache = seeded_text(), design.new(capacity=CAPACITY)
    done = PROMPT
    list(fed(cache, text, (PROMPT,)))
    for proposed, accepted in itertools.product((1, 3, 5), (0, 1)):
        k, v = (part[:, :, done : done + proposed] for part in text)
        check_numbers(design, cache.append(k, v), text, done + proposed, f"With {proposed} proposed")
        cache.crop(proposed - accepted)
        done += accepted
    return f"Of 18 proposals 3 were accepted; the cache holds {cache.held} tokens, as it must."


def _halved(design: Design) -> str:
    cache, text = design.new(capacity=CAPACITY), seeded_text()
    *_, (_, got) = fed(cache, text)
    whole = sum(part.nbytes for part in text)
    if cache.nbytes >= 0.4 * whole:
        raise Broken(
            f"In float32 these tokens take {whole:,} B, and the cache holds {cache.nbytes:,} B: more than 40%."
        )
    for name, x, right in zip(("keys", "values"), got, text, strict=True):
        step = right.abs().amax(3, keepdim=True) / 127
        most = ((x - right).abs() / step).max().item()
        if most > 0.51:
            raise Broken(
                f"One of the {name} is {most:.3g} steps of its scale off; rounding is off by half a step at most."
            )
    return f"{cache.nbytes / whole:.0%} of float32's bytes, and no number is off by more than half a step of its scale."


GOALS: Mapping[str, Callable[[Design], str]] = {
    "reserve": _reserved,
    "paged": _paged,
    "prefix": _prefix,
    "take-back": _taken_back,
    "int8": _halved,
}
