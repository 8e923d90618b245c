"""Measuring without a dashboard: this process takes the worker's place. Imports torch only to measure."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from kvviz.base.errors import Stopped
from kvviz.base.logs import quieten_profiler
from kvviz.base.records import SPLIT, new_id
from kvviz.base.settings import Limits
from kvviz.base.shutdown import told_to_stop
from kvviz.cli.output import say
from kvviz.decoding.endpoint.address import KEY
from kvviz.decoding.requirements import usual_dtype
from kvviz.device.lock import measuring
from kvviz.experiments.kind import Bench, Record, Spec
from kvviz.experiments.registry import kind_of
from kvviz.models.sources import find_source

NO_SERVER = Limits(prompt_tokens=sys.maxsize)  # the one limit that a run itself checks


class Halted(Exception):
    """A signal has ended a measurement: the exit status, and a sentence that says what is kept."""

    def __init__(self, number: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = 128 + number


def settle(threads: int | None = None) -> None:
    """Quieten the libraries; take the cores and threads of a dashboard's worker, or `threads` on any core."""
    quieten_profiler()
    import kvviz.decoding.loaded_models  # noqa: F401, the libraries that the last line keeps out
    from kvviz.device.clock import keep_out
    from kvviz.device.environment import set_threads, take_cores
    from kvviz.device.memory import keep_freed_memory

    if threads is None:
        take_cores()
    else:
        set_threads(threads)

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    keep_out()
    keep_freed_memory()


def alone(what: str, patient: bool = True) -> AbstractContextManager[None]:
    """Hold the device's lock; wait for the process that measures, and name it on standard error.

    Raises KvvizError instead of waiting where `patient` is False.
    """
    return measuring(what, patient=patient, tell=lambda words: say(f"waiting: {words}"))


@contextmanager
def bench_here(
    what: str,
    *,
    patient: bool = True,
    when_stopped: Callable[[], str] = lambda: "the measurement was stopped; nothing of it is kept",
    earlier: Sequence[Record] = (),
) -> Iterator[Bench]:
    """Give a run what a worker gives it: the device's lock, a worker's cores, models. A server's limits do not apply.

    Raises Halted with the sentence of `when_stopped` where the run stops because a signal has come.
    """
    settle()

    from kvviz.decoding.loaded_models import LoadedModels

    with alone(what, patient), told_to_stop() as told:
        try:
            stop, key = (lambda: bool(told)), os.environ.get(KEY)
            yield Bench(new_id(), LoadedModels(), NO_SERVER, should_stop=stop, earlier=earlier, key=key)
        except Stopped:
            raise Halted(told[0], when_stopped()) from None


def usual_here(model: str, weights: str, device: str) -> str:
    """Return the dtype to start with for a model on a device of this machine."""
    params = find_source(model, weights).params
    if usual_dtype(params, "9.0") == "float32":
        return "float32"  # on any device: torch need not be asked

    from kvviz.device.environment import machine, pick_device

    return usual_dtype(params, machine(pick_device("auto" if device == SPLIT else device)).capability)


def document_here(spec: Spec, bench: Bench, tell: Callable[[Record], None] = lambda record: None) -> Record:
    """Measure an experiment in this process and return its document; `tell` is called with each record."""
    for record in kind_of(spec).runner()(spec, bench):
        tell(record)
    return record["document"]
