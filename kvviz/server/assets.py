"""Serves the documents of the pages, and the files that they need.

A file's URL changes when one of them does: a browser keeps it and never asks again.
"""

import gzip
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
    async def answer(_request: Request) -> HTMLResponse:
        return HTMLResponse(text, headers={"cache-control": "no-cache"})

    return Route(path, answer)


class AssetFiles(StaticFiles):
    """Files that never change. Each large text among them is packed once, not for every browser of a class."""

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Answer with a file, packed where that gains something and the browser takes it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        path, takes = Path(full_path), Headers(scope=scope).get("accept-encoding", "")
        whole = isinstance(response, FileResponse)  # not the answer that the browser's copy is still good
        if whole and "gzip" in takes and path.suffix in TEXT and stat_result.st_size >= SMALL:
            kind = response.headers["content-type"]
            response = Response(
                _packed(path, stat_result.st_mtime_ns), media_type=kind, headers={"content-encoding": "gzip"}
            )
        response.headers["vary"] = "Accept-Encoding"
        response.headers["cache-control"] = FOR_GOOD
        return response


@lru_cache(maxsize=256)
def _packed(path: Path, _written_ns: int) -> bytes:
    return gzip.compress(path.read_bytes())
