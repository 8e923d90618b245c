"""The scheduler's records to every screen: one WebSocket route, one encoding for all viewers.

A message is `{"comparison", "from", "records"}`: the records from number `from` on. A viewer that is behind the
rest gets one longer message first; a viewer that can't keep up is dropped and comes back for what it lacks.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from kvviz.base.settings import settings
from kvviz.server import front_door as frontdoor
from kvviz.server.health import health
from kvviz.server.job import Job
from kvviz.server.scheduler import Scheduler

log = logging.getLogger("kvviz.server.feed")

TICK = 0.1  # seconds between two looks at what is new: ten updates a second
BACKLOG = 50  # messages that a viewer may lie behind before it is dropped
TRY_AGAIN_LATER = 1013  # WebSocket close code
NOT_ALLOWED = 1008


@dataclass(eq=False)
class Viewer:
    """One open socket: what it follows, how far it is, and what waits to be sent."""

    follows: str | None  # a comparison, or None for whatever is being measured
    comparison: str | None = None
    have: int = 0
    unchecked: bool = True  # of a run that was cut off it may hold records that nobody kept
    outbox: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(BACKLOG))


class Feed:
    """Looks at the scheduler ten times a second while anyone watches, and hands each viewer what is new."""

    def __init__(self, source: Scheduler) -> None:
        self._scheduler = source
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task | None = None
        self._seen: int | None = None

    @property
    def source(self) -> Scheduler:
        """The scheduler whose records are served."""
        return self._scheduler

    @property
    def viewers(self) -> int:
        """How many sockets are open."""
        return len(self._viewers)

    def join(self, viewer: Viewer) -> None:
        """Take a viewer in; what it lacks goes out at once."""
        self._viewers.add(viewer)
        self._serve([viewer], force_status=True)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._tick())

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        self._viewers.discard(viewer)

    def close(self) -> None:
        """Let every viewer go."""
        if self._task is not None:
            self._task.cancel()
        for viewer in list(self._viewers):
            self._drop(viewer)

    async def _tick(self) -> None:
        while self._viewers:
            if self._scheduler.version != self._seen:
                self._seen = self._scheduler.version
                try:
                    self._serve(list(self._viewers))
                except Exception:  # one bad tick must not end the feed for everyone
                    log.exception("feed")
            await asyncio.sleep(TICK)

    def _serve(self, viewers: list[Viewer], force_status: bool = False) -> None:
        encoded: dict[tuple[str, int, int], str] = {}
        for viewer in viewers:
            work = (
                self._scheduler.get(viewer.follows) if viewer.follows else self._scheduler.latest() or self._had(viewer)
            )
            if work is None:
                self._put(viewer, status_message(self._scheduler, None))
                continue
            if viewer.comparison != work.id:
                self._send_rest(viewer, encoded)
                viewer.comparison, viewer.have = work.id, 0
            count = len(work.records)
            if viewer.unchecked and work.cut_off and viewer.have >= count:
                self._put(viewer, encode(work, 0, count, whole=True))
            viewer.unchecked, viewer.have = False, min(viewer.have, count)
            if count > viewer.have:
                self._send(viewer, work, count, encoded)
            elif work.state == "queued" or force_status:
                self._put(viewer, status_message(self._scheduler, work))

    def _had(self, viewer: Viewer) -> Job | None:
        """What a viewer that comes back was shown, where a new server has nothing else to show."""
        return self._scheduler.get(viewer.comparison) if viewer.comparison else None

    def _send(self, viewer: Viewer, work: Job, count: int, encoded: dict[tuple[str, int, int], str]) -> None:
        key = (work.id, viewer.have, count)  # a record may come between two viewers
        if key not in encoded:
            encoded[key] = encode(work, viewer.have, count)
        self._put(viewer, encoded[key])
        viewer.have = count

    def _send_rest(self, viewer: Viewer, encoded: dict[tuple[str, int, int], str]) -> None:
        """Who follows the device sees the end of one comparison before the next begins."""
        old = self._scheduler.get(viewer.comparison or "")
        if old is not None and len(old.records) > viewer.have:
            self._send(viewer, old, len(old.records), encoded)

    def _put(self, viewer: Viewer, message: str) -> None:
        try:
            viewer.outbox.put_nowait(message)
        except asyncio.QueueFull:
            self._drop(viewer)

    def _drop(self, viewer: Viewer) -> None:
        self.leave(viewer)
        while not viewer.outbox.empty():
            viewer.outbox.get_nowait()
        viewer.outbox.put_nowait(None)


def encode(work: Job, start: int, end: int, whole: bool = False) -> str:
    """The records `start` to `end` of a comparison as one message; the records are JSON already.

    `whole`: they take the place of all that the viewer has.
    """
    place = f'"from":{start},"whole":true' if whole else f'"from":{start}'
    return f'{{"comparison":{json.dumps(work.id)},{place},"records":[{",".join(work.records[start:end])}]}}'


def status_message(source: Scheduler, work: Job | None) -> str:
    """Where things stand when there is no record to tell: the worker's state, the place in the queue, the wait.

    `wait_s` is null where it is not known; `held` says who has the device while the worker waits for it.
    """
    status = {"worker": source.worker_state, "ahead": 0, "wait_s": None, "held": source.held_by}
    if work is not None and work.active:
        wait = source.expected_wait(work.id)
        status |= {"ahead": source.ahead(work.id), "wait_s": None if wait is None else round(wait, 1)}
    return json.dumps(
        {"comparison": work.id if work else None, "state": work.state if work else "none", "status": status}
    )


def same_origin(headers: Any) -> bool:
    """A browser names the page that opens a socket: it has to be one of ours. Other clients name none."""
    return frontdoor.same_origin(headers, settings().origins)


def routes(feed: Feed, assets: str, assets_url: str, store_problem: Callable[[], str] = str) -> list[Any]:
    """Our own routes beside Streamlit's: the socket, the files of the live component, a health check.

    `store_problem` is the persister's sentence while runs are not being kept, else empty.
    """

    async def socket(websocket: WebSocket) -> None:
        await serve_viewer(feed, websocket)

    async def healthz(request: Any) -> JSONResponse:
        code, answer = health(feed.source, feed.viewers, store_problem())
        return JSONResponse(answer, code, {"cache-control": "no-store"})

    return [
        WebSocketRoute("/kv/feed", socket),
        *(Route(path, healthz) for path in ("/healthz", "/kv/health")),  # the second is its earlier address
        Mount(assets_url, StaticFiles(directory=assets)),
    ]


async def serve_viewer(feed: Feed, websocket: WebSocket) -> None:
    """One viewer, from the handshake to the end. `?comparison=ID` follows one, none follows the device;

    `&from=N` asks only for what comes from record N on.
    """
    if not same_origin(websocket.headers):
        await websocket.close(NOT_ALLOWED)
        return
    viewer = asked_for(websocket.query_params)
    await websocket.accept()
    feed.join(viewer)
    reader = asyncio.create_task(_until_gone(websocket))
    writer = asyncio.create_task(_send(viewer, websocket))
    try:
        await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        feed.leave(viewer)
        for task in (reader, writer):
            task.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError, OSError):
                await task


def asked_for(query: Any) -> Viewer:
    """The viewer that a query string describes; nonsense counts as nothing asked."""
    follows = query.get("comparison") or None
    start = query.get("from", "0")
    have = int(start) if start.isascii() and start.isdigit() and len(start) < 10 else 0
    return Viewer(follows, comparison=query.get("had") or follows, have=have)


async def _until_gone(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass  # viewers have nothing to say; what they send is read and dropped


async def _send(viewer: Viewer, websocket: WebSocket) -> None:
    while (message := await viewer.outbox.get()) is not None:
        await websocket.send_text(message)
    await websocket.close(TRY_AGAIN_LATER)


@asynccontextmanager
async def running(source: Scheduler, feed: Feed, cores: Any):
    """The server's lifespan: the worker lives as long as the server does."""
    source.start(cores)
    try:
        yield
    finally:
        feed.close()
        await asyncio.to_thread(source.close)
