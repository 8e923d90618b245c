"""A class whose browsers all run at once: nothing is lost, and what the server spends on it.

The browsers are sockets that send made-up curves, each at a moment of its own; each has to see all curves, its own
among them. With `--picture` a teacher's page in Chromium leads instead: the engine runs at three speeds of Chromium's
throttle, in the page's own thread as in bench/in_browser.py, sockets play these curves, and the screen is saved.

    python bench/class_runs.py --json
    python bench/class_runs.py --picture room.png --browsers 30
"""

import argparse
import asyncio
import csv
import io
import json
import random
import shutil
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if not __package__:
    import checkout  # noqa: F401

from playwright.sync_api import Browser, Page, sync_playwright
from websockets.asyncio.client import ClientConnection, connect

from bench.in_browser import in_browser, opened
from bench.served import Server
from bench.visitors import AS_A_BROWSER, cookie_of
from kvviz.device.cores import pin, share_of_cores
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.text import STORY
from kvviz.server.rooms.class_run import CURVES

WORK = {"model": "mini-gpt2", "prompt": STORY, "prompt_tokens": None, "new_tokens": 64, "repeats": 3}
PATIENCE = 120.0  # seconds that a curve may take to everybody
THROTTLED = (1, 2, 4)  # times as slow as this machine


