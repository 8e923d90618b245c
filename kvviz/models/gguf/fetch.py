"""Read a GGUF header from a file here, or from the first bytes of a file on the Hugging Face Hub.

huggingface_hub, imported when called, itself honours HF_ENDPOINT and HF_TOKEN.
"""

import io
import re
from pathlib import Path

from kvviz.base.errors import KvvizError
from kvviz.models.gguf.config import Config, config_of, parts_of
from kvviz.models.gguf.header import LARGEST_HEADER, MAGIC, CutOff, Header, read_header
from kvviz.models.hub_config import refusal, within
from kvviz.models.sources import check_hub

# What is asked for at first, and then if the header goes on: most have under 8 MiB.
STEPS = (2**20, 16 * 2**20, LARGEST_HEADER)
MOST_PARTS = 50  # of a split file that are looked at
_ON_THE_HUB = re.compile(
    r"(?:hf:(?://)?|(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)?([\w-][\w.-]{0,95}/[\w.-]{1,96})/"
    r"(?:(?:blob|resolve)/([\w.-]{1,100})/)?((?:[\w.,+=-]+/)*[\w.,+=-]+\.gguf)(?:\?[\w=&-]*)?"
)


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do, or has their ending."""
    try:
        with path.open("rb") as file:
            return path.suffix.lower() == ".gguf" or file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def on_the_hub(name: str) -> tuple[str, str, str] | None:
    """The repository, the revision and the path of a GGUF file that a name or a URL stands for; None for another."""
    match = _ON_THE_HUB.fullmatch(name.strip())
    if match is None or ".." in name:
        return None
    return match[1], match[2] or "main", match[3]


def config_in_file(path: Path, title: str) -> Config:
    """The config of a GGUF file, with the weights of its other parts if it is split and they lie beside it.

    Raises KvvizError, a sentence on the file.
    """
    header = _header_in(path, title)
    others = [path.with_name(name) for name in _other_parts(path.name, header)]
    beside = all(other.is_file() for other in others)
    return config_of(header, title, [_header_in(other, other.name) for other in others] if beside else ())


def _header_in(path: Path, title: str) -> Header:
    try:
        with path.open("rb") as file:
            return read_header(file, title)
    except OSError as error:
        raise KvvizError(f"{title} can't be read ({type(error).__name__})") from error


def _other_parts(name: str, header: Header) -> list[str]:
    """The names of a split file's other parts, by llama.cpp's rule: model-00001-of-00003.gguf is the first of three."""
    count = parts_of(header)
    if count > MOST_PARTS or not name.endswith(f"-00001-of-{count:05}.gguf"):
        return []
    stem = name.removesuffix(f"-00001-of-{count:05}.gguf")
    return [f"{stem}-{part:05}-of-{count:05}.gguf" for part in range(2, count + 1)]


def config_in_bytes(data: bytes, title: str = "") -> Config:
    """The config of the first bytes of a GGUF file. Raises ConfigError."""
    return config_of(read_header(io.BytesIO(data), title or "this file"), title)


def config_on_the_hub(repo: str, revision: str, path: str, timeout: float = 60) -> Config:
    """The config of a GGUF file on the Hub, of which only the first bytes are fetched. Raises KvvizError."""
    check_hub(repo)
    try:
        return within(timeout, lambda: _fetched(repo, revision, path))
    except KvvizError:
        raise
    except Exception as error:
        why = refusal(repo, error, path) or f"the Hugging Face Hub can't be reached from here for {path} of {repo}"
        raise KvvizError(f"{why}; give the file itself, or its first bytes (`head -c 32M`)") from error


def _fetched(repo: str, revision: str, path: str) -> Config:
    folder, slash, name = path.rpartition("/")
    header = _header_of(repo, revision, path)
    others = [_header_of(repo, revision, folder + slash + other) for other in _other_parts(name, header)]
    return config_of(header, name, others)


def _header_of(repo: str, revision: str, path: str) -> Header:
    for most in STEPS:
        data = _first_bytes(repo, revision, path, most)
        try:
            return read_header(io.BytesIO(data), path)
        except CutOff:
            if len(data) < most:
                break
    raise KvvizError(f"{path} of {repo} is shorter than its own GGUF header")


def _first_bytes(repo: str, revision: str, path: str, most: int) -> bytes:
    """At most that many bytes, also from a server that ignores the range and sends everything."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    headers = {**build_hf_headers(), "Range": f"bytes=0-{most - 1}", "Accept-Encoding": "identity"}
    data = bytearray()
    with get_session().stream("GET", hf_hub_url(repo, path, revision=revision), headers=headers) as response:
        hf_raise_for_status(response)
        for part in response.iter_bytes():
            data += part
            if len(data) >= most:
                break
    return bytes(data[:most])
