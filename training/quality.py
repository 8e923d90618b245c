"""Measure what a model writes: do sentences parse, do characters stay the same, how much is recited from training."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from training.grammar import Grammar
from training.lexicon import GENDER, KINDS
from training.stories import sentences
from training.tokens import SEPARATOR

_INTRODUCTION = re.compile(r"\b([a-z]+) (?:named|called) ([A-Z][A-Za-z'-]*)")
_WORDS = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
GRAM = 8


@dataclass(frozen=True)
class Quality:
    """Shares (0 to 1) over the continuations of one run; ``sentences`` counts the complete ones."""

    continuations: int
    sentences: int
    parsed: float
    named: float
    consistent: float
    recited: float


class Cast:
    """The characters introduced so far in a story, with kind and gender."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}

    def knows(self, grammar: Grammar, sentence: str) -> bool:
        """Whether the names of a sentence fit the story so far; introductions in the sentence count."""
        return self._introduce(sentence) and self._names(grammar, sentence) and _two(grammar, sentence)

    def allows(self, grammar: Grammar, sentence: str) -> bool:
        """Whether the names, pronouns and kinds of a sentence fit the story so far."""
        return self.knows(grammar, sentence) and self._features(grammar, sentence)

    def _introduce(self, sentence: str) -> bool:
        """Record the introductions of a sentence; False if a name is introduced twice."""
        found = [(kind, name) for kind, name in _INTRODUCTION.findall(sentence) if kind in KINDS]
        fresh = not any(name in self._kinds for _, name in found)
        self._kinds |= {name: kind for kind, name in found}
        return fresh

    def _names(self, grammar: Grammar, sentence: str) -> bool:
        """Whether every proper name has been introduced. A capitalised word outside the grammar counts as a name."""
        known = words_of(grammar)
        capitals = [word for word in _WORDS.findall(sentence) if word[0].isupper()]
        names = [word for word in capitals if word in GENDER or word[0].lower() + word[1:] not in known]
        return all(name in self._kinds for name in names if name != "I")

    def _features(self, grammar: Grammar, sentence: str) -> bool:
        """Whether each pronoun matches the gender, and each ``the ... fox`` the kind, of a character in the story."""
        found = grammar.parse(sentence) or {}
        genders = {GENDER.get(name) for name in self._kinds}
        kinds = set(self._kinds.values())
        return all(_fits(found, variable, genders, kinds) for variable in "AB")


def _two(grammar: Grammar, sentence: str) -> bool:
    """False if both characters of a sentence have the same name."""
    found = grammar.parse(sentence) or {}
    return "A.name" not in found or found["A.name"] != found.get("B.name")


def _fits(found: dict[str, str], variable: str, genders: set, kinds: set) -> bool:
    gender, kind = found.get(f"{variable}.g"), found.get(f"{variable}.kind")
    return (gender is None or gender in genders) and (kind is None or kind in kinds)


_KNOWN: dict[int, frozenset[str]] = {}


def words_of(grammar: Grammar) -> frozenset[str]:
    """Words of the grammar without the names."""
    if id(grammar) not in _KNOWN:
        _KNOWN[id(grammar)] = grammar.vocabulary() - GENDER.keys()
    return _KNOWN[id(grammar)]


def consistent(grammar: Grammar, prompt: str, continuation: str) -> bool:
    """Whether all complete sentences of a continuation are consistent with the introduced characters.

    A separator ends a story; after it, every character has to be introduced again.
    """
    return _holds(grammar, prompt, continuation, Cast.allows)


def names_stay(grammar: Grammar, prompt: str, continuation: str) -> bool:
    """Like ``consistent``, but checks only names."""
    return _holds(grammar, prompt, continuation, Cast.knows)


def _holds(grammar: Grammar, prompt: str, continuation: str, check: Callable[[Cast, Grammar, str], bool]) -> bool:
    stories = continuation.split(SEPARATOR)
    for number, story in enumerate(stories):
        people = Cast()
        for sentence in sentences(prompt) if number == 0 else []:
            people.knows(grammar, sentence)
        if not all(check(people, grammar, sentence) for sentence in sentences(story)):
            return False
    return True


def parses(grammar: Grammar, continuation: str) -> list[bool]:
    """For each complete sentence of a continuation, whether the grammar parses it."""
    return [
        grammar.parse(sentence) is not None for story in continuation.split(SEPARATOR) for sentence in sentences(story)
    ]


def grams(texts: Iterable[str], size: int = GRAM) -> np.ndarray:
    """Hash (uint64) every run of ``size`` words within a story, ignoring case and punctuation."""
    parts = [_hashes(story, size) for text in texts for story in text.split(SEPARATOR)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _hashes(story: str, size: int) -> np.ndarray:
    words = np.array([hash_word(word) for word in _WORDS.findall(story.lower())], dtype=np.uint64)
    if len(words) < size:
        return np.zeros(0, np.uint64)
    weights = np.array([pow(0x9E3779B97F4A7C15, k, 2**64) for k in range(size)], dtype=np.uint64)
    return (np.lib.stride_tricks.sliding_window_view(words, size) * weights).sum(1, dtype=np.uint64)


_HASHES: dict[str, int] = {}


def hash_word(word: str) -> int:
    """Hash a word to a stable 64-bit number (FNV-1a)."""
    if word not in _HASHES:
        value = 0xCBF29CE484222325
        for byte in word.encode():
            value = (value ^ byte) * 0x100000001B3 % 2**64
        _HASHES[word] = value
    return _HASHES[word]


def recited(found: np.ndarray, training: np.ndarray) -> float:
    """Share of the word runs that also occur in the training text."""
    return float(np.isin(found, training).mean()) if len(found) else 0.0


def measure(grammar: Grammar, prompts: list[str], continuations: list[str], training: np.ndarray) -> Quality:
    """Compute all measures of the continuations; ``training`` holds the distinct word runs of the training text."""
    done = [ok for text in continuations for ok in parses(grammar, text)]
    pairs = list(zip(prompts, continuations, strict=True))
    named = [names_stay(grammar, *pair) for pair in pairs]
    kept = [consistent(grammar, *pair) for pair in pairs]
    return Quality(
        len(continuations),
        len(done),
        sum(done) / max(1, len(done)),
        sum(named) / max(1, len(named)),
        sum(kept) / max(1, len(kept)),
        recited(grams(continuations), training),
    )


def known_words(grammar: Grammar, text: str) -> float:
    """Share of a text's words that are words or names of the grammar."""
    known = {word.lower() for word in words_of(grammar)} | {name.lower() for name in GENDER}
    found = [word.lower() for story in _stories(text) for word in _WORDS.findall(story)]
    return sum(word in known for word in found) / max(1, len(found))


def _stories(text: str) -> Iterator[str]:
    yield from text.split(SEPARATOR)
