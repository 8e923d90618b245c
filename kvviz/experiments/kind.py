"""What every kind of experiment is made of: a spec, a run, and what the queue has to know of both.

Standard library only. `kvviz.experiments.registry` has a row for each kind.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from kvviz.base.records import check_fields
from kvviz.base.settings import Limits

if TYPE_CHECKING:
    from kvviz.decoding.loaded_models import LoadedModels
    from kvviz.decoding.loading import Loaded
    from kvviz.decoding.work import Work

Record = dict[str, Any]
Device = Mapping[str, Any]  # what a worker says of its device: rates, free_bytes, total_bytes, device_name


class Spec:
    """What is asked for: a frozen dataclass that checks its fields at birth and travels as JSON.

    `kind` names its row in the registry; `called` is what a refusal calls it.
    """

    kind: ClassVar[str]
    called: ClassVar[str]

    def to_dict(self) -> Record:
        """Plain JSON values; `from_dict` reads them back."""
        found = asdict(self)  # type: ignore[call-overload]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read `to_dict`'s values. Raises KvvizError for a field that does not exist or does not fit."""
        check_fields(cls, data, cls.called)
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})


@dataclass(frozen=True)
class Bench:
    """What a run is given by whoever owns the device: the worker, or a command."""

    id: str
    models: "LoadedModels"
    limits: Limits
    device: Device = field(default_factory=dict)
    should_stop: Callable[[], bool] = lambda: False
    tell: Callable[[Record], None] = lambda record: None  # told of a download: bytes so far and in all
    earlier: Sequence[Record] = ()  # records of an interrupted run of the same spec

    def load(self, work: "Work") -> "Loaded":
        """The model of a piece of work. Raises KvvizError where it can't be loaded or the work does not fit."""
        return self.models.get(work, self.tell)


class Run(Protocol):
    """Carries an experiment out: yields its records, the last one `{"t": "done", "document": ...}`."""

    def __call__(self, spec: Any, bench: Bench) -> Iterator[Record]: ...


@dataclass(frozen=True)
class Estimate:
    """Seconds by estimate: of the whole experiment, and of one pass of each mode where it is made of passes."""

    whole: float
    passes: Mapping[str, float] = field(default_factory=dict)
    steps: int = 1  # into which the untimed pass of all modes is divided


Passes = Collection[tuple[int, str, int]]  # cell, mode, round: what an interrupted sweep has measured already


def unknown(spec: Any, device: Device, done: Passes) -> Estimate | None:
    """No rate tells how long this kind takes: earlier runs of it do."""
    return None


@dataclass(frozen=True)
class Kind:
    """One kind of experiment, as the queue, the worker, the store and the command line see it.

    `run` is "module:function": the worker imports it, the server never does. `check` refuses what can't be done here
    before it is queued. `limit` names the field of Limits with its seconds. A kept kind goes to the store; any other is
    shared: an identical one that is queued or finished serves everyone who asks for it.
    """

    name: str
    spec: type[Spec]
    run: str
    check: Callable[[Any, Limits], None]
    estimate: Callable[[Any, Device, Passes], Estimate | None] = unknown
    limit: str = "run_seconds"
    kept: bool = False
    title: Callable[[Any], str] = lambda spec: ""  # of a kept one in a list; "" where its prompt says enough

    def runner(self) -> Run:
        """The function that carries it out; importing it imports torch."""
        module, _, name = self.run.partition(":")
        return getattr(import_module(module), name)
