"""The endpoint's lane of a comparison: each pass is one request, and its pieces of text are cut into the run's tokens.

The tokens are those of the comparison's model, so all lanes count the same text alike; how many the server counted is
recorded beside. A piece that holds several tokens brought them all at once: the first of them has the whole wait, the
others have none, as for proposals that were accepted together.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.settings import settings
from kvviz.decoding.endpoint.address import find_place, find_publisher
from kvviz.decoding.endpoint.engines import capacity_tokens
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import Step
from kvviz.device.clock import Timed
from kvviz.experiments.comparison.records import CalculatedFields, MetricsFields, Served
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.memory.formula import kv_memory
from kvviz.models.text import Codec, TextStream

if TYPE_CHECKING:
    from kvviz.decoding.endpoint.server import Answer, Server
    from kvviz.decoding.endpoint.subscriber import Subscriber

MOST_TOKENS = 10**9  # of a capacity; no engine has more
FEWEST = 2  # tokens of an answer: one has no time between two


class EndpointLane:
    """Asks a server once for each pass, keeps all answers, and yields each as timed steps."""

    def __init__(
        self, work: ComparisonSpec, loaded: Loaded, ids: list[int], check_stop: Callable[[], None], key: str | None
    ) -> None:
        self._server = open_server(work.endpoint or "", work.endpoint_model, key)
        try:
            self._events = open_events(work.kv_events)
        except KvvizError:
            self._server.close()
            raise
        self._work, self._ids, self._check_stop = work, ids, check_stop
        self._codec, self._spec = loaded.codec, loaded.spec
        own_text = work.prompt is not None and work.prompt_tokens is None
        self._prompt = str(work.prompt) if own_text else loaded.codec.decode(ids)
        self._answers: list[tuple[Answer, list[int]]] = []  # with how many tokens came in each of its pieces
        self._before = self._server.metrics()

    def close(self) -> None:
        """Close the connections."""
        self._server.close()
        if self._events:
            self._events.close()

    def clocked(self, steps: int | None = None) -> Iterator[Timed[Step]]:
        """Ask once, and yield each token with the seconds since the one before it; `steps` are as many as before.

        The whole answer is read before the first token is yielded: a server does not wait for what happens here.
        """
        answer = self._server.ask(self._prompt, self._work.new_tokens, self._work.sampling, self._check_stop)
        if self._events:
            self._events.take()
        ids = answered(self._codec, self._ids, self._prompt, answer.text)[: self._work.new_tokens][:steps]
        where = self._server.place.name
        if len(ids) < FEWEST:
            raise KvvizError(f"{where} wrote {len(ids)} tokens, too few for a time between two: take another prompt")
        if steps is not None and len(ids) < steps:
            raise KvvizError(
                f"{where} wrote {len(ids)} tokens after {steps} in an earlier pass: take fewer tokens or temperature 0"
            )
        counts = per_piece(self._codec, ids, answer.texts)
        while not counts[-1]:  # what came after the last token that is counted
            counts.pop()
        self._answers.append((answer, counts))
        seconds = waits(answer.arrivals[: len(counts)], counts)
        for index, (token, wait) in enumerate(zip(ids, seconds, strict=True)):
            yield Timed(Step(index, torch.tensor([token]), None, None), wait)

    def served(self, passes: int) -> Served:
        """Return what is recorded of the lane; the pieces are those of the middle one of the last `passes` answers."""
        timed = self._answers[-passes:]
        middle = statistics.median_low(answer.arrivals[-1] for answer, _ in timed)
        answer, counts = next(one for one in timed if one[0].arrivals[-1] == middle)
        after, engine = self._server.metrics(), self._server.engine
        return {
            "arrivals_s": [round(at, 9) for at in answer.arrivals[: len(counts)]],
            "tokens_per_chunk": counts,
            "engine": {
                "name": engine.name if engine else None,
                "version": self._server.version,
                "model": self._server.model[:300],
                "api": "chat" if self._server.chats else "completions",
                "finish": answer.finish,
                "prompt_tokens": answer.usage.get("prompt"),
                "completion_tokens": answer.usage.get("completion"),
                "cached_tokens": answer.usage.get("cached"),
            },
            "metrics": self._metrics(answer, after),
            "kv_events": self._events.take().told() if self._events else None,
        }

    def _metrics(self, answer: "Answer", after: dict[str, float] | None) -> MetricsFields | None:
        if self._before is None or after is None:
            return None
        counted = (answer.usage.get("prompt"), answer.usage.get("completion"))
        tokens = sum(count or 0 for count in counted) if all(counted) else len(self._ids) + self._work.new_tokens
        return {
            "before": self._before,
            "after": after,
            "polled": [{"at_s": round(at, 6), "figures": figures} for at, figures in answer.polled],
            "unknown": self._server.unknown,
            "calculated": self._calculated(after, tokens),
        }

    def _calculated(self, told: dict[str, float], tokens: int) -> CalculatedFields | None:
        """Work out the stated capacity and the pass's sequence, as if the server had this model in this precision."""
        engine, capacity = self._server.engine, capacity_tokens(told)
        if engine is None or not engine.view or not 0 < capacity <= MOST_TOKENS:
            return None
        sequences = round(told.get("slots", 1))
        options: Any = {"dtype": self._work.dtype, "view": engine.view}
        try:
            whole = kv_memory(self._spec, capacity // sequences, batch=sequences, **options)
            own = kv_memory(self._spec, min(tokens, capacity), **options)
        except KvvizError:
            return None
        return {
            "view": engine.view,
            "dtype": whole.dtype,
            "capacity_tokens": capacity,
            "tokens": tokens,
            "capacity_bytes": whole.reserved_bytes,
            "sequence_bytes": own.reserved_bytes,
        }


def open_server(url: str, model: str | None, key: str | None) -> "Server":
    """Find a server and ask what it is. Raises KvvizError, also where the client's package is missing."""
    try:
        from kvviz.decoding.endpoint.server import Server
    except ImportError:
        raise KvvizError("the mode endpoint needs a package that is not here: pip install openai") from None
    return Server(find_place(url, settings(), key), model)


def open_events(addresses: str | None) -> "Subscriber | None":
    """Listen to an engine's KV events; None without an address. Raises KvvizError as `open_server` does."""
    if addresses is None:
        return None
    try:
        from kvviz.decoding.endpoint.subscriber import Subscriber
    except ImportError:
        raise KvvizError("KV events need two packages that are not here: pip install pyzmq msgspec") from None
    return Subscriber(find_publisher(addresses, settings()))


def answered(codec: Codec, ids: list[int], prompt: str, text: str) -> list[int]:
    """Return the tokens of an answer: those after the prompt's `ids` in the whole text.

    Where the tokenizer joins the prompt's end and the answer's start into one token, the answer is encoded by itself.
    """
    whole = codec.encode(prompt + text)
    if whole[: len(ids)] == ids:
        return whole[len(ids) :]
    return codec.encode(text) if text else []


def per_piece(codec: Codec, ids: Sequence[int], texts: Sequence[str]) -> list[int]:
    """Count the tokens that are complete with each piece of text; the last piece has all that are left."""
    ends, length, stream = list[int](), 0, TextStream(codec)
    for token in ids:
        length += len(stream.push(token))
        ends.append(length)
    counts, seen, reach = [], 0, 0
    for text in texts:
        reach += len(text)
        known = sum(end <= reach for end in ends)
        counts.append(known - seen)
        seen = known
    return [*counts[:-1], counts[-1] + len(ids) - seen]


def waits(arrivals: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Return the seconds before each token: from one piece that brought tokens to the next, 0 within a piece."""
    brought = [(at, count) for at, count in zip(arrivals, counts, strict=True) if count]
    gaps = [brought[0][0], *(later - sooner for (sooner, _), (later, _) in pairwise(brought))]
    return [gap if first == 0 else 0.0 for gap, (_, count) in zip(gaps, brought, strict=True) for first in range(count)]
