"""The WebSocket of a room: `/kv/room?code=CODE` follows, `&want=lead` leads, `?want=open` opens one.

The first answer describes the room (`welcome`) or says why there is none (`none`); changes follow (`news`), and the end
(`ended`). Followers send what they draw, answer and measure; all messages are small, checked and counted. The curves of
a run of the class come apart (`curves`), at most once a second. Whoever leads has the answers as a table from
`/kv/room/answers.csv?code=CODE`, and the curves from `/kv/room/curves.csv?code=CODE`.
"""

import asyncio
import ipaddress
import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

import segno
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from kvviz.base.errors import KvvizError
from kvviz.base.settings import settings
from kvviz.server.feed import until_one_ends
from kvviz.server.front_door import NOT_ALLOWED, browser_of, is_loopback
from kvviz.server.rooms.rooms import LONGEST_MESSAGE, Room, Rooms, Seat

PAUSE_S = 0.08  # between two messages to one page; what happens meanwhile comes in one
PER_SECOND = 40  # messages that a page may send; a dragged slider sends ten
OUTSIDE = ("203.0.113.1", 9)  # a documentation address (RFC 5737): only asks for a route, sends nothing
CURVES_S = 1.0  # between two messages with curves to one page
PURGE_S = 300.0  # seconds of silence after which a seat has rooms without a leader ended


def routes(rooms: Rooms) -> list[BaseRoute]:
    """The room's socket, and its answers and curves as tables."""
    tables: dict[str, Callable[[Room], str]] = {
        "answers": lambda room: room.work.csv(),
        "curves": lambda room: room.run.csv() if room.run else "",
    }
    served = [Route(f"/kv/room/{name}.csv", partial(serve_table, rooms, name, text)) for name, text in tables.items()]
    return [WebSocketRoute("/kv/room", partial(serve_seat, rooms)), *served]


async def serve_table(rooms: Rooms, name: str, text: Callable[[Room], str], request: Request) -> Response:
    """Hand the class's work on, to the browser that leads the room."""
    try:
        room = rooms.find(request.query_params.get("code", ""))
    except KvvizError as error:
        return PlainTextResponse(str(error), 404)
    if browser_of(request.cookies) != room.browser:
        return PlainTextResponse(f"only the browser that opened this room has its {name}", 403)
    named = {"content-disposition": f'attachment; filename="kvviz-{room.code}-{name}.csv"', "cache-control": "no-store"}
    return Response(text(room), media_type="text/csv", headers=named)


async def serve_seat(rooms: Rooms, websocket: WebSocket) -> None:
    """Serve one page in a room, from the handshake to the end."""
    await websocket.accept()
    changed = asyncio.Event()
    seat = Seat(browser_of(websocket.cookies), changed.set)
    try:
        room = admit(rooms, websocket.query_params, seat)
    except KvvizError as error:
        with suppress(WebSocketDisconnect, RuntimeError):
            await websocket.send_text(json.dumps({"t": "none", "message": str(error)}))
            await websocket.close()
        return
    try:
        await until_one_ends(_read(rooms, room, seat, websocket), _write(rooms, room, seat, websocket, changed))
    finally:
        rooms.leave(room, seat)


def admit(rooms: Rooms, query: Mapping[str, str], seat: Seat) -> Room:
    """Take the seat in the room that a handshake asks for. Raises KvvizError if the room refuses."""
    want, code = query.get("want", "follow"), query.get("code", "")
    if want not in ("follow", "lead", "open"):
        raise KvvizError("a page follows a room, leads it or opens one")
    room = rooms.open(seat.browser, code) if want == "open" else rooms.find(code)
    rooms.enter(room, seat, lead=want != "follow")
    return room


async def welcome(room: Room, seat: Seat, websocket: WebSocket) -> dict[str, object]:
    """All that a page needs to know at first."""
    origin, hint = await asyncio.to_thread(address_for_others, websocket)
    link = f"{origin}/?room={room.code}"  # under the address that the browser itself used
    known = {"code": room.code, "mark": room.mark, "yours": seat.browser == room.browser}
    return {"t": "welcome", **known, "link": link, "qr": qr(link), "hint": hint, **room.news(seat)}


