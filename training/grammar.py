"""A small template grammar that writes sentences and parses them.

A template is a line such as ``({link} |){A} walked to {P}.``: words, punctuation, ``(a|b)`` for a choice (an
empty branch makes a part optional) and ``{slot}`` for a class of the lexicon. ``{A.he}`` is the attribute
``he`` of the variable ``A``. Each option of a slot may carry features (``A.g = f``). A variable's features have to
agree within a sentence and, when writing, within a story. This keeps pronouns, names and things consistent.
"""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TEMPLATE = re.compile(r"\{[^}]+\}|[(|)]|[A-Za-z]+(?:['-][A-Za-z]+)*|[.,!?\"]")
_WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*|[.,!?\"]")
_NO_SPACE_BEFORE = frozenset(".,!?")

Features = Mapping[str, str]


@dataclass(frozen=True)
class Slot:
    """A reference to a class of the lexicon, for example ``A.he`` or ``place``."""

    name: str


@dataclass(frozen=True)
class Choice:
    """One of several sequences; an empty one makes the choice optional."""

    branches: tuple[tuple["Item", ...], ...]


Item = str | Slot | Choice
Sequence = tuple[Item, ...]


@dataclass(frozen=True)
class Option:
    """One way to fill a slot: its word sequence and the features it fixes (full keys, for example ``A.g``)."""

    sequence: Sequence
    features: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Reading:
    """A sentence split into words, with the positions of the words that start with a capital."""

    words: tuple[str, ...]
    starts: frozenset[int]


def parse_template(text: str) -> Sequence:
    """Parse a template into a tree; ValueError if its brackets do not match."""
    tokens = _TEMPLATE.findall(text)
    branches, used = _branches(tokens, 0)
    if used != len(tokens) or len(branches) != 1:
        raise ValueError(f"brackets do not match: {text}")
    return branches[0]


def _branches(tokens: list[str], at: int) -> tuple[tuple[Sequence, ...], int]:
    done: list[Sequence] = []
    items: list[Item] = []
    while at < len(tokens) and tokens[at] != ")":
        token = tokens[at]
        if token == "|":
            done.append(tuple(items))
            items = []
        elif token == "(":
            inner, at = _branches(tokens, at + 1)
            items.append(Choice(inner))
        else:
            items.append(Slot(token[1:-1]) if token[0] == "{" else token)
        at += 1
    return (*done, tuple(items)), at


def capital(word: str) -> str:
    """Return the word with its first letter in upper case."""
    return word[:1].upper() + word[1:]


def _starts(words: tuple[str, ...]) -> frozenset[int]:
    """Positions of capitals: the first word and the word after each opening quotation mark."""
    quotes = [i for i, word in enumerate(words) if word == '"']
    return frozenset([0, *(i + 1 for i in quotes[::2])])


def join(words: tuple[str, ...]) -> str:
    """Join words into a sentence with capitals and spaces."""
    starts, text, inside = _starts(words), "", False
    for i, word in enumerate(words):
        closing = word == '"' and inside
        glued = word in _NO_SPACE_BEFORE or closing or i == 0 or (inside and i in starts)
        text += ("" if glued else " ") + (capital(word) if i in starts else word)
        inside = inside != (word == '"')
    return text


def read(sentence: str) -> Reading | None:
    """Split a sentence into words; None if its spacing or capitals differ from those ``join`` sets."""
    words = tuple(_WORD.findall(sentence))
    if not words or join(words) != sentence:
        return None
    return Reading(words, _starts(words))


