"""One piece of memory given out in contiguous regions, as without blocks: best fit, adjacent holes merged."""

from kvviz.base.errors import KvvizError


class Arena:
    """`slots` numbered slots. A region is (start, length); `holes` are the free regions, in order of their starts."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.holes: list[tuple[int, int]] = [(0, slots)] if slots else []

    @property
    def free(self) -> int:
        """Slots in holes, whatever the size of each."""
        return sum(length for _, length in self.holes)

    @property
    def largest(self) -> int:
        """Slots of the largest hole."""
        return max((length for _, length in self.holes), default=0)

    def take(self, length: int) -> int | None:
        """The start of a region in the smallest hole that is large enough; None if no hole is."""
        fitting = [hole for hole in self.holes if hole[1] >= length]
        if not fitting:
            return None
        start, size = min(fitting, key=lambda hole: (hole[1], hole[0]))
        self._replace((start, size), (start + length, size - length))
        return start

    def extend(self, start: int, length: int, more: int) -> bool:
        """Make a region longer in place, if the slots after it are free."""
        behind = next((hole for hole in self.holes if hole[0] == start + length), None)
        if behind is None or behind[1] < more:
            return False
        self._replace(behind, (behind[0] + more, behind[1] - more))
        return True

    def _replace(self, hole: tuple[int, int], rest: tuple[int, int]) -> None:
        place = self.holes.index(hole)
        self.holes[place : place + 1] = [rest] if rest[1] else []

    def give_back(self, start: int, length: int) -> None:
        """Free a region and merge it with adjacent holes. Raises KvvizError if a part of it is free already."""
        stop = start + length
        if any(s < stop and start < s + n for s, n in self.holes) or not 0 <= start < stop <= self.slots:
            raise KvvizError(f"slots {start:,} to {stop:,} are not all in use")
        merged: list[tuple[int, int]] = []
        for hole in sorted([*self.holes, (start, length)]):
            if merged and merged[-1][0] + merged[-1][1] == hole[0]:
                merged[-1] = (merged[-1][0], merged[-1][1] + hole[1])
            else:
                merged.append(hole)
        self.holes = merged