@dataclass
class Member:
    """One page in the room: its socket, and the rows that it has been sent."""

    socket: ClientConnection
    rows: list[dict[str, list[float]]] = field(default_factory=list)
    mine: int | None = None
    holes: int = 0
    nbytes: int = 0
    sent: dict[str, list[float]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    run: asyncio.Future = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def listen(self, browsers: int) -> None:
        """Take messages until the curves of so many browsers are there."""
        while len(self.rows) < browsers:
            text = await self.socket.recv()
            message = json.loads(text)
            if message["t"] == "curves":
                self.nbytes += len(text)
                self.holes += message["from"] != len(self.rows)
                self.rows = [*self.rows[: message["from"]], *message["rows"]]
                self.mine = message["mine"]
            elif message["t"] == "refused":
                self.refused.append(message["message"])
            elif message.get("run") and not self.run.done():
                self.run.set_result(message["run"])


async def member(url: str, cookie: str, query: str) -> tuple[Member, dict[str, Any]]:
    """Take a seat; returns it with the welcome."""
    options = {"origin": url, "additional_headers": {"Cookie": cookie}, **AS_A_BROWSER}
    socket = await connect(f"{url.replace('http', 'ws', 1)}/kv/room?{query}", **options)
    return Member(socket), json.loads(await socket.recv())


def made_up(draw: random.Random, steps: int) -> dict[str, list[float]]:
    """Curves of a machine of some speed: one that climbs and one that stays, in milliseconds of four digits."""
    speed = draw.uniform(0.5, 4)
    lines = {"uncached": [speed * (4 + step / 16) for step in range(steps)], "cached": [speed] * steps}
    return {mode: [float(f"{ms * draw.uniform(0.9, 1.3):.4g}") for ms in line] for mode, line in lines.items()}


async def measure(server: Server, browsers: int, spread: float) -> dict[str, Any]:
    """Ask so many browsers for a run, which they send within `spread` seconds; returns the document."""
    draw = random.Random(0)
    cookies = [await asyncio.to_thread(cookie_of, f"{server.url}/live") for _ in range(browsers + 1)]
    lead, welcome = await member(server.url, cookies[0], "want=open")
    code = welcome["code"]
    class_ = [(await member(server.url, cookie, f"code={code}"))[0] for cookie in cookies[1:]]
    everyone = [lead, *class_]
    listening = [asyncio.create_task(one.listen(browsers)) for one in everyone]
    before, began = server.cpu_seconds(), time.monotonic()

    async def take_part(one: Member) -> None:
        run = await one.run
        await asyncio.sleep(draw.uniform(0, spread))
        one.sent = made_up(draw, run["order"]["spec"]["new_tokens"])
        await one.socket.send(json.dumps({"t": "curves", "number": run["number"], **one.sent}))

    await lead.socket.send(json.dumps({"t": "everyone", "work": WORK}))
    await asyncio.gather(*map(take_part, class_))
    _, waiting = await asyncio.wait(listening, timeout=PATIENCE)
    took, cpu = time.monotonic() - began, server.cpu_seconds() - before
    for task in waiting:
        task.cancel()
    asked = urllib.request.Request(f"{server.url}/kv/room/curves.csv?code={code}", headers={"Cookie": cookies[0]})
    table = await asyncio.to_thread(lambda: urllib.request.urlopen(asked).read().decode())
    await asyncio.gather(*(one.socket.close() for one in everyone))
    known = sorted(json.dumps(one.sent) for one in class_)
    seen = [sorted(map(json.dumps, one.rows)) for one in everyone]
    return {
        "browsers": browsers,
        "seconds": took,
        "server_cpu_s": cpu,
        "server_cpu_share": cpu / took,
        "pages_that_lack_curves": sum(rows != known for rows in seen),
        "browsers_that_do_not_find_themselves": sum(
            one.mine is None or one.rows[one.mine] != one.sent for one in class_
        ),
        "holes": sum(one.holes for one in everyone),
        "refused": sum(len(one.refused) for one in everyone),
        "rows_in_the_table": sum(1 for _ in csv.DictReader(io.StringIO(table))),
        "rows_expected": browsers * WORK["new_tokens"],  # type: ignore[operator]
        "bytes_per_page": max(one.nbytes for one in everyone),
        "errors": server.complaints(),
    }


def picture(server: Server, browsers: int, path: Path) -> dict[str, Any]:
    """Save the teacher's screen after sockets have played the curves of three throttled browsers."""
    rows = throttled()
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        teacher = page_of(chromium, f"{server.url}/live?new_tokens={WORK['new_tokens']}")
        teacher.get_by_test_id("kv-room-button").click()
        teacher.get_by_role("button", name="Open a room").click()
        link = teacher.get_by_test_id("kv-room-link").input_value()
        code = link[-6:]
        teacher.keyboard.press("Escape")
        teacher.locator("[data-testid=kv-everyone-run]:enabled").click()
        teacher.get_by_test_id("kv-everyone-end").wait_for()
        number = teacher.evaluate(ASK)
        with ThreadPoolExecutor() as other:  # Playwright has an event loop in this thread
            other.submit(asyncio.run, play(server.url, code, number, rows, browsers)).result()
        teacher.get_by_text(f"{browsers} browsers have sent").wait_for()
        teacher.wait_for_timeout(2000)  # the charts are drawn
        teacher.screenshot(path=path)
        claim = teacher.get_by_test_id("kv-everyone-claim").inner_text()
        chromium.close()
    return {
        "browsers": browsers,
        "measured": len(THROTTLED),
        "throttled": THROTTLED,
        "claim": claim,
        "picture": str(path),
    }


ASK = """() => new Promise((resolve) => {
  document.addEventListener("kv-class", ({ detail }) => resolve(detail.run.number), { once: true })
  document.dispatchEvent(new CustomEvent("kv-class-asked"))
})"""


def page_of(chromium: Browser, url: str) -> Page:
    """A page of a browser of its own."""
    page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(url)
    return page


def throttled() -> list[dict[str, list[float]]]:
    """The curves of the engine in Chromium, at each throttle."""
    spec = ComparisonSpec(**WORK, modes=CURVES, weights="bundled", dtype="float32")  # type: ignore[arg-type]
    rows = []
    with opened(spec.model) as page:
        for rate in THROTTLED:
            document = in_browser(page, spec, "wasm", rate)[0].document
            assert document is not None
            rows.append({run["mode"]: [float(f"{1000 * s:.4g}") for s in run["step_s"]] for run in document["runs"]})
    return rows


async def play(url: str, code: str, number: str, rows: list[dict[str, list[float]]], sockets: int) -> None:
    """Send the curves, each socket those of one browser, as a machine of another speed."""
    draw = random.Random(0)
    for place in range(sockets):
        one, _ = await member(url, await asyncio.to_thread(cookie_of, f"{url}/live"), f"code={code}")
        curves, speed = rows[place % len(rows)], draw.uniform(0.8, 1.25)
        scaled = {mode: [float(f"{ms * speed:.4g}") for ms in curves[mode]] for mode in CURVES}
        await one.socket.send(json.dumps({"t": "curves", "number": number, **scaled}))
        await one.listen(1)
        await one.socket.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--browsers", type=int, default=100, help="that take part")
    parser.add_argument("--spread", type=float, default=20.0, help="seconds within which they send their curves")
    parser.add_argument("--picture", type=Path, help="save the teacher's screen here, led in Chromium")
    asked = parser.parse_args()
    with Server() as server:
        if asked.picture:
            print(json.dumps(picture(server, asked.browsers, asked.picture)))
            return
        pin(share_of_cores()[0])  # the server has the last core for itself
        print(json.dumps(asyncio.run(measure(server, asked.browsers, asked.spread))))


if __name__ == "__main__":
    main()
