"""Keeps on disk how fast this machine did a fixed piece of work in its fastest stretch of time.

So a core that is slow for as long as a process lives is found out, too. The fastest stretch stands until the machine
has become slower for good, as with a power saver: until at least FEWEST stretches in a row, over at least SETTLED_S
seconds, took more than SLOWED times as long. Then the fastest of those replaces it. Standard library only.
"""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from platform import python_version
from typing import Annotated, Literal, TypedDict

from kvviz.base.checks import Unfit, check_of, number, parse, text, whole
from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.device.cores import processor_name

SLOWED = 1.2  # what takes more than this many times as long as at its fastest is slowed
SETTLED_S = 1800.0
FEWEST = 10
MOST_MACHINES = 40  # of which the file keeps a pulse; the oldest are dropped first

_Seconds = Annotated[float, number(1e-9, 1e3)]


@dataclass(frozen=True)
class Pulse:
    """Seconds of the piece of work in a machine's fastest stretch; `slow`: how many stretches in a row were slowed.

    Of those, `since` is the time (seconds since 1970) of the first, and `least_s` the seconds of the fastest.
    """

    machine: Annotated[str, text(400)]
    fastest_s: _Seconds
    slow: Annotated[int, whole()] = 0
    since: Annotated[float, number()] = 0.0
    least_s: Annotated[float, number(0.0, 1e3)] = 0.0

    def after(self, seconds: float, now: float) -> "Pulse":
        """Return the pulse after one more stretch."""
        if seconds <= SLOWED * self.fastest_s:
            return Pulse(self.machine, min(seconds, self.fastest_s))
        slow, since = self.slow + 1, min(now, self.since) if self.slow else now
        least = min(seconds, self.least_s) if self.slow else seconds
        settled = slow >= FEWEST and now - since >= SETTLED_S
        return Pulse(self.machine, least) if settled else Pulse(self.machine, self.fastest_s, slow, since, least)


class _File(TypedDict):
    kvviz: Literal["pulse"]
    pulses: list[Pulse]


_check_file = check_of(_File)


def slowed(seconds: float) -> float:
    """How many times as long the piece of work took, in a stretch of time just over, as in this machine's fastest."""
    kept = _kept()
    before = next((pulse for pulse in kept if pulse.machine == machine()), None)
    after = before.after(seconds, time.time()) if before else Pulse(machine(), seconds)
    if after != before:
        _keep([*(pulse for pulse in kept if pulse != before), after])
    return seconds / after.fastest_s


@cache
def machine() -> str:
    """What a pulse depends on: the processor, and the versions of Python and torch."""
    with suppress(metadata.PackageNotFoundError):
        return f"{processor_name()}, Python {python_version()}, torch {metadata.version('torch')}"
    return f"{processor_name()}, Python {python_version()}"


def _kept() -> list[Pulse]:
    try:
        data = (home() / "pulse.json").read_bytes()
        found: _File = _check_file(parse(data, 100_000, "file of pulses"), "the file")
    except (OSError, KvvizError, Unfit):
        return []
    return found["pulses"]


def _keep(pulses: Sequence[Pulse]) -> None:
    rows = {"kvviz": "pulse", "pulses": [asdict(pulse) for pulse in pulses[-MOST_MACHINES:]]}
    with suppress(OSError, KvvizError):  # then it holds for this stretch alone
        file = home() / "pulse.json"
        fresh = file.with_name(f"{file.name}.{os.getpid()}")
        fresh.write_text(json.dumps(rows, indent=1))
        fresh.replace(file)
