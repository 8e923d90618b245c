"""Speculative decoding: a draft proposes the next tokens, and one forward of the model reads all of them at once.

A proposal is accepted if the model chooses that very token; the first that it does not choose is rejected with all that
follow it, and the cache is cropped to the tokens that stand. So each token is the model's own choice, and the text is
the one that the mode `cached` writes.

Where tokens are drawn, a draft model draws its proposals too, and the rejection rule of Leviathan et al. (2023,
https://arxiv.org/abs/2211.17192) decides: `verified`. Then each token is distributed as the model's own, but it is not
the one that `cached` draws with the same seed. A copied proposal is one certain token: for such a draft the rule says
to accept the token x with the model's probability of x and otherwise to draw from its other tokens, which is what
happens if the model draws as ever and the proposal stands where it drew the same.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.compiled.forward import CompiledForward
from kvviz.decoding.loop import Choose, Sampler, draw
from kvviz.decoding.modes import cache_argument, last_positions_only, positions

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

PROPOSED = 4  # tokens that a draft model proposes at a time
COPIED = 8  # tokens that are copied from the text so far at a time: copying costs nothing
LONGEST = 3  # the last tokens that are looked up together; fewer where they have not been seen together before


class Proposal(NamedTuple):
    """A proposed token, and the draft's probabilities (vocabulary) where it was drawn; None for a certain token."""

    token: int
    drawn_from: torch.Tensor | None = None


class Draft(Protocol):
    """Proposes the tokens that may come next, at most `most` at a time."""

    most: int

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler | None = None, index: int = 0) -> list[Proposal]:
        """Return at most `count` tokens that may follow `ids`, the whole sequence so far.

        A draft that can draw does so by the `sampler`; the first token that it proposes is that of step `index`.
        """


def verified(token: int, q: torch.Tensor, p: torch.Tensor, numbers: torch.Tensor) -> int:
    """Return the token that a draft drew from `q` if it is accepted, else one that is drawn in its place.

    `p` and `q` (vocabulary) are the probabilities of the model and of the draft. The token x stands with the
    probability min(1, p(x) / q(x)); otherwise another is drawn from what p exceeds q by, max(0, p - q). So whatever q
    is, the result is distributed as p. `numbers` (2,) are random, from 0 to 1.
    """
    if float(numbers[0]) * float(q[token]) < float(p[token]):
        return token
    return int(draw((p - q).clamp(min=0)[None], numbers[1:]))


class LookupDraft:
    """Proposes what followed the last tokens when they stood in the text before (prompt lookup decoding).

    Source: https://github.com/apoorvumang/prompt-lookup-decoding
    """

    most = COPIED

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler | None = None, index: int = 0) -> list[Proposal]:
        text = np.asarray(ids)
        for length in range(min(LONGEST, len(text) - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], length)
            found = np.flatnonzero((windows == text[-length:]).all(axis=1))
            if found.size:
                return [Proposal(token) for token in ids[found[-1] + length :][:count]]
        return []


class ModelDraft:
    """A smaller model with the same tokenizer proposes tokens one after another: its likeliest, or such as it draws.

    It keeps a cache of its own, from which it takes back what was rejected. It decodes by the mode `compiled`, because
    a draft pays only if its step takes much less time than the model's.
    """

    most = PROPOSED

    def __init__(self, model: "PreTrainedModel", capacity: int) -> None:
        self._forward = CompiledForward(model, capacity)
        self._forward.prepare(1)
        self._read: list[int] = []  # the tokens whose keys and values its cache holds
        self._device = model.device

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler | None = None, index: int = 0) -> list[Proposal]:
        if not count:
            return []
        kept = _common(self._read, ids[:-1])
        for cache in self._forward.caches:
            cache.seen = kept
        self._read = self._read[:kept]
        unread, proposed = list(ids[kept:]), list[Proposal]()
        if not kept:  # the prompt in one forward; after a step at most the last two tokens are unread
            logits = self._next(unread)
        else:
            for token in unread:
                logits = self._next([token])
        while len(proposed) < count:
            proposed.append(_proposal(logits, sampler, index + len(proposed)))
            if len(proposed) < count:
                logits = self._next([proposed[-1].token])
        return proposed

    def _next(self, tokens: list[int]) -> torch.Tensor:
        """Read tokens and return the logits (1, vocabulary) after the last one."""
        self._read += tokens
        new = torch.tensor([tokens], device=self._device)
        return self._forward(new, new)[0]


