"""The decode loop, right and wrong: every mistake that a first KV cache makes, really made.

Each is a loop of its own, a generator that yields after every forward; `wrong` is the line in it that is at fault, as
it stands here, and `mend` what it should be. They run on the same weights as the right one.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from kvviz.errors import KvvizError
from kvviz.scratch.attention import causal
from kvviz.scratch.cache import LayerCache
from kvviz.scratch.model import Transformer

CHUNK = 4  # tokens of the prompt that a chunked prefill reads at a time
OLD_PROMPT = 6  # tokens of another prompt, left in a cache that is used again

Choose = Callable[[int, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Turn:
    """After a forward: the last position's logits (B, vocabulary), None while a prompt is not yet all read; the ids

    that it read (B, T); the caches that the loop holds now.
    """

    logits: torch.Tensor | None
    read: torch.Tensor
    caches: list[Any]


Loop = Callable[[Transformer, torch.Tensor, Choose, int], Iterator[Turn]]


# --- right -----------------------------------------------------------------------------------------------------


def right(model, prompt, choose, steps):
    """Prefill once, then one token a step."""
    caches = model.new_caches()
    new = prompt
    for index in range(steps):
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def right_in_chunks(model, prompt, choose, steps, mask=causal):
    """The prompt a few tokens at a time, then one token a step."""
    caches = model.new_caches()
    pieces = prompt.split(CHUNK, dim=1)
    for piece in pieces[:-1]:
        model(piece, caches, mask=mask)
        yield Turn(None, piece, caches)
    new = pieces[-1]
    for index in range(steps):
        logits = model(new, caches, mask=mask)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def right_without_cache(model, prompt, choose, steps):
    """Everything again at every step."""
    ids = prompt
    for index in range(steps):
        logits = model(ids)
        yield Turn(logits[:, -1], ids, [])
        ids = torch.cat([ids, choose(index, logits[:, -1])], dim=1)


# --- wrong -----------------------------------------------------------------------------------------------------


def positions_stand_still(model, prompt, choose, steps):
    caches = model.new_caches()
    new = prompt
    for index in range(steps):
        at = torch.arange(new.shape[1], device=new.device)
        logits = model(new, caches, at=at)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def square_mask(model, prompt, choose, steps):
    def mask(T, T_total, device):
        return torch.ones(T, T, dtype=torch.bool, device=device).tril()

    yield from right_in_chunks(model, prompt, choose, steps, mask)


def mask_without_offset(model, prompt, choose, steps):
    def mask(T, T_total, device):
        if T == 1:  # a single new token may look at all there is
            return torch.ones(T, T_total, dtype=torch.bool, device=device)
        return torch.ones(T, T_total, dtype=torch.bool, device=device).tril()

    yield from right_in_chunks(model, prompt, choose, steps, mask)


class TwiceCache(LayerCache):
    """A cache that takes what is new two times."""

    def append(self, k, v):
        super().append(k, v)
        return super().append(k, v)


def appended_twice(model, prompt, choose, steps):
    caches = [TwiceCache() for _ in model.blocks]
    new = prompt
    for index in range(steps):
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def cache_made_anew(model, prompt, choose, steps):
    new = prompt
    for index in range(steps):
        caches = model.new_caches()
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def cache_not_passed_on(model, prompt, choose, steps):
    ids = prompt
    for index in range(steps):
        caches = model.new_caches()
        logits = model(ids, caches)
        yield Turn(logits[:, -1], ids, caches)
        ids = torch.cat([ids, choose(index, logits[:, -1])], dim=1)


def stale_cache(model, prompt, choose, steps):
    caches = model.new_caches()
    model(prompt.flip(1)[:, :OLD_PROMPT], caches)  # an earlier prompt, another one
    new = prompt
    for index in range(steps):
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def with_gradients(model, prompt, choose, steps):
    with torch.enable_grad():
        yield from right(model, prompt, choose, steps)


def one_token_for_the_prompt(model, prompt, choose, steps):
    caches = model.new_caches()
    new = prompt[:, -1:]
    for index in range(steps):
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def prompt_fed_again(model, prompt, choose, steps):
    caches = model.new_caches()
    ids = prompt
    for index in range(steps):
        logits = model(ids, caches)
        yield Turn(logits[:, -1], ids, caches)
        ids = torch.cat([ids, choose(index, logits[:, -1])], dim=1)


# --- the table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """A mistake and what it is held against: `right` is the loop that does the same work properly.

    `says` is what to look at; `wrong` and `mend` are lines of code. `grows` marks the mistake whose trouble is memory;
    `wastes` the one whose tokens are right and whose work is for nothing.
    """

    name: str
    title: str
    says: str
    loop: Loop
    wrong: str
    mend: str
    right: Loop = right
    parts: tuple[type, ...] = ()
    grows: bool = False
    wastes: bool = False

    @property
    def source(self) -> str:
        """The loop as it is written here."""
        return "\n\n".join(inspect.getsource(part) for part in (*self.parts, self.loop))

    def guarded(self) -> AbstractContextManager:
        """Where its forwards run: without gradients, unless that is the mistake."""
        return nullcontext() if self.grows else torch.no_grad()


_ROWS = (
    Mistake(
        "positions",
        "Positions stand still",
        "Every decoded token is told that it stands at position 0. The prefill is right, so the first token is; from "
        "the second on, the model has lost the order of what it writes.",
        positions_stand_still,
        wrong="at = torch.arange(new.shape[1], device=new.device)",
        mend="at = caches[0].seen + torch.arange(new.shape[1], device=new.device)",
    ),
    Mistake(
        "square-mask",
        "A square mask",
        "The mask is (T, T) where the scores are (T, T_total). With one new token it is 1 x 1 and stretches over "
        "anything; with a first prefill T equals T_total. In the second piece of a chunked prefill it doesn't fit.",
        square_mask,
        wrong="return torch.ones(T, T, dtype=torch.bool, device=device).tril()",
        mend="return torch.ones(T, T_total, dtype=torch.bool, device=device).tril(diagonal=T_total - T)",
        right=right_in_chunks,
    ),
    Mistake(
        "mask-offset",
        "A mask without its offset",
        "The shape fits, so nothing crashes. But the new tokens are the last T of T_total, and this mask treats them "
        "as the first: in the second piece of a chunked prefill, a token can't even see itself.",
        mask_without_offset,
        wrong="return torch.ones(T, T_total, dtype=torch.bool, device=device).tril()",
        mend="return torch.ones(T, T_total, dtype=torch.bool, device=device).tril(diagonal=T_total - T)",
        right=right_in_chunks,
    ),
    Mistake(
        "twice",
        "Appended twice",
        "Each new token's keys and values go into the cache two times. It counts double in the softmax, and the "
        "positions run ahead: look at the third number of the shape, which grows by two.",
        appended_twice,
        wrong="return super().append(k, v)",
        mend="return self.k, self.v",
        parts=(TwiceCache,),
    ),
    Mistake(
        "anew",
        "A new cache at every step",
        "The loop makes its cache inside the loop and feeds only the newest token. The model sees one token, at "
        "position 0, and nothing of what came before.",
        cache_made_anew,
        wrong="caches = model.new_caches()",
        mend="make the caches once, before the loop",
    ),
    Mistake(
        "not-passed-on",
        "The cache is not passed on",
        "A cache is filled at every step and dropped, and the whole sequence is fed again. Every token is right. Look "
        "at the multiply-adds: all the work of no cache at all.",
        cache_not_passed_on,
        wrong="logits = model(ids, caches)",
        mend="feed `new` alone, into caches that were made before the loop",
        wastes=True,
    ),
    Mistake(
        "stale",
        "Another prompt's cache",
        "The cache still holds an earlier prompt. The new one is read as if it went on from there: the text bears its "
        "traces, and one user could read another's.",
        stale_cache,
        wrong="model(prompt.flip(1)[:, :OLD_PROMPT], caches)  # an earlier prompt, another one",
        mend="caches = model.new_caches()  # for each prompt its own",
    ),
    Mistake(
        "gradients",
        "Gradients left on",
        "Without torch.no_grad() every step keeps what a backward pass would need, and the cache holds on to all "
        "steps before. The tokens are right; the memory climbs until there is none.",
        with_gradients,
        wrong="with torch.enable_grad():",
        mend="with torch.no_grad():",
        grows=True,
    ),
    Mistake(
        "one-token-prompt",
        "One token where the prompt belongs",
        "The prefill is treated like a decode step: only the prompt's last token is fed. The model answers a prompt "
        "of one token.",
        one_token_for_the_prompt,
        wrong="new = prompt[:, -1:]",
        mend="new = prompt",
    ),
    Mistake(
        "prompt-again",
        "The prompt fed again in decode",
        "The cache is passed on, and the whole sequence is fed on top of it at every step. The cache holds everything "
        "many times over: look how fast it grows, and where the positions have got to.",
        prompt_fed_again,
        wrong="logits = model(ids, caches)",
        mend="logits = model(new, caches)  # the newest token alone",
    ),
)
MISTAKES: dict[str, Mistake] = {row.name: row for row in _ROWS}


def mistake_named(name: str) -> Mistake:
    """The row of a mistake. Raises KvvizError listing the names where there is none."""
    if name not in MISTAKES:
        raise KvvizError(f"no mistake {name!r}; they are {', '.join(MISTAKES)}")
    return MISTAKES[name]
