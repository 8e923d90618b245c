"""A queue that goes round by owner. Standard library only; it knows no job and no clock."""

from collections import deque


class FairQueue:
    """Ids with an owner each: owners take turns, and each owner's ids keep their order.

    The owner served last comes after everyone who waits then; a new owner comes after everyone in the round. So between
    two turns of one owner every other has one at most, and nobody waits for ever.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {}  # by owner; none of them is empty
        self._round: deque[str] = deque()  # owners who wait, the next one first; not the one who is being served
        self._served: str | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, name: str, owner: str) -> None:
        """Put an id behind its owner's others."""
        if owner not in self._waiting and owner != self._served:
            self._round.append(owner)
        self._waiting.setdefault(owner, deque()).append(name)

    def take(self) -> str | None:
        """Take out the id whose turn it is; None if nothing waits."""
        if self._served in self._waiting:
            self._round.append(self._served)
        self._served = self._round.popleft() if self._round else None
        if self._served is None:
            return None
        name = self._waiting[self._served].popleft()
        self._drop_empty(self._served)
        return name

    def put_back(self, name: str, owner: str) -> None:
        """Make an id that was taken last, and could not be begun, the next again."""
        self._waiting.setdefault(owner, deque()).appendleft(name)
        if owner in self._round:
            self._round.remove(owner)
        self._round.appendleft(owner)
        self._served = None

    def remove(self, name: str) -> None:
        """Take an id out, wherever it stands; do nothing if it does not wait."""
        owner = next((owner for owner, names in self._waiting.items() if name in names), None)
        if owner is not None:
            self._waiting[owner].remove(name)
            self._drop_empty(owner)
            if owner not in self._waiting and owner in self._round:
                self._round.remove(owner)

    def order(self) -> list[str]:
        """All ids in the order in which `take` will give them, as long as nothing changes."""
        owners = [*self._round, *([self._served] if self._served in self._waiting else [])]
        queues = [list(self._waiting[owner]) for owner in owners]
        rounds = max(map(len, queues), default=0)
        return [queue[turn] for turn in range(rounds) for queue in queues if turn < len(queue)]

    def _drop_empty(self, owner: str) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]
