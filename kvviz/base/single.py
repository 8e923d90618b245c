"""One object of a kind in a process."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Single(Generic[T]):
    """Calling it gives the one object, made at the first call; `use` puts another in its place, as tests do."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: T | None = None

    def __call__(self) -> T:
        if self._made is None:
            self._made = self._make()
        return self._made

    def use(self, other: T | None) -> None:
        """Put another in its place; None makes a new one at the next call."""
        self._made = other
