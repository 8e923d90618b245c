"""A comparison or a watched run as one JSON file, and the strict way back. Standard library only.

A recording is `{"kvviz": "recording", "version": 1, "records": [...]}`, its records those of the live feed, so that
the live page shows it like a run of its own. What does not fit is refused with one sentence; nothing in a file is
ever executed, and its texts are only ever shown as text.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvviz.base.checks import (
    LONGEST_LIST,
    Check,
    Unfit,
    by_mode,
    flag,
    list_of,
    maybe,
    number,
    object_of,
    parse,
    short_name,
    text,
    whole,
)
from kvviz.base.errors import KvvizError
from kvviz.base.records import Environment

VERSION = 1
MOST_LAYERS = 10_000
LARGEST = 20_000_000  # bytes of a file that is read at all


def write(records: Sequence[dict[str, Any]], path: str | Path) -> Path:
    """Write a recording; returns the path."""
    path = Path(path)
    path.write_text(dumps(records), encoding="utf-8")
    return path


def dumps(records: Sequence[dict[str, Any]]) -> str:
    """A recording as JSON text."""
    return json.dumps({"kvviz": "recording", "version": VERSION, "records": list(records)}, allow_nan=False)


def loads(data: str | bytes) -> list[dict[str, Any]]:
    """The records of a recording. Raises KvvizError with one sentence where the file is not one."""
    file = parse(data, LARGEST, "recording")
    if not isinstance(file, dict) or file.get("kvviz") != "recording" or not isinstance(file.get("records"), list):
        raise KvvizError('this file is no recording of kvviz: it lacks {"kvviz": "recording", "records": […]}')
    if file.get("version") != VERSION:
        raise KvvizError(f"this recording has another version than {VERSION}, the one that this kvviz reads")
    return checked(file["records"])


def checked(records: list[Any]) -> list[dict[str, Any]]:
    """The records with known fields only, each field checked. Raises KvvizError with one sentence."""
    if not records or not isinstance(records[0], dict) or records[0].get("t") != "started":
        raise KvvizError("this recording does not begin with a record of type 'started'")
    if len(records) > LONGEST_LIST:
        raise KvvizError(f"this recording has more than {LONGEST_LIST:,} records, which none has")
    result = []
    for place, record in enumerate(records):
        try:
            result.append(_record(record))
        except Unfit as unfit:
            raise KvvizError(f"record {place} of this recording does not fit: {unfit}") from unfit
    _check_modes(result)
    return result


def shown(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The records that a recording holds, of all that a feed has sent: how a model was loaded is not among them."""
    kept = (record for record in records if record["t"] in _FIELDS)
    return [{name: value for name, value in record.items() if name != "document"} for record in kept]


def _record(record: Any) -> dict[str, Any]:
    kind = record.get("t") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise Unfit(f"its type is one of {', '.join(_FIELDS)}")
    return {"t": kind, **_object(_FIELDS[kind])(record, kind)}


def _check_modes(records: list[dict[str, Any]]) -> None:
    """Every record speaks of modes that the first one has named."""
    known = {mode["name"] for mode in records[0]["modes"]}
    for place, record in enumerate(records):
        if not _modes_of(record) <= known:
            raise KvvizError(f"record {place} of this recording speaks of a mode that was not started")


def _modes_of(record: dict[str, Any]) -> set[str]:
    if record["t"] == "proof":
        return set(record["modes"])
    if record["t"] == "predicted":
        return set(record["step_s"])
    if record["t"] == "figures":
        return {run["mode"] for run in record["runs"]}
    return {record["mode"]} if "mode" in record else set()


# --- what a record's fields may be ------------------------------------------------------------------------------

_OPTIONAL = (
    "at", "piece", "margin", "pieces", "note", "speedup", "itl_p99_s", "itl_s", "peak_bytes", "repeatable", "id",
    "message", "config_hash", "reasons",
)  # fmt: skip


def _object(fields: dict[str, Check], optional: Sequence[str] = ()) -> Check:
    return object_of(fields, (*_OPTIONAL, *optional))


def _group(value: Any, name: str) -> list[Any]:
    """[indices, kind, K shape, V shape, dtype, seen, held, nbytes, allocated] of like layers."""
    if not isinstance(value, list) or len(value) != len(_GROUP):
        raise Unfit(f"{name} has to hold groups of {len(_GROUP)} fields")
    return [check(item, name) for check, item in zip(_GROUP, value, strict=True)]


