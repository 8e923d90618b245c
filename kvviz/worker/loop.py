"""Takes comparisons from the scheduler one at a time, performs them, sends what they yield.

A message to the scheduler is `ID TYPE` on a line, then the record as JSON: the scheduler passes most of them on unread.
"""

import json
import logging
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.logs import event, set_up
from kvviz.base.settings import Limits, settings
from kvviz.base.words import lasting
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.device.environment import set_threads
from kvviz.device.errors import is_out_of_memory, out_of_memory, unexpected
from kvviz.device.lock import measuring
from kvviz.device.measure_rates import known_rates
from kvviz.device.memory import device_memory
from kvviz.device.pick import device_name, pick_device
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.registry import KINDS, kind_of, read_spec
from kvviz.models.sources import restrict
from kvviz.models.weight_files import damage

WHO = "a kvviz dashboard"


class Job:
    """One message of the scheduler that asks for work, and the end of its time."""

    def __init__(self, message: dict[str, Any], is_stopped: Callable[[str], bool]) -> None:
        self.id, self.kind, self.spec = message["id"], message["do"], message["spec"]
        self.earlier = message.get("earlier", ())
        self.limits = Limits(**message["limits"])
        self.seconds = getattr(self.limits, KINDS[self.kind].limit)
        self._is_stopped = is_stopped
        self._end = math.inf

    def begin(self) -> None:
        """The device is ours: its time runs from now on."""
        self._end = time.monotonic() + self.seconds

    def should_stop(self) -> bool:
        """Whether someone stopped it, or its time is over; asked between any two steps."""
        return self._is_stopped(self.id) or time.monotonic() > self._end

    def check(self) -> None:
        """Raise Stopped where it should."""
        if self.should_stop():
            raise Stopped

    def why_stopped(self) -> str:
        """A sentence where it was not a person."""
        if self._is_stopped(self.id):
            return ""
        return f"it reached {lasting(self.seconds)}, which is this server's limit; what was measured stands"


log = logging.getLogger("kvviz.worker")


class Worker:
    """The loaded models and one pipe. A second thread only listens, so that a stop is seen between two steps."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._models = LoadedModels()
        self._jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # a signal may put into it
        self._stopped: set[str] = set()
        self._leaving = False

    def run(self) -> None:
        """Serve until the scheduler goes away, or a SIGTERM: then the step under way is the last."""
        threading.Thread(target=self._listen, daemon=True).start()
        with measuring(WHO, tell=self._tell_who):
            self._device = hello()
        self._send("-", self._device)
        signal.signal(signal.SIGTERM, self._leave)
        while (message := self._jobs.get()) is not None and not self._leaving:
            self._perform(Job(message, self._is_stopped))

    def _leave(self, *_: Any) -> None:
        self._leaving = True
        self._jobs.put(None)

    def _listen(self) -> None:
        while True:
            try:
                message = json.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(0)  # the scheduler is gone, and with it everyone who could see a result
            if message["do"] == "stop":
                self._stopped.add(message["id"])
            else:
                self._jobs.put(message)

    def _tell_who(self, words: str) -> None:
        """Another process has the device: the scheduler has to know, for it can't be told from a slow start."""
        self._send("-", {"t": "held", "by": words})

    def _perform(self, job: Job) -> None:
        """One job, the device ours while it lasts; whatever goes wrong is its last record."""
        begun = time.monotonic()
        end, no_memory = self._carry_out(job)
        if no_memory:
            self._models.forget()
        if end is not None:
            self._send(job.id, end)
        event(log, "work_left", logging.DEBUG, id=job.id, seconds=round(time.monotonic() - begun, 3))

    def _is_stopped(self, work_id: str) -> bool:
        return self._leaving or work_id in self._stopped

    def _carry_out(self, job: Job) -> tuple[dict[str, Any] | None, bool]:
        """(the record that says why it ended early, whether the memory ran out)."""
        try:
            with measuring(WHO, tell=self._tell_who, between=job.check):
                job.begin()
                self._models.share = job.limits.memory_share
                self._send(job.id, {"t": "loading"})
                job.check()
                for record in self._records(job):
                    self._send(job.id, record)
        except Stopped:
            return {"t": "stopped", "message": job.why_stopped()}, False
        except KvvizError as error:
            return {"t": "failed", "message": str(error)}, False
        except Exception as error:
            return {"t": "failed", "message": explained(error)}, is_out_of_memory(error)
        return None, False

    def _records(self, job: Job) -> Iterator[Record]:
        """All that the experiment yields; a model's path that was there and no longer is, is named as what is wrong."""
        spec = read_spec(job.kind, job.spec)
        bench = Bench(
            id=job.id,
            models=self._models,
            limits=job.limits,
            device=self._device,
            should_stop=job.should_stop,
            tell=lambda record: self._send(job.id, record),
            earlier=job.earlier,
        )
        try:
            yield from kind_of(spec).runner()(spec, bench)
        except KvvizError as error:
            model = Path(job.spec.get("model") or "x")
            if os.sep in str(model) and job.spec.get("weights") != "hub" and not model.expanduser().exists():
                raise KvvizError(damage(model)) from error
            raise

    def _send(self, comparison_id: str, record: dict[str, Any]) -> None:
        head = f"{comparison_id} {record['t']}\n"
        self._pipe.send_bytes((head + json.dumps(record, separators=(",", ":"), allow_nan=False)).encode())


def explained(error: Exception) -> str:
    """An unexpected error as a sentence; what it was and where goes to the log.

    Where the memory ran out, it says so.
    """
    if not is_out_of_memory(error):
        log.error("work_failed", exc_info=error)
        return unexpected(error)
    said = out_of_memory(error, pick_device(), "this comparison")
    return f"{said}: take a smaller model, a shorter run, a smaller batch or fewer modes"


def hello() -> dict[str, Any]:
    """What the scheduler has to know of the device: its name, its memory (bytes) and its measured rates.

    `read` is what a float32 product of one row reads (B/s), `flops` what one of 64 rows computes (FLOP/s), `launch` the
    least that an operation takes (s): from the kept ceilings of this environment where there are any, else measured.
    """
    device = pick_device()
    free, total = device_memory(device)
    rates = known_rates(device)
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
    """Serve the scheduler behind an inherited pipe."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    set_up("worker")
    if settings().public:
        restrict(settings().hub_models)  # this process opens the files, whoever asked for them
    set_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) - 1)
    Worker(Connection(descriptor)).run()
