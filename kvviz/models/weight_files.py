"""Whether a folder's safetensors files are whole, from their headers alone. Standard library only.

The format: https://huggingface.co/docs/safetensors/index#format
"""

import json
import struct
from pathlib import Path

LONGEST_HEADER = 100_000_000  # bytes, the format's own limit


def damage(folder: Path) -> str:
    """What is wrong with a folder's weights, in a sentence that names the file; "" where nothing can be seen."""
    if not folder.is_dir():
        return f"the folder {folder} is gone: put it back, or choose another model"
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return f"{folder} holds no .safetensors file any more; kvviz loads no other format"
    return next((words for words in map(_damage_of, files) if words), "")


def _damage_of(file: Path) -> str:
    try:
        size = file.stat().st_size
        wanted = whole_size(file)
    except OSError as error:
        return f"{file} can't be read ({type(error).__name__})"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error):
        return f"{file} does not begin like a safetensors file; copy it again"
    if size < wanted:
        return f"{file} is cut off: it has {size:,} bytes of {wanted:,}; copy it again"
    return ""


def whole_size(file: Path) -> int:
    """Bytes that a safetensors file has by its own header. Raises ValueError and its like for no such header."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > LONGEST_HEADER:
            raise ValueError("no header is that long")
        text = stream.read(length)
    if len(text) < length:
        return 8 + length  # the header itself is cut off
    header = json.loads(text)
    return 8 + length + max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"))
