"""How much faster a queue goes with several workers: the same comparisons one after the other, and all queued at once.

One after the other is what a queue with a single worker does: the next one begins when the one before has ended. Jobs
ask for the workers in turn, or for `auto` where all workers are alike. Rounds alternate (A B B A), so that drift
affects both. The inter-token latency of each device, alone and beside the others, is what sharing the machine costs.

    python bench/devices.py --workers cpu:0,cpu:1 --json
    python bench/devices.py --workers cuda:0,cpu --model gpt2 --new-tokens 128 --json
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

if not __package__:
    import checkout  # noqa: F401

from kvviz.base.settings import check_workers
from kvviz.device.cores import pin, share_of_cores
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server.scheduler import Scheduler
from kvviz.server.staff import staff

PATIENCE = 600.0  # seconds that workers may take to start, and jobs to end


def measure(workers: Sequence[str], model: str, new_tokens: int, jobs: int, rounds: int) -> dict[str, Any]:
    """Start the workers, let each run once untimed, and alternate; returns the document."""
    measuring, serving = share_of_cores()
    links = staff(workers, measuring, serving)
    pin(serving)
    scheduler = Scheduler(*links)
    scheduler.start()
    try:
        _wait(lambda: all(worker.state == "ready" for worker in scheduler.workers), "the workers")
        names = [worker.name for worker in scheduler.workers]
        alike = all(worker.is_like(scheduler.workers[0]) for worker in scheduler.workers)
        # a prompt of its own for each job: an equal one would say nothing else, but look like a repetition
        asked = [
            ComparisonSpec(model, prompt=f"Story {n}: once upon a time", new_tokens=new_tokens, device=device)
            for n, device in enumerate(["auto"] * jobs if alike else names * max(1, jobs // len(names)))
        ]
        for name in names:
            _drain(scheduler, [ComparisonSpec(model, prompt="warm up", new_tokens=8, repeats=1, device=name)])
        passes: dict[str, list[dict[str, Any]]] = {"one after the other": [], "all at once": []}
        for number in range(2 * rounds):
            orders = [_one_by_one, _drain]
            for order in orders if number % 2 == 0 else reversed(orders):
                way = "all at once" if order is _drain else "one after the other"
                passes[way].append(order(scheduler, asked))
                _say(way, passes[way][-1], names)
        return _document(passes, {worker.name: worker.device for worker in scheduler.workers}, asked)
    finally:
        scheduler.close()


def _say(way: str, found: dict[str, Any], names: Sequence[str]) -> None:
    """Print a round on standard error when it has ended, so that whoever runs out of time keeps what was measured."""
    itl = ", ".join(f"{name} {_milliseconds(_itl([found], name))}" for name in names)
    print(f"{way}: {found['seconds']:.2f} s for {len(found['where'])} jobs; ITL {itl}", file=sys.stderr, flush=True)


def _milliseconds(seconds: float | None) -> str:
    return "none" if seconds is None else f"{1000 * seconds:.2f} ms"


def _one_by_one(scheduler: Scheduler, specs: Sequence[ComparisonSpec]) -> dict[str, Any]:
    parts = [_drain(scheduler, [spec]) for spec in specs]
    return {
        "seconds": sum(part["seconds"] for part in parts),
        "where": [where for part in parts for where in part["where"]],
        "documents": [document for part in parts for document in part["documents"]],
    }


def _drain(scheduler: Scheduler, specs: Sequence[ComparisonSpec]) -> dict[str, Any]:
    """Queue all at once, and wait until the last has ended."""
    begun = time.perf_counter()
    ids = [scheduler.submit(spec) for spec in specs]
    jobs = [job for job in map(scheduler.get, ids) if job is not None]
    where: dict[str, str] = {}

    def over() -> bool:
        where.update({job.id: name for job in jobs if (name := scheduler.measured_on(job))})
        return not any(job.active for job in jobs)

    _wait(over, "the queue")
    seconds = time.perf_counter() - begun
    if bad := [job.message for job in jobs if job.document is None]:
        raise SystemExit(f"a comparison did not end as it should: {bad[0]}")
    return {
        "seconds": seconds,
        "where": [where.get(job_id, "") for job_id in ids],
        "documents": [job.document for job in jobs],
    }


def _wait(until: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        if time.monotonic() > end:
            raise SystemExit(f"gave up waiting for {what}")
        time.sleep(0.02)


def _document(passes: dict[str, list[dict[str, Any]]], devices: dict[str, Any], asked: Sequence[Any]) -> dict[str, Any]:
    seconds = {way: statistics.median(each["seconds"] for each in rounds) for way, rounds in passes.items()}
    first = passes["all at once"][0]["documents"][0]
    return {
        "environment": first["environment"],
        "workers": [
            {
                "name": name,
                "device_name": device["device_name"],
                "threads": device["threads"],
                "cached_itl_s": {way: _itl(rounds, name) for way, rounds in passes.items()},
            }
            for name, device in devices.items()
        ],
        "jobs": len(asked),
        "on": dict(Counter(name for each in passes["all at once"] for name in each["where"])),
        "seconds": seconds,
        "rounds_s": {way: [each["seconds"] for each in rounds] for way, rounds in passes.items()},
        "times_as_fast": seconds["one after the other"] / seconds["all at once"],
    }


def _itl(rounds: Sequence[dict[str, Any]], name: str) -> float | None:
    """The median inter-token latency of the cached mode on one worker, in seconds; None where it measured nothing."""
    found = [
        run["itl_s"]
        for each in rounds
        for where, document in zip(each["where"], each["documents"], strict=True)
        for run in document["runs"]
        if where == name and run["mode"] == "cached"
    ]
    return statistics.median(found) if found else None


def main() -> None:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="cpu:0,cpu:1", help="as in KVVIZ_WORKERS")
    parser.add_argument("--model", default="mini-gpt2")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    workers = check_workers("--workers", given.workers.split(","))
    found = measure(workers, given.model, given.new_tokens, given.jobs, given.rounds)
    if given.json:
        json.dump(found, sys.stdout, indent=1)
        print()
        return
    print(f"{found['jobs']} comparisons, {len(found['workers'])} workers: {found['times_as_fast']:.2f} times as fast")
    for worker in found["workers"]:
        itl = {way: _milliseconds(seconds) for way, seconds in worker["cached_itl_s"].items()}
        print(f"  {worker['name']} ({worker['device_name']}, {worker['threads']} threads): ITL {itl}")


if __name__ == "__main__":
    main()
