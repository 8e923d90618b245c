"""Read the headers of safetensors files: are a folder's weights complete, and how many parameters do they hold?

The format: https://huggingface.co/docs/safetensors/index#format.
"""

import json
import math
import struct
from pathlib import Path
from typing import Any

LONGEST_HEADER = 100_000_000  # bytes, the format's own limit
NO_HEADER = (ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error)  # what parsing can raise


def damage(folder: Path) -> str:
    """Describe what is wrong with a folder's weights in a sentence that names the file; "" if nothing is."""
    if not folder.is_dir():
        return f"the folder {folder} is gone: put it back, or choose another model"
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return f"{folder} holds no .safetensors file any more; kvviz loads no other format"
    for file in files:
        try:
            size, wanted = file.stat().st_size, whole_size(file)
        except OSError as error:
            return f"{file} can't be read ({type(error).__name__})"
        except NO_HEADER:
            return f"{file} does not begin like a safetensors file; copy it again"
        if size < wanted:
            return f"{file} is cut off: it has {size:,} bytes of {wanted:,}; copy it again"
    return ""


def whole_size(file: Path) -> int:
    """Size of a safetensors file (bytes) by its own header. Raises one of NO_HEADER for a file without a header."""
    length, text = _header(file)
    if len(text) < length:
        return 8 + length  # the header itself is cut off
    return 8 + length + max(tensor["data_offsets"][1] for tensor in _tensors(text))


def parameters(folder: Path) -> int | None:
    """Count the parameters in a folder's safetensors files; None if one is unreadable, which loading will explain."""
    try:
        headers = [_header(file)[1] for file in folder.glob("*.safetensors")]
        return sum(math.prod(tensor["shape"]) for text in headers for tensor in _tensors(text))
    except (OSError, *NO_HEADER):
        return None


def _header(file: Path) -> tuple[int, bytes]:
    """Return the stated length of a file's header, and as much of the header as the file holds."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > LONGEST_HEADER:
            raise ValueError("no header is that long")
        return length, stream.read(length)


def _tensors(header: bytes) -> list[dict[str, Any]]:
    """The `shape` of each tensor, and the `data_offsets` of its bytes after the header."""
    return [entry for name, entry in json.loads(header).items() if name != "__metadata__"]
