"""Sends a server more and more requests at once, and measures how long each waits and how many tokens a second all get.

A closed loop: each of so many askers sends its next request when its last answer has ended. Every prompt begins with a
number of its own, so that no prefix cache takes the prefill from a request.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.records import Sampling
from kvviz.base.words import millis
from kvviz.decoding.endpoint.engines import title_of_engine
from kvviz.decoding.endpoint.poll import Looks
from kvviz.experiments.comparison.figures import percentiles

if TYPE_CHECKING:
    from kvviz.decoding.endpoint.server import Answer, Server

MOST = 64  # requests at once
BUSY = 0.7  # of a core: above it this process may be what is slow
Row = Mapping[str, Any]


def check_levels(levels: Sequence[int]) -> None:
    """Raise KvvizError for numbers of requests at once that can't be asked for."""
    if not levels or list(levels) != sorted(set(levels)) or not 1 <= levels[0] <= levels[-1] <= MOST:
        raise KvvizError(f"requests at once are whole numbers from 1 to {MOST}, each larger than the one before")


def measure(
    server: "Server",
    levels: Sequence[int],
    prompt: str,
    new_tokens: int,
    each: int,
    check_stop: Callable[[], None] = lambda: None,
    tell: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Measure each level after one request that is not counted; `tell` hears of each row.

    Raises KvvizError if no request of a level is answered, Stopped if asked to stop.
    """
    check_levels(levels)
    numbers = count(1)

    def ask() -> "Answer":
        text = f"{next(numbers)}. {prompt}"
        return server.ask(text, new_tokens, Sampling(), check_stop, polls=False)

    ask()
    rows: list[Row] = []
    for level in levels:
        rows.append(_measure_level(server, ask, level, each))
        check_stop()
        tell(rows[-1])
    engine = server.engine
    return {
        "endpoint": server.place.base,
        "engine": {"name": engine.name if engine else None, "version": server.version, "model": server.model[:300]},
        "new_tokens": new_tokens,
        "requests_each": each,
        "rows": rows,
    }


def _measure_level(server: "Server", ask: Callable[[], "Answer"], level: int, each: int) -> Row:
    answers, failures = list["Answer"](), list[KvvizError]()

    def asker() -> None:
        for _ in range(each):
            try:
                answers.append(ask())
            except KvvizError as error:
                failures.append(error)
            except Stopped:
                return

    begun, busy = time.perf_counter(), time.process_time()
    with Looks(server.metrics) as looks, ThreadPoolExecutor(level) as askers:
        for _ in range(level):
            askers.submit(asker)
        askers.shutdown()
        seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    if not answers and failures:
        raise failures[0]
    waits = (round(answer.arrivals[0], 9) for answer in answers if answer.arrivals)
    gaps = (round(later - sooner, 9) for answer in answers for sooner, later in pairwise(answer.arrivals))
    pieces = sum(len(answer.texts) for answer in answers)
    counts = [answer.usage.get("completion") for answer in answers]
    tokens = sum(number or 0 for number in counts) if all(counts) else None
    used = [told["cache_usage"] for _, told in looks.seen if told and "cache_usage" in told]
    return {
        "concurrency": level,
        "requests": len(answers),
        "failed": len(failures),
        "why_failed": str(failures[0]) if failures else None,
        "seconds": round(seconds, 6),
        "tokens": tokens,
        "pieces": pieces,
        "tokens_per_s": round((pieces if tokens is None else tokens) / seconds, 6),
        **percentiles("ttft_s", waits, (50, 99)),
        **percentiles("itl_s", gaps, (50, 99)),
        "cache_usage": max(used, default=None),
        "client_busy": round(busy / seconds, 3),
    }


def sentences(document: Row) -> list[str]:
    """Say what more requests at once have done to the waits and to the tokens of all."""
    rows, engine = document["rows"], document["engine"]
    first, last = rows[0], rows[-1]
    version = f" {engine['version']}" if engine["version"] else ""
    said = [f"Asked was {title_of_engine(engine['name'])}{version}, model {engine['model']}; times are of arrival."]
    if last is not first and first["tokens_per_s"]:
        more, tokens = last["concurrency"] / first["concurrency"], last["tokens_per_s"] / first["tokens_per_s"]
        said.append(f"With {more:.3g} times the requests at once it writes {tokens:.3g} times the tokens a second.")
        for field, title in (("ttft_s_p99", "first token"), ("itl_s_p99", "time between two pieces")):
            if first[field] and last[field]:
                long = f"{last[field] / first[field]:.3g} times as long: {millis(last[field])}"
                said.append(f"The {title} of the slowest hundredth takes {long}.")
    if any(row["tokens"] is None for row in rows):
        said.append("The server did not count its tokens: those are pieces of text, which may hold several.")
    elif any(row["pieces"] != row["tokens"] for row in rows):
        said.append("Pieces and tokens are not equally many, so the times between pieces are not those of a token.")
    for row in rows:
        if row["failed"]:
            said.append(f"Of {row['concurrency']} at once {row['failed']} requests failed: {row['why_failed']}.")
        if row["client_busy"] > BUSY:
            said.append(
                f"With {row['concurrency']} at once this client was busy for {row['client_busy']:.0%} of the time on a "
                "core: its own speed is in the figures."
            )
    return said


def text(document: Row) -> str:
    """Format the levels for a terminal."""
    names = ("ttft_s_p50", "ttft_s_p99", "itl_s_p50", "itl_s_p99")
    heads = " ".join(f"{head:>10}" for head in ("TTFT p50", "p99", "ITL p50", "p99", "in cache"))
    lines = [f"{'at once':>8} {'tokens/s':>9} {heads}"]
    for row in document["rows"]:
        times = " ".join(f"{'-' if row[name] is None else millis(row[name]):>10}" for name in names)
        used = "-" if row["cache_usage"] is None else f"{row['cache_usage']:.1%}"
        lines.append(f"{row['concurrency']:>8} {row['tokens_per_s']:>9.4g} {times} {used:>10}")
    return "\n".join([*lines, "", *document["sentences"]])
