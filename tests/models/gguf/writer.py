"""Write GGUF headers for tests, right ones and wrong ones: `header({"general.architecture": "llama", ...})`."""

import struct

UINT32, FLOAT, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _typed(value):
    """A value's type and its bytes."""
    if isinstance(value, bool):
        return BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return UINT32, struct.pack("<I", value)
    if isinstance(value, float):
        return FLOAT, struct.pack("<f", value)
    if isinstance(value, str):
        return STRING, text(value)
    each = [_typed(entry) for entry in value]
    return ARRAY, struct.pack("<IQ", each[0][0], len(each)) + b"".join(data for _, data in each)


def key(name, value):
    kind, data = _typed(value)
    return text(name) + struct.pack("<I", kind) + data


def tensor(name, shape, kind, offset):
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def header(metadata, tensors=(), version=3, counts=None):
    """The header's bytes. `tensors` are (name, shape, type, offset); `counts` may lie about both numbers."""
    numbers = counts or (len(tensors), len(metadata))
    start = b"GGUF" + struct.pack("<IQQ", version, *numbers)
    return start + b"".join(key(*pair) for pair in metadata.items()) + b"".join(tensor(*each) for each in tensors)


def model(arch="llama", keys=()):
    """The metadata of a small model; `keys` are more of its architecture's, or others' values."""
    sizes = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4, "context_length": 512}
    return {
        "general.architecture": arch,
        **{f"{arch}.{name}": value for name, value in {**sizes, **dict(keys)}.items()},
    }
