"""A browser keeps the files of the pages for good, and gets each large text packed."""

import asyncio
import gzip

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from kvviz.server import assets
from kvviz.server.assets import AssetFiles, routes

SCRIPT = "export const one = 1\n" * 100


@pytest.fixture
def client(tmp_path):
    (tmp_path / "large.js").write_text(SCRIPT)
    (tmp_path / "small.js").write_text("export {}")
    (tmp_path / "kept.json.gz").write_bytes(gzip.compress(b"{}" * 2_000))
    pages = routes({"/": "<p>first</p>", "/live": "<p>live</p>"})
    return TestClient(Starlette(routes=[*pages, Mount("/kv/assets", AssetFiles(directory=tmp_path))]))


def test_a_file_is_kept_and_comes_packed_only_if_the_browser_takes_that(client):
    packed = client.get("/kv/assets/large.js")
    plain = client.get("/kv/assets/large.js", headers={"accept-encoding": "identity"})
    assert packed.text == plain.text == SCRIPT
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert int(packed.headers["content-length"]) < len(SCRIPT) / 5
    for answer in (packed, plain):
        assert "javascript" in answer.headers["content-type"]
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["vary"] == "Accept-Encoding"


def test_a_browser_that_has_the_file_is_told_so(client):
    plain = client.get("/kv/assets/large.js", headers={"accept-encoding": "identity"})
    again = client.get("/kv/assets/large.js", headers={"if-none-match": plain.headers["etag"]})
    assert again.status_code == 304 and not again.content


@pytest.mark.parametrize("name", ["small.js", "kept.json.gz"])
def test_what_would_not_get_smaller_comes_as_it_is(client, name):
    assert "content-encoding" not in client.get(f"/kv/assets/{name}").headers


def test_a_document_is_asked_for_again_at_each_visit(client):
    for path, words in (("/", "first"), ("/live?model=tiny-gpt2", "live")):
        answer = client.get(path)
        assert words in answer.text
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-type"].startswith("text/html")
        again = client.get(path, headers={"if-none-match": f"W/{answer.headers['etag']}"})
        assert again.status_code == 304 and not again.content
    assert client.get("/", headers={"if-none-match": answer.headers["etag"]}).status_code == 200, "of another page"


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip, deflate, br", True), ("br;q=1.0, GZIP;q=0.5", True), ("gzip;q=0", False), ("gzip; q=0.000, br", False)],
)
def test_the_weight_that_a_browser_gives_gzip_counts(client, accepted, packed):
    answer = client.get("/kv/assets/large.js", headers={"accept-encoding": accepted})
    assert (answer.headers.get("content-encoding") == "gzip") == packed
    assert answer.text == SCRIPT


def test_a_file_is_packed_outside_the_event_loop(client, monkeypatch):
    packed_by = []
    kept = assets.gzip.compress
    monkeypatch.setattr(assets.gzip, "compress", lambda data: packed_by.append(_loop_runs()) or kept(data))
    for _ in range(2):
        assert client.get("/kv/assets/large.js", headers={"accept-encoding": "gzip"}).text == SCRIPT
    assert packed_by == [False]


def _loop_runs():
    try:
        return asyncio.get_running_loop().is_running()
    except RuntimeError:
        return False
