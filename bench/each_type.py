"""A law held against every decoder that the installed transformers registers: a row each, and the counts."""

import argparse
import json
import os
import platform
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers

from bench.default_configs import decoders, default_config, encoder_decoders

Row = dict[str, Any]
Config = dict[str, Any]
SECONDS = 180  # for one type
LONG = 5000  # tokens
_ENDS = {"mpt": 2048, "reformer": 4096}  # contexts that end without a table of positions


def longest(config: Config, position_limit: Callable[[Config], int | None]) -> int:
    """Tokens of the longest case: more than most windows hold, or as many as the type has positions."""
    return min(LONG, _ENDS.get(config["model_type"]) or position_limit(config) or LONG)


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises TimeoutError when the body takes longer."""

    def stop(number: int, frame: Any) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def row_of(row: Row, agreement: Callable[[Config], Row], *, alone: bool, refused: str) -> Row:
    """A type's row, filled in by the agreement on its default config; any error is an outcome, called `refused`."""
    start = time.perf_counter()
    try:
        with limited(SECONDS):
            row |= agreement(default_config(row["model_type"], alone=alone))
    except Exception as error:  # the other types go on
        row |= {"outcome": refused, "why": f"{type(error).__name__}: {error}"[:300]}
    return {**row, "seconds": round(time.perf_counter() - start, 2)}


def counted(rows: list[Row]) -> dict[str, int]:
    """The number of rows of each outcome."""
    outcomes = [row["outcome"] for row in rows]
    exact, wrong = outcomes.count("exact"), outcomes.count("wrong")
    return {"exact": exact, "wrong": wrong, "refused": len(outcomes) - exact - wrong}


def environment() -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every such bench has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON document; the rows go to standard error")
    parser.add_argument("--only", default="", metavar="TYPE[,TYPE]", help="these model types and no others")
    return parser


def document(options: argparse.Namespace, compared: Callable[..., Row], line: Callable[[Row], str]) -> dict[str, Any]:
    """Compare every type and print a line for each; at the end the counts, or with --json the document."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    only = set(filter(None, options.only.split(",")))

    def walk(names: list[str], alone: bool) -> list[Row]:
        rows = []
        for name in names:
            if not only or name in only:
                rows.append(compared(name, alone=alone))
                print(line(rows[-1]), file=sys.stderr if options.json else sys.stdout, flush=True)
        return rows

    own, crossing = walk(decoders(), True), walk(encoder_decoders(), False)
    group = {**counted(crossing), "rows": crossing}
    found = {"environment": environment(), **counted(own), "rows": own, "encoder_decoders": group}
    counts = f"decoders: {counted(own)}; encoder-decoders: {counted(crossing)}"
    print(json.dumps(found) if options.json else counts)
    return found
