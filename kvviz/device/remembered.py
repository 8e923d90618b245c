"""Keeps what was measured of the device, and measures it again when it is in doubt.

A figure that is measured beside other work would spoil all that is predicted from it for as long as the process lives.
And a machine changes: its memory is read faster or more slowly than when the figure was measured. Two workers on one
processor read the same memory: what one of them measured beside the other is no figure of the machine, so nothing is
doubted because of it, and nothing is measured again before the other one is idle.
"""

import logging
import time
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from kvviz.device.disturbance import Watch
from kvviz.device.environment import named_worker
from kvviz.device.lock import measured_beside

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
    drifted: bool = False
    beside: bool = False  # another worker measured meanwhile
    wait: float = AGAIN_S
    again_at: float = 0.0
    trusted_until: float = 0.0

    @property
    def longer_wait(self) -> float:
        """The seconds to wait after this wait, if the device is still busy."""
        return min(2 * self.wait, TRUSTED_S)


class Remembered(Generic[T]):
    """Figures by key. `alike` says whether a figure that was measured again is still the same."""

    def __init__(self, alike: Callable[[T, T], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._alike, self._clock = alike, clock
        self._known: dict[Key, _Known[T]] = {}
        self._reads: dict[str, float | None] = {}  # B/s of each device's memory, at last

    def get(self, key: Key, measure: Callable[[], T]) -> T:
        """Return the figure; measure it first if it is unknown, disturbed or led to a wrong prediction.

        If nothing but a drift of the read rate speaks against it, it stands until `refresh`: no run waits for that. And
        what a worker knows stands while another one measures beside it.
        """
        known = self._known.get(key)
        if known is None or (known.doubted and self._due(known) and not beside_another(time.time())):
            known = self._known[key] = self._measured(known, measure, self._reads.get(key[0]))
        return known.value

    def doubt(self) -> None:
        """Have each figure measured again, because what was predicted from it came out wrong."""
        for known in self._known.values():
            known.doubted = known.doubted or not self._is_trusted(known)

    def drifts(self, device: str, read: float) -> bool:
        """Whether a figure of this device was measured at another read rate (B/s)."""
        return any(_drifts(known, read) for known in self._of(device))

    def hold_against(self, device: str, read: float | None) -> None:
        """Have `refresh` measure each figure of a device again that was measured at another read rate (B/s).

        A figure without a rate takes this one. None: the rate is unknown now, and figures to come have none.
        """
        self._reads[device] = read
        if read is None:
            return
        for known in self._of(device):
            known.read = known.read or read
            known.drifted = _drifts(known, read) and not self._is_trusted(known)

    def _of(self, device: str) -> list[_Known[T]]:
        return [known for key, known in self._known.items() if key[0] == device]

    def _is_trusted(self, known: _Known[T]) -> bool:
        return self._clock() < known.trusted_until

    def refresh(self, check: Callable[[], None] = lambda: None, busy: Collection[str] = ()) -> None:
        """Measure each figure in doubt again; `check` is called before each and may raise to end it.

        A figure of a `busy` device waits instead, twice as long each time, because other work would disturb it again.
        """
        for key, known in [*self._known.items()]:
            if not self._due(known):
                continue
            check()
            if key[0] in busy and known.wait < TRUSTED_S:
                wait = known.longer_wait
                self._known[key] = replace(known, wait=wait, again_at=self._clock() + wait)
            else:
                self._known[key] = self._measured(known, known.measure, self._reads.get(key[0]))

    def due_in(self) -> float | None:
        """Return the seconds until a figure is to be measured again; None if none is in doubt."""
        times = [known.again_at for known in self._known.values() if known.doubted or known.drifted]
        return max(0.0, min(times) - self._clock()) if times else None

    def _due(self, known: _Known[T]) -> bool:
        return (known.doubted or known.drifted) and self._clock() >= known.again_at

    def _measured(self, before: _Known[T] | None, measure: Callable[[], T], read: float | None) -> _Known[T]:
        """Measure once; if that was disturbed, a less disturbed figure from before stands."""
        watch, begun = Watch(), time.time()
        value = measure()
        found, now = watch.read(), self._clock()
        beside = beside_another(begun)
        lost, disturbed = found.lost or 0.0, found.clean is False or beside
        wait = before.longer_wait if before is not None and disturbed else AGAIN_S
        if before is not None and disturbed and (before.lost < lost or (beside and not before.beside)):
            return replace(before, wait=wait, again_at=now + wait)
        same = before is not None and self._alike(before.value, value)
        trusted = now + TRUSTED_S if same and not disturbed else 0.0
        return _Known(
            value, measure, lost, disturbed, read, beside=beside, wait=wait, again_at=now + wait, trusted_until=trusted
        )


def _drifts(known: _Known[T], read: float) -> bool:
    return known.read is not None and abs(read - known.read) >= DRIFTED * known.read


ALIKE = 0.1  # figures that differ by a smaller share are the same
_OF_THIS_PROCESS: list[Remembered[Any]] = []


def remembered(pace: Callable[[T], float]) -> Remembered[T]:
    """Keep figures of the device for this process; `pace` is the number by which two of them are compared."""

    def alike(one: T, other: T) -> bool:
        return abs(pace(one) - pace(other)) <= ALIKE * max(pace(one), pace(other))

    _OF_THIS_PROCESS.append(Remembered(alike))
    return _OF_THIS_PROCESS[-1]


def beside_another(since: float) -> bool:
    """Whether another worker of this server has read this one's memory since a time (seconds since 1970), or does."""
    worker = named_worker()
    return worker is not None and measured_beside(worker, since)


def doubt_figures(begun: float) -> None:
    """Have all figures of the device measured again: what was predicted from them was far off.

    A run since `begun` (seconds since 1970) that shared its memory with another worker's says nothing against them.
    """
    if beside_another(begun):
        return
    for kept in _OF_THIS_PROCESS:
        kept.doubt()


_readers: dict[str, Callable[[], float | None]] = {}  # how each device's memory is read
_read_at: dict[str, float] = {}  # and when it was


def hold_figures_against_read(
    device: str, measure: Callable[[], float | None], clock: Callable[[], float] = time.monotonic
) -> None:
    """Have `refresh_figures` measure a device's figures again if its read rate (B/s) is no longer theirs.

    `measure` returns the rate; it is kept, and called at most every AGAIN_S seconds and at the start of each refresh.
    None, and a rate that was measured beside other work or another worker, tell nothing.
    """
    _readers[device] = measure
    if clock() >= _read_at.get(device, -AGAIN_S) + AGAIN_S and _held_against_read(device):
        _read_at[device] = clock()


def _held_against_read(device: str) -> bool:
    """Hold the figures against the read rate; return whether it could be told. A drift counts if a second look has it.

    Of two looks the faster one counts, because other work makes reading slower but never faster.
    """
    read = _undisturbed_read(device)
    if read is not None and _any_drifts(device, read):
        again = _undisturbed_read(device)
        read = again and max(read, again)
    for kept in _OF_THIS_PROCESS:
        kept.hold_against(device, read)
    if read is not None and _any_drifts(device, read):
        log.info("%s reads memory at another rate than when its figures were measured: %.3g B/s", device, read)
    return read is not None


def _undisturbed_read(device: str) -> float | None:
    watch, begun = Watch(), time.time()
    if beside_another(begun):
        return None
    read = _readers[device]()
    return None if watch.read().clean is False or beside_another(begun) else read


def _any_drifts(device: str, read: float) -> bool:
    return any(kept.drifts(device, read) for kept in _OF_THIS_PROCESS)


def refresh_figures(check: Callable[[], None] = lambda: None) -> None:
    """Measure the figures in doubt again, and no others; `check` is called before each and may raise to end it.

    The read rate is read first, so that the new figures belong to the rate of now and not to that of the last run.
    Where other work disturbs that read, the device is busy, and its figures wait.
    """
    busy = set()
    for device in _readers:
        check()
        if not _held_against_read(device):
            busy.add(device)
    for kept in _OF_THIS_PROCESS:
        kept.refresh(check, busy)


def figures_due_in() -> float | None:
    """Return the seconds until figures are to be measured again, because they are doubted or drifted; None: never."""
    return min((due for kept in _OF_THIS_PROCESS if (due := kept.due_in()) is not None), default=None)
