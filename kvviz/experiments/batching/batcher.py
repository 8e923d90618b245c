"""Decides which sequences run and what each step computes: the queue, the blocks, and a policy. No tensor here.

A request waits until its prompt's blocks are free, then it runs. If the running sequences need more blocks than there
are, the last one in the policy's order is preempted: its blocks are released, and it waits to be computed again, its
tokens so far included (recompute, as in vLLM), or to be copied back from the host's memory, if that has room for it
(swap). The first one in that order is never preempted, so there is progress.
"""

from bisect import insort
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.caches.swap import Copy, SwapSpace
from kvviz.experiments.batching.policies import Policy, check_budget

SWAPPED = ("swapped_out_blocks", "swapped_out_bytes", "swapped_in_blocks", "swapped_in_bytes")
State = Literal["waiting", "running", "done", "cancelled", "refused"]


@dataclass(frozen=True)
class Request:
    """One request: the tokens of its prompt, how many new ones it wants, and how they are chosen."""

    number: int
    prompt: tuple[int, ...]
    new_tokens: int
    sampling: Sampling = Sampling()  # noqa: RUF009, frozen


def refusal(request: Request, slots: int, context: int | None) -> str:
    """Why a request can never run in a memory of `slots` tokens, in a sentence; "" if it can."""
    prompt, total = len(request.prompt), len(request.prompt) + request.new_tokens
    if not prompt:
        return f"request {request.number} has no prompt: there is nothing to continue"
    if request.new_tokens < 1:
        return f"request {request.number} asks for no new token"
    if context is not None and total > context:
        return f"request {request.number} has {total:,} tokens in all; the model has {context:,} positions"
    if total - 1 > slots:  # the last token is chosen, but never fed
        return f"request {request.number} needs {total - 1:,} tokens of memory, which has room for {slots:,}"
    return ""


@dataclass(eq=False)
class Sequence:
    """A request on its way. `ids` are its tokens so far; keys and values of the first `computed` are in memory."""

    request: Request
    ids: list[int]
    key: tuple[int, int]  # its place in the policy's order
    state: State = "waiting"
    why: str = ""  # the sentence of a refusal
    computed: int = 0
    place: int = 0  # its number in the block tables, while it runs
    hits: int = 0  # tokens that were cache hits, and so were never computed for it
    preempted: int = 0
    recomputed: int = 0  # tokens computed again after a preemption
    overtaken: int = 0  # later requests that were admitted before it
    swapped: Counter[str] = field(default_factory=Counter)  # blocks and bytes, by SWAPPED
    _lost: int = field(default=0, repr=False)  # tokens that the last preemption took

    @property
    def pending(self) -> int:
        """Tokens to compute before the next one can be chosen."""
        return len(self.ids) - self.computed

    @property
    def chosen(self) -> list[int]:
        """The new tokens so far."""
        return self.ids[len(self.request.prompt) :]


@dataclass(frozen=True)
class Plan:
    """What happens in a step: who is admitted and preempted, how many tokens of whom are computed, what is copied."""

    admitted: list[Sequence]
    preempted: list[Sequence]
    parts: dict[Sequence, int]
    copies: list[Copy]


