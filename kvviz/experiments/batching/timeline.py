"""Serves a trace as time goes by, and keeps what happened when: of each request, and of each step. No tensor here."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kvviz.experiments.batching.batcher import SWAPPED, Request
from kvviz.experiments.comparison.figures import nearest_rank
from kvviz.experiments.serving.arrivals import MOST_PICTURES

if TYPE_CHECKING:
    from kvviz.experiments.batching.engine import Engine

Arrivals = Sequence[tuple[float, Request]]  # seconds after the start, in order
Row = dict[str, Any]  # a request as JSON values (docs/json.md)
COLUMNS = ("began_s", "ended_s", "running", "waiting", "blocks", "computed")
Steps = dict[str, list[float]]
NAP_S = 0.02  # the longest sleep: a run has to hear that it should stop


@dataclass
class Pictures:
    """Pictures of a memory after the steps stride, 2 x stride, ...; every second one is dropped when there are many."""

    stride: int = 1
    kept: list[dict[str, object]] = field(default_factory=list)

    def keep(self, picture: dict[str, object]) -> None:
        """Add a picture."""
        self.kept.append(picture)
        if len(self.kept) == MOST_PICTURES:
            del self.kept[::2]
            self.stride *= 2


def request_row(at: float, request: Request) -> Row:
    """What is known of a request when it arrives."""
    return {
        "number": request.number,
        "prompt_tokens": len(request.prompt),
        "new_tokens": request.new_tokens,
        "arrival_s": at,
        "admitted_s": [],
        "chunks": [],  # [began, ended, first token, tokens] of each forward that computed tokens of its prompt
        "token_s": [],
        "preempted_s": [],
        "ended_s": None,
    }


def serve(
    engine: "Engine",
    arrivals: Arrivals,
    *,
    sync: Callable[[], None] = lambda: None,
    between: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[list[Row], Steps, Pictures]:
    """Submit each request at its time, and step until all have ended; return the requests, the steps and pictures.

    `between` is called before every step and may raise.
    """
    coming, rows = deque(arrivals), dict[int, Row]()
    steps: Steps = {name: [] for name in COLUMNS}
    memory, start = Pictures(), clock()

    def now() -> float:
        sync()
        return round(clock() - start, 6)

    while coming or engine.busy:
        between()
        began = now()
        while coming and coming[0][0] <= began:
            at, request = coming.popleft()
            rows[request.number] = request_row(at, request)
            engine.submit(request)
        if not engine.busy:
            if coming:
                sleep(min(NAP_S, coming[0][0] - began))
            continue
        step = engine.step()
        ended = now()
        for number in step.admitted:
            rows[number]["admitted_s"].append(began)
        for number in step.preempted:
            rows[number]["preempted_s"].append(began)
        for number, first, count in step.parts:
            if count > 1 or number not in step.tokens or not rows[number]["token_s"]:
                rows[number]["chunks"].append([began, ended, first, count])
        for number in step.tokens:
            rows[number]["token_s"].append(ended)
        for number in step.ended:
            rows[number]["ended_s"] = ended
        computed = sum(count for _, _, count in step.parts)
        figures = (began, ended, step.running, step.waiting, step.blocks, computed)
        for name, figure in zip(COLUMNS, figures, strict=True):
            steps[name].append(figure)
        if len(steps["began_s"]) % memory.stride == 0:
            memory.keep(engine.picture())
    for number, row in rows.items():
        one = engine.batcher.sequences[number]
        row |= {"state": one.state, "sentence": one.why, "token_ids": one.chosen, "hit_tokens": one.hits}
        row |= {"recomputed_tokens": one.recomputed, "overtaken": one.overtaken}
        row |= {name: one.swapped[name] for name in SWAPPED}
    return list(rows.values()), steps, memory


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
        **_percentiles("ttft_s", waits),
        **_percentiles("itl_s", gaps),
    }


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


def _percentiles(name: str, values: Iterable[float]) -> Mapping[str, float | None]:
    ordered = sorted(values)
    return {f"{name}_p{percent}": nearest_rank(ordered, percent) if ordered else None for percent in (50, 90, 99)}
