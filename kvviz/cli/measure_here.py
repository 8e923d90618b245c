"""Measuring without a dashboard: this process takes the worker's place.

Standard library until something is measured.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.records import new_id
from kvviz.base.settings import Limits
from kvviz.base.shutdown import told_to_stop
from kvviz.base.words import lasting
from kvviz.cost.ceilings import Ceilings
from kvviz.device.lock import measuring
from kvviz.experiments.kind import Bench, Spec
from kvviz.experiments.registry import kind_of
from kvviz.experiments.sweep import journal
from kvviz.experiments.sweep.plan import preset_spec
from kvviz.experiments.sweep.spec import PRESETS, SweepSpec, check_sweep

Record = dict[str, Any]


def settle(threads: int | None = None) -> None:
    """Take the cores and threads that a dashboard's worker would have, and quieten the libraries.

    With a number of `threads`, take those, on whichever cores there are.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else torch's profiler writes a line at each start
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # and its allocator one about profiling
    if threads is None:
        take_cores()
    else:
        from kvviz.device.environment import set_threads

        set_threads(threads)

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def take_cores() -> None:
    """The cores and threads alone."""
    from kvviz.device.cores import pin, share_of_cores

    measuring, _ = share_of_cores()
    pin(measuring)

    from kvviz.device.environment import set_threads

    set_threads(len(measuring) or max(1, (os.cpu_count() or 2) - 1))


def open_journal(path: Path | None) -> list[Record]:
    """What an earlier start has left in a journal. Raises KvvizError where none can be read or written."""
    if path is None:
        return []
    try:
        records = journal.read(path) if path.exists() else []
        path.open("ab").close()
    except (OSError, ValueError) as error:
        raise KvvizError(f"{str(path)[:200]} can't be written ({type(error).__name__})") from error
    return records


def asked_for(preset: str, given: Mapping[str, Any], done: list[Record], patient: bool = True) -> SweepSpec:
    """The sweep that options ask for; one that is None was not given.

    Of a preset without a model: the first that this device can do, or the journal's. With neither: the journal's.
    """
    given = {name: value for name, value in given.items() if value is not None}
    earlier = journal.spec_of(done)
    if earlier is not None and "models" not in given:
        if not preset:
            return replace(earlier, **given)
        given["models"] = earlier.models
    if "models" in given:
        return preset_spec(preset, **given) if preset else SweepSpec(**given)
    if not preset:
        raise KvvizError(f"a sweep needs --model, or --preset with one of {', '.join(PRESETS)}")
    return preset_spec(preset, here(preset_spec(preset, **given), patient), **given)


def here(spec: SweepSpec, patient: bool = True) -> dict[str, Any]:
    """What the sweep's device can do: its measured rates, its free bytes."""
    settle()

    from kvviz.device.measure_rates import measure_rates
    from kvviz.device.memory import device_memory
    from kvviz.device.pick import pick_device

    device = pick_device(spec.device)
    with alone("kvviz sweep", patient):
        return {"rates": asdict(measure_rates(device)), "free_bytes": device_memory(device)[0]}


def ceilings_here(name: str, *, refresh: bool, patient: bool = True) -> Ceilings:
    """The ceilings of this device with a worker's cores: the kept ones, or measured now and kept. Needs torch only."""
    take_cores()

    from kvviz.device.measure_ceilings import known_ceilings
    from kvviz.device.pick import pick_device

    return known_ceilings(pick_device(name), alone("kvviz ceilings", patient), refresh=refresh)


def document_here(spec: Spec, bench: Bench, tell: Callable[[Record], None] = lambda record: None) -> Record:
    """The document of an experiment, measured in this process; `tell` hears of each record."""
    for record in kind_of(spec).runner()(spec, bench):
        tell(record)
    return record["document"]


@contextmanager
def bench_here(what: str, kept: str, patient: bool = True, **fields: Any) -> Iterator[Bench]:
    """What a run needs, in this process: the device for itself, a worker's cores, no server's limits.

    Where a signal ends it: Halted, with the sentence `kept` on what is kept.
    """
    settle()

    from kvviz.decoding.loaded_models import LoadedModels

    with stoppable(what, kept, patient) as should_stop:
        yield Bench(id=new_id(), models=LoadedModels(), limits=Limits(), should_stop=should_stop, **fields)


def alone(what: str, patient: bool = True) -> AbstractContextManager[None]:
    """Have the device for oneself: wait for whoever measures, and say on standard error who that is.

    Raises KvvizError in place of waiting where `patient` is False.
    """
    return measuring(what, patient=patient, tell=lambda words: say(f"waiting: {words}"))


@contextmanager
def stoppable(what: str, sentence: str, patient: bool = True) -> Iterator[Callable[[], bool]]:
    """Have the device as `alone` does; gives whether a signal has come, which whoever measures asks between two steps.

    Where that ends the measurement: Halted, with a `sentence` on what is kept.
    """
    from kvviz.base.errors import Stopped

    with alone(what, patient), told_to_stop() as told:
        try:
            yield lambda: bool(told)
        except Stopped:
            raise Halted(told[0], sentence) from None


def say(words: str) -> None:
    """A line on standard error."""
    print(f"kvviz: {words}", file=sys.stderr, flush=True)


def carry_out(spec: SweepSpec, done: list[Record], path: Path | None, patient: bool = True) -> Record:
    """Measure a sweep in this process; every record goes to the journal as it comes. Returns its document.

    Raises KvvizError with the first cell's sentence where none could be done, Halted when a signal ends it.
    """
    check_sweep(spec)
    bar = _Bar()
    with bench_here("kvviz sweep", _how_to_resume(path), patient, earlier=done) as bench:

        def keep(record: Record) -> None:
            if path is not None:
                journal.write(path, record)
            bar.show(record)

        document = document_here(spec, bench, keep)
    if not document["rows"]:
        raise KvvizError(document["failed"][0]["message"])
    return document


class Halted(Exception):
    """A signal has ended a measurement: its number, and a sentence on what is kept."""

    def __init__(self, number: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = 128 + number


def _how_to_resume(path: Path | None) -> str:
    if path is None:
        return "the sweep was stopped and nothing of it is kept; with --resume FILE its passes would be"
    return f"the sweep was stopped; its passes are in {path}, and `kvviz sweep --resume {path}` goes on from there"


class _Bar:
    """Passes done and the time left, on standard error; nothing before the first cell is under way."""

    _FORM = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} passes{postfix}"

    def __init__(self) -> None:
        self._bar: Any = None
        self._words = ""

    def show(self, record: Mapping[str, Any]) -> None:
        """Take note of a record."""
        kind = record["t"]
        if kind == "sweep_started":
            self._words = record["plan"]["words"]
        elif kind == "progress" and record["of"]:
            self._progress(record)
        elif kind == "done" and self._bar is not None:
            self._bar.close()

    def _progress(self, record: Mapping[str, Any]) -> None:
        from tqdm import tqdm

        if self._bar is None:
            tqdm.write(f"kvviz: {self._words}", file=sys.stderr)
            self._bar = tqdm(total=record["of"], bar_format=self._FORM, file=sys.stderr, leave=False)
        self._bar.total, self._bar.n = record["of"], record["done"]
        left = record["left_s"]
        self._bar.set_postfix_str("" if left is None else f"{lasting(left)} left")
