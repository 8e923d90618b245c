"""Whether work keeps to a server's limits, asked before it is queued. Standard library only."""

from kvviz.errors import KvvizError
from kvviz.records import ComparisonSpec
from kvviz.settings import Limits
from kvviz.sweeps import SweepSpec

CHARACTERS = 16  # of a prompt's text for each token that is allowed; the worker counts the tokens themselves

FIELDS = {
    "prompt_tokens": "prompt tokens",
    "new_tokens": "new tokens",
    "batch": "sequences at a time",
    "repeats": "timed passes of each mode",
}


def check_comparison(work: ComparisonSpec, limits: Limits) -> None:
    """Refuse what asks for more than this server gives, in one sentence with both figures."""
    for name, words in FIELDS.items():
        _check(words, getattr(work, name), getattr(limits, name))
    _check("warm-up passes of each mode", work.warmup, limits.repeats)
    _check("characters of the prompt", len(work.prompt or ""), CHARACTERS * limits.prompt_tokens)


def check_sweep(spec: SweepSpec, limits: Limits) -> None:
    """The same for the largest values of a sweep."""
    _check(FIELDS["prompt_tokens"], max(spec.prompt_tokens), limits.prompt_tokens)
    _check(FIELDS["new_tokens"], max(spec.new_tokens), limits.new_tokens)
    _check(FIELDS["batch"], max(spec.batches), limits.batch)
    _check(FIELDS["repeats"], spec.repeats, limits.repeats)


def check_prompt(tokens: int, most: int) -> None:
    """The same for the tokens of a prompt's text, once a tokenizer has counted them."""
    _check(FIELDS["prompt_tokens"], tokens, most)


def _check(words: str, asked: int | None, most: int) -> None:
    if asked is not None and asked > most:
        raise KvvizError(f"this asks for {asked:,} {words}; this server allows at most {most:,}")
