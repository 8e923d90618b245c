"""Explains the KV cache with letters and no numbers: it reads A, B and C, then decodes D. Standard library only."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """One moment of the walk: the line that has just run, its meaning and the state after it."""

    line: str
    words: str
    cache: tuple[str, ...]
    query: str = ""
    context: str = ""


PREFILL = "prefill writes K/V for the prompt"
APPEND = "a decode step appends one K/V per layer"
READ = "the new query reads all cached K/V"


def walk(prompt: str = "ABC", new_token: str = "D") -> Iterator[Moment]:
    """Yield one Moment for each line; the cache is a real list, built as the lines say."""
    kv_cache: list[str] = []
    yield Moment("kv_cache = []", "nothing has been read yet", ())
    for prompt_token in prompt:
        kv_cache.append(f"K,V({prompt_token})")
        yield Moment(f'kv_cache.append("K,V({prompt_token})")', PREFILL, tuple(kv_cache))
    query = f"Q({new_token})"
    yield Moment(f'query = "{query}"', f"only {new_token} asks: one query", tuple(kv_cache), query)
    context = f"attention({query}, cached={len(kv_cache)} tokens)"
    yield Moment(f'context = "{context}"', READ, tuple(kv_cache), query, context)
    kv_cache.append(f"K,V({new_token})")
    yield Moment(f'kv_cache.append("K,V({new_token})")', APPEND, tuple(kv_cache), query, context)
