"""A class on one server: browsers on the live page, some on the calculator, one run after another."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bench.checking import Verdict, judge
from bench.screens import Calculator, Screen
from bench.served import Server
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.store.db.store import Store

AT_ONCE = 6  # browsers that open their page at the same time
EVERY = 4.0  # seconds between two changes at a calculator, on average
LONGEST = 240.0  # seconds that a run may take


@dataclass(frozen=True)
class Seen:
    """One run: its document, and if a class watched, what its browsers received and what they cost."""

    document: dict[str, Any]
    verdicts: tuple[Verdict, ...] = ()
    troubles: tuple[str, ...] = ()
    reruns: tuple[float, ...] = ()
    wrong: int = 0
    cpu_share: float = 0.0
    driver_share: float = 0.0
    link_ends: tuple[str, ...] = ()  # why sockets of the feed ended before the class left


class Classroom:
    """A server and its store, on which runs are measured with and without a class."""

    def __init__(
        self, server: Server, work: ComparisonSpec, viewers: int, calculators: int, every: float = EVERY
    ) -> None:
        self.server, self.work, self.viewers, self.calculators = server, work, viewers, calculators
        self._every = every
        self.store = Store(server.home / "kvviz.sqlite")

    async def alone(self) -> Seen:
        """Measure a run that nobody watches: its browser leaves after Run."""
        screen = Screen(self.server.url)
        await screen.open()
        comparison = await screen.press_run(self.work)
        await screen.close()
        return Seen(await self._document(comparison), troubles=tuple(screen.troubles))

    async def watched(self, *, cut: bool = False) -> Seen:
        """Measure a run that the class follows while others use the calculator. `cut`: all sockets break and reopen."""
        async with self._class() as (screens, calculators):
            busy = [asyncio.create_task(each.use(self._every)) for each in calculators]
            before, began, spent = self.server.cpu_seconds(), time.monotonic(), time.process_time()
            comparison = await screens[0].press_run(self.work)
            if cut:
                await _lose_network(screens, comparison, self.work.new_tokens // 4)
            await asyncio.wait_for(asyncio.gather(*(each.book(comparison).over.wait() for each in screens)), LONGEST)
            took = time.monotonic() - began
            cpu, driver = self.server.cpu_seconds() - before, time.process_time() - spent
            await _stop(busy)
            document = await self._document(comparison)
            texts = self.store.records(comparison)
        return Seen(
            document,
            verdicts=tuple(judge(each.book(comparison), document, texts) for each in screens),
            troubles=tuple(trouble for each in (*screens, *calculators) for trouble in each.session.troubles),
            reruns=tuple(seconds for each in calculators for seconds in each.session.reruns[1:]),
            wrong=sum(each.wrong for each in calculators),
            cpu_share=cpu / took,
            driver_share=driver / took,
            link_ends=tuple(end for each in screens for end in each.link_ends),
        )

    @asynccontextmanager
    async def _class(self):
        screens = [Screen(self.server.url) for _ in range(self.viewers)]
        calculators = [Calculator(self.server.url, seed) for seed in range(self.calculators)]
        try:
            await some_at_once([each.open for each in screens] + [each.session.open for each in calculators])
            yield screens, calculators
        finally:
            await some_at_once([each.close for each in screens] + [each.session.close for each in calculators])

    async def _document(self, comparison: str, longest: float = LONGEST) -> dict[str, Any]:
        """Wait until the store has the whole comparison; no request reaches the server meanwhile."""
        end = time.monotonic() + longest
        while (stored := self.store.get(comparison)) is None or stored.state == "running":
            if time.monotonic() > end:
                raise SystemExit(f"the comparison did not end within {longest:.0f} s")
            await asyncio.sleep(0.25)
        document = self.store.document(comparison)
        if document is None:
            raise SystemExit(f"the comparison {stored.state}: {stored.message}")
        return document


async def _lose_network(screens: list[Screen], comparison: str, after: int) -> None:
    """Break all sockets after some records of the equivalence check; reopen them within a second, Streamlit's too."""
    book = screens[-1].book(comparison)
    while len(book.records) < after and not book.over.is_set():
        await asyncio.sleep(0.05)
    for each in screens:
        each.cut()
    await asyncio.sleep(0.5)
    await asyncio.gather(*(each.back() for each in screens))


async def _stop(tasks: Iterable[asyncio.Task]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def some_at_once(works: list[Callable[[], Awaitable[Any]]], width: int = AT_ONCE) -> None:
    """Do all of them, at most `width` at the same time."""
    free = asyncio.Semaphore(width)

    async def one(work: Callable[[], Awaitable[Any]]) -> None:
        async with free:
            await work()

    await asyncio.gather(*map(one, works))
