"""Traces: when requests come, how long their prompts are, and how many tokens each wants. Standard library only.

A file has the columns of the Azure LLM inference traces, TIMESTAMP, ContextTokens and GeneratedTokens:
https://github.com/Azure/AzurePublicDataset/blob/master/AzureLLMInferenceDataset2023.md . `sample_trace.csv` is no
extract of one: `python -m tools.sample_trace` draws it from a seed, with lengths that the bundled models can read.
"""

import csv
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole

SAMPLE = Path(__file__).with_name("sample_trace.csv")
MOST_REQUESTS = 2_000
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True)
class Trace:
    """Requests in order: seconds after the first one, tokens of the prompt, new tokens; and notes on the file."""

    arrivals_s: tuple[float, ...]
    prompts: tuple[int, ...]
    answers: tuple[int, ...]
    notes: tuple[str, ...] = ()


def trace_named(name: str, requests: int | None = None, speed: float = 1.0) -> Trace:
    """Read the trace that a command names, a file or `sample`: all requests that can be served, or the first ones.

    Raises KvvizError.
    """
    check_whole("requests", MOST_REQUESTS if requests is None else requests, 1, MOST_REQUESTS)
    if not 0.001 <= speed <= 1e6:
        raise KvvizError(f"speed is {speed}; it is a number from 0.001 to 1,000,000")
    return read_trace(SAMPLE if name == "sample" else Path(name), requests, speed)


def read_trace(path: Path, requests: int | None = None, speed: float = 1.0) -> Trace:
    """Read the first `requests` of a file, `speed` times as fast as they came. Raises KvvizError.

    Rows that are not in order of time are sorted, and a note says so.
    """
    most = MOST_REQUESTS if requests is None else requests
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
            if missing:
                raise KvvizError(f"{path.name} has no column {missing[0]}; a trace has {', '.join(COLUMNS)}")
            rows = [_row(path.name, lines.line_num, line) for line in islice(lines, most + 1)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise KvvizError(f"{path} can't be read as a trace: {error}") from error
    if not rows:
        raise KvvizError(f"{path.name} has no request; each is a row below {', '.join(COLUMNS)}")
    notes = []
    if requests is None and len(rows) > most:
        notes.append(f"{path.name} has more than {most:,} requests; the first {most:,} are served.")
    rows = rows[:most]
    back = sum(later[0] < earlier[0] for earlier, later in pairwise(rows))
    if back:
        times = "once" if back == 1 else f"{back:,} times"
        notes.append(f"{path.name} goes back in time {times}: its requests are served in order of their time.")
    return _trace(sorted(rows, key=lambda row: row[0]), speed, notes)


def _row(name: str, number: int, line: dict[str, str]) -> tuple[float, int, int]:
    try:
        when = datetime.fromisoformat(line["TIMESTAMP"].strip())
        prompt, answer = int(line["ContextTokens"]), int(line["GeneratedTokens"])
    except (ValueError, TypeError, AttributeError) as error:
        raise KvvizError(f"line {number} of {name} is no time and two numbers of tokens: {error}") from error
    if prompt < 0 or answer < 0:
        raise KvvizError(f"line {number} of {name} has fewer than 0 tokens")
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), prompt, answer


def draw_trace(requests: int, rate: float, longest: int, seed: int) -> Trace:
    """Draw requests that come at random times, `rate` a second on average, of at most `longest` tokens each.

    Most are short and few are long, and prompts are longer than answers, as in Azure's traces.
    """
    chance, now, rows = random.Random(seed), 0.0, []
    for _ in range(requests):
        now += chance.expovariate(rate)
        prompt = min(longest - 1, 1 + int(chance.lognormvariate(4.0, 0.9)))
        rows.append((now, prompt, min(longest - prompt, 1 + int(chance.expovariate(1 / 32)))))
    return _trace(rows)


def _trace(rows: Iterable[tuple[float, int, int]], speed: float = 1.0, notes: Iterable[str] = ()) -> Trace:
    times, prompts, answers = zip(*rows, strict=True)
    return Trace(tuple((at - times[0]) / speed for at in times), prompts, answers, tuple(notes))