def _proposal(logits: torch.Tensor, sampler: Sampler | None, index: int) -> Proposal:
    if sampler is None:
        return Proposal(int(logits.argmax()))
    shares = sampler.shares(logits)
    return Proposal(int(draw(shares, sampler.numbers(index, 1))), shares[0] / shares.sum())


class SpeculativeForward:
    """The forward of the modes `lookup` and `speculative` (`kvviz.decoding.modes.Forward`), for one sequence.

    `proposed` are the tokens that were proposed in the last call; it is None if that call's logits were computed by an
    earlier one, because the token that it was given had been proposed.
    """

    def __init__(self, model: "PreTrainedModel", draft: Draft, capacity: int) -> None:
        from transformers import DynamicCache

        self._model, self.draft, self._capacity = model, draft, capacity
        self._cache: Cache = DynamicCache(config=model.config)
        self._name, self._limit = cache_argument(model), tuple(last_positions_only(model))
        self._ahead: list[tuple[Proposal, torch.Tensor]] = []  # a proposal, and the logits after it
        self._sampler: Sampler | None = None
        self._prompt = 0
        self.proposed: tuple[int, ...] | None = ()

    def prepare(self, batch: int) -> None:
        """Refuse more than one sequence: each would accept another number of tokens."""
        if batch > 1:
            raise KvvizError(f"speculation decodes one sequence, not {batch}: take batch 1, or leave these modes out")

    def choosing(self, choose: Choose) -> Choose:
        """Return how tokens are chosen: as by `choose`, but where a proposal was drawn, by the rule of `verified`."""
        if not isinstance(choose, Sampler):
            return choose
        self._sampler = choose
        return partial(self._chosen, choose)

    def _chosen(self, sampler: Sampler, logits: torch.Tensor, index: int) -> torch.Tensor:
        token, q = self._ahead[0][0] if self._ahead else Proposal(0)
        if q is None:
            return sampler(logits, index)
        p = sampler.shares(logits)[0]
        numbers = sampler.numbers(index, 3)[1:]  # the draft has drawn by the first
        return torch.tensor([verified(token, q, p / p.sum(), numbers)], device=logits.device)

    def __call__(self, ids: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, "Cache"]:
        if self._ahead:
            proposal, logits = self._ahead.pop(0)
            if proposal.token == int(new[0, -1]):
                self.proposed = None
                return logits, self._cache
            self._ahead = []
        seen = ids.shape[1] - new.shape[1]
        self._prompt = self._prompt or ids.shape[1]
        room = self._capacity - ids.shape[1] - 1  # the last token of all needs no proposal after it
        guesses = self.propose(ids, max(0, min(self.draft.most, room)) if seen else 0)
        self.proposed = tuple(guess.token for guess in guesses)
        logits = self.verify(new, seen, self.proposed)
        self._ahead = [(guess, logits[:, place]) for place, guess in enumerate(guesses, start=1)]
        return logits[:, 0], self._cache

    def propose(self, ids: torch.Tensor, count: int) -> list[Proposal]:
        """Let the draft propose what follows `ids` (1, T), at most `count` tokens."""
        return self.draft.propose(ids[0].tolist(), count, self._sampler, ids.shape[1] - self._prompt)

    def verify(self, new: torch.Tensor, seen: int, guesses: Sequence[int]) -> torch.Tensor:
        """Read `new` (1, t) and the guesses after the first `seen` tokens; the cache loses what it holds beyond those.

        Return the logits (1, guesses + 1, vocabulary) after the last of `new` and after each guess.
        """
        self.crop(seen)
        read = torch.cat([new, new.new_tensor([guesses])], dim=1) if guesses else new
        out = self._model(
            input_ids=read,
            **{self._name: self._cache},
            use_cache=True,
            **positions(self._model, seen, read),
            **{name: len(guesses) + 1 for name in self._limit},
        )
        logits: torch.Tensor = out.logits[:, -len(guesses) - 1 :]
        return logits

    def crop(self, seen: int) -> None:
        """Take from the cache what it holds beyond the first `seen` tokens."""
        if rejected := self._cache.get_seq_length() - seen:
            self._cache.crop(-rejected)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    shorter = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one[:shorter]) != np.asarray(other[:shorter]))
    return int(differ[0]) if differ.size else shorter
