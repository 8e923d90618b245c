"""Hashes of values: SHA-256 over JSON that is always written the same way."""

import hashlib
import json
from collections.abc import Mapping


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; infinities as Python writes them, other values unknown to JSON as `str`."""
    plain = json.loads(json.dumps(value, default=str, skipkeys=True))  # every key is a text now and can be sorted
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def config_hash(config: Mapping[str, object]) -> str:
    """The hash of a model's config.json; the order of its fields does not matter."""
    return digest(dict(config))
