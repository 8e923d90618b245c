"""Reads from the operating system how much other work disturbed a stretch of time, such as a timed pass.

On Linux the scheduler counts how long each thread was ready to run but waited for a core
(/proc/self/task/*/schedstat), the hypervisor's share of the cores stands as `steal` in /proc/stat, and an Intel
processor counts how often it lowered its clock because it was hot. Where a system does not tell a figure, the figure is
None. No system tells that a core runs slower because another machine or thread uses the other half of it. So a small
piece of work, always the same, is timed between two steps, and held against its fastest in the last minute and against
this machine's fastest stretch ever (`kvviz.device.pulse`). What that work does not feel, such as another machine's use
of the memory, shows if a stretch is held against others of the same work. Standard library only.

Sources: proc(5); https://docs.kernel.org/scheduler/sched-stats.html;
https://docs.kernel.org/admin-guide/pm/intel_pstate.html.
"""

import math
import os
import statistics
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kvviz.device import pulse
from kvviz.device.pulse import SLOWED

DISTURBED = 0.05  # a stretch that lost a larger share of its time than this was disturbed
RECENT_S = 60.0  # the fastest of so many seconds counts: a processor may lower its clock for good
BEAT_S = 0.02  # seconds between two pieces of that work
FEW = 5  # pieces of that work whose median may be held against the machine's fastest stretch

T = TypeVar("T")

_THROTTLED = "cpu*/thermal_throttle/core_throttle_count"
_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Disturbance:
    """What disturbed a stretch of time. None: this system does not tell.

    `waited`: share of the time for which a thread of this process was ready to run and had no core, of the thread that
    waited longest. `stolen`: share of the machine's time that the hypervisor gave to other machines. `others`: cores
    that other processes kept busy, on average. `switches`: involuntary context switches of this process. `throttled`:
    how often a core lowered its clock because of its temperature. `slowed`: how many times as long a fixed piece of
    work took, in the median, as at its fastest in the last minute, or as in the machine's fastest stretch. `outrun`:
    how many times as long the stretch took as a disturbed one of the same work, if that is more than SLOWED.
    """

    waited: float | None = None
    stolen: float | None = None
    others: float | None = None
    switches: int | None = None
    throttled: int | None = None
    slowed: float | None = None
    outrun: float | None = None

    @property
    def lost(self) -> float | None:
        """Share of the time that this process wanted to compute and could not; None if the system does not tell."""
        return None if self.waited is None else self.waited + (self.stolen or 0.0)

    @property
    def clean(self) -> bool | None:
        """Whether the stretch was undisturbed; None if the system does not tell."""
        if self.outrun or (self.slowed is not None and self.slowed > SLOWED):
            return False
        return None if self.lost is None else self.lost <= DISTURBED and not self.throttled


def outrun(seconds: Sequence[float], clean: Sequence[bool | None]) -> list[float | None]:
    """Return how many times as long each pass took as the fastest disturbed one; None if that is SLOWED or less.

    All passes do the same work, and other work can only slow them. So a pass that takes much longer than a disturbed
    one was slowed, too, by something that the system does not tell.
    """
    least = min((s for s, is_clean in zip(seconds, clean, strict=True) if is_clean is False), default=math.inf)
    return [_short(s / least) if s > SLOWED * least else None for s in seconds]


def undisturbed(passes: Sequence[T], clean: Iterable[bool | None]) -> list[T]:
    """Return the passes that figures are made from: all but the disturbed ones, or all if each was disturbed."""
    return [one for one, is_clean in zip(passes, clean, strict=True) if is_clean is not False] or list(passes)


@dataclass(frozen=True)
class _Reading:
    at: float
    waited: dict[str, int] | None  # ns, by thread
    busy: float | None  # CPU seconds of all processes
    stolen: float | None  # CPU seconds
    own: float  # CPU seconds of this process
    switches: int | None
    throttled: int | None


class Watch:
    """Watches a stretch of time from its creation; `read` says what disturbed it so far."""

    def __init__(self) -> None:
        self._start = _read()
        self._beats: list[float] = []
        self._last = self._start.at

    def beat(self) -> None:
        """Time the fixed piece of work, unless it was done a moment ago. Call it while no clock runs."""
        if time.perf_counter() - self._last >= BEAT_S:
            self._beats.append(_beat())
            self._last = _beats[-1][0]

    def read(self) -> Disturbance:
        """Return what disturbed the time since the watch began."""
        start, end = self._start, _read()
        wall = max(end.at - start.at, 1e-9)
        waited = busy = stolen = None
        if start.waited is not None and end.waited is not None:
            waits = [ns - start.waited.get(thread, ns) for thread, ns in end.waited.items()]
            waited = min(1.0, max(waits, default=0) / 1e9 / wall)
        if start.busy is not None and end.busy is not None:
            busy = max(0.0, (end.busy - start.busy - (end.own - start.own)) / wall)
        if start.stolen is not None and end.stolen is not None:
            stolen = min(1.0, max(0.0, end.stolen - start.stolen) / wall / (os.cpu_count() or 1))
        return Disturbance(
            waited=_short(waited),
            stolen=_short(stolen),
            others=_short(busy),
            switches=_more(start.switches, end.switches),
            throttled=_more(start.throttled, end.throttled),
            slowed=self._slowed(),
        )

    def _slowed(self) -> float | None:
        if not self._beats:
            return None
        middle = statistics.median(self._beats)
        recent = middle / min(s for _, s in _beats)
        return _short(max(recent, pulse.slowed(middle)) if len(self._beats) >= FEW else recent)


_beats: deque[tuple[float, float]] = deque()  # when, and seconds, of the last minute


def _beat() -> float:
    """Seconds of a fixed piece of work, some tens of microseconds.

    A little of it runs first, untimed, because a large model's step has pushed it out of the core's caches.
    """
    _work(200)
    start = time.perf_counter()
    _work(1000)
    now = time.perf_counter()
    _beats.append((now, now - start))
    while _beats[0][0] < now - RECENT_S:
        _beats.popleft()
    return now - start


def _work(times: int) -> None:
    total = 0
    for number in range(times):
        total += number


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _more(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else max(0, end - start)


def _read() -> _Reading:
    busy, stolen = _machine()
    return _Reading(
        at=time.perf_counter(),
        waited=_waits(),
        busy=busy,
        stolen=stolen,
        own=time.process_time(),
        switches=_switches(),
        throttled=_throttled(),
    )


def _waits() -> dict[str, int] | None:
    """Nanoseconds that each thread of this process waited for a core since it began; None without schedstat."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError, ValueError, IndexError):  # a thread may just have ended
                found[thread.name] = int((thread / "schedstat").read_text().split()[1])
    return found or None


def _machine() -> tuple[float | None, float | None]:
    """CPU seconds that all processes used of the cores, and those that the hypervisor took, since the machine began."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(value) for value in first[:8])
    except (OSError, ValueError):
        return None, None
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / tick, steal / tick


def _switches() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _throttled() -> int | None:
    counts: list[int] = []
    with suppress(OSError, ValueError):
        counts = [int(path.read_text()) for path in _CPUS.glob(_THROTTLED)]
    return sum(counts) if counts else None
