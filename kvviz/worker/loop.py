"""Takes comparisons from the hub one at a time, performs them, sends what they yield.

A message to the hub is `ID TYPE` on a line, then the record as JSON: the hub passes most of them on unread.
"""

import json
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch

from kvviz.device import device_memory, device_name, measure_rates, pick_device, set_threads
from kvviz.engine import Engine
from kvviz.errors import KvvizError
from kvviz.logs import event, set_up
from kvviz.looking import first_steps, look
from kvviz.looks import LookSpec
from kvviz.memory import human
from kvviz.perform import Stopped, perform
from kvviz.records import ComparisonSpec
from kvviz.settings import settings
from kvviz.sources import restrict
from kvviz.sweeping import perform_sweep
from kvviz.sweeps import SweepSpec

log = logging.getLogger("kvviz.worker")


class Worker:
    """One engine, one pipe. A second thread only listens, so that a stop is seen between two steps."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._engine = Engine()
        self._jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # a signal may put into it
        self._stopped: set[str] = set()
        self._leaving = False

    def run(self) -> None:
        """Serve until the hub goes away, or a SIGTERM: then the step under way is the last."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._device = hello()
        self._send("-", self._device)
        signal.signal(signal.SIGTERM, self._leave)
        while (job := self._jobs.get()) is not None and not self._leaving:
            self._perform(job)

    def _leave(self, *_: Any) -> None:
        self._leaving = True
        self._jobs.put(None)

    def _listen(self) -> None:
        while True:
            try:
                message = json.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(0)  # the hub is gone, and with it everyone who could see a result
            if message["do"] == "stop":
                self._stopped.add(message["id"])
            else:
                self._jobs.put(message)

    def _perform(self, job: dict[str, Any]) -> None:
        comparison_id, begun = job["id"], time.monotonic()
        try:
            for record in {"sweep": self._sweep, "look": self._look}.get(job["do"], self._compare)(job):
                self._send(comparison_id, record)
        except Stopped:
            self._send(comparison_id, {"t": "stopped"})
        except KvvizError as error:
            self._send(comparison_id, {"t": "failed", "message": str(error)})
        except Exception as error:
            self._send(comparison_id, {"t": "failed", "message": explained(error)})
        event(log, "work_left", logging.DEBUG, id=comparison_id, seconds=round(time.monotonic() - begun, 3))

    def _should_stop(self, work_id: str) -> bool:
        return self._leaving or work_id in self._stopped

    def _compare(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        work = ComparisonSpec.from_dict(job["spec"])
        yield {"t": "loading"}
        loaded = self._engine.get(work, lambda record: self._send(job["id"], record))
        yield from perform(work, loaded, comparison_id=job["id"], should_stop=lambda: self._should_stop(job["id"]))

    def _look(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        spec = LookSpec.from_dict(job["spec"])
        yield {"t": "loading"}
        if spec.kind == "first-steps":
            yield from first_steps(pick_device())
            return
        yield from look(spec, self._engine.get(spec.work(), lambda record: self._send(job["id"], record)))

    def _sweep(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from perform_sweep(
            SweepSpec.from_dict(job["spec"]),
            self._engine,
            sweep_id=job["id"],
            done=job["done"],
            device=self._device,
            should_stop=lambda: self._should_stop(job["id"]),
        )

    def _send(self, comparison_id: str, record: dict[str, Any]) -> None:
        head = f"{comparison_id} {'done' if record['t'] == 'sweep_done' else record['t']}\n"
        self._pipe.send_bytes((head + json.dumps(record, separators=(",", ":"), allow_nan=False)).encode())


def explained(error: Exception) -> str:
    """An unforeseen error as a sentence; what it was and where goes to the log.

    Where the memory ran out, it says so.
    """
    if not is_out_of_memory(error):
        log.error("work_failed", exc_info=error)
        first = str(error).strip().splitlines()[:1]
        return f"the model could not be run ({type(error).__name__}{': ' + first[0][:200] if first else ''})"
    where = next((note for note in getattr(error, "__notes__", ())), "this comparison")
    free, _ = device_memory(pick_device())
    return (
        f"the device ran out of memory during {where} ({human(free)} are free now): take a smaller model, a shorter "
        "run, a smaller batch or fewer modes"
    )


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocator said no: Python's, CUDA's, or the CPU's, which raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def hello() -> dict[str, Any]:
    """What the hub has to know of the device: its name, its memory (bytes) and its measured rates."""
    device = pick_device()
    free, total = device_memory(device)
    rates = measure_rates(device)
    return {
        "t": "hello",
        "pid": os.getpid(),
        "device": device,
        "device_name": device_name(device),
        "free_bytes": free,
        "total_bytes": total,
        "threads": torch.get_num_threads(),
        "rates": {"read": rates.read, "flops": rates.flops, "launch": rates.launch},
    }


def main(descriptor: int) -> None:
    """Serve the hub behind an inherited pipe."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    set_up("worker")
    if settings().public:
        restrict(settings().hub_models)  # this process opens the files, whoever asked for them
    set_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) - 1)
    Worker(Connection(descriptor)).run()
