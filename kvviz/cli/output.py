"""What commands write: a document on standard output, everything else on standard error."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tqdm import tqdm


def answer(document: Mapping[str, object], text: Callable[[], str], as_json: bool) -> None:
    """Print a document as JSON, or its text."""
    if as_json:
        print_json(document)
    else:
        typer.echo(text())


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(document, allow_nan=False))


def say(words: str) -> None:
    """Print a line on standard error."""
    print(f"kvviz: {words}", file=sys.stderr, flush=True)


class ProgressBar:
    """A bar on standard error, under a heading. The first `show` draws it: whatever refuses before has one line."""

    def __init__(self, unit: str, bar_format: str | None = None) -> None:
        self._unit, self._format = unit, bar_format
        self.heading = ""
        self._bar: tqdm | None = None

    def show(self, done: int, total: int, words: str = "") -> None:
        """Draw how much of `total` is done, with `words` behind it."""
        if self._bar is None:
            from tqdm import tqdm

            if self.heading:
                say(self.heading)
            self._bar = tqdm(
                total=total, unit=self._unit, bar_format=self._format, miniters=1, file=sys.stderr, leave=False
            )
        self._bar.total = total
        self._bar.set_postfix_str(words, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
