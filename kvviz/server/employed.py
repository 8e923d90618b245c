"""A worker as the scheduler sees it: its device, its state, the job that it has in hand. Standard library only."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvviz.base.settings import device_of
from kvviz.experiments.kind import Device
from kvviz.server.jobs import Job
from kvviz.server.worker_process import Link

if TYPE_CHECKING:
    from kvviz.server.scheduler import Scheduler


class Employed:
    """One worker of a scheduler, and the listener of its link."""

    def __init__(self, scheduler: "Scheduler", link: Link) -> None:
        self._scheduler = scheduler
        self.link = link
        self.device: Device | None = None
        self.state = "off"
        self.held_by = ""  # who has the device while the worker waits for it
        self.job: Job | None = None  # the one that it has in hand
        self.told_to_stop: float | None = None  # when

    @property
    def name(self) -> str:
        """What a job asks for it by; "" for the only worker of a server."""
        return self.link.name

    @property
    def place(self) -> str:
        """The machine on which it works; "" for the server's own."""
        return self.name.rpartition("/")[0]

    @property
    def ready(self) -> bool:
        """Whether it can be handed a job."""
        return self.job is None and self.link.up and self.state == "ready"

    def is_called(self, asked: str) -> bool:
        """Whether a job that asks for this device means this worker; "cpu" means each share of the processor."""
        own = {self.name, device_of(self.name) if not self.place else ""}
        # cuda is torch's name for its current card, which is cuda:0 here
        return asked in own or (asked == "cuda" and "cuda:0" in own) or (asked == "cuda:0" and "cuda" in own)

    def is_like(self, other: "Employed") -> bool:
        """Whether they measure alike: the same hardware and, on a processor, as many threads."""
        if self is other or self.device is None or other.device is None:
            return self is other
        one, two = ((device.get("device_name"), _threads(device)) for device in (self.device, other.device))
        return one == two

    # --- what its link reports -----------------------------------------------------------------------------

    def worker_is(self, state: str) -> None:
        """Note the worker's new state."""
        self._scheduler.worker_is(self, state)

    def received(self, job_id: str, kind: str, body: str) -> None:
        """Take in a message of the worker."""
        self._scheduler.received(self, job_id, kind, body)

    def polled(self) -> None:
        """Note that time has passed."""
        self._scheduler.polled(self)

    def worker_ended(self, code: int) -> None:
        """Note how the worker's process ended."""
        self._scheduler.worker_ended(self, code)

    def machine_lost(self, why: str) -> None:
        """Note that its machine is gone, and the job that it had in hand with it."""
        self._scheduler.machine_lost(self, why)


def _threads(device: Device) -> int | None:
    return device.get("threads") if device.get("device") == "cpu" else None


def able(workers: Sequence[Employed], asked: str) -> list[Employed]:
    """The workers that may measure a job which asks for a device.

    `auto` is the first worker and all that are like it. A device without a worker of its own is measured by one that
    reaches it, else by the first, which says that it is not there.
    """
    living = [worker for worker in workers if worker.state != "down"] or list(workers)
    if asked == "auto":
        return [worker for worker in living if worker.is_like(living[0])]
    if named := [worker for worker in living if worker.is_called(asked)]:
        return named
    reached = (worker for worker in living if asked in _reached(worker))
    return [next(reached, living[0])]


def _reached(worker: Employed) -> list[str]:
    devices = (worker.device or {}).get("devices", [])
    return [] if worker.place else [one["device"] for one in devices]
