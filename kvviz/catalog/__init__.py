"""Sourced rows: the models that kvviz knows by name. Data and their readers; standard library only."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kvviz.errors import KvvizError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class ModelRow:
    """One published model: config values that decide its sizes, its parameter count, where they were read."""

    id: str
    family: str
    title: str
    hub: str | None
    params: int
    source: str
    config: dict[str, Any]


@cache
def models() -> dict[str, ModelRow]:
    """All rows by id, in the order in which a menu shows them."""
    rows = json.loads((HERE / "models.json").read_text(encoding="utf-8"))["models"]
    return {row["id"]: ModelRow(**row) for row in rows}


def model_row(model_id: str) -> ModelRow:
    """The row of a catalog id. Raises KvvizError naming near ids where there is none."""
    row = models().get(model_id)
    if row is None:
        raise KvvizError(f"no model {model_id!r} in the catalog; `kvviz models` lists {', '.join(near(model_id))} …")
    return row


def near(model_id: str, count: int = 4) -> list[str]:
    """The catalog ids most like a given one."""
    from difflib import get_close_matches

    return get_close_matches(model_id.lower(), models(), n=count, cutoff=0.0)
