"""The field's words, defined once (`glossary.toml`)."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kvviz.ui.frame.page import TEXTS


@dataclass(frozen=True)
class Term:
    """A word of the field, what it says, where more is published, where it is seen here, its other names and forms."""

    term: str
    says: str
    source: str
    seen: str  # a page, with a query that opens a part of it
    also: Sequence[str] = ()
    forms: Sequence[str] = ()  # an inflection, a part of it or a kind: no name of its own

    @property
    def ways(self) -> tuple[str, ...]:
        """Every way to write it."""
        return (self.term, *self.also, *self.forms)

    @property
    def page(self) -> str:
        """The page where it can be seen."""
        return self.seen.partition("?")[0]


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SOURCES: dict[str, str] = _ROWS.pop("sources")
TOPICS: dict[str, list[str]] = _ROWS.pop("topics")
TERMS = {name: Term(**row) for name, row in _ROWS.items()}
FIRST = (  # of a newcomer, in an order in which one explains the next
    *("token", "attention", "query", "key", "value", "kv-cache", "prefill", "ttft", "decode-step", "time-per-token"),
    *("kv-head", "gqa", "flop", "bandwidth"),
)
NAMES = {way.lower(): name for name, term in TERMS.items() for way in term.ways}


def pattern() -> str:
    """A regular expression of every term, the longest first, in words that Python and JavaScript read alike."""
    ways = sorted((way for term in TERMS.values() for way in term.ways), key=len, reverse=True)
    return rf"(?<![\w-])(?:{'|'.join(map(_written, ways))})s?(?![\w-])"


def _written(way: str) -> str:
    first = f"[{way[0].upper()}{way[0]}]" if way[0].islower() else way[0]
    return first + re.escape(way[1:]).replace(r"\ ", r"\s+").replace(r"\-", "-")


def for_browser() -> dict[str, object]:
    """What the browser needs to explain each term where it first stands in a section of the page."""
    return {
        "pattern": pattern(),
        "names": NAMES,
        "terms": {name: [term.term, term.says] for name, term in TERMS.items()},
    }


def in_words(term: Term) -> str:
    """What a term says and its other names, then the page where it can be seen and its source, as Markdown."""
    others = [name for name in term.also if name.lower() not in term.says.lower()]
    also = f" *Also: {', '.join(others)}.*" if others else ""
    seen = f"[{TEXTS[term.page]['navigation']}](/{quote(term.seen, safe='?=')})"
    return f"{term.says}{also}\n\n{seen} [{SOURCES[term.source]}]({term.source})"
