"""Sends a server more and more requests at once, and measures how long each waits and how many tokens a second all get.

A closed loop: each of so many askers sends its next request when its last answer has ended. Every prompt begins with a
number of its own, so that no prefix cache takes the prefill from a request.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from itertools import count, pairwise
from typing import TYPE_CHECKING

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.records import Sampling
from kvviz.decoding.endpoint.poll import Looks
from kvviz.experiments.comparison.endpoint import open_events, open_server
from kvviz.experiments.comparison.figures import percentiles
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.concurrency.words import Row, sentences
from kvviz.experiments.kind import Bench, Record

LOOK_S = 1.0  # between two looks at the KV events

if TYPE_CHECKING:
    from kvviz.decoding.endpoint.server import Answer, Server


def run(spec: ConcurrencySpec, bench: Bench) -> Iterator[Record]:
    """Measure each level after one request that is not counted: a record for each, then the document.

    With KV events, a record `blocks` every LOOK_S has what they have told so far.

    Raises KvvizError if no request of a level is answered, Stopped if asked to stop.
    """
    numbers = count(secrets.randbelow(10**9))  # a server may still keep the prompts of an earlier sweep
    with ExitStack() as opened:
        server = opened.enter_context(closing(open_server(spec.endpoint, spec.endpoint_model, bench.key)))
        events = open_events(spec.kv_events)
        if events is not None:
            opened.enter_context(closing(events))

        def ask() -> "Answer":
            text = f"{next(numbers)}. {spec.prompt}"
            return server.ask(text, spec.new_tokens, Sampling(), bench.check_stop, polls=False)

        ask()
        rows: list[Row] = []
        for level in spec.concurrency:
            done = {"done": len(rows), "of": len(spec.concurrency), "title": f"{level} at once"}
            with ThreadPoolExecutor(1) as beside:
                measuring = beside.submit(_measure_level, server, ask, level, spec.requests)
                while events is not None and not wait([measuring], LOOK_S).done:
                    yield {"t": "blocks", **done, "kv_events": events.take().told()}
                rows.append(measuring.result())
            bench.check_stop()
            said = f"{level} at once, {rows[-1]['tokens_per_s']:.3g} tokens/s"
            yield {"t": "way", "done": len(rows), "of": len(spec.concurrency), "title": said}
        engine = server.engine
        document = {
            "endpoint": server.place.base,
            "engine": {"name": engine.name if engine else None, "version": server.version, "model": server.model[:300]},
            "new_tokens": spec.new_tokens,
            "requests_each": spec.requests,
            "rows": rows,
            "kv_events": None if events is None else events.take().told(),
        }
    yield {"t": "done", "document": {**document, "sentences": sentences(document)}}


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
