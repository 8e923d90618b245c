"""Whether work keeps to a server's limits, asked before it is queued. Standard library only."""

from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits
from kvviz.decoding.modes import check_modes
from kvviz.decoding.work import Work
from kvviz.models.sources import Source, find_source

CHARACTERS = 16  # of a prompt's text for each token that is allowed; the worker counts the tokens themselves

FIELDS = {
    "prompt_tokens": "prompt tokens",
    "new_tokens": "new tokens",
    "batch": "sequences at a time",
    "repeats": "timed passes of each mode",
}


def check_sizes(work: Work, limits: Limits) -> None:
    """Refuse what asks for more than this server gives, in one sentence with both figures."""
    for name, words in FIELDS.items():
        _check(words, getattr(work, name), getattr(limits, name))
    _check("warm-up passes of each mode", work.warmup, limits.repeats)
    _check("characters of the prompt", len(work.prompt or ""), CHARACTERS * limits.prompt_tokens)


def check_prompt(tokens: int, most: int) -> None:
    """The same for the tokens of a prompt's text, once a tokenizer has counted them."""
    _check(FIELDS["prompt_tokens"], tokens, most)


def check_decodable(spec: Any, limits: Limits) -> Source:
    """Refuse a spec with a `work()` whose model is not there or can't be decoded in its modes, or that is too large."""
    work = spec.work()
    source = find_source(work.model, work.weights)
    check_modes(work.modes, source.config)
    check_sizes(work, limits)
    return source


def _check(words: str, asked: int | None, most: int) -> None:
    if asked is not None and asked > most:
        raise KvvizError(f"this asks for {asked:,} {words}; this server allows at most {most:,}")
