"""The scheduler's records to every screen: one WebSocket route, one encoding for all viewers.

A message is `{"comparison", "from", "records"}`: the records from number `from` on. A viewer that is behind the
rest gets one longer message first; a viewer that can't keep up is dropped and comes back for what it lacks.
"""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

import kvviz
from kvviz.server.assets import AssetFiles
from kvviz.server.jobs import Job
from kvviz.server.scheduler import Place, Scheduler

log = logging.getLogger("kvviz.server.feed")

SEND_S = 0.1  # seconds between two updates: at most ten a second
LOOK_S = 0.02  # seconds between two looks for something new, so that the first point of a run comes soon
BACKLOG = 50  # messages that a viewer may be behind before it is dropped
TRY_AGAIN_LATER = 1013  # WebSocket close code
UNHEALTHY = {"down": "the measuring process does not start", "off": "the server is starting or leaving"}
_STARTED = time.monotonic()


@dataclass(eq=False)
class Viewer:
    """One open socket: what it follows, what it has, and what waits to be sent."""

    follows: str | None  # a comparison, or None for whatever is being measured
    comparison: str | None = None  # the one whose records it has
    have: int = 0
    restarts: int = 0  # of the comparison whose records it has
    unchecked: bool = True  # of a run that was cut off it may hold records that were never stored
    outbox: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(BACKLOG))


class Feed:
    """Polls the scheduler while anyone watches, and sends each viewer what is new, up to ten times a second."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._served_version: int | None = None

    @property
    def viewers(self) -> int:
        """How many sockets are open."""
        return len(self._viewers)

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one viewer, from the handshake to the end.

        `?comparison=ID` follows that comparison, without it the device; `&from=N` asks for record N and the later ones.
        """
        viewer = viewer_of(websocket.query_params)
        await websocket.accept()
        self.join(viewer)
        try:
            await until_one_ends(_read(websocket), _write(viewer, websocket))
        finally:
            self.leave(viewer)

    def join(self, viewer: Viewer) -> None:
        """Take a viewer in; what it lacks goes out at once."""
        self._viewers.add(viewer)
        self._serve([viewer], force_status=True)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll())

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        self._viewers.discard(viewer)

    def close(self) -> None:
        """Drop every viewer."""
        if self._task is not None:
            self._task.cancel()
        for viewer in list(self._viewers):
            self._drop(viewer)

    async def _poll(self) -> None:
        while self._viewers:
            if self.scheduler.version == self._served_version:
                await asyncio.sleep(LOOK_S)
                continue
            self._served_version = self.scheduler.version
            try:
                self._serve(list(self._viewers))
            except Exception:  # one bad poll must not end the feed for everyone
                log.exception("feed")
            await asyncio.sleep(SEND_S)

    def _serve(self, viewers: Sequence[Viewer], force_status: bool = False) -> None:
        encoded: dict[tuple[str, int, int], str] = {}
        for viewer in viewers:
            job = self._shown_to(viewer)
            if job is None:
                self._put(viewer, status_message(self.scheduler, None))
                continue
            if viewer.comparison != job.id:
                self._send_rest(viewer, encoded)
                viewer.comparison, viewer.have, viewer.restarts = job.id, 0, job.restarts
            restarts, count = job.restarts, len(job.records)
            if viewer.restarts != restarts:
                self._put(viewer, encode(job, 0, count, whole=True))
                viewer.restarts, viewer.have = restarts, count
            if viewer.unchecked and job.cut_off and viewer.have >= count:
                self._put(viewer, encode(job, 0, count, whole=True))
            viewer.unchecked, viewer.have = False, min(viewer.have, count)
            if count > viewer.have:
                self._send(viewer, job, count, encoded)
            elif job.state == "queued" or force_status:
                self._put(viewer, status_message(self.scheduler, job))

    def _shown_to(self, viewer: Viewer) -> Job | None:
        """Return the job that a viewer sees; on a new server with nothing to show, the one that it saw before."""
        job = self.scheduler.shown(viewer.follows)
        if job is None and viewer.comparison and not viewer.follows:
            return self.scheduler.get(viewer.comparison)
        return job

    def _send(self, viewer: Viewer, job: Job, count: int, encoded: dict[tuple[str, int, int], str]) -> None:
        key = (job.id, viewer.have, count)  # a record may come between two viewers
        if key not in encoded:
            encoded[key] = encode(job, viewer.have, count)
        self._put(viewer, encoded[key])
        viewer.have = count

    def _send_rest(self, viewer: Viewer, encoded: dict[tuple[str, int, int], str]) -> None:
        """Send the end of one comparison before the next begins, to a viewer that follows the device."""
        old = self.scheduler.get(viewer.comparison or "")
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


