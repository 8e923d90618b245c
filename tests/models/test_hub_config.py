"""config.json from a Hub that a thread plays, from its cache, and the sentences where there is none."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kvviz.base.errors import KvvizError
from kvviz.models import hub_config as hubconfig
from kvviz.models.sources import LARGEST_CONFIG

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "some/model": json.dumps(CONFIG).encode(),
    "some/list": b"[1, 2]",
    "some/text": b"no json",
    "some/huge": b" " * (LARGEST_CONFIG + 1),
}
REFUSED = {"some/gated": (403, "GatedRepo"), "some/empty": (404, "EntryNotFound"), "some/busy": (418, "")}


class Hub(BaseHTTPRequestHandler):
    """Answers as https://huggingface.co does for a small file."""

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self.wfile.write(self._answer())

    def _answer(self):
        name = (
            self.path.strip("/")
            .removesuffix("/resolve/main/config.json")
            .removesuffix(f"/resolve/{COMMIT}/config.json")
        )
        time.sleep(5 if name == "some/slow" else 0)
        code, reason = REFUSED.get(name, (200, "") if name in FILES else (401, "RepoNotFound"))
        body = FILES.get(name, b"") if code == 200 else b""
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hash(body):x}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if reason:
            self.send_header("X-Error-Code", reason)
        self.end_headers()
        return body

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def hub():
    with serving() as address:
        yield address


@pytest.fixture
def here(hub, tmp_path, monkeypatch):
    """This process asks the thread's Hub, with a cache of its own."""
    from huggingface_hub import constants, file_download

    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub)
    for module in (constants, file_download):
        for name, value in (("ENDPOINT", hub), ("HUGGINGFACE_CO_URL_TEMPLATE", template)):
            monkeypatch.setattr(module, name, value, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def shell(code, **environment):
    """Run Python elsewhere, with an environment of its own: huggingface_hub reads it when it is imported."""
    known = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, *code], cwd=ROOT, capture_output=True, text=True, env={**known, **environment}, timeout=60
    )


def test_a_config_is_fetched_and_then_cached(here):
    assert hubconfig.fetch_config("some/model") == CONFIG
    assert [path.read_bytes() for path in here.rglob("config.json")] == [FILES["some/model"]]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("some/gated", "gated"),
        ("some/unknown", "shows no model some/unknown"),
        ("some/empty", "config.json of some/empty is not on the Hugging Face Hub"),
        ("some/busy", "did not give"),
        ("some/list", "config.json of some/list holds no JSON object"),
        ("some/text", "config.json of some/text can't be read as JSON"),
        ("some/huge", "5,000,001 bytes"),
        ("a/b/c", "owner/name"),
        ("", "owner/name"),
        ("../etc", "owner/name"),
    ],
)
def test_what_can_not_be_had_is_one_sentence(here, name, says):
    with pytest.raises(KvvizError, match=says) as caught:
        hubconfig.fetch_config(name)
    assert "\n" not in str(caught.value)
    assert str(here) not in str(caught.value)


def test_nothing_that_is_too_large_is_downloaded(here):
    with pytest.raises(KvvizError):
        hubconfig.fetch_config("some/huge")
    assert not [path for path in here.rglob("*") if path.is_file() and path.stat().st_size > 100_000]


@pytest.mark.slow
def test_a_slow_hub_is_not_waited_for(here):
    start = time.perf_counter()
    with pytest.raises(KvvizError, match=r"can't be reached from here; paste the config\.json instead"):
        hubconfig.fetch_config("some/slow", timeout=0.3)
    assert time.perf_counter() - start < 2


@pytest.mark.slow
def test_a_name_that_never_resolves_is_not_waited_for(here, monkeypatch):
    import socket

    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: time.sleep(3))
    start = time.perf_counter()
    with pytest.raises(KvvizError, match="can't be reached"):
        hubconfig.fetch_config("some/model", timeout=0.3)
    assert time.perf_counter() - start < 2


def test_without_a_network_the_cache_answers(here, monkeypatch):
    hubconfig.fetch_config("some/model")
    monkeypatch.setattr(hubconfig, "_downloaded", lambda *args: time.sleep(3))
    assert hubconfig.fetch_config("some/model", timeout=0.1) == CONFIG


FETCH = "import sys; from kvviz.models.hub_config import fetch_config; print(fetch_config('some/model')['n_layer']);"


@pytest.mark.slow
def test_it_imports_neither_torch_nor_transformers(hub, tmp_path):
    code = f"{FETCH} print(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    done = shell(["-c", code], HF_ENDPOINT=hub, HF_HOME=str(tmp_path))
    assert done.stdout.split() == ["2", "[]"], done.stderr


@pytest.mark.slow
def test_the_command_line_takes_an_id(hub, tmp_path):
    """From the Hub, then, offline, from the cache; and the sentence for what is in neither."""
    where = {"HF_HOME": str(tmp_path)}
    online = shell(["-m", "kvviz", "calc", "some/model", "--tokens", "10", "--json"], HF_ENDPOINT=hub, **where)
    assert json.loads(online.stdout)["total_bytes"] == 2 * 2 * 64 * 10 * 2
    offline = shell(["-m", "kvviz", "calc", "some/model", "--tokens", "10", "--json"], HF_HUB_OFFLINE="1", **where)
    assert json.loads(offline.stdout) == json.loads(online.stdout)
    neither = shell(["-m", "kvviz", "calc", "some/other"], HF_HUB_OFFLINE="1", **where)
    assert (neither.returncode, neither.stdout) == (2, "")
    assert neither.stderr.splitlines() == [
        "kvviz: some/other is not in the local cache and the Hugging Face Hub can't be reached from here; "
        "paste the config.json instead"
    ]


@pytest.mark.slow
def test_the_probe_takes_an_id(hub, tmp_path):
    done = shell(
        ["-m", "kvviz", "probe", "some/model", "--tokens", "10", "--json"], HF_ENDPOINT=hub, HF_HOME=str(tmp_path)
    )
    assert json.loads(done.stdout)["total_bytes"] == 2 * 2 * 64 * 10 * 2, done.stderr


@pytest.mark.slow
def test_no_network_at_all_is_one_line_and_soon():
    start = time.perf_counter()
    done = shell(["-m", "kvviz", "calc", "some/other"], HF_ENDPOINT="http://hub.invalid")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "can't be reached from here" in done.stderr
    assert time.perf_counter() - start < 20
