"""What an engine tells of itself: its name, its version, and what its metrics say of its cache. No network here."""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+(\S+)")  # Prometheus's text format: name{labels} value


@dataclass(frozen=True)
class Engine:
    """An engine, as its table in engines.toml has it."""

    name: str
    title: str
    prefix: str
    owner: str
    version: tuple[str, str]  # the path that tells its version, and the field
    since: str = ""
    ignores_eos: bool = False
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@cache
def engines() -> tuple[Engine, ...]:
    """Return all engines of the table."""
    tables = tomllib.loads((Path(__file__).parent / "engines.toml").read_text(encoding="utf-8"))
    return tuple(Engine(name, **row) for name, row in tables.items())


def title_of_engine(name: str | None) -> str:
    """Return an engine's name for people."""
    return next((engine.title for engine in engines() if engine.name == name), "a server that does not say its name")


def engine_of(exposition: str, owners: Iterable[str]) -> Engine | None:
    """Recognise an engine by its metrics, or by who it says owns its models; None for one that is not in the table."""
    metrics = [engine for engine in engines() if re.search(f"^{engine.prefix}", exposition, re.MULTILINE)]
    owned = [engine for engine in engines() if engine.owner in set(owners)]
    return next(iter([*metrics, *owned]), None)


def known_metrics(engine: Engine | None, exposition: str) -> dict[str, float]:
    """Return the known figures of an exposition in Prometheus's text format; a figure of several parts is their sum."""
    values: dict[str, float] = {}
    for line in exposition.splitlines():
        if found := _LINE.match(line):
            number = _number(found[2])
            if number is not None:
                values[found[1]] = values.get(found[1], 0.0) + number
    wanted = engine.metrics if engine else {}
    first = {what: next((name for name in names if name in values), None) for what, names in wanted.items()}
    return {what: values[name] for what, name in first.items() if name is not None}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
