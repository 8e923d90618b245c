"""What a browser hands in: bytes within the limit that the settings name."""

from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.settings import settings


def content(file: Any) -> bytes:
    """An uploaded file's bytes. Raises KvvizError where they are more than this server takes."""
    most = settings().limits.upload_bytes
    if file.size > most:
        raise KvvizError(f"this file has {file.size:,} bytes; this server takes at most {most:,}")
    return file.getvalue()
