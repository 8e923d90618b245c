"""Two pages without a browser: the live page, which keeps all that its feed sent, and the calculator."""

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from bench.visitors import Press, Session, Trouble
from kvviz.base.words import human
from kvviz.decoding.modes import MODES
from kvviz.device.disturbance import undisturbed
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.memory.calculator import Asked, answer
from kvviz.models.catalog.rows import models

RETRY = (0.3, 0.6, 1.2, 2.5, 5.0)  # seconds before a lost socket is opened again, as feed.js waits
ENDS = ("done", "stopped", "failed")


@lru_cache(maxsize=256)
def parsed(text: str) -> dict[str, Any]:
    """Parse a message of the feed, once for all screens: the server's work is measured, not theirs."""
    return json.loads(text)


@dataclass
class Book:
    """All records of one comparison that a screen received, in order."""

    records: list[dict[str, Any]] = field(default_factory=list)
    arrivals: list[tuple[float, float]] = field(default_factory=list)  # (now, its newest record's time), s
    nbytes: int = 0
    again: int = 0  # records that came twice
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, start: int, records: list[dict[str, Any]], nbytes: int, now: float) -> bool:
        """Add a message; False if records before it are missing."""
        if start > len(self.records):
            return False
        fresh = records[len(self.records) - start :]
        self.again += len(records) - len(fresh)
        self.nbytes += nbytes
        if fresh:
            self.records.extend(fresh)
            if "at" in fresh[-1]:
                self.arrivals.append((now, fresh[-1]["at"]))
            if fresh[-1]["t"] in ENDS:
                self.over.set()
        return True

    def steps(self) -> Counter:
        """Count each step on the screen: ("proof", mode, step) and ("times", mode, repeat, step)."""
        found: Counter = Counter()
        for record in self.records:
            if record["t"] == "proof":
                found.update(("proof", mode, record["i"]) for mode in record["modes"])
            elif record["t"] == "times":
                places = range(record["from"], record["from"] + len(record["s"]))
                found.update(("times", record["mode"], record["repeat"], place) for place in places)
        return found

    def seconds(self) -> dict[str, list[list[float]]]:
        """The seconds of each step of each timed pass that figures are made from, by mode."""
        found: dict[str, dict[int, list[float]]] = {}
        clean: dict[tuple[str, int], bool | None] = {}
        for record in self.records:
            if record["t"] == "times" and record["repeat"] >= 0:
                found.setdefault(record["mode"], {}).setdefault(record["repeat"], []).extend(record["s"])
            elif record["t"] == "clocked":
                clean[record["mode"], record["repeat"]] = record["clean"]
        return {
            mode: undisturbed(list(passes.values()), (clean.get((mode, repeat)) for repeat in passes))
            for mode, passes in found.items()
        }


