"""GGUF headers from files, and from the first bytes of a file on a Hub that a thread plays."""

import re
from contextlib import suppress

import pytest

from kvviz.base.errors import KvvizError
from kvviz.models import sources
from kvviz.models.gguf.config import weights_in
from kvviz.models.gguf.fetch import STEPS, config_in_file, config_on_the_hub, on_the_hub
from tests.models.gguf.writer import header, model
from tests.models.hub import Hub, ask, serving

TENSORS = [("w", (64, 2), 0, 0)]
PARTS = {
    "two-00001-of-00002.gguf": header({**model(), "split.count": 2, "split.no": 0}, TENSORS),
    "two-00002-of-00002.gguf": header({"split.count": 2, "split.no": 1}, TENSORS),
}
LONG = header({"general.description": "x" * STEPS[0], **model()}, TENSORS)  # longer than what is asked for at first
FILES = {**PARTS, "long.gguf": LONG + b"\0" * 2**22, "short.gguf": LONG[:1_000]}


class GgufFiles(Hub):
    """These files in one repository, by ranges of bytes; `asked` has the last byte of each range."""

    asked: list = []  # noqa: RUF012

    def answer(self):
        body = FILES.get(self.path.rpartition("/")[2])
        if body is None:
            return self.send(b"", 404, **{"X-Error-Code": "EntryNotFound"})
        last = int(re.fullmatch(r"bytes=0-(\d+)", self.headers["Range"])[1])
        self.asked.append(last)
        return self.send(body[: last + 1], 206)


class WithoutRanges(Hub):
    """The same, but it sends the whole of a file of 256 MiB, whatever range it is asked for."""

    sent = 0  # MiB

    def do_GET(self):  # noqa: N802
        self.send(b"", 200, **{"Content-Length": str(2**28)})
        with suppress(ConnectionError):
            self.wfile.write(LONG.ljust(2**21, b"\0"))
            for _ in range(254):
                self.wfile.write(bytes(2**20))
                type(self).sent += 1


@pytest.fixture(scope="module")
def hub():
    with serving(GgufFiles) as address:
        yield address


@pytest.fixture
def here(hub, monkeypatch):
    ask(hub, monkeypatch)
    GgufFiles.asked.clear()


def test_no_more_of_a_file_on_the_hub_is_fetched_than_its_header(here):
    config = config_on_the_hub("some/model", "main", "long.gguf")
    assert (config["model_type"], config["_name_or_path"]) == ("llama", "long.gguf")
    assert [last + 1 for last in GgufFiles.asked] == list(STEPS[:2])


def test_of_a_server_without_ranges_no_more_is_read_either(monkeypatch):
    with serving(WithoutRanges) as address:
        ask(address, monkeypatch)
        assert config_on_the_hub("some/model", "main", "long.gguf")["model_type"] == "llama"
        assert WithoutRanges.sent < 200


def test_the_parts_of_a_split_file_count_together(here, tmp_path):
    for name, data in PARTS.items():
        (tmp_path / name).write_bytes(data)
    first = next(iter(PARTS))
    for config in (config_on_the_hub("some/model", "main", first), config_in_file(tmp_path / first, first)):
        assert (weights_in(config).parameters, weights_in(config).nbytes) == (256, 1024)
    (tmp_path / "two-00002-of-00002.gguf").unlink()
    assert weights_in(config_in_file(tmp_path / first, first)) is None


@pytest.mark.parametrize(
    ("file", "says"), [("none.gguf", "is not on the Hugging Face Hub"), ("short.gguf", "shorter than its own GGUF")]
)
def test_what_the_hub_has_not_is_said(here, file, says):
    with pytest.raises(KvvizError, match=says):
        config_on_the_hub("some/model", "main", file)


def test_a_public_server_fetches_none_but_its_own(here):
    sources.restrict(["other/model"])
    try:
        with pytest.raises(KvvizError, match="open to all"):
            config_on_the_hub("some/model", "main", "long.gguf")
    finally:
        sources.restrict(None)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("owner/name/file.gguf", ("owner/name", "main", "file.gguf")),
        ("owner/name/Q4_K_M/file-00001-of-00002.gguf", ("owner/name", "main", "Q4_K_M/file-00001-of-00002.gguf")),
        ("https://huggingface.co/owner/na.me/blob/main/file.gguf", ("owner/na.me", "main", "file.gguf")),
        ("https://hf.co/o/n/resolve/v1/a/b.gguf?download=true", ("o/n", "v1", "a/b.gguf")),
        ("hf:owner/name/file.gguf", ("owner/name", "main", "file.gguf")),
        ("huggingface.co/o/n/blob/main/a.gguf", ("o/n", "main", "a.gguf")),
        ("https://example.org/o/n/b.gguf", None),
        ("owner/name", None),
        ("owner/../file.gguf", None),
        ("file.gguf", None),
    ],
)
def test_names_of_files_on_the_hub(name, found):
    assert on_the_hub(name) == found
