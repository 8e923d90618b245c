"""A class on one server: many browsers follow one live run while others use the calculator.

They are real Streamlit sessions over real sockets, on the server's core, so that the measuring process keeps its own.
Runs without and with the class alternate (A B B A), so that drift affects both. The ratio of their inter-token
latencies is what the class costs the measurement; the ratio among runs without it is the noise. At the end all sockets
of the class break in the middle of a run and reopen at once.

    python bench/viewers.py --viewers 30 --json
    python bench/viewers.py --memory --json
"""

import argparse
import asyncio
import json
import signal
import statistics
import sys
from collections import Counter
from importlib.metadata import version
from typing import Any

if not __package__:
    import checkout  # noqa: F401

from bench.checking import share
from bench.classroom import Classroom, Seen
from bench.lasting import lasting
from bench.served import Server
from kvviz.device.cores import pin, share_of_cores
from kvviz.experiments.comparison.spec import ComparisonSpec

PROMPT = "Once upon a time there was a little"


def ratios(watched: list[Seen], alone: list[Seen], figure: str) -> dict[str, float]:
    """For each mode, the median over runs with a class over the median without."""
    return {mode: _median(watched, mode, figure) / _median(alone, mode, figure) for mode in _modes(alone)}


def noise(alone: list[Seen], figure: str) -> dict[str, float]:
    """For each mode, the largest figure over the smallest among runs without a class."""
    found = {mode: [_figure(seen, mode, figure) for seen in alone] for mode in _modes(alone)}
    return {mode: max(values) / min(values) for mode, values in found.items()}


def _modes(seen: list[Seen]) -> list[str]:
    return [run["mode"] for run in seen[0].document["runs"]]


def _figure(seen: Seen, mode: str, figure: str) -> float:
    return next(run[figure] for run in seen.document["runs"] if run["mode"] == mode)


def _median(all_seen: list[Seen], mode: str, figure: str) -> float:
    return statistics.median(_figure(seen, mode, figure) for seen in all_seen)


async def measure(server: Server, work: ComparisonSpec, viewers: int, calculators: int, rounds: int) -> dict[str, Any]:
    """Warm up, alternate runs without and with the class, break its sockets; returns the document."""
    bench = Classroom(server, work, viewers, calculators)
    await bench.alone()
    alone: list[Seen] = []
    watched: list[Seen] = []
    for _ in range(rounds):
        alone.append(await bench.alone())
        watched += [await bench.watched(), await bench.watched()]
        alone.append(await bench.alone())
    return document(alone, watched, await bench.watched(cut=True), server)


def document(alone: list[Seen], watched: list[Seen], cut: Seen, server: Server) -> dict[str, Any]:
    """All figures, as JSON values."""
    verdicts = [verdict for seen in watched for verdict in seen.verdicts]
    every = [*watched, cut]
    troubles = [trouble for seen in (*alone, *every) for trouble in seen.troubles] + server.complaints()
    reruns = [seconds for seen in watched for seconds in seen.reruns]
    median, p99 = ratios(watched, alone, "itl_s"), ratios(watched, alone, "itl_p99_s")
    return {
        "environment": environment(cut),
        "viewers": len(cut.verdicts),
        "errors": len(troubles),
        "troubles": troubles[:5],
        "lost": sum(verdict.lost for seen in every for verdict in seen.verdicts),
        "doubled": sum(verdict.doubled for seen in every for verdict in seen.verdicts),
        "screens_unlike_the_store": sum(verdict.differs for seen in every for verdict in seen.verdicts),
        "updates_per_s_min": min(verdict.updates_per_s for verdict in verdicts),
        "updates_per_s_median": statistics.median(verdict.updates_per_s for verdict in verdicts),
        "longest_gap_s": max(verdict.longest_gap_s for verdict in verdicts),
        "behind_s_p50": share([delay for verdict in verdicts for delay in verdict.behind_s], 0.5),
        "behind_s_p99": share([delay for verdict in verdicts for delay in verdict.behind_s], 0.99),
        "bytes_per_token_per_viewer": statistics.median(verdict.bytes_per_token for verdict in verdicts),
        "bytes_per_step_per_viewer": statistics.median(verdict.bytes_per_step for verdict in verdicts),
        "server_cpu_share": statistics.median(seen.cpu_share for seen in watched),
        "driver_cpu_share": statistics.median(seen.driver_share for seen in watched),
        "itl_ratio_vs_no_viewers": max(median.values()),
        "itl_ratio_by_mode": median,
        "itl_p99_ratio_vs_no_viewers": max(p99.values()),
        "itl_p99_ratio_by_mode": p99,
        "itl_noise_without_viewers": noise(alone, "itl_s"),
        "itl_p99_noise_without_viewers": noise(alone, "itl_p99_s"),
        "itl_s": {
            mode: {
                "without": [_figure(seen, mode, "itl_s") for seen in alone],
                "with": [_figure(seen, mode, "itl_s") for seen in watched],
            }
            for mode in _modes(alone)
        },
        "links_lost": Counter(end for seen in watched for end in seen.link_ends),
        "calculator": {
            "reruns": len(reruns),
            "wrong": sum(seen.wrong for seen in every),
            "rerun_s_median": share(reruns, 0.5),
            "rerun_s_p95": share(reruns, 0.95),
        },
        "network_lost": {
            "links_lost": len(cut.link_ends),
            "lost": sum(verdict.lost for verdict in cut.verdicts),
            "doubled": sum(verdict.doubled for verdict in cut.verdicts),
            "longest_gap_s": max(verdict.longest_gap_s for verdict in cut.verdicts),
        },
    }


def environment(seen: Seen) -> dict[str, Any]:
    """The comparison's environment, the server's libraries and the work."""
    libraries = {name: version(name) for name in ("streamlit", "uvicorn", "starlette", "websockets")}
    names = ("model", "prompt_tokens", "new_tokens", "repeats")
    work = {name: seen.document[name] for name in names} | {"modes": _modes([seen])}
    return {**seen.document["environment"], **libraries, "work": work}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--viewers", type=int, default=30, help="browsers that follow the run")
    parser.add_argument("--calculators", type=int, help="further browsers that use the calculator; a fifth as many")
    parser.add_argument("--rounds", type=int, default=2, help="of four runs each: without, with, with, without")
    parser.add_argument("--model", default="mini-gpt2")
    parser.add_argument("--modes", default="uncached,cached")
    parser.add_argument("--new-tokens", type=int, default=384, help="a multiple of 8, as the page's slider has it")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="the server's memory over many sessions and runs instead")
    parser.add_argument("--openings", type=int, default=1000, help="with --memory: sessions opened and closed")
    parser.add_argument("--runs", type=int, default=200, help="with --memory: comparisons measured")
    asked = parser.parse_args()
    calculators = -(-asked.viewers // 5) if asked.calculators is None else asked.calculators
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaving `with` ends the server
    with Server() as server:
        pin(share_of_cores()[1])  # not before: the server would take this core for the only one
        if asked.memory:
            found = asyncio.run(lasting(server, asked.openings, asked.runs))
        else:
            work = ComparisonSpec(
                model=asked.model,
                modes=tuple(asked.modes.split(",")),
                prompt=PROMPT,
                new_tokens=asked.new_tokens,
                repeats=asked.repeats,
            )
            found = asyncio.run(measure(server, work, asked.viewers, calculators, asked.rounds))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
