"""Runs each check of the selftest in a process of its own and collects what they say.

`python -m kvviz.experiments.selftest.children DEVICE NAME...` is their parent: it imports the libraries once, forks for
each check and prints a line of JSON for it. Apple's libraries do not survive a fork, so there each check has such a
process to itself.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kvviz.base.errors import in_a_line

PATIENCE = 60  # seconds that one check may take
NAMES = (
    *("place", "kernels", "identity", "repeats", "sampling", "memory", "graph"),
    *("clock", "prediction", "profiler", "recovery", "second device", "classroom"),
)
FIRST = NAMES[:3]  # those that `kvviz ready` makes too
FORKS = sys.platform != "darwin"


@dataclass(frozen=True)
class Found:
    """What one check found: `ok` is None if it does not apply here; `figures` are JSON values by name."""

    name: str
    ok: bool | None
    says: str
    figures: dict[str, Any] = field(default_factory=dict)


def checks(device: str, names: Sequence[str] = NAMES) -> Iterator[Found]:
    """Yield each check's result as soon as it is there; `device` may be "auto"."""
    for group in [names] if FORKS else [[name] for name in names]:
        command = [sys.executable, "-m", __name__, device, *group]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            for line in parent.stdout or ():
                yield Found(**json.loads(line))


def answer_of(name: str, device: str, patience: float = PATIENCE) -> Found:
    """Make one check in a fork of this process. A fork that dies or hangs is a check that failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(2, 1)  # what a library prints is no answer
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(asdict(check(name, device))))
        os._exit(0)
    os.close(writing)
    answered = select.select([reading], [], [], patience)[0]
    with os.fdopen(reading) as pipe:
        text = pipe.read() if answered else ""
    if not answered:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if text:
        return Found(**json.loads(text))
    ended = f"its process ended early (exit status {status})"
    return Found(name, False, ended if answered else f"no answer within {patience:g} s")


def check(name: str, device: str) -> Found:
    """Make one check in this process; whatever it raises is what the report has to say."""
    from kvviz.device.cores import usable_cores
    from kvviz.device.environment import pick_device, set_threads
    from kvviz.experiments.selftest.run import CHECKS, quieten

    set_threads(usable_cores())
    quieten()
    try:
        return Found(name, *CHECKS[name](pick_device(device)))
    except Exception as error:
        return Found(name, False, in_a_line(error))


def main(device: str, *names: str) -> None:
    """Import the libraries, then print each check's result as a line of JSON."""
    import kvviz.experiments.selftest.run  # noqa: F401

    for name in names:
        print(json.dumps(asdict((answer_of if FORKS else check)(name, device))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
