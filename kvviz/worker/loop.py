"""Takes jobs from the scheduler one at a time, measures them, and sends each record as soon as it is there.

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
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import cast

import torch

from kvviz.base.errors import KvvizError, Stopped, in_a_line
from kvviz.base.logs import event, set_up
from kvviz.base.settings import Limits, settings
from kvviz.base.words import lasting
from kvviz.caches.designs import unloadable
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.read_cache import tracing_seconds
from kvviz.decoding.split import clear_stale
from kvviz.device.clock import checked_between_calls, keep_out
from kvviz.device.cores import usable_cores
from kvviz.device.disturbance import Watch
from kvviz.device.environment import about, be_called, default_place, device_name, devices, pick_device, set_threads
from kvviz.device.lock import measuring
from kvviz.device.measure_ceilings import known_rates
from kvviz.device.memory import (
    device_memory,
    is_device_lost,
    is_out_of_memory,
    keep_freed_memory,
    out_of_memory,
    unexpected,
)
from kvviz.device.remembered import TRUSTED_S, beside_another, figures_due_in, refresh_figures
from kvviz.experiments.kind import Bench, Device, Record
from kvviz.experiments.registry import KINDS, kind_of, read_spec
from kvviz.models.sources import restrict
from kvviz.models.weight_files import damage

log = logging.getLogger("kvviz.worker")

IDLE_S = 0.3  # seconds without a job after which a worker measures for itself
RETRY_S = 5.0  # seconds after which it tries again if it failed or others were computing; then twice as many
BUSY = 0.25  # cores that other processes keep busy, such as a browser that draws a page: measuring would slow it
PATIENCE_S = 40.0  # after a pause as long as this, it measures beside other processes, too
DEVICE_LOST = 3  # exit status of a worker whose GPU has failed
HOLDER = "a kvviz dashboard"  # who has the device, for others that wait for it


class Task:
    """A job as the worker sees it: what is asked for, and when its time is over."""

    def __init__(self, message: Record, is_stopped: Callable[[str], bool]) -> None:
        self.id, self.kind, self.spec = message["id"], message["do"], message["spec"]
        self.earlier, self.key = message.get("earlier", ()), message.get("key")
        self.limits = Limits(**message["limits"])
        self._seconds = getattr(self.limits, KINDS[self.kind].limit)
        self._is_stopped = is_stopped
        self._end = math.inf

    def begin(self) -> None:
        """Start its time: the device is ours now."""
        self._end = time.monotonic() + self._seconds

    def should_stop(self) -> bool:
        """Whether someone stopped it, or its time is over; asked between any two steps."""
        return self._is_stopped(self.id) or time.monotonic() > self._end

    def check(self) -> None:
        """Raise Stopped if it should stop."""
        if self.should_stop():
            raise Stopped

    def why_stopped(self) -> str:
        """A sentence; empty if it was a person."""
        if self._is_stopped(self.id):
            return ""
        return f"it reached {lasting(self._seconds)}, which is this server's limit; what was measured stands"


class Worker:
    """The loaded models and the pipe. A second thread only listens, so that a stop is seen between two steps."""

    def __init__(self, pipe: Connection, name: str = "") -> None:
        self._pipe = pipe
        self._measuring = partial(measuring, HOLDER, worker=name)
        self._is_one_of_several = bool(name)
        self._models = LoadedModels()
        self._device: Device = {}
        self._messages: queue.SimpleQueue[Record | None] = queue.SimpleQueue()  # a signal may put into it
        self._stopped: set[str] = set()
        self._leaving = False

    def run(self) -> None:
        """Serve until the server ends, or a SIGTERM comes: then the step under way is the last.

        The libraries' objects stay out of the full collections before each load and each timed pass.
        """
        threading.Thread(target=self._listen, daemon=True).start()
        with self._measuring(tell=self._tell_holder):
            self._device = hello()  # an error here ends the process
        self._send("-", {"t": "hello", **self._device})
        keep_out()
        keep_freed_memory()
        signal.signal(signal.SIGTERM, self._leave)
        self._rehearse()
        keep_out()  # what the rehearsal imported, too
        while (message := self._next_message()) is not None and not self._leaving:
            self._perform(Task(message, self._is_stopped))
            if self._is_one_of_several:
                self._send("-", {"t": "free", "bytes": device_memory(self._device["device"])[0]})

    def _next_message(self) -> Record | None:
        """Wait for a job. Meanwhile measure doubtful figures again as soon as they are due, so that no run waits."""
        pause = IDLE_S
        while True:
            due = figures_due_in()
            try:
                return self._messages.get(timeout=None if due is None else max(due, pause))
            except queue.Empty:
                measured = self._refresh(beside_others=pause >= PATIENCE_S)
                pause = IDLE_S if measured else max(RETRY_S, min(2 * pause, TRUSTED_S))

    def _rehearse(self) -> None:
        """Load the first model, measure its paces and take each kind's first steps once, unless a job comes first.

        Nothing of it is sent. An error here is logged; a job that meets it will say so.
        """
        self._let_jobs_come()
        for kind in KINDS.values():
            if kind.rehearsal is None or self._is_wanted():
                continue
            try:
                with self._measuring(between=self._check_wanted), checked_between_calls(self._check_wanted):
                    bench = Bench("-", self._models, settings().limits, should_stop=self._is_wanted, watched=True)
                    for _ in kind.runner()(kind.rehearsal(), bench):
                        pass
            except Stopped:
                return
            except Exception as error:
                log.warning("rehearsal", exc_info=True)
                if is_device_lost(error):
                    give_up()

    def _let_jobs_come(self) -> None:
        """Wait until a job has come, or for so long that none is about to."""
        end = time.monotonic() + IDLE_S
        while time.monotonic() < end and not self._is_wanted():
            time.sleep(0.02)

    def _refresh(self, beside_others: bool = False) -> bool:
        """Measure again what is in doubt and tell the scheduler the new rates; return whether that came to its end.

        A job comes first, and so does another worker that measures on the same processor. If other processes are busy,
        nothing is measured either, unless `beside_others` allows it.
        """
        try:
            self._check_idle(time.time() - IDLE_S)
            if not beside_others:
                self._check_quiet()
            with self._measuring(between=self._check_wanted), checked_between_calls(self._check_wanted):
                refresh_figures(self._check_idle)
                self._device = hello()
        except Stopped:
            return False
        except Exception as error:
            log.warning("refresh", exc_info=True)
            if is_device_lost(error):
                give_up()
            return False
        self._send("-", {"t": "hello", **self._device})
        return True

    def _is_wanted(self) -> bool:
        return self._leaving or not self._messages.empty()

    def _check_wanted(self) -> None:
        if self._is_wanted():
            raise Stopped

    def _check_idle(self, since: float | None = None) -> None:
        """Raise Stopped if a job has come, or if another worker measures beside this one, or has since a time."""
        self._check_wanted()
        if beside_another(time.time() if since is None else since):
            raise Stopped

    def _check_quiet(self) -> None:
        """Watch the machine for a moment; raise Stopped if other processes are busy or a job comes."""
        watch = Watch()
        self._let_jobs_come()
        self._check_wanted()
        if (watch.read().others or 0.0) > BUSY:
            raise Stopped

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._leaving = True
        self._messages.put(None)

    def _listen(self) -> None:
        while True:
            try:
                message = json.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(0)  # the server has ended, and with it everyone who could see a result
            if message["do"] == "stop":
                self._stopped.add(message["id"])
            else:
                self._messages.put(message)

    def _is_stopped(self, job_id: str) -> bool:
        return self._leaving or job_id in self._stopped

    def _tell_holder(self, words: str) -> None:
        """Tell who else has the device: the scheduler could not tell that from a slow start."""
        self._send("-", {"t": "held", "by": words})

    def _perform(self, task: Task) -> None:
        """Measure one job and send its records; whatever goes wrong is the last one."""
        begun, last, no_memory, lost = time.monotonic(), None, False, False
        try:
            with self._measuring(tell=self._tell_holder, between=task.check):
                task.begin()
                self._models.share = task.limits.memory_share
                self._send(task.id, {"t": "loading"})
                task.check()
                for record in self._records(task):
                    self._send(task.id, record)
        except Stopped:
            last = {"t": "stopped", "message": task.why_stopped()}
        except KvvizError as error:
            last = {"t": "failed", "message": str(error)}
        except Exception as error:
            no_memory, lost = is_out_of_memory(error), is_device_lost(error)
            last = {"t": "failed", "message": why_it_failed(error, task.kind)}
        if no_memory:  # only now: the error's frames held the tensors
            self._models.forget()
        if last is not None:
            self._send(task.id, last)
        if lost:
            give_up()
        event(log, "work_left", logging.DEBUG, id=task.id, seconds=round(time.monotonic() - begun, 3))

    def _records(self, task: Task) -> Iterator[Record]:
        """All that the experiment yields; if its model's path has vanished since it was queued, the error says so."""
        spec, tell = read_spec(task.kind, task.spec), partial(self._send, task.id)
        told = (self._device, task.should_stop, tell, task.earlier)
        bench = Bench(task.id, self._models, task.limits, *told, key=task.key, watched=True)
        try:
            yield from kind_of(spec).runner()(spec, bench)
        except KvvizError as error:
            model = Path(task.spec.get("model") or "x")
            if os.sep in str(model) and task.spec.get("weights") != "hub" and not model.expanduser().exists():
                raise KvvizError(damage(model)) from error
            raise

    def _send(self, job_id: str, record: Record) -> None:
        body = json.dumps(record, separators=(",", ":"), allow_nan=False)
        self._pipe.send_bytes(f"{job_id} {record['t']}\n{body}".encode())


