"""A seeded trace of requests: when each arrives and how many tokens it has. Standard library only."""

import random
from dataclasses import dataclass

from kvviz.base.errors import KvvizError


@dataclass(frozen=True)
class Request:
    """One request: its tokens, how many of them are its prompt, and the tick at which it arrives."""

    number: int
    arrives: int
    prompt: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    """How requests are drawn: most are short, few are long, none has more than `longest` tokens in all.

    Each starts with the `shared` tokens of one of `systems` system prompts.
    """

    requests: int = 120
    rate: float = 1.0  # arrivals a tick, on average
    longest: int = 256
    shared: int = 32
    systems: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.requests < 1 or self.rate <= 0 or self.systems < 1 or not 0 <= self.shared < self.longest - 2:
            raise KvvizError("a trace needs requests, a rate above 0, a system prompt, and room after what is shared")

    def draw(self) -> list[Request]:
        """The requests in order of arrival."""
        chance, now, requests = random.Random(self.seed), 0.0, list[Request]()
        for number in range(self.requests):
            now += chance.expovariate(self.rate)
            system = chance.randrange(self.systems)
            own = min(self.longest - self.shared - 1, 1 + int(chance.lognormvariate(3.0, 0.8)))
            new = min(self.longest - self.shared - own, 1 + int(chance.expovariate(1 / 40)))
            ids = (*([-1 - system] * self.shared), *([number] * (own + new)))
            requests.append(Request(number, int(now), self.shared + own, ids))
        return requests
