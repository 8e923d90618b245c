"""Compiles the fast step in a process of its own, on a core that measures nothing, so that no run has to wait for it.

numba keeps the result beside the bytecode, where the measuring process finds it. That process is
`python -m kvviz.decoding.compiled.ahead`. No numba is imported to find out whether it is needed.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kvviz.device.cores import pin

HERE = Path(__file__).resolve().parent
CORES = "KVVIZ_COMPILE_ON"  # the cores of the new process, separated by commas


def is_compiled() -> bool:
    """Whether numba has kept the step's machine code since its source last changed."""
    changed = (HERE / "kernels.py").stat().st_mtime
    return any(found.stat().st_mtime >= changed for found in _folder().rglob("kernels.step-*.nbi"))


def _folder() -> Path:
    return Path(os.environ.get("NUMBA_CACHE_DIR") or HERE / "__pycache__")


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait while another process compiles the step inside its `with`: the one that comes second finds it compiled."""
    with ExitStack() as stack:
        if not is_compiled():
            with suppress(OSError):  # where no file can be made, two may compile at once
                _folder().mkdir(parents=True, exist_ok=True)
                fcntl.flock(stack.enter_context((_folder() / "kernels.lock").open("w")), fcntl.LOCK_EX)
        yield


def compile_ahead(*, beside_others: bool = False) -> "subprocess.Popen[bytes] | None":
    """Start compiling at the lowest priority, on the cores that this process leaves free; None if there is no need.

    `beside_others`: other processes measure on some of these cores, and the last one is the server's.
    """
    if is_compiled() or not hasattr(os, "sched_getaffinity"):
        return None
    own = os.sched_getaffinity(0)
    free = set(range(os.cpu_count() or 1)) - own
    if beside_others:
        free = {core for core in free if core == max(free) > max(own)}
    if not free:
        return None
    return subprocess.Popen(
        [sys.executable, "-m", "kvviz.decoding.compiled.ahead"],
        env={**os.environ, CORES: ",".join(map(str, sorted(free)))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    """Compile the step, unless another process of this kind does; a machine without numba has nothing to compile."""
    os.nice(19)
    with ExitStack() as stack:
        with suppress(OSError):  # where no file can be made, several may compile at once
            lock = stack.enter_context((_folder() / "ahead.lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        with suppress(OSError):  # a container may not have that core
            pin([int(core) for core in os.environ.get(CORES, "").split(",") if core])
        with suppress(ImportError):
            from kvviz.decoding.compiled import kernels  # noqa: F401


if __name__ == "__main__":
    main()
