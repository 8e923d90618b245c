"""A seeded trace of requests: who comes when, with how many tokens. Standard library only."""

import random
from dataclasses import dataclass

from kvviz.base.errors import KvvizError


@dataclass(frozen=True)
class Request:
    """A sequence: its tokens, how many of them are its prompt, when it comes."""

    number: int
    arrives: int
    prompt: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    """What comes. Lengths are drawn: most are short, few are long, none has more than `longest` tokens in all.

    `shared` tokens at the start are those of one of `systems` system prompts.
    """

    requests: int = 120
    rate: float = 1.0  # arrivals a tick, on average
    longest: int = 256
    shared: int = 32
    systems: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.requests < 1 or self.rate <= 0 or self.systems < 1 or not 0 <= self.shared < self.longest - 2:
            raise KvvizError("a trace needs requests, a rate above 0, a system prompt, and room behind what is shared")

    def draw(self) -> list[Request]:
        """The requests in the order in which they come."""
        chance, now, found = random.Random(self.seed), 0.0, []
        for number in range(self.requests):
            now += chance.expovariate(self.rate)
            system = chance.randrange(self.systems)
            own = min(self.longest - self.shared - 1, 1 + int(chance.lognormvariate(3.0, 0.8)))
            new = min(self.longest - self.shared - own, 1 + int(chance.expovariate(1 / 40)))
            ids = (*([-1 - system] * self.shared), *([number] * (own + new)))
            found.append(Request(number, int(now), self.shared + own, ids))
        return found
