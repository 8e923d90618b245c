"""The specs of the serving experiments: requests in one memory, a shared prompt, one conversation, two of them."""

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole
from kvviz.caches.block_table import BLOCK, EVICTIONS
from kvviz.experiments.comparison.spec import ComparisonSpec, comparison_like, pass_seconds
from kvviz.experiments.kind import Device, Estimate, Record, Spec

LONGEST = 800  # tokens of a prompt and its answer: their texts are shown whole
MOST_NEW = 48  # decode steps of an answer
MOST_ASKS = 8  # requests that share a system prompt
MOST_TURNS = 4  # of two conversations
RANGES = {"requests": (2, 200), "longest": (48, 512), "slots": (64, 4096), "seed": (0, 9_999)}
_TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
SYSTEM: str = _TEXTS["system"]
ASKS: tuple[str, ...] = tuple(_TEXTS["asks"])
FIRST: str = _TEXTS["first"]
EDITED = FIRST.replace("red ball", "blue kite").replace("the ball was gone", "the kite was gone")
SECOND: str = _TEXTS["second"]
SHORT: str = _TEXTS["short"]
VISITOR: str = _TEXTS["visitor"]
TALKS: list[tuple[str, ...]] = [tuple(turns) for turns in _TEXTS["talks"]]


@dataclass(frozen=True)
class Request:
    """One request: its tokens, how many of them are its prompt, and the tick at which it arrives."""

    number: int
    arrives: int
    prompt: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class ArrivalsSpec(Spec):
    """`requests` arrive at `rate` a tick in a memory of `slots` tokens; none has more than `longest` tokens in all.

    Most are short, few are long. Each starts with the SHARED tokens of one of SYSTEMS system prompts.
    """

    kind: ClassVar[str] = "arrivals"
    called: ClassVar[str] = "a simulation of arrivals"
    SHARED: ClassVar[int] = 32
    SYSTEMS: ClassVar[int] = 3

    requests: int = 80
    rate: float = 1.0
    slots: int = 2_048
    longest: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            check_whole(name, getattr(self, name), least, most)
        if not isinstance(self.rate, int | float) or isinstance(self.rate, bool) or not 0.1 <= self.rate <= 8:
            raise KvvizError(f"rate is {self.rate!r}; it is a number from 0.1 to 8 requests a tick")
        if self.slots < self.longest + BLOCK:
            raise KvvizError(
                f"{self.slots:,} slots are too few for a sequence of {self.longest:,} tokens and a block of {BLOCK}; "
                f"take at least {self.longest + BLOCK:,}"
            )

    def draw(self) -> list[Request]:
        """The requests in order of arrival."""
        chance, now, requests = random.Random(self.seed), 0.0, list[Request]()
        for number in range(self.requests):
            now += chance.expovariate(self.rate)
            system = chance.randrange(self.SYSTEMS)
            own = min(self.longest - self.SHARED - 1, 1 + int(chance.lognormvariate(3.0, 0.8)))
            new = min(self.longest - self.SHARED - own, 1 + int(chance.expovariate(1 / 40)))
            ids = (*([-1 - system] * self.SHARED), *([number] * (own + new)))
            requests.append(Request(number, int(now), self.SHARED + own, ids))
        return requests


@dataclass(frozen=True)
class SharingSpec(Spec):
    """The requests `asks`, each after the same `system` prompt, cold and warm, `repeats` times."""

    kind: ClassVar[str] = "sharing"
    called: ClassVar[str] = "a prefix-sharing measurement"

    model: str
    system: str
    asks: tuple[str, ...]
    weights: str = "auto"
    new_tokens: int = 8
    repeats: int = 5

    modes: ClassVar[tuple[str, ...]] = ("prefix",)

    def __post_init__(self) -> None:
        _check(self, {"the system prompt": self.system, **{f"request {i}": a for i, a in enumerate(self.asks, 1)}})
        if not 2 <= len(self.asks) <= MOST_ASKS:
            raise KvvizError(f"{len(self.asks)} requests share the prompt; take 2 to {MOST_ASKS}")
        self.work()

    @property
    def texts(self) -> tuple[str, ...]:
        """The prompts as they are sent: the system prompt, then what is asked."""
        return tuple(f"{self.system.rstrip()} {ask.strip()}" for ask in self.asks)

    @property
    def prefills(self) -> int:
        """How often a prompt goes through the model, including one round to warm up."""
        return 2 * len(self.asks) * (self.repeats + 1)

    @property
    def served(self) -> str:
        """What goes through the model, in words."""
        return f"{self.prefills} prompts are served, {2 * len(self.asks)} of them to warm up"

    def work(self) -> ComparisonSpec:
        """All requests at once as a comparison, to load the model and to check that they fit."""
        return comparison_like(self, prompt=max(self.texts, key=len), batch=len(self.asks))


