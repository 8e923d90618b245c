"""One name for like values: SHA-256 over JSON that is always written the same way. Standard library only."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces; infinities as Python writes them, what JSON can't say as its `str`."""
    plain = json.loads(json.dumps(value, default=str, skipkeys=True))  # every key is a text now, so they can be sorted
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def config_hash(config: Mapping[str, Any]) -> str:
    """The same for two models whose config.json holds the same values, in whatever order."""
    return digest(dict(config))
