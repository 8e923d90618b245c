"""What every kind of experiment is made of: its spec, its run, and what the scheduler has to know of both. No torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NotRequired, Self, TypedDict, TypeVar

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.records import check_fields
from kvviz.base.settings import Limits
from kvviz.base.words import human

if TYPE_CHECKING:
    from kvviz.decoding.loaded_models import LoadedModels
    from kvviz.decoding.loading import Loaded
    from kvviz.decoding.requirements import Work

Record = Mapping[str, Any]  # JSON values; "t" names its type, and each kind has its own types


class DeviceChoice(TypedDict):
    """A device that a run can ask for: the name to ask for it, its hardware's name, its memory in bytes.

    `free_bytes` are those that were free after its last job, where a worker of its own tells them.
    """

    device: str
    device_name: str
    total_bytes: int
    free_bytes: NotRequired[int]


class Device(TypedDict, total=False):
    """What a worker reports of itself and its device; bytes.

    `why` says why the device is not this machine's GPU, or is empty. `devices` are all that the machine has. `left_out`
    are the user's cache designs that can't be loaded, with the reason.
    """

    pid: int
    device: str
    device_name: str
    free_bytes: int
    total_bytes: int
    threads: int
    driver: str | None
    cuda: str | None
    capability: str | None
    why: str
    devices: list[DeviceChoice]
    rates: dict[str, float]  # the fields of `kvviz.cost.flops.Rates`
    left_out: dict[str, str]
    tracing_s: float  # what an operation takes longer while every tensor is traced


def described(device: Device) -> str:
    """Write a device as its hardware's name, the name to ask for it, its memory, and of a card its driver."""
    card = f", driver {device['driver']}, CUDA {device['cuda']}" if device.get("driver") else ""
    size = human(device["total_bytes"]) if "total_bytes" in device else "unknown"
    return f"{device['device_name']} ({device.get('device', 'cpu')}), {size} of memory{card}"


@dataclass(frozen=True)
class Spec:
    """What is asked for: a frozen dataclass that checks its fields when it is made, and travels as JSON.

    `kind` names its row in the registry; `called` is its name in a refusal, such as "a sweep".
    """

    kind: ClassVar[str]
    called: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` reads them back."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"kind": self.kind, **values}

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Read what `to_dict` wrote. Raises KvvizError for a field that is unknown, missing or does not fit."""
        if not isinstance(data, Mapping):
            raise KvvizError(f"{cls.called} is an object with the fields that to_dict writes")
        values = {str(name): tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        kind = values.pop("kind", cls.kind)
        if kind != cls.kind:
            raise KvvizError(f"{cls.called} is of the kind {cls.kind!r}, not {kind!r}")
        check_fields(cls, values, cls.called)
        required = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        if missing := [name for name in required if name not in values]:
            raise KvvizError(f"{cls.called} needs {', '.join(missing)}")
        return cls(**values)


S = TypeVar("S", bound=Spec)


@dataclass(frozen=True)
class Bench:
    """What a run is given by the owner of the device: the worker, or a command."""

    id: str
    models: "LoadedModels"
    limits: Limits
    device: Device = field(default_factory=Device)
    should_stop: Callable[[], bool] = lambda: False
    tell: Callable[[Record], None] = lambda record: None  # hears of a download: bytes so far and in all
    earlier: Sequence[Record] = ()  # records of an interrupted run of the same spec
    key: str | None = field(default=None, repr=False)  # the user's key for an endpoint; it is never stored
    watched: bool = False  # somebody sees each record as it comes, so the first ones should show something

    def check_stop(self) -> None:
        """Raise Stopped if the run was asked to stop."""
        if self.should_stop():
            raise Stopped

    def load(self, work: "Work", *, may_split: bool = False) -> "Loaded":
        """Load the model of a piece of work. Raises KvvizError if that fails or the work does not fit.

        A run that can measure a model on several devices says that it `may_split`.
        """
        return self.models.get(work, self.tell, may_split=may_split)


# Carries an experiment out: yields its records, the last one `{"t": "done", "document": ...}`. A record
# `{"t": "progress", "left_s": seconds or None}` tells the scheduler how long the rest takes.
Run = Callable[[S, Bench], Iterator[Record]]


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of a whole experiment, and of one pass of each mode if it is made of passes.

    Such an experiment yields a record `pass` with its `mode` when a pass begins; `records` are the seconds that each
    record of another type, such as `proof`, stands for.
    """

    whole: float
    passes: Mapping[str, float] = field(default_factory=dict)
    records: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind(Generic[S]):
    """One kind of experiment, as the scheduler, the worker, the store and the command line see it.

    `run` names a function of the module `run.py` beside the spec's module: the worker imports it, the server never
    does. `check` refuses a spec before it is queued. `estimate` predicts seconds from a device's rates; without one,
    earlier runs of the kind tell. `limit` names the field of Limits with its seconds. A kept kind goes to the store;
    an identical queued or finished experiment of any other kind is reused, unless it is private, as one that a key may
    have opened a server for. A live kind is shown on the live page.
    """

    spec: type[S]
    check: Callable[[S, Limits], object]
    estimate: Callable[[S, Device, Sequence[Record]], Estimate | None] | None = None
    run: str = "run"
    limit: str = "run_seconds"
    kept: bool = False
    private: bool = False
    live: bool = False
    title: Callable[[S], str] = lambda spec: ""  # in a list of kept runs; "" if the prompt is title enough
    rehearsal: Callable[[], S] | None = None  # carried out while nobody waits, so that the first job is a quick one
    closing: Callable[[Any], Record] | None = None  # a last record for viewers, made of this kind's document

    @property
    def name(self) -> str:
        """What the spec calls itself."""
        return self.spec.kind

    def runner(self) -> Run[S]:
        """Import the function that carries it out, and torch with it."""
        package = self.spec.__module__.rpartition(".")[0]
        runner: Run[S] = getattr(import_module(f"{package}.run"), self.run)
        return runner

    def estimated(self, spec: S, device: Device | None, earlier: Sequence[Record] = ()) -> Estimate | None:
        """Estimate its seconds; None without a way to, or without a device whose rates are known.

        Raises KvvizError for a model that does not exist.
        """
        if self.estimate is None or not device or not device.get("rates"):
            return None
        return self.estimate(spec, device, earlier)
