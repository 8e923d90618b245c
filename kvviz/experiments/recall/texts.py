"""Draws the texts of a recall measurement: sentences of stories, with facts between them at even distances."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from kvviz.models.catalog.rows import recall_words


@dataclass(frozen=True)
class Fact:
    """That a thing is for somebody: the sentence that states it, and the beginning that is to be completed."""

    name: str
    statement: str
    question: str


@dataclass(frozen=True)
class Text:
    """A text, and the facts that it states, in order."""

    text: str
    facts: tuple[Fact, ...]


def draw(seed: int, number: int, facts: int, tokens: int, count: Callable[[str], int]) -> Text:
    """Draw a text of about so many `tokens`; the same arguments give the same text. `count` counts a piece's tokens."""
    words, rng = recall_words(), random.Random(f"recall/{seed}/{number}")
    things = [f"{rng.choice(words.adjectives)} {thing}" for thing in rng.sample(words.things, facts)]
    names = rng.sample(words.names, facts)
    stated = [_fact(thing, name) for thing, name in zip(things, names, strict=True)]
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


def _fact(thing: str, name: str) -> Fact:
    words = recall_words()
    return Fact(name, words.fact.format(thing=thing, name=name), words.question.format(thing=thing))
