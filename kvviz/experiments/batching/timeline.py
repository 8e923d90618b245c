"""Serves a trace as time goes by, and tells what happened when: of each request, and of each step. No tensor here."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any

from kvviz.experiments.batching.batcher import SWAPPED, Request
from kvviz.experiments.batching.batcher import Sequence as Running
from kvviz.experiments.comparison.figures import percentiles
from kvviz.models.text import Speller

if TYPE_CHECKING:
    from kvviz.experiments.batching.engine import Engine

Arrivals = Sequence[tuple[float, Request]]  # seconds after the start, in order
Row = dict[str, Any]  # a request as JSON values (docs/json.md)
Part = dict[str, Any]  # what is new of the `each`, `steps`, `pictures` and `stride` of a policy
COLUMNS = ("began_s", "ended_s", "running", "waiting", "blocks", "computed")
Steps = dict[str, list[float]]
NAP_S = 0.02  # the longest sleep: a run has to hear that it should stop
PART_S = 0.1  # seconds that a part tells of, at least: the feed is looked at as often
LIKE = 3  # steps, at least, whose median a step with returns is held against
MOST_PICTURES = 512  # of a memory; with so many, every second one is dropped


@dataclass
class Pictures:
    """Pictures of a memory after the steps stride, 2 x stride, ...; every second one is dropped when there are many."""

    stride: int = 1
    kept: list[dict[str, Any]] = field(default_factory=list)


Served = tuple[list[Row], Steps, Pictures]


def request_row(at: float, request: Request) -> Row:
    """What is known of a request when it arrives."""
    return {
        "prompt_tokens": len(request.prompt),
        "new_tokens": request.new_tokens,
        "arrival_s": at,
        "admitted_s": [],
        "chunks": [],  # [began, ended, first token, tokens] of each forward that computed tokens of its prompt
        "token_s": [],
        "token_ids": [],
        "pieces": [],  # the text of each token
        "preempted_s": [],
        "ended_s": None,
        "sentence": "",
    }


class News:
    """What has happened since the part before.

    A part is made and sent between two clocked steps, so it is in no step's seconds. Of a whole run it takes 0.6%:
    half a millisecond for each tenth of a second, with mini-gpt2 on a CPU, most of it for the JSON.
    """

    def __init__(self, spell: Speller) -> None:
        self._spell = spell
        self._steps = 0
        self._stride = 1
        self._begin()

    def _begin(self) -> None:
        self._each: dict[int, Row] = {}
        self._columns: Steps = {name: [] for name in COLUMNS}
        self._pictures: list[dict[str, Any]] = []

    def of(self, number: int, **what: Any) -> None:
        """Note something of a request: a list goes on, any other value takes the place of the one before."""
        _continue(self._each.setdefault(number, {"number": number}), what)

    def step(self, figures: Sequence[float], picture: Callable[[], dict[str, object]]) -> None:
        """Note a step, by COLUMNS, and how the memory looks after it, unless there are too many pictures."""
        self._steps += 1
        for column, figure in zip(self._columns.values(), figures, strict=True):
            column.append(figure)
        if self._steps % self._stride == 0:
            self._pictures.append({"step": self._steps, **picture()})
        if self._steps == MOST_PICTURES * self._stride:
            self._stride *= 2

    def part(self, sequences: Mapping[int, Running] | None = None) -> Part:
        """Return what is new and forget it here; `sequences`, the engine's, add the states of the requests in it."""
        for number, row in self._each.items():
            if sequences is not None:
                row |= _came_to(sequences[number])
            if new := row.get("token_ids"):
                told = sequences[number].chosen if sequences is not None else new
                row["pieces"] = self._spell(told)[-len(new) :]
        part = {"each": list(self._each.values()), "steps": self._columns, "stride": self._stride}
        part["pictures"] = self._pictures
        self._begin()
        return part


def _came_to(one: Running) -> Row:
    return {
        "state": one.state,
        "hit_tokens": one.hits,
        "recomputed_tokens": one.recomputed,
        "overtaken": one.overtaken,
        **{name: one.swapped[name] for name in SWAPPED},
    }


def _continue(row: Row, what: Mapping[str, Any]) -> None:
    for name, value in what.items():
        if isinstance(value, list):
            row.setdefault(name, []).extend(value)
        else:
            row[name] = value


def together(parts: Iterable[Part]) -> Served:
    """Put the parts of a policy together: its requests, its steps, its pictures."""
    rows, memory = dict[int, Row](), Pictures()
    steps: Steps = {name: [] for name in COLUMNS}
    for part in parts:
        for news in part["each"]:
            _continue(rows.setdefault(news["number"], {}), news)
        _continue(steps, part["steps"])
        memory.kept += part["pictures"]
        memory.stride = part["stride"]
    memory.kept = [picture for picture in memory.kept if picture["step"] % memory.stride == 0]
    return list(rows.values()), steps, memory


