"""Speculative decoding: a draft proposes the next tokens, and one forward of the model reads all of them at once.

A proposal is accepted if the model chooses that very token; the first that it does not choose is rejected with all that
follow it, and the cache is cropped to the tokens that stand. So each token is the model's own choice, greedy or drawn,
and the text is the one that the mode `cached` writes. A draft here proposes one certain token at each place. For such a
draft the rejection rule of Leviathan et al. (2023, https://arxiv.org/abs/2211.17192) says the same: accept the token x
with the model's probability of x, and otherwise draw from its other tokens.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.compiled.forward import CompiledForward
from kvviz.decoding.modes import cache_argument, last_positions_only, positions

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

PROPOSED = 4  # tokens that a draft model proposes at a time
COPIED = 8  # tokens that are copied from the text so far at a time: copying costs nothing
LONGEST = 3  # the last tokens that are looked up together; fewer where they have not been seen together before


class Draft(Protocol):
    """Proposes the tokens that may come next, at most `most` at a time."""

    most: int

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        """Return at most `count` tokens that may follow `ids`, the whole sequence so far."""


class LookupDraft:
    """Proposes what followed the last tokens when they stood in the text before (prompt lookup decoding).

    Source: https://github.com/apoorvumang/prompt-lookup-decoding
    """

    most = COPIED

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        text = np.asarray(ids)
        for length in range(min(LONGEST, len(text) - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], length)
            found = np.flatnonzero((windows == text[-length:]).all(axis=1))
            if found.size:
                return list(ids[found[-1] + length :][:count])
        return []


class ModelDraft:
    """A smaller model with the same tokenizer proposes its own most likely tokens, one after another.

    It keeps a cache of its own, from which it takes back what was rejected. It decodes by the mode `compiled`, because
    a draft pays only if its step takes much less time than the model's.
    """

    most = PROPOSED

    def __init__(self, model: "PreTrainedModel", capacity: int) -> None:
        self._forward = CompiledForward(model, capacity)
        self._forward.prepare(1)
        self._read: list[int] = []  # the tokens whose keys and values its cache holds
        self._device = model.device

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        kept = _common(self._read, ids[:-1])
        for cache in self._forward.caches:
            cache.seen = kept
        self._read = self._read[:kept]
        unread, proposed = list(ids[kept:]), list[int]()
        if not kept:  # the prompt in one forward; after a step at most the last two tokens are unread
            logits = self._next(unread)
        else:
            for token in unread:
                logits = self._next([token])
        while len(proposed) < count:
            proposed.append(int(logits.argmax()))
            if len(proposed) < count:
                logits = self._next(proposed[-1:])
        return proposed

    def _next(self, tokens: list[int]) -> torch.Tensor:
        """Read tokens and return the logits (1, vocabulary) after the last one."""
        self._read += tokens
        new = torch.tensor([tokens], device=self._device)
        return self._forward(new, new)[0]


class SpeculativeForward:
    """The forward of the modes `lookup` and `speculative` (`kvviz.decoding.modes.Forward`), for one sequence.

    `proposed` are the tokens that were proposed in the last call; it is None if that call's logits were computed by an
    earlier one, because the token that it was given had been proposed.
    """

    def __init__(self, model: "PreTrainedModel", draft: Draft, capacity: int) -> None:
        from transformers import DynamicCache

        self._model, self._draft, self._capacity = model, draft, capacity
        self._cache: Cache = DynamicCache(config=model.config)
        self._name = cache_argument(model)
        self._ahead: list[tuple[int, torch.Tensor]] = []  # a proposal, and the logits after it
        self.proposed: tuple[int, ...] | None = ()

    def prepare(self, batch: int) -> None:
        """Refuse more than one sequence: each would accept another number of tokens."""
        if batch > 1:
            raise KvvizError(f"speculation decodes one sequence, not {batch}: take batch 1, or leave these modes out")

    def __call__(self, ids: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, "Cache"]:
        if self._ahead:
            proposal, logits = self._ahead.pop(0)
            if proposal == int(new[0, -1]):
                self.proposed = None
                return logits, self._cache
            self._ahead = []
        seen = ids.shape[1] - new.shape[1]
        if rejected := self._cache.get_seq_length() - seen:
            self._cache.crop(-rejected)
        room = self._capacity - ids.shape[1] - 1  # the last token of all needs no proposal after it
        guesses = self._draft.propose(ids[0].tolist(), max(0, min(self._draft.most, room)) if seen else 0)
        self.proposed = tuple(guesses)
        read = torch.cat([new, new.new_tensor([guesses])], dim=1) if guesses else new
        out = self._model(
            input_ids=read,
            **{self._name: self._cache},
            use_cache=True,
            **positions(self._model, seen, read),
            **last_positions_only(self._model, len(guesses) + 1),
        )
        logits = out.logits[:, -len(guesses) - 1 :]
        self._ahead = [(guess, logits[:, place]) for place, guess in enumerate(guesses, start=1)]
        return logits[:, 0], self._cache


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    shorter = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one[:shorter]) != np.asarray(other[:shorter]))
    return int(differ[0]) if differ.size else shorter
