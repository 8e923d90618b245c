"""Checks that work keeps to a server's limits, before it is queued. Standard library only."""

from typing import Protocol

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits
from kvviz.decoding.modes import check_modes
from kvviz.decoding.requirements import Work
from kvviz.models.sources import Source, find_source

CHARACTERS = 16  # of prompt text per allowed token; the worker counts the actual tokens

FIELDS = {
    "prompt_tokens": "prompt tokens",
    "new_tokens": "new tokens",
    "batch": "sequences at a time",
    "repeats": "timed passes of each mode",
}


class Decodes(Protocol):
    """A spec that decodes a model."""

    def work(self) -> Work: ...


def check_sizes(work: Work, limits: Limits) -> None:
    """Refuse work that exceeds this server's limits, in a sentence with both figures."""
    for name, words in FIELDS.items():
        _check_at_most(words, getattr(work, name), getattr(limits, name))
    _check_at_most("warm-up passes of each mode", work.warmup, limits.repeats)
    _check_at_most("characters of the prompt", len(work.prompt or ""), CHARACTERS * limits.prompt_tokens)


def check_prompt(tokens: int, most: int) -> None:
    """Refuse a text of more than `most` tokens, once a tokenizer has counted them."""
    _check_at_most(FIELDS["prompt_tokens"], tokens, most)


def check_decodable(spec: Decodes, limits: Limits) -> Source:
    """Refuse a spec whose model does not exist, can't be decoded in its modes or is too large."""
    work = spec.work()
    source = find_source(work.model, work.weights)
    check_modes(work.modes, source.config)
    check_sizes(work, limits)
    return source


def _check_at_most(words: str, asked: int | None, most: int) -> None:
    if asked is not None and asked > most:
        raise KvvizError(f"this asks for {asked:,} {words}; this server allows at most {most:,}")