class Batcher:
    """The queue of waiting requests, and at most `places` running sequences in the blocks of one memory.

    `budget` is the most tokens of a step under a policy with chunks. `context` is the most tokens of a sequence. What
    is preempted goes to `swap`, if it has room.
    """

    def __init__(
        self,
        swap: SwapSpace,
        policy: Policy,
        places: int = 8,
        budget: int = 64,
        context: int | None = None,
    ) -> None:
        check_budget(policy, places, budget)
        self.swap, self.groups = swap, swap.groups
        self.policy, self.places, self.context = policy, places, context
        self.budget = budget if policy.chunked else None
        self.sequences: dict[int, Sequence] = {}
        self.waiting: list[Sequence] = []  # in the policy's order
        self.running: list[Sequence] = []  # in the order of admission
        self._ended = False  # whether a place was given back since the last plan

    def submit(self, request: Request) -> Sequence:
        """Put a request into the queue, or refuse it: its state and `why` say so.

        Raises KvvizError for a number that was there before.
        """
        if request.number in self.sequences:
            raise KvvizError(f"there is a request {request.number} already")
        total = len(request.prompt) + request.new_tokens
        key = (total if self.policy.shortest else 0, len(self.sequences))
        one = self.sequences[request.number] = Sequence(request, list(request.prompt), key)
        one.why = refusal(request, self.groups.blocks * self.groups.block, self.context)
        if one.why:
            one.state = "refused"
        else:
            insort(self.waiting, one, key=lambda one: one.key)
        return one

    def cancel(self, number: int) -> bool:
        """End a request wherever it is; False if it has ended already or is unknown."""
        one = self.sequences.get(number)
        if one is None or one.state not in ("waiting", "running"):
            return False
        if one.state == "waiting":
            self.waiting.remove(one)
            self.swap.drop(number)
            one.state = "cancelled"
        else:
            self._end(one, "cancelled")
        return True

    def _end(self, one: Sequence, state: State) -> None:
        self.groups.release(one.place)
        self.running.remove(one)
        one.state, self._ended = state, True

    def plan(self) -> Plan:
        """Admit, preempt, and choose what the next step computes; nothing to do if it has no parts."""
        admitted = self._admit()
        self._ended = False
        parts, preempted = self._parts(), list[Sequence]()
        while sum(self.groups.needed(one.place, tokens) for one, tokens in parts.items()) > self.groups.free:
            last = max(self.running, key=lambda one: one.key)
            self._preempt(last)
            parts.pop(last, None)
            preempted.append(last)
        return Plan(admitted, preempted, parts, self.swap.take_copies())

    def _admit(self) -> list[Sequence]:
        """Admit requests from the queue while the policy, the places and the blocks allow it.

        The blocks that the running ones need for their prompts, or for one more token, are not given away.
        """
        joins, admitted = self.policy.joins, list[Sequence]()
        if not self.waiting or len(self.running) == self.places:
            return admitted
        if self.running and (joins == "empty" or (joins == "end" and not self._ended)):
            return admitted
        owed = sum(self.groups.needed(one.place, one.pending) for one in self.running)
        while self.waiting and len(self.running) < self.places and owed < self.groups.free:
            if self.budget and sum(one.pending for one in self.running) >= self.budget:
                break  # it would only hold its blocks
            one = self.waiting[0]
            one.place, hits = self.groups.start(one.ids)
            most = min(len(one.ids) + 1, len(one.request.prompt) + one.request.new_tokens - 1)
            needed = self.groups.needed(one.place, most - hits)
            if needed > self.groups.free - owed:
                self.groups.release(one.place)
                break
            self._start(one, hits)
            owed += self.groups.needed(one.place, most - one.computed)
            admitted.append(one)
        return admitted

    def _start(self, one: Sequence, hits: int) -> None:
        del self.waiting[0]
        self.running.append(one)
        number = one.request.number
        one.state, one.computed = "running", self.swap.get(number, one.place) if number in self.swap else hits
        one.hits += max(0, hits - one._lost)
        one.recomputed += max(0, one._lost - one.computed)
        one._lost = 0
        if not one.preempted:
            for other in self.waiting:
                other.overtaken += other.key[1] < one.key[1]

    def _preempt(self, one: Sequence) -> None:
        self.swap.put(one.request.number, one.place)
        self._end(one, "waiting")
        one._lost, one.computed = one.computed, 0
        one.preempted += 1
        insort(self.waiting, one, key=lambda one: one.key)

    def _parts(self) -> dict[Sequence, int]:
        """Who computes how many tokens: the decode steps first, then prompts in the order of admission."""
        pending = {one: one.pending for one in self.running}
        prompts = {one: tokens for one, tokens in pending.items() if tokens > 1}
        if not prompts or self.policy.alone:
            return prompts or pending
        parts = {one: 1 for one in self.running if one not in prompts}
        for one, tokens in prompts.items():
            if self.budget is not None:
                tokens = min(tokens, self.budget - sum(parts.values()))
            if tokens:
                parts[one] = tokens
        return parts

    def take(self, plan: Plan, tokens: Mapping[Sequence, int]) -> list[Sequence]:
        """Note that a plan was carried out, and the tokens that were chosen; return who ended."""
        for one, count in plan.parts.items():
            one.computed += count
        for one, token in tokens.items():
            one.ids.append(token)
        ended = [one for one in tokens if len(one.ids) == len(one.request.prompt) + one.request.new_tokens]
        for one in ended:
            self._end(one, "done")
        return ended
