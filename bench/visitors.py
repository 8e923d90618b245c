"""A Streamlit session without a browser: it runs a page's script and sets the page's widgets.

A `Session` speaks Streamlit's protocol over a WebSocket: it sees every widget that the script drew and every exception,
and sets widgets by their keys. `bench.screens` adds the live page's feed (kvviz/ui/assets/shared/feed.js).
"""

import asyncio
import json
import time
import urllib.request
from dataclasses import dataclass
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

AS_A_BROWSER: dict[str, Any] = {
    "max_size": None,
    "ping_interval": None,
    "proxy": None,
}  # it sends no pings
PATIENCE = 60.0  # seconds that a script run may take before it counts as an error


class Trouble(Exception):
    """Something that a person at this browser would have seen go wrong."""


class Session:
    """One browser tab: its page's script runs in the server, over Streamlit's socket."""

    def __init__(self, url: str, page: str, query: str = "") -> None:
        self.url, self.page, self.query = url, page, query
        self.ids: dict[str, str] = {}  # a widget's key -> its id
        self.options: dict[str, list[str]] = {}  # what a select box offers, as it is written there
        self.metrics: list[str] = []  # the large figures of the last run of the script
        self.alerts: list[str] = []
        self.component: dict[str, Any] = {}  # what the page gave the live component
        self.component_id = ""
        self.troubles: list[str] = []
        self.reruns: list[float] = []
        self._values: dict[str, Any] = {}
        self._known: set[str] = set()  # hashes of cached messages
        self._hash = self._id = self._cookie = ""
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task | None = None
        self._finished: asyncio.Queue[str] = asyncio.Queue()
        self._one = asyncio.Lock()  # a rerun at a time

    async def open(self) -> None:
        """Fetch the page for its cookie, open the socket, run the script once."""
        if not self._cookie:
            self._cookie = await asyncio.to_thread(cookie_of, f"{self.url}/{self.page}")
        tokens = ["streamlit", "PLACEHOLDER_AUTH_TOKEN", *([self._id] if self._id else [])]
        self._socket = await connect(
            self.url.replace("http", "ws", 1) + "/_stcore/stream",
            subprotocols=tokens,  # type: ignore[arg-type]
            **self.browser(),
        )
        self._reader = asyncio.create_task(self._read(self._socket))
        while not self._finished.empty():
            self._finished.get_nowait()
        await self.rerun()

    def browser(self) -> dict[str, Any]:
        """The options with which this browser opens a socket."""
        headers = {"Cookie": self._cookie} if self._cookie else {}
        return {"origin": self.url, "additional_headers": headers, **AS_A_BROWSER}

    async def close(self) -> None:
        """Close the tab."""
        if self._reader is not None:
            self._reader.cancel()
        if self._socket is not None:
            await self._socket.close()

    def cut(self) -> None:
        """Break the socket without a closing handshake."""
        if self._reader is not None:
            self._reader.cancel()
        if self._socket is not None:
            self._socket.transport.abort()

    async def rerun(self, **values: Any) -> float:
        """Set widgets by their keys, run the script, wait for its end. Returns the seconds that took."""
        async with self._one:
            return await self._rerun(values)

    async def _rerun(self, values: dict[str, Any]) -> float:
        message = BackMsg()
        state = message.rerun_script
        state.query_string, state.page_script_hash, state.page_name = self.query, self._hash, self.page
        state.cached_message_hashes.extend(self._known)
        self._values |= {key: value for key, value in values.items() if not _is_press(value)}
        for key, value in {**self._values, **values}.items():
            _set(state.widget_states.widgets.add(), self._widget(key), value)
        assert self._socket is not None
        self.metrics.clear()
        self.alerts.clear()
        began = time.perf_counter()
        try:
            await self._socket.send(message.SerializeToString())
            await asyncio.wait_for(self._finished.get(), PATIENCE)
        except ConnectionClosed:
            pass  # `_read` has noted it
        except TimeoutError:
            self.troubles.append(f"{self.page}: no answer within {PATIENCE:.0f} s")
        spent = time.perf_counter() - began
        self.reruns.append(spent)
        return spent

    def _widget(self, key: str) -> str:
        if key == "ended":
            return f"$$STREAMLIT_INTERNAL_KEY_{self.component_id}__events"
        if key not in self.ids:
            raise Trouble(f"the page {self.page} has no widget {key}; it has {', '.join(sorted(self.ids))}")
        return self.ids[key]

    async def _read(self, socket: ClientConnection) -> None:
        message = ForwardMsg()
        try:
            async for data in socket:
                message.ParseFromString(data)
                self._take(message)
        except ConnectionClosed as error:
            self.troubles.append(f"{self.page}: Streamlit's socket was closed: {error}")
        finally:
            self._finished.put_nowait("closed")

    def _take(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if message.metadata.cacheable:
            self._known.add(message.hash)
        if kind == "new_session":
            self._id = message.new_session.initialize.session_id
        elif kind == "navigation":
            self._hash = message.navigation.page_script_hash
        elif kind == "page_info_changed":
            self.query = message.page_info_changed.query_string
        elif kind == "page_not_found":
            self.troubles.append(f"{self.page}: page not found")
        elif kind == "delta":
            self._draw(message.delta)
        elif kind == "script_finished":
            if message.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                self.troubles.append(f"{self.page}: the script can't be read")
            if message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                self._finished.put_nowait(kind)

    def _draw(self, delta: Any) -> None:
        if delta.WhichOneof("type") != "new_element":
            return
        element = delta.new_element
        kind = element.WhichOneof("type")
        if kind == "exception":
            self.troubles.append(f"{self.page}: {element.exception.type}: {element.exception.message}")
            return
        drawn = getattr(element, kind) if kind else None
        name = getattr(drawn, "id", "")
        if kind == "alert":
            self.alerts.append(drawn.body)
        elif kind == "metric":
            self.metrics.append(drawn.body)
        if kind == "bidi_component" and drawn.component_name.endswith("kvviz_live"):
            self.component, self.component_id = json.loads(drawn.json), name
        elif isinstance(name, str) and name.startswith("$$ID-"):
            key = name.split("-", 2)[2]
            self.ids[key] = name
            if kind == "selectbox":
                self.options[key] = list(drawn.options)


def cookie_of(url: str) -> str:
    """The cookie that a browser gets with its first page."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return (answer.headers.get("set-cookie") or "").partition(";")[0]


@dataclass(frozen=True)
class Press:
    """A press of a button, or what a component says once."""

    said: str = ""


def _is_press(value: Any) -> bool:
    return isinstance(value, Press)


def _set(state: Any, name: str, value: Any) -> None:
    """Put a widget's value into the field of its type."""
    state.id = name
    if isinstance(value, Press):
        if value.said:
            state.json_trigger_value = value.said
        else:
            state.trigger_value = True
    elif isinstance(value, bool):
        state.bool_value = value
    elif isinstance(value, int):
        state.int_value = value
    elif isinstance(value, float):
        state.double_value = value
    elif isinstance(value, str):
        state.string_value = value
    elif isinstance(value[0], str):
        state.string_array_value.data.extend(value)
    else:
        state.double_array_value.data.extend(value)
