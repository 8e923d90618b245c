"""How many examples hypothesis draws: a few in the edit loop, more in `make test`, many in `make test-long`."""

import os
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from hypothesis import HealthCheck, settings

Case = TypeVar("Case")
FACTORS = {"quick": 0.2, "": 1.0, "long": 10.0}
CHOSEN = os.environ.get("KVVIZ_DRAWS", "")
ORDINARY = CHOSEN != "long"  # then what takes long to draw may draw the same every time


def draws(count, **options):
    """Settings for about `count` examples in `make test`, fewer or more as KVVIZ_DRAWS says (quick, long)."""
    scaled = max(5, round(count * FACTORS[CHOSEN]))
    return settings(max_examples=scaled, deadline=None, suppress_health_check=list(HealthCheck), **options)


def spread(cases: Iterable[Case], count: int) -> list[Case]:
    """Return `count` of the cases, at even distances over their list; all of them in `make test-long`."""
    every = list(cases)
    if not ORDINARY or len(every) <= count:
        return every
    return [every[place * len(every) // count] for place in range(count)]


def one_of_each(cases: Iterable[Case], kind: Callable[[Case], Hashable]) -> list[Case]:
    """Return the first case of each kind; all of them in `make test-long`."""
    seen: dict[Hashable, Case] = {}
    return [case for case in cases if seen.setdefault(kind(case), case) is case or not ORDINARY]
