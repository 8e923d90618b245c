"""Serves the documents of the pages, and the files that they need.

A file's URL changes when one of them does: a browser keeps it and never asks again.
"""

import gzip
import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOR_GOOD = "public, max-age=31536000, immutable"
TEXT = (".js", ".css")
SMALL = 1_000  # bytes, below which packing gains nothing


def routes(documents: Mapping[str, str]) -> list[BaseRoute]:
    """A route for each path of a page, which answers with its document."""
    return [_route(path, text) for path, text in documents.items()]


def _route(path: str, text: str) -> Route:
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'
    headers = {"cache-control": "no-cache", "etag": tag}

    async def answer(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):  # the browser's copy is still good
            return Response(status_code=304, headers=headers)
        return HTMLResponse(text, headers=headers)

    return Route(path, answer)


class AssetFiles(StaticFiles):
    """Files that never change. Each large text among them is packed once, not for every browser of a class."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Find a file and pack it: in a thread, because plotly.js would hold up every viewer's feed."""
        full_path, stat_result = super().lookup_path(path)
        if stat_result is not None and _gains(full_path, stat_result):
            _packed(Path(full_path), stat_result.st_mtime_ns)
        return full_path, stat_result

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Answer with a file, packed where that gains something and the browser takes it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        takes = _takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        whole = isinstance(response, FileResponse)  # not the answer that the browser's copy is still good
        if whole and takes and _gains(full_path, stat_result):
            kind = response.headers["content-type"]
            response = Response(
                _packed(Path(full_path), stat_result.st_mtime_ns), media_type=kind, headers={"content-encoding": "gzip"}
            )
        response.headers["vary"] = "Accept-Encoding"
        response.headers["cache-control"] = FOR_GOOD
        return response


def _takes_gzip(accepted: str) -> bool:
    """Whether Accept-Encoding names gzip with a weight above zero (RFC 9110, section 12.5.3)."""
    for coding in accepted.lower().split(","):
        name, _, weight = "".join(coding.split()).partition(";q=")
        if name == "gzip":
            return not weight or bool(weight.strip("0."))
    return False


def _gains(path: Any, stat_result: os.stat_result) -> bool:
    return Path(path).suffix in TEXT and stat_result.st_size >= SMALL


@lru_cache(maxsize=256)
def _packed(path: Path, _written_ns: int) -> bytes:
    return gzip.compress(path.read_bytes())
