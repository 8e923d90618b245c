"""What a browser hands in: bytes within the limit that the settings name."""

from streamlit.runtime.uploaded_file_manager import UploadedFile

from kvviz.base.errors import KvvizError
from kvviz.base.settings import settings


def content(file: UploadedFile) -> bytes:
    """An uploaded file's bytes. Raises KvvizError if they are more than this server takes."""
    most = settings().limits.upload_bytes
    if file.size > most:
        raise KvvizError(f"this file has {file.size:,} bytes; this server takes at most {most:,}")
    return file.getvalue()