@dataclass(frozen=True)
class TalkSpec(Spec):
    """A conversation: `first`, the model's answer, `second`; again with `edited` for `first`; again without its front.

    The last prompt lacks the first `drop` tokens of the history.
    """

    kind: ClassVar[str] = "conversation"
    called: ClassVar[str] = "a conversation"

    model: str
    first: str
    second: str
    edited: str
    weights: str = "auto"
    drop: int = 16
    new_tokens: int = 16
    repeats: int = 5

    modes: ClassVar[tuple[str, ...]] = ("prefix",)
    TURNS: ClassVar[int] = 4  # prompts: the first turn, the second, the edited one, the trimmed one

    def __post_init__(self) -> None:
        texts = {"the first turn": self.first, "the second turn": self.second, "the edited turn": self.edited}
        _check(self, texts)
        check_whole("drop", self.drop, 1, LONGEST)
        if self.edited.strip() == self.first.strip():
            raise KvvizError("the edited turn is the first one unchanged; change a word of it")
        self.work()

    @property
    def prefills(self) -> int:
        """How often a prompt goes through the model, including the round for the first answer."""
        return 2 * (1 + self.TURNS * self.repeats)

    @property
    def served(self) -> str:
        """What goes through the model, in words."""
        return f"{self.prefills} prompts are served, 2 of them for the first answer"

    def work(self) -> ComparisonSpec:
        """All turns at once as a comparison, to load the model and to check that they fit."""
        longest = f"{max(self.first, self.edited, key=len)} {self.second}"
        return comparison_like(self, prompt=longest, batch=self.TURNS, new_tokens=2 * self.new_tokens)


@dataclass(frozen=True)
class PrefixesSpec(Spec):
    """Two conversations after one `system` prompt, in one small memory, under each order of eviction.

    The memory has `percent` of the blocks that everything takes together, and as many as the longest request needs.
    `one` and `other` are what is asked, turn by turn; the conversations take turns. `visitor` is a prompt that begins
    with nothing of theirs; it comes once, before their last turns.
    """

    kind: ClassVar[str] = "prefixes"
    called: ClassVar[str] = "a run of conversations"

    model: str
    system: str = SHORT
    one: tuple[str, ...] = TALKS[0]
    other: tuple[str, ...] = TALKS[1]
    visitor: str = VISITOR
    weights: str = "auto"
    percent: int = 65
    new_tokens: int = 20

    modes: ClassVar[tuple[str, ...]] = ("prefix",)
    repeats: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.one) == len(self.other) <= MOST_TURNS:
            raise KvvizError(f"both conversations have as many turns, from 1 to {MOST_TURNS}")
        asked = {f"request {number}, {who},": text for number, (who, text) in enumerate(self.asked, 1)}
        _check(self, {"the system prompt": self.system, **asked})
        check_whole("percent", self.percent, 1, 100)
        self.work()

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Who asks what, in order: conversation A, B, or the visitor, V."""
        turns = [pair for one, other in zip(self.one, self.other, strict=True) for pair in (("A", one), ("B", other))]
        return [*turns[:-2], ("V", self.visitor), *turns[-2:]]

    @property
    def prefills(self) -> int:
        """How often a prompt goes through the model."""
        return len(EVICTIONS) * len(self.asked)

    @property
    def served(self) -> str:
        """What goes through the model, in words."""
        return f"{len(self.asked)} requests are served under each of {len(EVICTIONS)} orders"

    def work(self) -> ComparisonSpec:
        """The longer conversation as a comparison, to load the model and to check that it fits."""
        longest = max((" ".join((self.system, *turns)) for turns in (self.one, self.other)), key=len)
        return comparison_like(self, prompt=longest, batch=1, new_tokens=len(self.one) * self.new_tokens)


def _check(spec: SharingSpec | TalkSpec | PrefixesSpec, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise KvvizError(f"{name} is empty; write a few words")
    check_whole("new_tokens", spec.new_tokens, 1, MOST_NEW)
    check_whole("repeats", spec.repeats, 1, 20)


def estimate(
    spec: SharingSpec | TalkSpec | PrefixesSpec, device: Device, earlier: Sequence[Record] = ()
) -> Estimate | None:
    """At most the seconds of all prefills and answers, every one cold; None if the model's size is unknown."""
    passes = pass_seconds(replace(spec.work(), batch=1, new_tokens=spec.new_tokens), device)
    return None if passes is None else Estimate(spec.prefills * sum(passes.values()))