def serve(
    engine: "Engine",
    arrivals: Arrivals,
    spell: Speller,
    *,
    sync: Callable[[], None] = lambda: None,
    between: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Part]:
    """Submit each request at its time, and step until all have ended; yield what is new from time to time.

    `between` is called before every step and may raise.
    """
    coming, begun = deque(arrivals), set[int]()
    sequences, news = engine.batcher.sequences, News(spell)
    start = told = clock()

    def now() -> float:
        sync()
        return round(clock() - start, 6)

    while coming or engine.busy:
        between()
        if clock() >= told + PART_S:
            yield news.part(sequences)
            told = clock()
        began = now()
        while coming and coming[0][0] <= began:
            at, request = coming.popleft()
            one = engine.submit(request)
            news.of(request.number, **{**request_row(at, request), "sentence": one.why})
        if not engine.busy:
            if coming:
                sleep(min(NAP_S, coming[0][0] - began))
            continue
        step = engine.step()
        ended = now()
        for number in step.admitted:
            news.of(number, admitted_s=[began])
        for number in step.preempted:
            news.of(number, preempted_s=[began])
        for number, first, count in step.parts:
            if count > 1 or number not in step.tokens or number not in begun:
                news.of(number, chunks=[[began, ended, first, count]])
        for number, token in step.tokens.items():
            news.of(number, token_s=[ended], token_ids=[token])
        begun.update(step.tokens)
        for number in step.ended:
            news.of(number, ended_s=ended)
        computed = sum(count for _, _, count in step.parts)
        news.step((began, ended, step.running, step.waiting, step.blocks, computed), engine.picture)
    for number in sequences:
        news.of(number)
    yield news.part(sequences)


def figures_of(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures of a policy over its requests; a percentile is None where nothing was measured.

    TTFT counts from the arrival; ITL is the time between two tokens of a request.
    """
    done = [row for row in rows if row["state"] == "done"]
    waits = [row["token_s"][0] - row["arrival_s"] for row in done if row["token_s"]]
    gaps = [later - earlier for row in done for earlier, later in pairwise(row["token_s"])]
    tokens = sum(len(row["token_ids"]) for row in done)
    seconds = max(row["ended_s"] for row in done) - min(row["arrival_s"] for row in done) if done else None
    return {
        "requests": len(rows),
        "done": len(done),
        "refused": sum(row["state"] == "refused" for row in rows),
        "new_tokens": tokens,
        "seconds": seconds,
        "tokens_per_s": tokens / seconds if seconds else None,
        **percentiles("ttft_s", waits, (50, 90, 99)),
        **percentiles("itl_s", gaps, (50, 90, 99)),
    }


def returns(rows: Sequence[Row]) -> Counter[tuple[float, float]]:
    """Count the returns of preempted requests, by when they came back and when they then wrote their next token.

    Those of one step share both, so they are measured once.
    """
    found = Counter[tuple[float, float]]()
    for row in rows:
        for back, gone in zip(row["admitted_s"][1:], [*row["preempted_s"][1:], inf], strict=False):
            found.update([(back, at) for at in row["token_s"] if back < at <= gone][:1])  # none if it had to go at once
    return found


@dataclass(frozen=True)
class Return:
    """A step in which preempted requests came back: how many, and how many tokens they held when they had to go.

    `more_s`: how much longer it took than the median step without a return or a preemption in which as many sequences
    ran and as many tokens of new prompts were computed; None where those are too few. `beside`: there were new prompts.
    """

    requests: int
    tokens: int
    more_s: float | None
    beside: bool


def returned(row: Mapping[str, Any]) -> list[Return]:
    """The steps of a policy in which preempted requests came back, each held against its like."""
    held, again, moved = defaultdict[float, list[int]](list), Counter[float](), set[float]()
    for one in row["each"]:
        moved.update(one["preempted_s"], one["admitted_s"][1:])
        for gone, back in zip(one["preempted_s"], one["admitted_s"][1:], strict=False):
            if back not in one["preempted_s"]:  # else it had to go at once
                held[back].append(one["prompt_tokens"] + sum(at <= gone for at in one["token_s"]) - 1)
                again[back] += sum(count - 1 for began, _, _, count in one["chunks"] if began == back)
    steps = list(zip(*(row["steps"][name] for name in ("began_s", "ended_s", "running", "computed")), strict=True))
    usual = defaultdict[tuple[float, float], list[float]](list)
    for began, ended, running, computed in steps:
        if began not in moved:
            usual[running, computed].append(ended - began)
    found = []
    for began, ended, running, computed in steps:
        if began in held:
            without = computed - again[began]
            like = usual[running, without]
            more = ended - began - median(like) if len(like) >= LIKE else None
            found.append(Return(len(held[began]), sum(held[began]), more, without > running))
    return found


def scheduling_of(rows: Sequence[Row], places: int) -> dict[str, int]:
    """What the engine's scheduling cost: preemptions, tokens computed again, what was copied, hits, who starved.

    A request has starved if more later ones were admitted before it than run at once.
    """
    return {
        "preempted": sum(len(row["preempted_s"]) for row in rows),
        "recomputed_tokens": sum(row["recomputed_tokens"] for row in rows),
        "hit_tokens": sum(row["hit_tokens"] for row in rows),
        "starved": sum(row["overtaken"] > places for row in rows),
        **{name: sum(row[name] for row in rows) for name in SWAPPED},
    }