def encode(job: Job, start: int, end: int, whole: bool = False) -> str:
    """The records `start` to `end` of a comparison as one message; the records are JSON already.

    `whole`: they take the place of all that the viewer has.
    """
    place = f'"from":{start},"whole":true' if whole else f'"from":{start}'
    return f'{{"comparison":{json.dumps(job.id)},{place},"records":[{",".join(job.records[start:end])}]}}'


def status_message(scheduler: Scheduler, job: Job | None) -> str:
    """Where things stand while there is no record to send: the worker's state, the place in the queue, the wait.

    `wait_s` is null if it is not known; `held` says who has the device while the worker waits for it; `words`
    is the sentence for a job that waits.
    """
    place = scheduler.place(job.id) if job is not None and job.active else Place(0, None)
    status = {
        "worker": scheduler.worker_state,
        "ahead": place.ahead,
        "wait_s": None if place.wait_s is None else round(place.wait_s, 1),
        "held": place.held_by,
        "words": place.words,
    }
    return json.dumps({"comparison": job and job.id, "state": job.state if job else "none", "status": status})


def routes(feed: Feed, assets: str, assets_url: str) -> list[BaseRoute]:
    """Our own routes beside Streamlit's: the socket, the files of the live component, a health check."""

    async def healthz(request: Request) -> JSONResponse:
        code, answer = health(feed.scheduler, feed.viewers)
        return JSONResponse(answer, code, {"cache-control": "no-store"})

    return [
        WebSocketRoute("/kv/feed", feed.serve),
        *(Route(path, healthz) for path in ("/healthz", "/kv/health")),  # the second is its earlier address
        Mount(assets_url, AssetFiles(directory=assets)),
    ]


def health(scheduler: Scheduler, viewers: int) -> tuple[int, Mapping[str, object]]:
    """How a server is, for monitoring: 200 while runs are measured and kept, 503 with a reason while they are not.

    The plain values hold no prompt, path or name.
    """
    reason = "runs are not being kept: the store can't be written" if scheduler.trouble else None
    reason = UNHEALTHY.get(scheduler.worker_state, reason)
    states = Counter(worker.state for worker in scheduler.workers)
    return 503 if reason else 200, {
        "status": "degraded" if reason else "ok",
        "reason": reason,
        "worker": scheduler.worker_state,
        "device": (scheduler.device or {}).get("device_name"),
        **({"workers": states} if states.total() > 1 else {}),
        "queue": sum(job.active for job in scheduler.jobs()),
        "viewers": viewers,
        "version": kvviz.__version__,
        "uptime_s": round(time.monotonic() - _STARTED, 1),
    }


async def until_one_ends(*coroutines: Coroutine[None, None, None]) -> None:
    """Run a socket's reader and writer; when either ends, or the connection is lost, end the other."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError, OSError):
                await task


def viewer_of(query: Mapping[str, str]) -> Viewer:
    """The viewer that a query string describes; nonsense counts as nothing asked."""
    follows = query.get("comparison") or None
    start = query.get("from", "0")
    have = int(start) if start.isascii() and start.isdigit() and len(start) < 10 else 0
    return Viewer(follows, comparison=query.get("had") or follows, have=have)


async def _read(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass  # viewers have nothing to say; what they send is read and dropped


async def _write(viewer: Viewer, websocket: WebSocket) -> None:
    while (message := await viewer.outbox.get()) is not None:
        await websocket.send_text(message)
    await websocket.close(TRY_AGAIN_LATER)


@asynccontextmanager
async def running(scheduler: Scheduler, feed: Feed, cores: Sequence[int]) -> AsyncIterator[None]:
    """The server's lifespan: the worker lives as long as the server does."""
    scheduler.start(cores)
    try:
        yield
    finally:
        feed.close()
        await asyncio.to_thread(scheduler.close)