def address_for_others(websocket: WebSocket) -> tuple[str, str]:
    """Where others find this server, and a sentence about it: by default the address that the browser itself used.

    Only a browser on this machine is told more, such as the machine's address in its network.
    """
    scheme = "https" if websocket.url.scheme == "wss" else "http"
    origin = websocket.headers.get("origin", "")[:200] or f"{scheme}://{websocket.headers.get('host', '')[:200]}"
    client, server = websocket.scope.get("client"), websocket.scope.get("server")
    if settings().public or not client or not server or not server[1] or not is_loopback(client[0]):
        return origin, ""
    return reachable(origin, server[1])


async def _write(rooms: Rooms, room: Room, seat: Seat, websocket: WebSocket, changed: asyncio.Event) -> None:
    await websocket.send_text(json.dumps(await welcome(room, seat, websocket)))
    patience, due = 0.0, 0.0  # seconds until the next look; when curves may be sent again
    while not room.ended:
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), patience)
        changed.clear()
        if news := room.news(seat):
            await websocket.send_text(json.dumps({"t": "news", **news}))
        early = due - time.monotonic()
        if early <= 0 and (curves := room.curves(seat)):
            await websocket.send_text(curves)
            due = time.monotonic() + CURVES_S
        # curves that came too early are sent as soon as they may be
        patience = early if early > 0 and seat.behind else PURGE_S
        await asyncio.sleep(PAUSE_S)
        rooms.purge()
    await websocket.send_text(json.dumps({"t": "ended", "message": room.ended}))
    await websocket.close()


async def _read(rooms: Rooms, room: Room, seat: Seat, websocket: WebSocket) -> None:
    """Hear a page; one that sends too much at once or something too long is disconnected."""
    began, count = time.monotonic(), 0
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        now = time.monotonic()
        began, count = (now, 1) if now - began > 1 else (began, count + 1)
        text = message.get("text") or ""
        if count > PER_SECOND or not text or len(text) > LONGEST_MESSAGE:
            long = f"a message has at most {LONGEST_MESSAGE:,} characters, and this one has {len(text):,}"
            if len(text) > LONGEST_MESSAGE:
                await websocket.send_text(json.dumps({"t": "refused", "message": long}))
            await websocket.close(NOT_ALLOWED)
            return
        try:
            rooms.hear(room, seat, json.loads(text))
        except (KvvizError, ValueError, RecursionError) as error:
            sentence = str(error) if isinstance(error, KvvizError) else "a message is JSON"
            await websocket.send_text(json.dumps({"t": "refused", "message": sentence}))


def qr(link: str) -> str:
    """The link as a QR code, a data URI with an SVG: dark modules on white, whatever the theme."""
    return segno.make(link, error="m", micro=False).svg_data_uri(
        dark="#000000", light="#ffffff", border=3, omitsize=True
    )


def network_address() -> str | None:
    """This machine's address in its network; None without a network."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(OUTSIDE)
        return _usable(asked.getsockname()[0])
    with suppress(OSError):
        return _usable(socket.gethostbyname(socket.gethostname()))
    return None


def _usable(address: str) -> str | None:
    parsed = ipaddress.ip_address(address)
    return None if parsed.is_loopback or parsed.is_unspecified else address


def answers(address: str, port: int) -> bool:
    """Whether someone listens there."""
    with suppress(OSError), socket.create_connection((address, port), timeout=0.5):
        return True
    return False


def reachable(origin: str, port: int) -> tuple[str, str]:
    """The origin that others can use, and a sentence about it, which may be empty.

    `port` is the one that this server listens on; for a browser behind a tunnel it is not the origin's.
    """
    parts = urlsplit(origin)
    if not is_loopback(parts.hostname or ""):
        return origin, ""
    address = network_address()
    if address is None:
        return origin, "This machine has no address in a network, so the link works on this machine only."
    outside = f"{parts.scheme}://{address}:{port}"
    if answers(address, port):
        return outside, "The link names this machine by its address in the network; others have to be in the same one."
    return origin, (
        f"{parts.hostname} means this machine only, so nobody else can open the link. Start kvviz with "
        f"HOST=0.0.0.0 and open {outside} instead."
    )
