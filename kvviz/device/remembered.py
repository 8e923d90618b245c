"""Keeps what was measured of the device, and measures it again when it is in doubt.

A figure that is measured beside other work would spoil all that is predicted from it for as long as the process lives.
And a machine changes: its memory is read faster or more slowly than when the figure was measured.
"""

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from kvviz.device.disturbance import Watch

T = TypeVar("T")
Key = tuple[str, *tuple[Hashable, ...]]  # begins with the device

log = logging.getLogger("kvviz.device.remembered")

DRIFTED = 0.1  # a device's read rate that has changed by this share casts doubt on what was measured before
AGAIN_S = 30.0  # seconds before a doubtful figure is measured again; twice as many each time that is disturbed too
TRUSTED_S = 600.0  # seconds for which a figure that came back the same is not doubted


@dataclass
class _Known(Generic[T]):
    value: T
    measure: Callable[[], T]
    lost: float
    doubted: bool
    read: float | None
    wait: float = AGAIN_S
    again_at: float = 0.0
    trusted_until: float = 0.0


class Remembered(Generic[T]):
    """Figures by key. `alike` says whether a figure that was measured again is still the same."""

    def __init__(self, alike: Callable[[T, T], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._alike, self._clock = alike, clock
        self._known: dict[Key, _Known[T]] = {}
        self._reads: dict[str, float] = {}  # B/s of each device's memory, at last

    def get(self, key: Key, measure: Callable[[], T]) -> T:
        """Return the figure; measure it first if it is unknown or in doubt."""
        known = self._known.get(key)
        if known is None or self._due(known):
            known = self._known[key] = self._measured(known, measure, self._reads.get(key[0]))
        return known.value

    def doubt(self) -> None:
        """Have each figure measured again, because what was predicted from it came out wrong."""
        for known in self._known.values():
            self._doubt(known)

    def hold_against(self, device: str, read: float) -> bool:
        """Doubt each figure of a device that was measured at another read rate (B/s); return whether there was one."""
        self._reads[device] = read
        drifted = False
        for key, known in self._known.items():
            if key[0] == device and known.read is None:
                known.read = read
            elif key[0] == device and known.read is not None and abs(read - known.read) >= DRIFTED * known.read:
                self._doubt(known)
                drifted = True
        return drifted

    def _doubt(self, known: _Known[T]) -> None:
        known.doubted = known.doubted or self._clock() >= known.trusted_until

    def refresh(self, check: Callable[[], None] = lambda: None) -> None:
        """Measure each figure in doubt again; `check` is called before each and may raise to end it."""
        for key, known in [*self._known.items()]:
            if self._due(known):
                check()
                self._known[key] = self._measured(known, known.measure, self._reads.get(key[0]))

    @property
    def in_doubt(self) -> bool:
        """Whether a figure is to be measured again now."""
        return any(map(self._due, self._known.values()))

    def _due(self, known: _Known[T]) -> bool:
        return known.doubted and self._clock() >= known.again_at

    def _measured(self, before: _Known[T] | None, measure: Callable[[], T], read: float | None) -> _Known[T]:
        """Measure once; if that was disturbed, a less disturbed figure from before stands."""
        watch = Watch()
        value = measure()
        found, now = watch.read(), self._clock()
        lost, disturbed = found.lost or 0.0, found.clean is False
        wait = min(2 * before.wait, TRUSTED_S) if before is not None and disturbed else AGAIN_S
        if before is not None and disturbed and before.lost < lost:
            return replace(before, wait=wait, again_at=now + wait)
        same = before is not None and self._alike(before.value, value)
        trusted = now + TRUSTED_S if same and not disturbed else 0.0
        return _Known(value, measure, lost, disturbed, read, wait, now + wait, trusted)


ALIKE = 0.1  # figures that differ by a smaller share are the same
_OF_THIS_PROCESS: list[Remembered[Any]] = []


def remembered(pace: Callable[[T], float]) -> Remembered[T]:
    """Keep figures of the device for this process; `pace` is the number by which two of them are compared."""

    def alike(one: T, other: T) -> bool:
        return abs(pace(one) - pace(other)) <= ALIKE * max(pace(one), pace(other))

    _OF_THIS_PROCESS.append(Remembered(alike))
    return _OF_THIS_PROCESS[-1]


def doubt_figures() -> None:
    """Have all figures of the device measured again: what was predicted from them was far off."""
    for kept in _OF_THIS_PROCESS:
        kept.doubt()


_read_at: dict[str, float] = {}  # when each device's memory was read


def hold_figures_against_read(
    device: str, measure: Callable[[], float | None], clock: Callable[[], float] = time.monotonic
) -> None:
    """Have a device's figures measured again if its read rate (B/s), which `measure` returns, is no longer theirs.

    It is measured at most every AGAIN_S seconds, since no figure is measured more often. None, and a rate that was
    measured beside other work, tell nothing.
    """
    if clock() < _read_at.get(device, -AGAIN_S) + AGAIN_S:
        return
    watch = Watch()
    read = measure()
    if read is None or watch.read().clean is False:
        return
    _read_at[device] = clock()
    drifted = [kept.hold_against(device, read) for kept in _OF_THIS_PROCESS]
    if any(drifted):
        log.info("%s reads memory at another rate than when its figures were measured: %.3g B/s", device, read)


def refresh_figures(check: Callable[[], None] = lambda: None) -> None:
    """Measure the figures in doubt again, and no others; `check` is called before each and may raise to end it."""
    for kept in _OF_THIS_PROCESS:
        kept.refresh(check)


def figures_in_doubt() -> bool:
    """Whether figures are to be measured again now, because they are doubted or other work disturbed them."""
    return any(kept.in_doubt for kept in _OF_THIS_PROCESS)
