"""A server with OpenAI's interface, asked through the `openai` client: one request at a time, its answer as a stream.

Each piece of text is stamped when it arrives. Nothing is asked twice, no redirect is followed and no proxy is taken, so
that a time is that of one request to one machine, and a key goes nowhere else.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.decoding.endpoint.address import KEY, PATIENCE, Place
from kvviz.decoding.endpoint.engines import (
    Engine,
    engine_by_routes,
    engine_of,
    known_metrics,
    slot_figures,
    unknown_metrics,
)
from kvviz.decoding.endpoint.poll import Looks

SILENCE = 120.0  # seconds without a byte after which a server has stopped answering
MOST_BYTES = 2_000_000  # of what is read beside the stream, such as metrics
ABSENT = (404, 405, 501)  # what a server answers where it does not have that part of the interface


@dataclass
class Answer:
    """One answer: its pieces of text, the seconds after the request at which each arrived, what the server says of it.

    `usage` are the server's own counts of tokens: of the prompt, of the answer, of the prompt's from its cache.
    `polled` are its metrics meanwhile, each with its second.
    """

    texts: list[str] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    finish: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    polled: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


class _ToOneMachine(httpx2.HTTPTransport):
    """Connects to the number that was checked; the name goes on in the Host header and the certificate's check."""

    def __init__(self, number: str) -> None:
        super().__init__()
        self._number = number

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions = {**request.extensions, "sni_hostname": request.url.host}
        request.url = request.url.copy_with(host=self._number)
        return super().handle_request(request)


class Server:
    """A server at an address; `model` is the name that it has for the model."""

    def __init__(self, place: Place, model: str | None = None) -> None:
        self.place = place
        self._http = httpx2.Client(
            transport=_ToOneMachine(place.number),
            timeout=httpx2.Timeout(SILENCE, connect=PATIENCE),
            follow_redirects=False,
            trust_env=False,
        )
        self._client = openai.OpenAI(
            base_url=place.base, api_key=place.key or "none", max_retries=0, http_client=self._http
        )
        self.chats = False  # whether it takes messages only
        exposition = self._read("/metrics")
        names, owners = self._models()
        self.engine: Engine | None = engine_of(exposition, owners) or engine_by_routes(self._read("/openapi.json"))
        self.unknown = unknown_metrics(self.engine, exposition)
        self._tells = [path for path, there in (("/metrics", exposition), ("/slots", self._slots())) if there]
        self.version = self._version()
        self.model = model or _the_one(names, place)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def metrics(self) -> dict[str, float] | None:
        """Read the engine's metrics now, by kvviz's names for them; None for a server without."""
        return self._figures(self._told()) if self._tells else None

    def _slots(self) -> str:
        return self._read("/slots") if self.engine and self.engine.slots else ""

    def _told(self) -> list[str]:
        return [self._read(path) for path in self._tells]

    def _figures(self, told: list[str]) -> dict[str, float]:
        found = dict[str, float]()
        for path, text in zip(self._tells, told, strict=True):
            found |= slot_figures(text) if path == "/slots" else known_metrics(self.engine, text)
        return found

    def ask(
        self,
        prompt: str,
        new_tokens: int,
        sampling: Sampling,
        check_stop: Callable[[], None] = lambda: None,
        *,
        polls: bool = True,
    ) -> Answer:
        """Ask once, read the whole answer, and poll the metrics meanwhile. Raises KvvizError for what is no answer."""
        answer, looks = Answer(), Looks(self._told)
        with self._in_a_sentence(answer), looks if self._tells and polls else nullcontext():
            begun = time.perf_counter()
            stream = self._stream(prompt, new_tokens, sampling)
            with stream:
                for chunk in stream:
                    now = time.perf_counter() - begun
                    check_stop()
                    if piece := _read_chunk(chunk, answer, chats=self.chats):
                        answer.texts.append(piece)
                        answer.arrivals.append(now)
                    if len(answer.texts) > 4 * new_tokens + 16 or len(piece) > MOST_BYTES:
                        asked = f"the {new_tokens:,} tokens that were asked for"
                        raise KvvizError(f"{self.place.name} does not end its answer after {asked}")
        if not answer.finish:
            raise KvvizError(f"{self.place.name} broke off after {_pieces(answer)}: the stream was cut")
        answer.polled = [(at, self._figures(told)) for at, told in looks.seen]
        return answer

    def _stream(self, prompt: str, new_tokens: int, sampling: Sampling) -> Any:
        more = {} if sampling.top_k is None else {"top_k": sampling.top_k}
        more |= self.engine.asks if self.engine else {}
        options: dict[str, Any] = {
            "model": self.model,
            "max_tokens": new_tokens,
            "temperature": sampling.temperature,
            "seed": sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            "extra_body": more,
        }
        if sampling.top_p is not None:
            options["top_p"] = sampling.top_p
        if not self.chats:
            try:
                return self._client.completions.create(prompt=prompt, **options)
            except openai.APIStatusError as error:
                if error.status_code not in ABSENT:
                    raise
        found = self._client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options)
        self.chats = True
        return found

    def _models(self) -> tuple[list[str], list[str]]:
        """Return the names of its models, and who owns them; none where it does not list them."""
        with self._in_a_sentence(Answer()):
            try:
                rows = self._client.models.list().data
            except openai.APIStatusError as error:
                if error.status_code not in ABSENT:
                    raise
                return [], []
            return [str(row.id) for row in rows], [str(row.owned_by) for row in rows]

    def _version(self) -> str | None:
        path, name = self.engine.version if self.engine else ("", "")
        if not path:
            return None
        try:
            found = json.loads(self._read(path))
        except ValueError:
            return None
        said = found.get(name) if isinstance(found, dict) else None
        return said[:60] if isinstance(said, str) and "unknown" not in said else None

    def _read(self, path: str) -> str:
        """Read a short text from another path of the server; "" if it has none."""
        keyed = {"Authorization": f"Bearer {self.place.key}"} if self.place.key else {}
        try:
            with self._http.stream("GET", self.place.root + path, headers=keyed, timeout=PATIENCE) as answer:
                if answer.status_code != 200:
                    return ""
                text = ""
                for part in answer.iter_text():
                    text += part
                    if len(text) > MOST_BYTES:
                        return ""
                return text
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RuntimeError):  # the last: it was closed meanwhile
            return ""

    @contextmanager
    def _in_a_sentence(self, answer: Answer) -> Iterator[None]:
        """Turn what can go wrong into one sentence, in which the key does not stand."""
        name = self.place.name
        try:
            yield
            return
        except openai.APITimeoutError:
            words = f"{name} has sent nothing for {SILENCE:.0f} s: it is too slow, or stuck"
        except openai.APIConnectionError:
            words = f"nobody answers at {name}: is the server running?"
            if answer.texts:
                words = f"{name} broke off after {_pieces(answer)}: the stream was cut"
        except (openai.AuthenticationError, openai.PermissionDeniedError):
            words = f"{name} refuses the key: the page has a field for it, the command line reads {KEY}"
        except openai.APIStatusError as error:
            words = self._refusal(error)
        except openai.APIError as error:
            words = f"{name} reports an error: {self._said(error.message)}"
        except httpx2.HTTPError:
            words = f"{name} broke off after {_pieces(answer)}: the stream was cut"
        except (ValueError, TypeError, AttributeError, KeyError, IndexError):
            words = f"what {name} answers is not OpenAI's interface: look at the endpoint's address"
        raise KvvizError(words) from None

    def _refusal(self, error: openai.APIStatusError) -> str:
        name, status = self.place.name, error.status_code
        if 300 <= status < 400:
            return f"{name} sends the request on to another address, which is not followed: give that address"
        body = error.body if isinstance(error.body, dict) else {}
        said = body.get("message", body.get("detail"))  # the second is what transformers and others with FastAPI say
        if status in ABSENT and not isinstance(said, str):
            return f"{name} has no OpenAI interface at this address ({status}): does it end in /v1?"
        because = f": {self._said(said)}" if isinstance(said, str) else ""
        return f"{name} refuses the request ({status}){because}"

    def _said(self, words: str) -> str:
        """Quote a server in one short line, without the key that it may have repeated."""
        line = " ".join(words.split())
        return (line.replace(self.place.key, "…") if self.place.key else line)[:200]


