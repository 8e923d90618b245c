"""Runs each check of the selftest in a process of its own and collects what they say."""

import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from kvviz.base.errors import in_a_line

PATIENCE = 60  # seconds that one check may take
NAMES = (
    *("place", "kernels", "identity", "repeats", "sampling", "memory", "graph"),
    *("clock", "prediction", "profiler", "recovery", "second device", "classroom"),
)
FIRST = NAMES[:3]  # those that `kvviz ready` makes too


@dataclass(frozen=True)
class Found:
    """What one check found: `ok` is None if it does not apply here; `figures` are JSON values by name."""

    name: str
    ok: bool | None
    says: str
    figures: dict[str, Any] = field(default_factory=dict)


def checks(device: str, names: tuple[str, ...] = NAMES) -> Iterator[Found]:
    """Yield each check's result as soon as it is there; `device` may be "auto"."""
    # a server process that has imported the libraries makes a copy of itself for each check; Apple's do not allow that
    if sys.platform == "darwin":
        context: Any = multiprocessing.get_context("spawn")
    else:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["kvviz.experiments.selftest.run"])
    for name in names:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_check, args=(name, device, theirs), daemon=True)
        child.start()
        theirs.close()
        yield _answer(name, ours, child)


def _answer(name: str, pipe: Connection, child: Any) -> Found:
    try:
        found: Found = pipe.recv() if pipe.poll(PATIENCE) else Found(name, False, f"no answer within {PATIENCE} s")
    except EOFError:
        child.join(5)
        found = Found(name, False, f"its process ended early (exit status {child.exitcode})")
    child.join(5)
    child.kill()
    return found


def _check(name: str, device: str, pipe: Connection) -> None:
    from kvviz.device.cores import usable_cores
    from kvviz.device.environment import pick_device, set_threads
    from kvviz.experiments.selftest.run import CHECKS, quieten

    set_threads(usable_cores())
    quieten()
    try:
        found = Found(name, *CHECKS[name](pick_device(device)))
    except Exception as error:  # whatever a device raises is what the report has to say
        found = Found(name, False, in_a_line(error))
    pipe.send(found)
