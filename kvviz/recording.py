"""A comparison or a watched run as one JSON file, and the strict way back. Standard library only.

A recording is `{"kvviz": "recording", "version": 1, "records": [...]}`, its records those of the live feed, so that
the live page shows it like a run of its own. What does not fit is refused with one sentence; nothing in a file is
ever executed, and its texts are only ever shown as text.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvviz.errors import KvvizError
from kvviz.records import Environment

VERSION = 1
LARGEST = 20_000_000  # bytes of a file that is read at all
MOST = 200_000  # records, list entries


def write(records: Sequence[dict[str, Any]], path: str | Path) -> Path:
    """Write a recording; returns the path."""
    path = Path(path)
    path.write_text(dumps(records), encoding="utf-8")
    return path


def dumps(records: Sequence[dict[str, Any]]) -> str:
    """A recording as JSON text."""
    return json.dumps({"kvviz": "recording", "version": VERSION, "records": list(records)}, allow_nan=False)


def loads(text: str | bytes) -> list[dict[str, Any]]:
    """The records of a recording. Raises KvvizError with one sentence where the file is not one."""
    if len(text) > LARGEST:
        raise KvvizError(f"this file is larger than {LARGEST:,} bytes, which no recording is")
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise KvvizError("this file is not JSON, so it is no recording of kvviz") from error
    if not isinstance(data, dict) or data.get("kvviz") != "recording" or not isinstance(data.get("records"), list):
        raise KvvizError('this file is no recording of kvviz: it lacks {"kvviz": "recording", "records": […]}')
    if data.get("version") != VERSION:
        raise KvvizError(f"this recording has version {data.get('version')!r}; this kvviz reads version {VERSION}")
    records = data["records"][:MOST]
    if not records or not isinstance(records[0], dict) or records[0].get("t") != "started":
        raise KvvizError("this recording does not begin with a record of type 'started'")
    checked = []
    for number, record in enumerate(records):
        try:
            checked.append(_record(record))
        except _Unfit as unfit:
            raise KvvizError(f"record {number} of this recording does not fit: {unfit}") from unfit
    _check_modes(checked)
    return checked


def _no_constant(name: str) -> Any:
    raise ValueError(name)


class _Unfit(Exception):
    """Which field does not fit, and what would."""


Check = Callable[[Any, str], Any]


def _record(record: Any) -> dict[str, Any]:
    if not isinstance(record, dict) or record.get("t") not in _FIELDS:
        raise _Unfit(f"its type is one of {', '.join(_FIELDS)}")
    kind = record["t"]
    return {"t": kind, **_object(_FIELDS[kind])(record, kind)}


def _check_modes(records: list[dict[str, Any]]) -> None:
    """Every record speaks of modes that the first one has named."""
    known = {mode["name"] for mode in records[0]["modes"]}
    for number, record in enumerate(records):
        named = set(record["modes"]) if record["t"] == "proof" else {record["mode"]} if "mode" in record else set()
        if not named <= known:
            raise KvvizError(f"record {number} of this recording speaks of a mode that was not started")


# --- what a field may be: functions that give the value back or raise ------------------------------------------


def _number(least: float = -math.inf, most: float = 1e15) -> Check:
    def check(value: Any, name: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise _Unfit(f"{name} has to be a number from {least:g} to {most:g}")
        return value

    return check


def _whole(least: int = 0, most: int = 10**15) -> Check:
    def check(value: Any, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _Unfit(f"{name} has to be a whole number from {least} to {most:g}")
        return value

    return check


def _text(longest: int) -> Check:
    def check(value: Any, name: str) -> str:
        if not isinstance(value, str) or len(value) > longest:
            raise _Unfit(f"{name} has to be a text of at most {longest:,} characters")
        return value

    return check


def _name(value: Any, name: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_-]{0,40}", value):
        raise _Unfit(f"{name} has to be a short name in lower case")
    return value


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise _Unfit(f"{name} has to be true or false")
    return value


def _list(check: Check, most: int = MOST) -> Check:
    def checked(value: Any, name: str) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise _Unfit(f"{name} has to be a list of at most {most:,}")
        return [check(item, name) for item in value]

    return checked


def _maybe(check: Check) -> Check:
    return lambda value, name: None if value is None else check(value, name)


def _object(fields: dict[str, Check], optional: Sequence[str] = ()) -> Check:
    """An object with these fields; others are dropped, optional ones may be missing."""

    def check(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _Unfit(f"{name} has to be an object")
        result = {}
        for field, inner in fields.items():
            if field in value:
                result[field] = inner(value[field], field)
            elif field not in optional and field not in _OPTIONAL:
                raise _Unfit(f"{name} lacks {field}")
        return result

    return check


def _map(check: Check) -> Check:
    def checked(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > 40:
            raise _Unfit(f"{name} has to be an object of at most 40 modes")
        return {_name(key, name): check(item, key) for key, item in value.items()}

    return checked


def _group(value: Any, name: str) -> list[Any]:
    """[indices, kind, K shape, V shape, dtype, seen, held, nbytes, allocated] of like layers."""
    if not isinstance(value, list) or len(value) != len(_GROUP):
        raise _Unfit(f"{name} has to hold groups of {len(_GROUP)} fields")
    return [check(item, name) for check, item in zip(_GROUP, value, strict=True)]


_SHAPE = _list(_whole(), 8)
_GROUP = (
    _list(_whole(0, 10_000), 10_000), _text(20), _SHAPE, _SHAPE, _text(20), _whole(), _whole(), _whole(), _whole(),
)  # fmt: skip
_OPTIONAL = {"at", "piece", "margin", "pieces", "note", "speedup", "itl_p99_s", "itl_s", "peak_bytes", "repeatable"}
_STEP = _object(
    {
        "ids": _list(_whole(), 64),
        "text": _text(1000),
        "piece": _text(1000),
        "layers": _list(_group, 10_000),
        "outliving": _whole(),
        "delta": _maybe(_number(0)),
        "divergence": _maybe(_whole()),
        "margin": _maybe(_number(0)),
    }
)
_MODE = _object({"name": _name, "title": _text(60), "summary": _text(300), "exact": _flag})
_ACCOUNT = _object(
    {
        "kind": _text(40),
        "kept": _maybe(_number()),
        "peak": _maybe(_number()),
        "reserved": _maybe(_list(_whole(), 2)),
    }
)
_ENVIRONMENT = _object(
    {
        name: _whole(0, 10**6) if name in ("threads", "cores") else _text(200)
        for name in Environment.__dataclass_fields__
    }
)
_FIGURES = _object(
    {
        "mode": _name,
        "identical": _flag,
        "first_divergence": _maybe(_whole()),
        "max_abs_logit_diff": _maybe(_number(0)),
        "ttft_s": _number(0),
        "itl_s": _maybe(_number(0)),
        "itl_p99_s": _maybe(_number(0)),
        "tokens_per_s": _number(0),
        "total_s": _number(0),
        "speedup": _maybe(_number(0)),
        "peak_bytes": _maybe(_whole()),
        "repeatable": _flag,
    }
)
_FIELDS: dict[str, dict[str, Check]] = {
    "started": {
        "spec": _object(
            {"new_tokens": _whole(1), "batch": _whole(1, 10**6), "repeats": _whole(), "warmup": _whole()}
        ),
        "environment": _ENVIRONMENT,
        "model": _object(
            {
                "id": _text(300),
                "title": _text(300),
                "weights": _text(20),
                "params": _whole(),
                "layers": _whole(0, 10_000),
                "context": _maybe(_whole()),
                "note": _text(500),
            }
        ),
        "prompt": _object({"tokens": _whole(), "text": _text(2_000_000), "pieces": _list(_text(1000))}),
        "modes": _list(_MODE, 40),
    },
    "proof": {"i": _whole(), "at": _number(0), "modes": _map(_STEP)},
    "memory": {
        "mode": _name,
        "at": _number(0),
        "formula": _whole(),
        "tensors": _whole(),
        "storages": _whole(),
        "allocator": _maybe(_ACCOUNT),
    },
    "pass": {"mode": _name, "repeat": _whole(-100, 1000), "at": _number(0)},
    "times": {
        "mode": _name,
        "repeat": _whole(-100, 1000),
        "from": _whole(),
        "s": _list(_number(0, 1e6)),
        "at": _number(0),
    },
    "figures": {"runs": _list(_FIGURES, 40)},
    "done": {},
}  # fmt: skip
