"""Types that the store returns, and the columns that it reads from a spec, a `started` record and a document."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kvviz.base.records import is_whole
from kvviz.experiments.comparison.figures import HEADLINE

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

IMPORTED = "import"  # the origin of what was measured elsewhere
SHOWN_PROMPT = 200  # characters of the prompt that a list shows
LONGEST_TITLE = 200
LONGEST = {
    "model": 500,
    "weights": 40,
    "config_hash": 64,
    "device": 100,
    "device_name": 200,
    "dtype": 40,
    "prompt": 4000,  # only these characters can be searched
}
COUNTS = ("prompt_tokens", "new_tokens", "batch")


@dataclass(frozen=True)
class Stored:
    """A comparison or sweep as lists show it. `state` is running, done, stopped, failed or interrupted.

    `prompt` is the text's first 200 characters, or "" for random tokens. `headline` has one object per run
    (HEADLINE in kvviz.experiments.comparison.figures) and is empty before the end. An unknown count is None, an unknown
    text "".
    """

    id: str
    kind: str
    origin: str
    title: str
    state: str
    message: str
    created: datetime
    model: str
    weights: str
    config_hash: str
    device: str
    device_name: str
    dtype: str
    modes: tuple[str, ...]
    prompt: str
    prompt_tokens: int | None
    new_tokens: int | None
    batch: int | None
    tags: tuple[str, ...]
    headline: tuple[dict[str, Any], ...]
    deleted: bool
    made_by: str

    @classmethod
    def of_row(cls, row: "RowMapping") -> "Stored":
        """Build the header from a table row."""
        values: dict[str, Any] = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**values, **{name: read(values[name]) for name, read in _READ.items()}})


_READ: dict[str, Callable[[Any], object]] = {
    "created": lambda seconds: datetime.fromtimestamp(seconds, UTC),
    "modes": lambda text: tuple(json.loads(text)),
    "tags": lambda text: tuple(text.split("\n")[1:-1]),
    "headline": lambda text: tuple(json.loads(text)),
    "deleted": lambda seconds: seconds is not None,
}


@dataclass(frozen=True)
class Run:
    """One mode's run of a stored comparison.

    `repeats` holds the seconds of every step of every timed pass, `figures` is the run's whole entry in the document,
    `spec` what was asked for.
    """

    id: str
    comparison: Stored
    mode: str
    repeats: tuple[tuple[float, ...], ...]
    figures: dict[str, Any]
    spec: dict[str, Any] = field(default_factory=dict)


def clean(text: str, longest: int) -> str:
    """Make a text fit for SQLite: cut it to `longest`, and replace null characters and lone surrogates."""
    return text[:longest].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _place(record: Mapping[str, object]) -> dict[str, object]:
    """Read an environment; the device is called what the server called its worker: gpu-2/cuda:0, and not cuda:0."""
    found = _object(record.get("environment"))
    return {**found, "device": found.get("worker") or found.get("device")}


def of_started(record: Mapping[str, object]) -> dict[str, object]:
    """Read columns from a `started` record."""
    spec, model, prompt = (_object(record.get(name)) for name in ("spec", "model", "prompt"))
    values = {
        "prompt": prompt.get("text"),
        **spec,
        **_place(record),
        "model": model.get("id"),
        "weights": model.get("weights"),
        "prompt_tokens": prompt.get("tokens"),
        "modes": [_object(mode).get("name") for mode in _objects(record.get("modes"))],
        "config_hash": record.get("config_hash"),
    }
    return columns_of(values)


def of_document(document: Mapping[str, object]) -> dict[str, object]:
    """Read columns from a comparison's document, including its headline figures."""
    found = runs_of(document)
    values = columns_of({**document, **_place(document)})
    if found:
        values["modes"] = json.dumps([run["mode"] for run in found])
        values["headline"] = json.dumps([{name: run.get(name) for name in HEADLINE} for run in found])
    return values


def runs_of(document: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return the document's runs; return [] if it is not a comparison's document."""
    found = _objects(document.get("runs"))
    return found if all(isinstance(run.get("mode"), str) for run in found) else []


def _objects(value: object) -> list[dict[str, Any]]:
    return value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else []


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def columns_of(values: Mapping[str, object]) -> dict[str, object]:
    """Keep the values that have a column and fit it, such as those of a spec."""
    texts = {name: clean(text, most) for name, most in LONGEST.items() if isinstance(text := values.get(name), str)}
    counts = {name: n for name in COUNTS if is_whole(n := values.get(name), 0, 2**63 - 1)}
    modes = values.get("modes")
    if not isinstance(modes, list | tuple) or not modes or not all(isinstance(mode, str) for mode in modes):
        return {**texts, **counts}
    return {**texts, **counts, "modes": json.dumps(list(modes))}
