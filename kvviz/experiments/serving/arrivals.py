"""Many sequences start, grow and end in one memory: what each policy wastes, and how many sequences fit.

Every policy gets the same seeded trace. At each tick every running sequence gets a new token; waiting requests are
admitted in order while there is memory. If a running sequence can't grow, the one admitted last is preempted: its
memory is taken, and it waits at the head of the line to be computed again (as in vLLM). Slots are tokens of one layer;
waste inside a sequence's memory is `internal`; free memory that the first request in the line can't use, though it
would be enough, is `external`.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvviz.experiments.serving.policies import POLICIES, Policy
from kvviz.experiments.serving.spec import ArrivalsSpec, Request

MOST_PICTURES = 96  # of a memory over a whole trace; with so many, every second one is dropped


@dataclass(eq=False)
class _Sequence:
    """A request and how many of its tokens it has, its prompt's first."""

    request: Request
    tokens: int


@dataclass
class _Simulation:
    """One policy's passage through a trace: the `line` waits for memory, the `running` have it."""

    policy: Policy
    line: deque[_Sequence] = field(default_factory=deque)
    running: list[_Sequence] = field(default_factory=list)
    preempted: int = 0
    recomputed: int = 0
    ended: int = 0
    before: tuple[int, int, int] = (0, 0, 0)  # preempted, evicted and moved at the last tick

    def tick(self) -> None:
        """Give every running sequence a token, release those that end, admit those that wait."""
        for one in list(self.running):
            if one in self.running and self._make_room(one):
                one.tokens += 1
        for one in [one for one in self.running if one.tokens == len(one.request.ids)]:
            self.policy.release(one.request)
            self.running.remove(one)
            self.ended += 1
        while self.line and self.policy.admit(self.line[0].request, self.line[0].tokens):
            self.running.append(self.line.popleft())

    def _make_room(self, one: _Sequence) -> bool:
        """Grow a sequence by a token, preempting the newest until it can; False if it is itself the newest."""
        while not self.policy.grow(one.request):
            last = self.running.pop()
            self.policy.release(last.request)
            self.preempted += 1
            self.recomputed += last.tokens
            self.line.appendleft(last)
            if last is one:
                return False
        return True

    def row(self, tick: int, slots: int) -> dict[str, int]:
        """The memory after a tick: slots used, wasted inside and between, free; how many run, wait and are done.

        `preempted`, `evicted` and `moved` are the sequences, blocks and tokens of this tick alone.
        """
        used, reserved = self.policy.used, self.policy.reserved
        external = self.policy.external(self.line[0].request, self.line[0].tokens) if self.line else 0
        now = (self.preempted, self.policy.evicted, self.policy.moved)
        preempted, evicted, moved = (new - old for new, old in zip(now, self.before, strict=True))
        self.before = now
        return {
            "tick": tick,
            "running": len(self.running),
            "waiting": len(self.line),
            "done": self.ended,
            "used": used,
            "internal": reserved - used,
            "external": external,
            "free": slots - reserved - external,
            "preempted": preempted,
            "evicted": evicted,
            "moved": moved,
        }


def compare_policies(spec: ArrivalsSpec, policies: Sequence[type[Policy]] = POLICIES) -> dict[str, Any]:
    """The same requests through one memory with each policy, as JSON values (docs/json.md).

    The means are over the ticks at which a request waits, None if none ever does.
    """
    trace = {name: getattr(spec, name) for name in ("requests", "rate", "longest", "seed")}
    ways = [_simulate(policy(spec.slots, spec.longest), spec.draw(), spec.slots) for policy in policies]
    return {"trace": {**trace, "shared": spec.SHARED, "systems": spec.SYSTEMS}, "slots": spec.slots, "ways": ways}


def _simulate(policy: Policy, requests: list[Request], slots: int) -> dict[str, Any]:
    """One trace under one policy: `ticks` has a column for each quantity, `pictures` show every `stride`-th tick."""
    simulation, coming = _Simulation(policy), deque(requests)
    pictures, stride = list[dict[str, object]](), 1  # of the ticks stride, 2 x stride, ...
    rows: list[dict[str, int]] = []
    while simulation.ended < len(requests):
        while coming and coming[0].arrives <= len(rows):
            request = coming.popleft()
            simulation.line.append(_Sequence(request, request.prompt))
        simulation.tick()
        rows.append(simulation.row(len(rows) + 1, slots))
        if len(rows) % stride == 0:
            pictures.append(policy.picture())
        if len(pictures) == MOST_PICTURES:
            del pictures[::2]
            stride *= 2
    busy = [row for row in rows if row["waiting"]]  # waste matters while a request has to wait

    def mean(name: str, of: int = 1) -> float | None:
        return statistics.fmean(row[name] for row in busy) / of if busy else None

    return {
        "name": policy.name,
        "title": policy.title,
        "ticks": {name: [row[name] for row in rows] for name in rows[0]},
        "stride": stride,
        "pictures": pictures,
        "most_running": max(row["running"] for row in rows),
        "mean_running_while_some_wait": mean("running"),
        "used_share_while_some_wait": mean("used", slots),
        "internal_share_while_some_wait": mean("internal", slots),
        "external_share_while_some_wait": mean("external", slots),
        "preempted": simulation.preempted,
        "recomputed_tokens": simulation.recomputed,
        "moved_tokens": policy.moved,
        "found_tokens": policy.hit_tokens,
        "evicted_blocks": policy.evicted,
        "ended_at_tick": len(rows),
    }
