"""Scheduling policies of the engine, a row each: who may join when, and what a step computes. Standard library only."""

from dataclasses import dataclass
from typing import Literal

from kvviz.base.errors import KvvizError


@dataclass(frozen=True)
class Policy:
    """A rule for who runs.

    `joins`: a waiting request is admitted after any step, only after a step in which a sequence has ended, or only when
    nothing runs. `shortest`: the queue is ordered by a request's tokens in all, and not by arrival. `alone`: while
    there are prompts to prefill, a step does nothing else. `chunked`: a step computes at most a budget of tokens, the
    decode steps first, and cuts prompts accordingly. `swaps`: what a preempted sequence had in memory is copied to the
    host's, if that has room, also where others compute it again.
    """

    name: str
    title: str
    summary: str
    joins: Literal["any", "end", "empty"] = "any"
    shortest: bool = False
    alone: bool = False
    chunked: bool = False
    swaps: bool = False


_ROWS = (
    Policy(
        "static",
        "Static batches",
        "nobody joins a batch that has begun; the next one is made when its last sequence has ended",
        joins="empty",
    ),
    Policy(
        "continuous",
        "Continuous, first come first served",
        "a request joins after any step; whole prompts are prefilled in the same forward as others decode",
    ),
    Policy(
        "shortest",
        "Continuous, shortest first",
        "the request with the fewest tokens in all joins first, as if a server knew how long an answer will be",
        shortest=True,
    ),
    Policy(
        "prefill-first",
        "Prefill first",
        "a step prefills all prompts that have joined and nothing else; the others' decode steps wait",
        alone=True,
    ),
    Policy(
        "decode-first",
        "Decode first",
        "decode steps are not held up by prompts: a request joins only after another has ended",
        joins="end",
    ),
    Policy(
        "chunked",
        "Chunked prefill",
        "a step has a budget of tokens: every decode step, and as much of the prompts as is left",
        chunked=True,
    ),
    Policy(
        "swap",
        "Continuous, swapped to the host",
        "as continuous, but a preempted sequence is copied to the host's memory and back, not computed again",
        swaps=True,
    ),
)
Preemption = Literal["recompute", "swap"]  # what becomes of a preempted sequence's keys and values
PREEMPTIONS: tuple[Preemption, ...] = ("recompute", "swap")
POLICIES: dict[str, Policy] = {row.name: row for row in _ROWS}
THEIRS = "transformers"  # transformers' own continuous batching, measured beside the policies


def check_budget(policy: Policy, places: int, budget: int) -> None:
    """Raise KvvizError if a step of `budget` tokens could be too short for a prompt beside the decode steps."""
    if policy.chunked and budget <= places:
        raise KvvizError(
            f"a step of at most {budget} tokens is too short for {places} sequences that decode and a prompt "
            f"beside them: take a budget of at least {places + 1}"
        )


def policy_named(name: str) -> Policy:
    """Return the row of a policy. Raises KvvizError, which lists the policies, for an unknown name."""
    if name not in POLICIES:
        raise KvvizError(f"no policy {name!r}; the policies are {', '.join((*POLICIES, THEIRS))}")
    return POLICIES[name]