class Grammar:
    """Templates by group over a lexicon: ``write`` generates sentences, ``parse`` recognises them."""

    def __init__(
        self,
        lexicon: Mapping[str, tuple[tuple[str, Features], ...]],
        kinds: Mapping[str, str],
        templates: Mapping[str, tuple[str, ...]],
    ):
        """``kinds`` gives the class of each variable; a template that starts with ``!`` is held out."""
        self._lexicon, self._kinds = lexicon, kinds
        self._options: dict[str, tuple[Option, ...]] = {}
        self._index: dict[str, dict[str, tuple[Option, ...]]] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._fitting: dict[tuple[str | None, ...], tuple[Option, ...]] = {}
        self.train = {g: _trees(lines, held=False) for g, lines in templates.items()}
        self.held = {g: _trees(lines, held=True) for g, lines in templates.items()}
        self._all = tuple({t: None for part in (self.train, self.held) for g in part.values() for t in g})

    def options(self, slot: str) -> tuple[Option, ...]:
        """All ways to fill a slot; KeyError if the lexicon has no such class."""
        if slot not in self._options:
            self._options[slot] = self._build(slot)
        return self._options[slot]

    def _build(self, slot: str) -> tuple[Option, ...]:
        variable, _, attribute = slot.partition(".")
        kind = self._kinds.get(variable)
        entries = self._lexicon[f"{kind}.{attribute or 'itself'}" if kind else slot]
        return tuple(
            Option(
                parse_template(text.replace("*", variable)),
                tuple((f"{variable}.{k}", v) for k, v in features.items()),
            )
            for text, features in entries
        )

    def write(self, sequence: Sequence, bound: dict[str, str], rng: random.Random) -> tuple[str, ...]:
        """Generate the words of one random sentence and add the features it fixes to ``bound``."""
        words: list[str] = []
        for item in sequence:
            if isinstance(item, str):
                words.append(item)
            elif isinstance(item, Choice):
                words.extend(self.write(rng.choice(item.branches), bound, rng))
            else:
                words.extend(self._fill(item, bound, rng))
        return tuple(words)

    def _fill(self, slot: Slot, bound: dict[str, str], rng: random.Random) -> tuple[str, ...]:
        option = rng.choice(self._agreeing(slot.name, bound))
        bound.update(option.features)
        return self.write(option.sequence, bound, rng)

    def _agreeing(self, slot: str, bound: Mapping[str, str]) -> tuple[Option, ...]:
        """Options of a slot that agree with ``bound``; cached, because stories ask for the same ones again."""
        if slot not in self._keys:
            self._keys[slot] = tuple(sorted({key for option in self.options(slot) for key, _ in option.features}))
        asked = (slot, *(bound.get(key) for key in self._keys[slot]))
        if asked not in self._fitting:
            self._fitting[asked] = tuple(o for o in self.options(slot) if _agrees(o.features, bound))
        return self._fitting[asked]

    def parse(self, sentence: str) -> dict[str, str] | None:
        """Features of the first parse of a sentence, or None if no template matches."""
        reading = read(sentence)
        if reading is None:
            return None
        for template in self._all:
            for end, bound in self._match(template, 0, reading, 0, {}):
                if end == len(reading.words):
                    return bound
        return None

    def _match(
        self, sequence: Sequence, k: int, reading: Reading, i: int, bound: dict[str, str]
    ) -> Iterator[tuple[int, dict[str, str]]]:
        if k == len(sequence):
            yield i, bound
            return
        for end, found in self._match_item(sequence[k], reading, i, bound):
            yield from self._match(sequence, k + 1, reading, end, found)

    def _match_item(
        self, item: Item, reading: Reading, i: int, bound: dict[str, str]
    ) -> Iterator[tuple[int, dict[str, str]]]:
        if isinstance(item, str):
            if i < len(reading.words) and reading.words[i] == (capital(item) if i in reading.starts else item):
                yield i + 1, bound
        elif isinstance(item, Choice):
            for branch in item.branches:
                yield from self._match(branch, 0, reading, i, bound)
        else:
            for option in self._candidates(item.name, reading, i):
                if _agrees(option.features, bound):
                    yield from self._match(option.sequence, 0, reading, i, {**bound, **dict(option.features)})

    def _candidates(self, slot: str, reading: Reading, i: int) -> Iterator[Option]:
        """Yield the options that may start with the word at ``i``."""
        if slot not in self._index:
            self._index[slot] = _by_first_word(self.options(slot))
        index = self._index[slot]
        if i < len(reading.words):
            word = reading.words[i]
            yield from index.get(word, ())
            if i in reading.starts and word != word[:1].lower() + word[1:]:
                yield from index.get(word[:1].lower() + word[1:], ())
        yield from index.get("", ())

    def vocabulary(self) -> frozenset[str]:
        """All words that the templates can produce, spelled as in the lexicon."""
        words: set[str] = set()
        seen: set[str] = set()
        for template in self._all:
            self._collect(template, words, seen)
        return frozenset(words)

    def _collect(self, sequence: Sequence, words: set[str], seen: set[str]) -> None:
        for item in sequence:
            if isinstance(item, str):
                words.add(item)
            elif isinstance(item, Choice):
                for branch in item.branches:
                    self._collect(branch, words, seen)
            elif item.name not in seen:
                seen.add(item.name)
                for option in self.options(item.name):
                    self._collect(option.sequence, words, seen)


def _trees(lines: tuple[str, ...], held: bool) -> tuple[Sequence, ...]:
    return tuple(parse_template(line.lstrip("! ")) for line in lines if line.startswith("!") == held)


def _agrees(features: tuple[tuple[str, str], ...], bound: Mapping[str, str]) -> bool:
    return all(bound.get(key, value) == value for key, value in features)


def _by_first_word(options: tuple[Option, ...]) -> dict[str, tuple[Option, ...]]:
    """Group options by first word; an option that starts with a slot or a choice goes under the empty word."""
    index: dict[str, list[Option]] = {}
    for option in options:
        first = option.sequence[0] if option.sequence else ""
        index.setdefault(first if isinstance(first, str) else "", []).append(option)
    return {word: tuple(found) for word, found in index.items()}
