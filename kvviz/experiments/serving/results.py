"""The shapes of what the serving experiments find, as it stands in their JSON documents. Standard library only."""

from typing import NotRequired, TypedDict


class PolicyResult(TypedDict):
    """A trace under one policy. `ticks` has a column for each quantity; `pictures` show every `stride`-th tick."""

    name: str
    title: str
    ticks: dict[str, list[int]]
    stride: int
    pictures: list[dict[str, object]]
    most_running: int
    mean_running_while_some_wait: float | None
    used_share_while_some_wait: float | None
    internal_share_while_some_wait: float | None
    external_share_while_some_wait: float | None
    preempted: int
    recomputed_tokens: int
    moved_tokens: int
    found_tokens: int
    evicted_blocks: int
    ended_at_tick: int


class ArrivalsResult(TypedDict):
    """The same trace through one memory of `slots` tokens with each policy."""

    trace: dict[str, int | float]
    slots: int
    ways: list[PolicyResult]


class Served(TypedDict):
    """One request served cold or warm: `found_tokens` were cache hits, in `found_bytes`; the rest was computed."""

    found_tokens: int
    computed_tokens: int
    ttft_s: float
    ttft_s_q1: NotRequired[float]
    ttft_s_q3: NotRequired[float]
    cache_bytes: int
    found_bytes: int
    token_ids: list[int]


class RequestResult(TypedDict):
    """One request, cold and warm. A conversation's also has its `turn` and what is said of it."""

    prompt_tokens: int
    identical: bool
    cold: Served
    warm: Served
    ask: NotRequired[str]
    answer: NotRequired[str]
    turn: NotRequired[str]
    alike_tokens: NotRequired[int]
    pieces: NotRequired[list[str]]
    sentence: NotRequired[str]


class SharingResult(TypedDict):
    """All requests, the bytes of the blocks that stay, and the bytes of all caches without sharing."""

    requests: list[RequestResult]
    kept_bytes: int
    cold_bytes: int
