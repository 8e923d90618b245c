"""A server under everything that a long day brings: viewers, runs of every kind, killed workers, a full disk.

Round by round, until the time is over, a class follows a run on the live page and somebody has another kind of
experiment measured. In some rounds the class loses its network, the measuring process is killed in the middle of a run,
or the disk is full for the length of a run. Each screen is held against the store, and at the end the server's log is
read line by line: whatever these faults do not explain is reported. A full disk needs the right to mount (root on
Linux); without it that fault is left out, and the report says so. A run with `--minutes 120` is the soak; a short one
checks the script.

    python bench/soak.py --minutes 120 --json
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

if not __package__:
    import checkout  # noqa: F401

from bench.checking import judge
from bench.classroom import Classroom, some_at_once
from bench.lasting import slope
from bench.screens import Screen
from bench.served import Server
from bench.visitors import Press, Session, Trouble
from kvviz.cli.port import health_at
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.registry import KINDS
from kvviz.ui.caches.form import PARTS as CACHES
from kvviz.ui.serving.form import PARTS as SERVING

WORK = ComparisonSpec(model="mini-gpt2", prompt="Once upon a time there was a little", new_tokens=192, repeats=2)
DISK_BYTES = 256 * 2**20  # of the server's home, while this lasts
WAIT = 900.0  # seconds that a run or a kind of experiment may take, on a machine that is busy with other things
# A round of the class after its run, in turn. Every second one is an ordinary round.
FAULTS = ("", "network", "", "kill", "", "disk")
# Pages on which something is measured: some measure when they are opened, the others at a press.
PAGES = (
    ("roofline", {}),
    ("sweep", {}),
    ("caches", {}),
    ("caches", {"part": CACHES[-1]}),
    *(("serving", {"part": part}) for part in SERVING),
    ("anatomy", {}),
    ("anatomy", {"scene": "latent"}),
    ("mistakes", {}),
)
_PRESSED = re.compile(r"(\w+_measure|s_run|f_run)$")
# What the log may hold. The last two are warnings: the first for each kill, the second while the disk is full.
ORDINARY = {
    "server_started",
    "worker_started",
    "worker_ready",
    "work_queued",
    "work_begun",
    "work_ended",
    "server_left",
}
BANNER = ("You can now view your Streamlit app in your browser.", "URL: ")


@dataclass
class Report:
    """What was counted on the way."""

    rounds: int = 0
    judged: int = 0
    lost: int = 0
    doubled: int = 0
    unlike: int = 0
    kills: int = 0
    recovered_s: list[float] = field(default_factory=list)
    full: int = 0
    cut: int = 0
    troubles: list[str] = field(default_factory=list)
    server_bytes: list[tuple[float, int]] = field(default_factory=list)
    worker_bytes: list[tuple[float, int]] = field(default_factory=list)


class Soak:
    """A class on a server, and what is done to both."""

    def __init__(
        self, server: Server, viewers: int, work: ComparisonSpec, ballast: Path | None, rest: float = 0.0
    ) -> None:
        self.server, self.viewers, self.work, self.ballast, self.rest = server, viewers, work, ballast, rest
        self.report = Report()
        self._classroom = Classroom(server, work, viewers, calculators=0)
        self._began = self._end = time.monotonic()

    async def run(self, minutes: float) -> Report:
        """Go on until the time is over; a run that the class follows is finished, any other work is left."""
        self._end = self._began + minutes * 60
        screens = [Screen(self.server.url) for _ in range(self.viewers)]
        await some_at_once([each.open for each in screens])
        pages, faults = cycle(PAGES), cycle(FAULTS)
        self.measure_memory()
        while time.monotonic() < self._end:
            fault, (page, query) = next(faults), next(pages)
            print(f"round {self.report.rounds + 1}: {fault or 'a run'}, {page} {query}", file=sys.stderr, flush=True)
            if fault == "kill":
                await self.killed(screens)
            elif fault != "disk" or self.ballast is not None:
                await self.followed(screens, fault)
            await self.visit(page, query)
            self.report.rounds += 1
            self.measure_memory()
            await asyncio.sleep(self.rest)
        for each in screens:
            self.report.troubles += each.troubles
        await some_at_once([each.close for each in screens])
        return self.report

    async def followed(self, screens: list[Screen], fault: str) -> None:
        """A run that the class follows; every screen has to show what the store keeps."""
        with self.full_disk() if fault == "disk" else _nothing():
            comparison = await screens[0].press_run(self.work)
            if fault == "network":
                self.report.cut += 1
                await asyncio.sleep(0.3)
                for each in screens:
                    each.cut()
                await asyncio.gather(*(each.back() for each in screens))
                for each in screens:  # a cut is no trouble of the server's
                    each.troubles[:] = [said for said in each.troubles if "socket was closed" not in said]
            await self._over(screens, comparison)
        try:
            document = await self._classroom._document(comparison, WAIT)
        except SystemExit as why:
            self.report.troubles.append(str(why))
            return
        texts = self._classroom.store.records(comparison)
        for each in screens:
            verdict = judge(each.book(comparison), document, texts)
            self.report.judged += 1
            self.report.lost += verdict.lost
            self.report.doubled += verdict.doubled
            self.report.unlike += verdict.differs
            each.books.clear()

    async def killed(self, screens: list[Screen]) -> None:
        """A run in whose middle the measuring process is killed: it ends with a sentence, and a new process comes."""
        comparison = await screens[0].press_run(self.work)
        book = screens[-1].book(comparison)
        end = time.monotonic() + WAIT
        while len(book.records) < 20 and time.monotonic() < end:
            await asyncio.sleep(0.05)
        killed = time.monotonic()
        os.kill(self.worker(), signal.SIGKILL)
        self.report.kills += 1
        await self._over(screens, comparison)
        while (health_at("127.0.0.1", self.server.port) or {}).get("worker") != "ready":
            if time.monotonic() - killed > WAIT:
                self.report.troubles.append(f"no new worker within {WAIT:.0f} s of a kill")
                return
            await asyncio.sleep(0.2)
        self.report.recovered_s.append(time.monotonic() - killed)
        for each in screens:
            each.books.clear()

    async def visit(self, page: str, query: dict[str, str]) -> None:
        """Open a page, press what measures, and wait until the queue is empty again."""
        session = Session(self.server.url, page, urlencode(query))
        await session.open()
        try:
            for key in [key for key in session.ids if _PRESSED.fullmatch(key)]:
                await session.rerun(**{key: Press()})
            end = min(self._end, time.monotonic() + WAIT)
            while self.unfinished() and time.monotonic() < end:
                await asyncio.sleep(0.5)
            await session.rerun()
        except Trouble as trouble:
            self.report.troubles.append(str(trouble))
        self.report.troubles += session.troubles
        await session.close()

    async def _over(self, screens: list[Screen], comparison: str) -> None:
        waits = (each.book(comparison).over.wait() for each in screens)
        try:
            await asyncio.wait_for(asyncio.gather(*waits), WAIT)
        except TimeoutError:
            self.report.troubles.append(f"a run did not end on every screen within {WAIT:.0f} s")

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Fill the disk to its last byte."""
        assert self.ballast is not None
        self.report.full += 1
        with self.ballast.open("wb", buffering=0) as file:
            for size in (2**20, 4096, 512, 1):
                with suppress(OSError):
                    while True:
                        file.write(b"x" * size)
        try:
            yield
        finally:
            self.ballast.unlink()

    # --- what the server's log and the system tell ---

    def log(self) -> list[str]:
        """The log so far."""
        return self.server.log.read_text(errors="replace").splitlines()

    def events(self) -> list[dict[str, Any]]:
        """The lines of the log that are events."""
        return [line for line in map(_event, self.log()) if line is not None]

    def worker(self) -> int:
        """The process that measures now."""
        return int([event["pid"] for event in self.events() if event["event"] == "worker_started"][-1])

    def unfinished(self) -> set[str]:
        """The jobs that wait or are being measured."""
        jobs: set[str] = set()
        for event in self.events():
            if event["event"] == "work_queued":
                jobs.add(event["id"])
            elif event["event"] == "work_ended":
                jobs.discard(event["id"])
        return jobs

    def measure_memory(self) -> None:
        """Note the resident bytes of the server and of the process that measures."""
        at = time.monotonic() - self._began
        self.report.server_bytes.append((at, self.server.resident_bytes()))
        with suppress(OSError, IndexError):  # a worker that is just being replaced has none
            pages = int(Path(f"/proc/{self.worker()}/statm").read_text().split()[1])
            self.report.worker_bytes.append((at, pages * os.sysconf("SC_PAGE_SIZE")))


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _event(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None


def unexpected(lines: list[str], kills: int, full: int) -> list[str]:
    """The lines of a log that neither an ordinary day nor the faults explain."""
    left = Counter(worker_ended=kills, store_failed=full)
    found = []
    for line in lines:
        event = _event(line)
        name = event["event"] if event else ""
        if event and name in ORDINARY and event["level"] == "info":
            continue
        if left[name]:
            left[name] -= 1
        elif event or (line.strip() and not line.strip().startswith(BANNER)):
            found.append(line[:500])
    return found


def kinds(events: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each kind of experiment was measured, by the state in which it ended."""
    kind = {event["id"]: event["kind"] for event in events if event["event"] == "work_queued"}
    ends = Counter((kind[e["id"]], e["state"]) for e in events if e["event"] == "work_ended" and e["id"] in kind)
    return {name: {state: n for (own, state), n in sorted(ends.items()) if own == name} for name in KINDS}


def per_hour(readings: list[tuple[float, int]]) -> float | None:
    """Bytes an hour by which the last half of the readings grows; None for fewer than six of them."""
    last = readings[len(readings) // 2 :]
    if len(readings) < 6 or last[-1][0] == last[0][0]:
        return None
    return slope([size for _, size in last]) * (len(last) - 1) / (last[-1][0] - last[0][0]) * 3600


def document(soak: Soak, minutes: float) -> dict[str, Any]:
    """All figures, as JSON values."""
    report, events = soak.report, soak.events()
    return {
        "minutes": minutes,
        "viewers": soak.viewers,
        "work": soak.work.to_dict(),
        "rounds": report.rounds,
        "kinds": kinds(events),
        "screens_judged": report.judged,
        "lost": report.lost,
        "doubled": report.doubled,
        "screens_unlike_the_store": report.unlike,
        "networks_lost": report.cut,
        "workers_killed": report.kills,
        "worker_back_s": [round(seconds, 1) for seconds in report.recovered_s],
        "disk_full": report.full if soak.ballast is not None else None,
        "server_bytes": report.server_bytes,
        "worker_bytes": report.worker_bytes,
        "server_bytes_per_hour": per_hour(report.server_bytes),
        "events": Counter(event["event"] for event in events),
        "unexpected_lines": unexpected(soak.log(), report.kills, report.full),
        "troubles": report.troubles,
    }


@contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A folder on a disk of its own, and whether it is: only root may mount one."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", folder]
        own = sys.platform == "linux" and subprocess.run(mount, capture_output=True).returncode == 0
        try:
            yield Path(folder), own
        finally:
            if own:
                subprocess.run(["umount", "--lazy", folder], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--viewers", type=int, default=30)
    parser.add_argument("--rest", type=float, default=0.0, help="seconds between two rounds")
    parser.add_argument("--new-tokens", type=int, default=WORK.new_tokens, help="a multiple of 8, as the page has it")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaving `with` ends the server and the disk
    os.environ["KVVIZ_LOG"] = "json,info"
    work = ComparisonSpec(model=WORK.model, prompt=WORK.prompt, new_tokens=asked.new_tokens, repeats=WORK.repeats)
    with small_disk() as (home, own), tempfile.NamedTemporaryFile() as log, Server(home, Path(log.name)) as server:
        soak = Soak(server, asked.viewers, work, home / "ballast" if own else None, asked.rest)
        try:
            asyncio.run(soak.run(asked.minutes))
        finally:
            print(json.dumps(document(soak, asked.minutes)), flush=True)


if __name__ == "__main__":
    main()