def _read_chunk(chunk: Any, answer: Answer, *, chats: bool) -> str:
    """Return the text that a chunk of a stream adds; note in the answer how it ended and what it counted."""
    if isinstance(chunk, str) or not hasattr(chunk, "choices"):
        raise ValueError(chunk)
    if chunk.usage is not None:
        details = getattr(chunk.usage, "prompt_tokens_details", None)
        cached = getattr(details, "cached_tokens", None)
        counts = {"prompt": chunk.usage.prompt_tokens, "completion": chunk.usage.completion_tokens, "cached": cached}
        answer.usage |= {what: count for what, count in counts.items() if isinstance(count, int) and count >= 0}
    timings = getattr(chunk, "timings", None)  # llama.cpp's own
    if isinstance(timings, dict) and isinstance(timings.get("cache_n"), int):
        answer.usage["cached"] = max(0, timings["cache_n"])
    if not chunk.choices:
        return ""
    choice = chunk.choices[0]
    answer.finish = str(choice.finish_reason or answer.finish)[:40]
    if not chats:
        text = choice.text
    else:
        thought = getattr(choice.delta, "reasoning_content", None)
        text = choice.delta.content or thought
    if not isinstance(text, str | None):
        raise ValueError(text)
    return text or ""


def _pieces(answer: Answer) -> str:
    count = len(answer.texts)
    return f"{count} piece{'' if count == 1 else 's'} of text"


def _the_one(names: list[str], place: Place) -> str:
    if len(names) == 1:
        return names[0]
    if not names:
        raise KvvizError(f"{place.name} lists no model: name one as its model (--endpoint-model)")
    some = ", ".join(names[:3])[:150]
    raise KvvizError(f"{place.name} has {len(names)} models, such as {some}: name one as its model (--endpoint-model)")
