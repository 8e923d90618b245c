"""Draws the texts of a recall measurement: sentences of stories, with facts between them at even distances."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from kvviz.models.catalog.rows import FactWords, recall_words


@dataclass(frozen=True)
class Fact:
    """A fact, such as whom a thing is for: the `statement` in the text, and the `question` that the model completes."""

    kind: str
    answer: str
    statement: str
    question: str


@dataclass(frozen=True)
class Text:
    """A text, and the facts that it states, in order."""

    text: str
    facts: tuple[Fact, ...]


def draw(seed: int, number: int, facts: int, tokens: int, count: Callable[[str], int]) -> Text:
    """Draw a text of about so many `tokens`, with as many facts of each kind; `count` counts a piece's tokens.

    The same arguments give the same text.
    """
    words, rng = recall_words(), random.Random(f"recall/{seed}/{number}")
    things = [f"{rng.choice(words.adjectives)} {thing}" for thing in rng.sample(words.things, facts)]
    kinds = [words.kinds[i % len(words.kinds)] for i in range(facts)]
    rng.shuffle(kinds)
    answers = {kind.name: iter(rng.sample(kind.answers, facts)) for kind in words.kinds}
    stated = [_fact(kind, thing, next(answers[kind.name])) for kind, thing in zip(kinds, things, strict=True)]
    room = tokens - sum(count(fact.statement) for fact in stated)
    told: list[str] = []
    stories = rng.sample(words.stories, len(words.stories))
    while room > 0:
        for sentence in chain.from_iterable(stories):
            told.append(f" {sentence}")
            room -= count(told[-1])
            if room <= 0:
                break
    for i in reversed(range(facts)):
        told.insert(round((i + 0.5) / facts * len(told)), stated[i].statement)
    return Text("".join(told), tuple(stated))


def _fact(kind: FactWords, thing: str, answer: str) -> Fact:
    return Fact(kind.name, answer, kind.fact.format(thing=thing, answer=answer), kind.question.format(thing=thing))
