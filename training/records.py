"""Write records: stories with facts between their sentences, and questions about the facts at the end."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from training.grammar import Grammar
from training.lexicon import GENDER, HELD_NAMES, THING_ADJECTIVES, THINGS
from training.stories import Split, sentences, write_story
from training.tokens import SEPARATOR

STORIES = 1500  # whose sentences fill the records of a split
FEWEST, TOKENS_A_FACT = 2, 64  # facts of a record: from the fewest to one for so many tokens

Tokens = list[int]


class Kind(NamedTuple):
    """A kind of fact: the sentence that states it, the beginning that asks for it, and what follows its answer."""

    fact: str
    question: str
    end: str


KINDS = {
    "name": Kind(" The {thing} is for {answer}.", "\nThe {thing} is for", "."),
    "number": Kind(" The {thing} took {answer} days.", "\nThe {thing} took", " days."),
}
NUMBERS = range(100, 1000)  # one in eight of them is held out, as of the names


def possible(*, held: bool) -> dict[str, list[str]]:
    """Return by kind what a fact may say: what no training text says if `held`, else the rest."""
    return {
        "name": [name for name in GENDER if (name in HELD_NAMES) == held],
        "number": [str(number) for number in NUMBERS if (number % 8 == 7) == held],
    }


@dataclass(frozen=True)
class Asked:
    """One question of a record: where its answer begins, its tokens, how far back the fact says it, and its kind."""

    at: int
    answer: Tokens
    distance: int
    kind: str


class Stream(NamedTuple):
    """Token ids (uint16), and which of them are answers (bool)."""

    ids: np.ndarray
    answers: np.ndarray


class Writer:
    """Writes the records of a split: its stories, its names and numbers, any thing of the grammar."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer, split: Split, seed: int, stories: int = STORIES) -> None:
        self._encode = lambda text: tokenizer.encode(text).ids
        self._start = self._encode(SEPARATOR)
        self._answers = possible(held=split.held_names)
        told = (sentences(write_story(grammar, split, seed, number)) for number in range(stories))
        self._stories = [[self._encode(f" {sentence}") for sentence in story] for story in told]

    def record(self, rng: random.Random, length: int, facts: int) -> tuple[Tokens, list[Asked]]:
        """Write a record of exactly `length` tokens; its questions are in another order than its facts."""
        things = [f"{rng.choice(THING_ADJECTIVES)} {thing}" for thing in rng.sample(THINGS, facts)]
        kinds = [rng.choice(list(KINDS)) for _ in range(facts)]
        texts = {kind: iter(rng.sample(every, facts)) for kind, every in self._answers.items()}
        about = [(KINDS[kind], thing, next(texts[kind])) for kind, thing in zip(kinds, things, strict=True)]
        said = [self._encode(words.fact.format(thing=thing, answer=answer)) for words, thing, answer in about]
        asked = [self._encode(words.question.format(thing=thing)) for words, thing, _ in about]
        replies = [self._encode(f" {answer}") for _, _, answer in about]
        ends = [self._encode(words.end) for words, _, _ in about]
        told = self._filler(rng, length - len(self._start) - sum(map(len, (*said, *asked, *replies, *ends))))
        places = sorted(rng.choices(range(len(told)), k=facts))  # each fact stands before this sentence
        ids, stated = list(self._start), []
        for number, sentence in enumerate(told):
            for i in (i for i, place in enumerate(places) if place == number):
                ids += said[i]
                stated.append(len(ids) - len(ends[i]))
            ids += sentence
        questions = []
        for i in rng.sample(range(facts), facts):
            ids += asked[i]
            questions.append(Asked(len(ids), replies[i], len(ids) - stated[i] + len(replies[i]), kinds[i]))
            ids += replies[i] + ends[i]
        return ids, questions

    def _filler(self, rng: random.Random, tokens: int) -> list[Tokens]:
        """Return sentences of whole stories; the last one is cut off where the tokens end."""
        told: list[Tokens] = []
        room = tokens
        while room > 0:
            for sentence in rng.choice(self._stories):
                told.append(sentence[:room])
                room -= len(told[-1])
                if room <= 0:
                    break
        return told

    def records(self, label: str, length: int) -> Iterator[tuple[Tokens, list[Asked]]]:
        """Write records without end; the same label gives the same ones."""
        rng = random.Random(f"{label}/{length}")
        while True:
            yield self.record(rng, length, rng.randint(FEWEST, max(FEWEST, length // TOKENS_A_FACT)))


def record_stream(writer: Writer, label: str, stages: Sequence[tuple[float, int]], tokens: int) -> Stream:
    """Return `tokens` token ids and one record more, in records as long as the sequences of each stage."""
    ends = [round(share * tokens) for share in accumulate(share for share, _ in stages)]
    ids, marks = Tokens(), Tokens()
    for end, (_, length) in zip(ends, stages, strict=True):
        for record, asked in writer.records(label, length):
            answers = {place for q in asked for place in range(q.at, q.at + len(q.answer))}
            ids += record
            marks += [place in answers for place in range(length)]
            if len(ids) >= end + (length if end == ends[-1] else 0):
                break
    return Stream(np.array(ids, dtype=np.uint16), np.array(marks, dtype=np.bool_))


@torch.no_grad()
def recalled(model: PreTrainedModel, ids: Tokens, asked: Sequence[Asked]) -> list[bool]:
    """Whether the model's likeliest tokens are the answer, for each question of a record."""
    best = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].argmax(-1)
    return [best[q.at - 1 : q.at - 1 + len(q.answer)].tolist() == q.answer for q in asked]
