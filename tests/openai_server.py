"""A small server with OpenAI's interface in the test's own process, which can misbehave."""

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = "Once there was a cat that sat on a mat and ate."


@dataclass
class Behaviour:
    """What the server does: the pieces of its answer, and where it breaks the rules.

    `paths` are texts that it gives besides; `then` is what it does after the pieces: "end", "cut", "garbage", "error".
    """

    pieces: tuple[str, ...] = tuple(TEXT)
    pause: float = 0.0
    then: str = "end"
    status: int = 200
    models: tuple[str, ...] = ("m",)
    owner: str = "me"
    chats: bool = False
    counts: bool = True
    paths: dict[str, str] = field(default_factory=dict)
    location: str = ""
    asked: list[dict] = field(default_factory=list)  # the bodies of the requests
    headers: list[dict] = field(default_factory=list)
    port: int = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    does: Behaviour

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.does.headers.append(dict(self.headers))
        if self.path == "/v1/models":
            rows = [
                {"id": name, "object": "model", "owned_by": self.does.owner, "created": 0} for name in self.does.models
            ]
            self.whole(200, json.dumps({"object": "list", "data": rows}))
        elif self.path in self.does.paths:
            self.whole(200, self.does.paths[self.path], "text/plain")
        else:
            self.whole(404, "{}")

    def do_POST(self):
        does = self.does
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        does.asked.append(body)
        does.headers.append(dict(self.headers))
        if self.path != ("/v1/chat/completions" if does.chats else "/v1/completions"):
            return self.whole(404, "not here", "text/plain")
        if does.status != 200:
            said = f"no: {self.headers['Authorization']}"
            return self.whole(does.status, json.dumps({"error": {"message": said}}))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in does.pieces:
            time.sleep(does.pause)
            self.event(self.choice(piece))
        if does.then == "cut":
            self.close_connection = True
            return None
        if does.then == "garbage":
            self.event("{nonsense")
        elif does.then == "error":
            self.event(json.dumps({"error": {"message": "out of blocks"}}))
        else:
            counts = {"prompt_tokens": 5, "completion_tokens": len(does.pieces), "total_tokens": 5 + len(does.pieces)}
            self.event(self.choice("", "length", counts if does.counts else None))
            self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        return None

    def choice(self, text, finish=None, usage=None):
        said = {"delta": {"content": text}} if self.does.chats else {"text": text}
        choices = [{"index": 0, "finish_reason": finish, **said}]
        return json.dumps({"id": "1", "object": "x", "created": 0, "model": "m", "choices": choices, "usage": usage})

    def event(self, data):
        line = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def whole(self, status, text, kind="application/json"):
        data = text.encode()
        self.send_response(status)
        if self.does.location:
            self.send_header("Location", self.does.location)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(**does):
    """Run such a server while the context lasts."""
    behaviour = Behaviour(**does)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (Handler,), {"does": behaviour}))
    behaviour.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield behaviour
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
