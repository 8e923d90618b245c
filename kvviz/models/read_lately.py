"""Keeps what was read of the last configs: a page asks for the same few models at each click."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import TypeVar

Read = TypeVar("Read")
SHORT = 50_000  # characters of a config that is kept; those of the catalog have up to 2,000


def kept_lately(read: Callable[[Mapping[str, object], str, str], Read]) -> Callable[..., Read]:
    """Make `read(config, name, source)` return what it has read of the same config before.

    `name` and `source` are keywords then, and "" unless they are given.
    """

    @lru_cache(maxsize=64)
    def before(text: str, name: str, source: str) -> Read:
        return read(json.loads(text), name, source)

    @wraps(read)
    def reading(config: Mapping[str, object], *, name: str = "", source: str = "") -> Read:
        try:
            text = json.dumps(config)
        except (TypeError, ValueError, RecursionError):  # not of a file
            return read(config, name, source)
        return before(text, name, source) if len(text) <= SHORT else read(config, name, source)

    return reading
