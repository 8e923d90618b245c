"""config.json from a Hub that a thread plays, from its cache, and the sentences where there is none."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvviz.base.errors import KvvizError
from kvviz.models import hub_config as hubconfig
from kvviz.models.sources import LARGEST_CONFIG
from tests.cli.conftest import call
from tests.models.hub import Hub, ask, serving

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}
FILES = {
    "some/model": json.dumps(CONFIG).encode(),
    "some/list": b"[1, 2]",
    "some/text": b"no json",
    "some/huge": b" " * (LARGEST_CONFIG + 1),
}
REFUSED = {"some/gated": (403, "GatedRepo"), "some/empty": (404, "EntryNotFound"), "some/busy": (418, "")}


class SmallFiles(Hub):
    """A config.json in each repository."""

    def answer(self):
        name = self.path.strip("/").partition("/resolve/")[0]
        time.sleep(2 if name == "some/slow" else 0)
        code, reason = REFUSED.get(name, (200, "") if name in FILES else (401, "RepoNotFound"))
        body = FILES.get(name, b"") if code == 200 else b""
        return self.send(body, code, ETag=f'"{hash(body):x}"', **({"X-Error-Code": reason} if reason else {}))


@pytest.fixture(scope="module")
def hub():
    with serving(SmallFiles) as address:
        yield address


@pytest.fixture
def here(hub, tmp_path, monkeypatch):
    """This process asks the thread's Hub, with a cache of its own."""
    from huggingface_hub import constants

    ask(hub, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


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


def test_a_slow_hub_is_not_waited_for(here):
    start = time.perf_counter()
    with pytest.raises(KvvizError, match=r"can't be reached from here; paste the config\.json instead"):
        hubconfig.fetch_config("some/slow", timeout=0.1)
    assert time.perf_counter() - start < 1.5


def test_a_name_that_never_resolves_is_not_waited_for(here, monkeypatch):
    import socket

    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: time.sleep(2))
    start = time.perf_counter()
    with pytest.raises(KvvizError, match="can't be reached"):
        hubconfig.fetch_config("some/model", timeout=0.1)
    assert time.perf_counter() - start < 1.5


def test_without_a_network_the_cache_answers(here, monkeypatch):
    hubconfig.fetch_config("some/model")
    monkeypatch.setattr(hubconfig, "_downloaded", lambda *args: time.sleep(2))
    assert hubconfig.fetch_config("some/model", timeout=0.1) == CONFIG


@pytest.mark.slow
def test_the_command_line_takes_an_id(here, monkeypatch):
    """From the Hub, then, offline, from the cache; and the sentence for what is in neither."""
    from huggingface_hub import constants

    online = call("calc", "some/model", "--tokens", "10", "--json").document
    assert online["total_bytes"] == 2 * 2 * 64 * 10 * 2
    assert call("probe", "some/model", "--tokens", "10", "--json").document["total_bytes"] == online["total_bytes"]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert call("calc", "some/model", "--tokens", "10", "--json").document == online
    neither = call("calc", "some/other")
    assert (neither.status, neither.out) == (2, "")
    assert neither.err.splitlines() == [
        "kvviz: some/other is not in the local cache and the Hugging Face Hub can't be reached from here; "
        "paste the config.json instead"
    ]


@pytest.mark.slow
def test_no_network_at_all_is_one_line_and_soon():
    """In a process of its own: huggingface_hub reads its address when it is imported, and needs no torch."""
    code = "import sys; from kvviz.cli.main import main\ntry: main()\nfinally: print({'torch'} & set(sys.modules))"
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment["HF_ENDPOINT"] = "http://hub.invalid"
    command = [sys.executable, "-c", code, "calc", "some/other"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=20)
    assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (2, 1, "set()\n")
    assert "can't be reached from here" in done.stderr