class Screen:
    """A browser on the live page: its session, feed and books. It reports a run's end, as the page's component does."""

    def __init__(self, url: str, query: str = "") -> None:
        self.session = Session(url, "live", query)
        self.books: dict[str, Book] = {}
        self.holes = 0
        self.link_ends: list[str] = []  # why the feed's socket ended, each time
        self._shown: str | None = None
        self._socket: ClientConnection | None = None
        self._feed: asyncio.Task | None = None
        self._said: set[asyncio.Task] = set()
        self._up = asyncio.Event()

    @property
    def troubles(self) -> list[str]:
        """What a person would have seen go wrong."""
        return self.session.troubles

    async def open(self) -> None:
        """Open the page and its feed."""
        await self.session.open()
        self._feed = asyncio.create_task(self._follow(self.session.component["comparison"]))
        await asyncio.wait_for(self._up.wait(), 30)

    async def close(self) -> None:
        """Close the tab."""
        for task in (self._feed, *self._said):
            if task is not None:
                task.cancel()
        if self._socket is not None:
            await self._socket.close()
        await self.session.close()

    def _option(self, key: str, start: str) -> str:
        """The choice of a select box that begins with this word. Raises Trouble if it offers none."""
        for label in self.session.options[key]:
            if label.startswith(f"{start} "):
                return label
        raise Trouble(f"{key}: the page offers {', '.join(self.session.options[key])}, and not {start}")

    async def press_run(self, work: ComparisonSpec) -> str:
        """Fill in the form, press Run; returns the new comparison's id. The feed follows it, as the page's does."""
        await self.session.rerun(
            model=self._option("model", models()[work.model].title),
            modes=[MODES[name].title for name in work.modes],
            prompt=work.prompt,
            new_tokens=self._option("new_tokens", str(work.new_tokens)),
            repeats=work.repeats,
        )
        before = self.session.component["comparison"]
        await self.session.rerun(run=Press())
        comparison = self.session.component["comparison"]
        if comparison in (None, before):
            raise Trouble(f"Run was pressed and no comparison began: {' '.join(self.session.alerts) or 'no word why'}")
        self._feed.cancel()
        if self._socket is not None:
            await self._socket.close()
        self._shown = None  # the component begins anew
        self.books.pop(comparison, None)
        self._feed = asyncio.create_task(self._follow(comparison))
        return comparison

    def cut(self) -> None:
        """Break both sockets; the feed reconnects by itself, `back` reopens the session."""
        if self._socket is not None:
            self._socket.transport.abort()
        self.session.cut()

    async def back(self) -> None:
        """Reopen Streamlit's socket for the same session."""
        await self.session.open()

    def book(self, comparison: str) -> Book:
        """The book of a comparison."""
        return self.books.setdefault(comparison, Book())

    async def _follow(self, comparison: str | None) -> None:
        failures = 0
        while True:
            try:
                address = self._address(comparison)
                async with connect(address, **self.session.browser()) as socket:
                    self._socket, failures = socket, 0
                    self._up.set()
                    async for text in socket:
                        if not self._take(parsed(text), len(text)):
                            self.holes += 1
                            await socket.close()
                    self.link_ends.append(f"closed with {socket.close_code}")
            except (OSError, InvalidHandshake, ConnectionClosed) as error:
                self.link_ends.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(RETRY[min(failures, len(RETRY) - 1)])
            failures += 1

    def _address(self, comparison: str | None) -> str:
        asked = {} if comparison is None else {"comparison": comparison}
        if self._shown is not None:
            asked |= {"had": self._shown, "from": str(len(self.book(self._shown).records))}
        return f"{self.session.url.replace('http', 'ws', 1)}/kv/feed?{urlencode(asked)}"

    def _take(self, message: dict[str, Any], nbytes: int) -> bool:
        if "records" not in message:
            return True
        self._shown = message["comparison"]
        if message.get("whole"):  # replaces all records so far
            self.books.pop(self._shown, None)
        book = self.book(self._shown)
        was_over = book.over.is_set()
        whole = book.take(message["from"], message["records"], nbytes, time.perf_counter())
        if book.over.is_set() and not was_over:
            self._say_ended(self._shown)
        return whole

    def _say_ended(self, comparison: str) -> None:
        said = json.dumps([{"event": "ended", "value": comparison}])
        task = asyncio.create_task(self.session.rerun(ended=Press(said)))
        self._said.add(task)
        task.add_done_callback(self._said.discard)


class Calculator:
    """A browser on the memory page: somebody changes the number of tokens and reads the answer."""

    def __init__(self, url: str, seed: int) -> None:
        self.session = Session(url, "memory")
        self.wrong = 0
        self._random = random.Random(seed)

    async def use(self, every: float) -> None:
        """Change the number of tokens again and again, every so many seconds on average."""
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * every)
            asked = replace(Asked(), tokens=self._random.randrange(1, 100_000))
            await self.session.rerun(m_tokens=asked.tokens)
            if human(answer(asked, asked.models[0]).memory.total_bytes) not in self.session.metrics:
                self.wrong += 1
