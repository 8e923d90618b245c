"""Serves the files that the pages need.

Their URL changes when one of them does, so a browser keeps each file and never asks for it again.
"""

import gzip
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOR_GOOD = "public, max-age=31536000, immutable"
TEXT = (".js", ".css")
SMALL = 1_000  # bytes, below which packing gains nothing


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
