"""What an engine tells of itself: its name, its version, and what its metrics say of its cache. No network here."""

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")  # Prometheus's text format: name{labels} value
_LABEL = re.compile(r'(\w+)="([^"]*)"')
MOST_UNKNOWN = 8  # names
SHARES = ("cache_usage", "hit_rate")


_PROMPT = {"n_prompt_tokens_processed", "n_prompt_tokens_cache"}  # of a slot: of its prompt computed, and found


@dataclass(frozen=True)
class Engine:
    """An engine, as its table in engines.toml has it."""

    name: str
    title: str
    prefix: str = ""
    owner: str = ""
    routes: tuple[str, ...] = ()
    version: tuple[str, str] = ("", "")  # the path that tells its version, and the field
    since: str = ""
    asks: Mapping[str, bool] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    slots: bool = False
    view: str = ""
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@cache
def engines() -> tuple[Engine, ...]:
    """Return all engines of the table."""
    tables = tomllib.loads((Path(__file__).parent / "engines.toml").read_text(encoding="utf-8"))
    return tuple(Engine(name, **row) for name, row in tables.items())


def title_of_engine(name: str | None) -> str:
    """Return an engine's name for people."""
    return next((engine.title for engine in engines() if engine.name == name), "a server that does not say its name")


def title_of_server(engine: Mapping[str, Any]) -> str:
    """Return what a document's `engine` is called: its name and version, or its model where it tells no name."""
    if engine.get("name"):
        return " ".join(filter(None, [title_of_engine(engine["name"]), engine.get("version")]))
    return f"Server of {engine['model']}" if engine.get("model") else ""


def engine_of(exposition: str, owners: Iterable[str]) -> Engine | None:
    """Recognise an engine by its metrics, or by who it says owns its models; None for one that is not in the table."""
    metrics = [one for one in engines() if one.prefix and re.search(f"^{one.prefix}", exposition, re.MULTILINE)]
    owned = [engine for engine in engines() if engine.owner and engine.owner in set(owners)]
    return next(iter([*metrics, *owned]), None)


def engine_by_routes(description: str) -> Engine | None:
    """Recognise an engine by the paths that its OpenAPI description lists: all of its `routes` are among them."""
    try:
        paths = set(json.loads(description)["paths"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return next((engine for engine in engines() if engine.routes and paths.issuperset(engine.routes)), None)


def known_metrics(engine: Engine | None, exposition: str) -> dict[str, float]:
    """Return the known figures of an exposition in Prometheus's text format; of several parts their sum.

    Of shares it is the mean, and of a figure in a label the first: the parts of a server are alike.
    """
    if engine is None:
        return {}
    values, labels = dict[str, list[float]](), dict[str, dict[str, str]]()
    for line in exposition.splitlines():
        if found := _LINE.match(line):
            number = _number(found[3])
            if number is not None:
                values.setdefault(found[1], []).append(number)
                labels.setdefault(found[1], dict(_LABEL.findall(found[2] or "")))
    first = {what: next((name for name in names if name in values), None) for what, names in engine.metrics.items()}
    each = {what: values[name] for what, name in first.items() if name is not None}
    figures = {what: sum(parts) / (len(parts) if what in SHARES else 1) for what, parts in each.items()}
    missed = figures.pop("prefix_missed", None)
    if missed is not None and "prefix_hits" in figures:  # older versions count no hits
        figures["prefix_queries"] = missed + figures["prefix_hits"]
    told = {what: _number(labels.get(name, {}).get(label, "")) for what, (name, label) in engine.labels.items()}
    return figures | {what: number for what, number in told.items() if number is not None}


def unknown_metrics(engine: Engine | None, exposition: str) -> list[str]:
    """Return the names of an engine's metrics that speak of a cache and that its table does not have."""
    if engine is None or not engine.prefix:
        return []
    known = {name for names in engine.metrics.values() for name in names} | {name for name, _ in engine.labels.values()}
    names = {found[1] for line in exposition.splitlines() if (found := _LINE.match(line))}
    plain = {re.sub(r"_(total|created|bucket|sum|count)$", "", name) for name in names - known}
    plain -= {re.sub(r"_total$", "", name) for name in known}
    news = {name for name in plain if not name.startswith(tuple(engine.others))}
    about = (name for name in news if re.match(engine.prefix, name) and re.search("cache|kv_", name))
    return sorted(about)[:MOST_UNKNOWN]


def capacity_tokens(told: Mapping[str, float]) -> int:
    """Return for how many tokens a server says that its cache has room; 0 if it does not."""
    if "slots" in told and "slot_tokens" in told:
        return round(told["slots"] * told["slot_tokens"])
    return round(told.get("capacity_tokens", told.get("blocks", 0) * told.get("block_tokens", 0)))


def used_share(told: Mapping[str, float]) -> float | None:
    """Return the share of its cache that a server says is in use, or that its tokens in use make; None if untold."""
    room = capacity_tokens(told)
    return told.get("cache_usage", told["used_tokens"] / room if room and "used_tokens" in told else None)


def slot_figures(answer: str) -> dict[str, float]:
    """Read llama.cpp's /slots: their number, the tokens that one has room for, and what those at work have decoded."""
    try:
        slots = json.loads(answer)
        at_work = [slot for slot in slots if slot["is_processing"] is True]
        each = [slot["next_token"] for slot in at_work]
        decoded = [(one[0] if isinstance(one, list) else one)["n_decoded"] for one in each]
        figures = {
            "slots": len(slots),
            "slot_tokens": min(slot["n_ctx"] for slot in slots),
            "running": len(at_work),
            "decoded": sum(decoded),
        }
        if all(slot.keys() >= _PROMPT for slot in at_work):  # newer builds
            figures["used_tokens"] = sum(decoded) + sum(slot[name] for slot in at_work for name in _PROMPT)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return {}
    numbers = {what: _number(str(value)) for what, value in figures.items()}
    return {what: number for what, number in numbers.items() if number is not None}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1e15 else None