def _groups(value: Any, name: str) -> list[Any]:
    """Groups that together have no more layers than a model can have: a page draws a row for each."""
    groups = list_of(_group, MOST_LAYERS)(value, name)
    if sum(len(group[0]) for group in groups) > MOST_LAYERS:
        raise Unfit(f"{name} has to speak of at most {MOST_LAYERS:,} layers")
    return groups


_SHAPE = list_of(whole(), 8)
_GROUP = (
    list_of(whole(0, MOST_LAYERS), MOST_LAYERS), text(20), _SHAPE, _SHAPE, text(20), whole(), whole(), whole(), whole(),
)  # fmt: skip
_STEP = _object(
    {
        "ids": list_of(whole(), 64),
        "text": text(1000),
        "piece": text(1000),
        "layers": _groups,
        "outliving": whole(),
        "delta": maybe(number(0)),
        "divergence": maybe(whole()),
        "margin": maybe(number(0)),
    }
)
_MODE = _object({"name": short_name, "title": text(60), "summary": text(300), "exact": flag})
ACCOUNT = _object(
    {
        "kind": text(40),
        "kept": maybe(number()),
        "peak": maybe(number()),
        "reserved": maybe(list_of(whole(), 2)),
    }
)
REASONS = list_of(text(1000), 20)  # sentences on the figures of a cache's bytes
ENVIRONMENT = _object(
    {name: whole(0, 10**6) if name in ("threads", "cores") else text(200) for name in Environment.__dataclass_fields__}
)
SAMPLING = _object(
    {
        "temperature": number(0, 100),
        "top_k": maybe(whole(1)),
        "top_p": maybe(number(0, 1)),
        "seed": whole(0, 2**32 - 1),
    }
)
_ASKED = {
    "model": text(1000),
    "modes": list_of(short_name, 40),
    "weights": text(20),
    "prompt": maybe(text(2_000_000)),
    "prompt_tokens": maybe(whole(1)),
    "dtype": text(20),
    "device": text(40),
    "attn": text(20),
    "sampling": SAMPLING,
    "stop_at_eos": flag,
    "stop_text": text(1000),
}
_COUNTS = {"new_tokens": whole(1), "batch": whole(1, 10**6), "repeats": whole(), "warmup": whole()}
_SPEC = _object({**_ASKED, **_COUNTS}, optional=tuple(_ASKED))
_FIGURES = _object(
    {
        "mode": short_name,
        "identical": flag,
        "first_divergence": maybe(whole()),
        "max_abs_logit_diff": maybe(number(0)),
        "ttft_s": number(0),
        "itl_s": maybe(number(0)),
        "itl_p99_s": maybe(number(0)),
        "tokens_per_s": number(0),
        "total_s": number(0),
        "speedup": maybe(number(0)),
        "peak_bytes": maybe(whole()),
        "repeatable": flag,
    }
)
_PACE = number(0, 1e3)
_BY_ROWS = list_of(_PACE, 40)
PACES = _object(
    {
        "dtype": short_name,
        "rows": list_of(whole(1, 10**6), 40),
        **dict.fromkeys(("streamed", "resident"), _BY_ROWS),
        "cache_bytes": whole(),
        **dict.fromkeys(("attention", "joined", "activation", "elementwise", "start"), _PACE),
    }
)
_FIELDS: dict[str, dict[str, Check]] = {
    "started": {
        "id": text(80),
        "spec": _SPEC,
        "environment": ENVIRONMENT,
        "config_hash": maybe(text(64)),
        "model": _object(
            {
                "id": text(300),
                "title": text(300),
                "weights": text(20),
                "params": whole(),
                "layers": whole(0, MOST_LAYERS),
                "context": maybe(whole()),
                "note": text(500),
            }
        ),
        "prompt": _object({"tokens": whole(), "text": text(2_000_000), "pieces": list_of(text(1000))}),
        "modes": list_of(_MODE, 40),
    },
    "predicted": {"paces": PACES, "step_s": by_mode(list_of(number(0, 1e6)))},
    "proof": {"i": whole(), "at": number(0), "modes": by_mode(_STEP)},
    "memory": {
        "mode": short_name,
        "at": number(0),
        "formula": whole(),
        "tensors": whole(),
        "storages": whole(),
        "allocator": maybe(ACCOUNT),
        "reasons": REASONS,
    },
    "pass": {"mode": short_name, "repeat": whole(-100, 1000), "at": number(0)},
    "times": {
        "mode": short_name,
        "repeat": whole(-100, 1000),
        "from": whole(),
        "s": list_of(number(0, 1e6)),
        "at": number(0),
    },
    "figures": {"runs": list_of(_FIGURES, 40)},
    "done": {"message": text(1000)},
}  # fmt: skip
