"""A Hub that a thread of the tests plays, and a process that asks it."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Sends the header and the body that `answer` gives, as https://huggingface.co does."""

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.wfile.write(self.answer())

    def send(self, body, code=200, **headers):
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        return body

    def log_message(self, *args):
        pass


@contextmanager
def serving(hub):
    """Answer as that class until the end; gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def ask(address, monkeypatch):
    """Have this process ask that address, which huggingface_hub reads when it is imported."""
    from huggingface_hub import constants, file_download

    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, address)
    for module in (constants, file_download):
        for name, value in (("ENDPOINT", address), ("HUGGINGFACE_CO_URL_TEMPLATE", template)):
            monkeypatch.setattr(module, name, value, raising=False)
