"""A queue that goes round by owner. Standard library only; it knows no job and no clock."""

from collections.abc import Callable
from itertools import zip_longest


class FairQueue:
    """Ids with an owner each: owners take turns, and each owner's ids keep their order.

    The owner served last comes after everyone who waits then; a new owner comes after everyone in the round. So between
    two turns of one owner every other has one at most, and nobody waits for ever.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[str]] = {}  # by owner, in the order of the round; none of them is empty
        self._served: str | None = None  # the owner who is being served: last in the round, wherever it stands here

    def add(self, name: str, owner: str) -> None:
        """Put an id behind its owner's others."""
        self._waiting.setdefault(owner, []).append(name)

    def take(self, fits: Callable[[str], bool] = lambda name: True) -> str | None:
        """Take out the id whose turn it is among those that fit; None if none of them waits."""
        self._waiting = dict(self._round())
        for owner, names in self._waiting.items():
            if (name := next(filter(fits, names), None)) is not None:
                self._served = owner
                self.remove(name)
                return name
        return None

    def put_back(self, name: str, owner: str) -> None:
        """Make an id that was taken last, and could not be begun, the next again."""
        self._waiting = {owner: [name, *self._waiting.pop(owner, [])], **self._waiting}
        self._served = None

    def remove(self, name: str) -> None:
        """Take an id out, wherever it stands; do nothing if it does not wait."""
        left = {owner: [other for other in names if other != name] for owner, names in self._waiting.items()}
        self._waiting = {owner: names for owner, names in left.items() if names}

    def order(self) -> list[str]:
        """All ids in the order in which `take` will give them, as long as nothing changes."""
        turns = zip_longest(*(names for _, names in self._round()))
        return [name for turn in turns for name in turn if name is not None]

    def _round(self) -> list[tuple[str, list[str]]]:
        return sorted(self._waiting.items(), key=lambda waiting: waiting[0] == self._served)
