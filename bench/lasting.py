"""Whether the server's memory stays flat over many opened and closed sessions, and over many runs."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

from bench.classroom import LONGEST, Classroom, some_at_once
from bench.screens import Screen
from bench.served import Server
from bench.visitors import Session
from kvviz.experiments.comparison.spec import ComparisonSpec

READINGS = 20  # of the memory, over each half
TINY = ComparisonSpec(model="tiny-gpt2", modes=("cached",), prompt="Once upon a time", new_tokens=8, repeats=1)


async def lasting(server: Server, openings: int, runs: int) -> dict[str, Any]:
    """Open and close sessions, then measure runs, and read the server's resident bytes on the way."""
    classroom = Classroom(server, TINY, viewers=0, calculators=0)
    troubles: list[str] = []
    numbers = count()

    async def visit() -> None:
        number = next(numbers)
        page: Screen | Session = Session(server.url, "memory") if number % 4 == 3 else Screen(server.url)
        await page.open()
        await page.close()
        troubles.extend(page.troubles)

    async def visits(number: int) -> None:
        await some_at_once([visit] * number)

    seen = await classroom.alone()
    by_session = await _watched(server, visits, openings)
    screen = Screen(server.url)
    await screen.open()

    async def measured(number: int) -> None:
        for _ in range(number):
            comparison = await screen.press_run(TINY)
            await asyncio.wait_for(screen.book(comparison).over.wait(), LONGEST)
            del screen.books[comparison]

    by_run = await _watched(server, measured, runs)
    await screen.close()
    troubles += [*seen.troubles, *screen.troubles]
    return {
        "environment": seen.document["environment"],
        "errors": len(troubles) + len(server.complaints()),
        "troubles": [*troubles, *server.complaints()][:5],
        "openings": openings,
        "sessions": by_session,
        "runs_measured": runs,
        "runs": by_run,
    }


async def _watched(server: Server, work: Any, total: int) -> dict[str, Any]:
    sizes = [server.resident_bytes()]
    for part in range(READINGS):
        await work(total * (part + 1) // READINGS - total * part // READINGS)
        await asyncio.sleep(0.5)
        sizes.append(server.resident_bytes())
    each = total / READINGS
    return {
        "resident_bytes": sizes,
        "bytes_each_first_half": slope(sizes[: READINGS // 2 + 1]) / each,
        "bytes_each_last_half": slope(sizes[READINGS // 2 :]) / each,
    }


def slope(values: Sequence[float]) -> float:
    """The slope of the least-squares line: what each further value adds."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    rise = sum((place - middle) * (value - mean) for place, value in enumerate(values))
    return rise / sum((place - middle) ** 2 for place in range(len(values)))