def give_up() -> None:
    """End the process, whose GPU has failed: every later call would fail too, in this process alone."""
    log.error("the GPU has failed; a new worker takes the next job")
    os._exit(DEVICE_LOST)


def why_it_failed(error: Exception, kind: str) -> str:
    """An unexpected error as a sentence; unless the memory ran out, what it was and where goes to the log."""
    if not is_out_of_memory(error):
        log.error("work_failed", exc_info=error)
        if is_device_lost(error):
            return f"the GPU stopped in the middle of it ({in_a_line(error)}); the measuring process starts anew"
        return unexpected(error)
    sentence = out_of_memory(error, pick_device(), KINDS[kind].spec.called)
    return f"{sentence}: take a smaller model, a shorter run, a smaller batch or fewer modes"


def hello() -> Device:
    """What the scheduler needs to know of the device: its name, its memory (bytes) and its measured rates.

    `read` is what a float32 product of one row reads (B/s), `flops` what one of 64 rows computes (FLOP/s), `launch` the
    least that an operation takes (s): from the kept ceilings of this environment if it has any, else measured now.
    `tracing_s` is what the equivalence check's tracing adds to an operation.
    """
    place = default_place()
    found = {
        **about(place.device),
        "pid": os.getpid(),
        "threads": torch.get_num_threads(),
        "why": place.why,
        "devices": [
            {"device": device, "device_name": device_name(device), "total_bytes": device_memory(device)[1]}
            for device in devices()
        ],
        "left_out": unloadable(),
        "rates": asdict(known_rates(place.device)),
        "tracing_s": tracing_seconds(place.device),
    }
    return cast(Device, found)


def main(descriptor: int, name: str = "") -> None:
    """Serve the scheduler at the other end of an inherited pipe; one of several workers has a name."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    set_up("worker")
    if settings().public:
        restrict(settings().hub_models)  # this process opens the files, whoever asked for them
    pinned = hasattr(os, "sched_getaffinity")  # to all cores but the server's; else one is left to the server here
    set_threads(usable_cores() if pinned else max(1, usable_cores() - 1))
    be_called(name)
    clear_stale()
    Worker(Connection(descriptor), name).run()
