"""Sends a server more and more requests at once, and measures how long each waits and how many tokens a second all get.

A closed loop: each of so many askers sends its next request when its last answer has ended. Every prompt begins with a
number of its own, so that no prefix cache takes the prefill from a request; at the end as many requests as before begin
alike, and show what it takes.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from itertools import count, groupby, pairwise
from typing import TYPE_CHECKING

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.records import Sampling
from kvviz.decoding.endpoint.engines import used_share
from kvviz.decoding.endpoint.poll import CHEAP, Looks
from kvviz.experiments.comparison.endpoint import open_events, open_server
from kvviz.experiments.comparison.figures import percentiles
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.concurrency.words import Row, sentences
from kvviz.experiments.kind import Bench, Record

LOOK_S = 1.0  # between two looks at the KV events, which are told more rarely where there are many blocks
MOST_LOOKS = 400  # at the metrics; of more of them about so many are kept
OFTEN_S = 0.05  # between two of them, if a look is quick
Look = dict[str, float | None]
Figures = dict[str, float]

if TYPE_CHECKING:
    from kvviz.decoding.endpoint.server import Answer, Server


def run(spec: ConcurrencySpec, bench: Bench) -> Iterator[Record]:
    """Measure each level after one request that is not counted: a record for each, then the document.

    With KV events, a record `blocks` has every LOOK_S, or more rarely, what they have told so far.

    Raises KvvizError if no request of a level is answered, Stopped if asked to stop.
    """
    numbers = count(secrets.randbelow(10**9))  # a server may still keep the prompts of an earlier sweep
    with ExitStack() as opened:
        server = opened.enter_context(closing(open_server(spec.endpoint, spec.endpoint_model, bench.key)))
        events = open_events(spec.kv_events)
        if events is not None:
            opened.enter_context(closing(events))

        def ask(text: str) -> "Answer":
            return server.ask(text, spec.new_tokens, Sampling(), bench.check_stop, polls=False)

        def ask_new() -> "Answer":
            return ask(f"{next(numbers)}. {spec.prompt}")

        def ask_alike() -> "Answer":
            return ask(f"{spec.prompt} {next(numbers)}.")

        begun, looks, rows = time.perf_counter(), list[Look](), list[Row]()
        parts = [(level, ask_new) for level in spec.concurrency] + [(spec.concurrency[-1], ask_alike)]
        for number, (level, one) in enumerate(parts):
            done = {"done": number, "of": len(parts), "title": f"{level} at once"}
            if one is ask_alike or not number:
                one()

            def note(at: float, told: Figures, part: int = number, level: int = level) -> None:
                share = used_share(told)
                looks.append({"at_s": round(at - begun, 6), "part": part, "concurrency": level, "used_share": share})
                looks[-1] |= {name: told.get(name) for name in ("prefix_queries", "prefix_hits")}

            with ThreadPoolExecutor(1) as beside:
                measuring = beside.submit(_measure_level, server, one, level, spec.requests, note)
                again = 0.0
                while events is not None and not wait([measuring], LOOK_S).done:
                    told = events.take()
                    if (now := time.perf_counter()) < again:
                        continue
                    busy = time.thread_time()
                    yield {"t": "blocks", **done, "kv_events": told.told()}
                    again = now + CHEAP * (time.thread_time() - busy)
                rows.append(measuring.result())
            bench.check_stop()
            said = f"{level} at once, {rows[-1]['tokens_per_s']:.3g} tokens/s"
            yield {"t": "way", "done": number + 1, "of": len(parts), "title": said}
        engine = server.engine
        document = {
            "endpoint": server.place.base,
            "engine": {"name": engine.name if engine else None, "version": server.version, "model": server.model[:300]},
            "new_tokens": spec.new_tokens,
            "requests_each": spec.requests,
            "rows": rows[:-1],
            "alike": rows[-1],
            "looks": thinned(looks, MOST_LOOKS),
            "kv_events": None if events is None else events.take().told(),
        }
    yield {"t": "done", "document": {**document, "sentences": sentences(document)}}


def thinned(looks: Sequence[Look], most: int) -> list[Look]:
    """Keep about `most` looks: of neighbours within a part the one with the largest share, so no peak is lost."""
    every = 1 + len(looks) // most
    parts = (list(part) for _, part in groupby(looks, key=lambda look: look["part"]))
    groups = (part[first : first + every] for part in parts for first in range(0, len(part), every))
    return [max(group, key=lambda look: look["used_share"] or 0.0) for group in groups]


def _measure_level(
    server: "Server", ask: Callable[[], "Answer"], level: int, each: int, note: Callable[[float, Figures], None]
) -> Row:
    """Measure one level; `note` is called with what the metrics told meanwhile, and when."""
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
    with Looks(server.metrics, OFTEN_S) as seen, ThreadPoolExecutor(level) as askers:
        asking = [askers.submit(asker) for _ in range(level)]
        askers.shutdown()
        seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    for one in asking:
        one.result()  # an error that is no answer of the server's
    if not answers and failures:
        raise failures[0]
    waits = (round(answer.arrivals[0], 9) for answer in answers if answer.arrivals)
    gaps = (round(later - sooner, 9) for answer in answers for sooner, later in pairwise(answer.arrivals))
    pieces = sum(len(answer.texts) for answer in answers)
    counts = [answer.usage.get("completion") for answer in answers]
    tokens = sum(number or 0 for number in counts) if counts and all(counts) else None
    told = [(at, figures) for at, figures in seen.seen if figures is not None]
    for at, figures in told:
        note(begun + at, figures)
    used = [share for _, figures in told if (share := used_share(figures)) is not None]
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
        "hit_rate": _hit_rate(answers),
        "client_busy": round(busy / seconds, 3),
    }


def _hit_rate(answers: Sequence["Answer"]) -> float | None:
    """The share of the prompts' tokens that came from the server's prefix cache, by its own counts; None if untold."""
    prompts, cached = ([answer.usage.get(name) for answer in answers] for name in ("prompt", "cached"))
    if not answers or None in cached or not all(prompts):
        return None
    return sum(filter(None, cached)) / sum(filter(None, prompts))
