"""Defines a concurrency sweep: which server, how many requests at once, how many of each. Standard library only."""

from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole
from kvviz.base.settings import Limits
from kvviz.decoding.endpoint.address import base_url, event_addresses
from kvviz.experiments.kind import Spec
from kvviz.experiments.serving.spec import SYSTEM

MOST = 64  # requests at once
MOST_EACH, MOST_TOKENS = 100, 4_096


@dataclass(frozen=True)
class ConcurrencySpec(Spec):
    """Each of so many askers, `concurrency`, sends `requests` requests, the next one when its last answer has ended.

    `kv_events` is where it publishes its cache's events, and after a comma where it repeats them. The server's key is
    no part of it.
    """

    kind: ClassVar[str] = "concurrency"
    called: ClassVar[str] = "a concurrency sweep"

    endpoint: str
    endpoint_model: str | None = None
    concurrency: tuple[int, ...] = (1, 2, 4, 8)
    requests: int = 3
    prompt: str = SYSTEM
    new_tokens: int = 64
    kv_events: str | None = None

    def __post_init__(self) -> None:
        base_url(self.endpoint)
        if self.kv_events is not None:
            event_addresses(self.kv_events)
        levels = self.concurrency
        for level in levels:
            check_whole("concurrency", level, 1, MOST)
        if not levels or list(levels) != sorted(set(levels)):
            raise KvvizError(f"requests at once are whole numbers from 1 to {MOST}, each larger than the one before")
        check_whole("requests", self.requests, 1, MOST_EACH)
        check_whole("new_tokens", self.new_tokens, 1, MOST_TOKENS)
        if not isinstance(self.prompt, str) or not self.prompt:
            raise KvvizError("the prompt is empty; it has to hold at least one character")


def check(spec: ConcurrencySpec, limits: Limits) -> None:
    """Refuse more than this server's limits. Raises KvvizError."""
    for words, asked, most in (
        ("requests at once", spec.concurrency[-1], limits.batch),
        ("new tokens", spec.new_tokens, limits.new_tokens),
    ):
        if asked > most:
            raise KvvizError(f"this asks for {asked:,} {words}; this server allows at most {most:,}")
