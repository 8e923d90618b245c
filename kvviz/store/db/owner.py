"""Names the store that writes a run, to tell a run cut off by a crash from one that another process still writes."""

import os
import secrets
from pathlib import Path

_open: set[str] = set()  # the owners in this process whose stores are open


def new_owner() -> str:
    """Return a name for one open store: its process id, the process's start time, and a random token."""
    owner = f"{process_mark(os.getpid())}/{secrets.token_hex(4)}"
    _open.add(owner)
    return owner


def give_up(owner: str) -> None:
    """Note that the store was closed."""
    _open.discard(owner)


def is_there(owner: str) -> bool:
    """Whether the store that began the work is still open, in this process or another one on this machine."""
    process = owner.partition("/")[0]
    pid = process.partition(":")[0]
    if not pid.isdecimal():
        return False
    return owner in _open if int(pid) == os.getpid() else process_mark(int(pid)) == process


def process_mark(pid: int) -> str:
    """Return `PID:START`, or "" for a process that has ended. START distinguishes processes that reuse a PID.

    START is in clock ticks since the system booted; it is empty on systems without /proc.
    """
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass  # the process exists and belongs to another user
    except (OSError, OverflowError):
        return ""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{pid}:"
    return "" if fields[0] in "ZX" else f"{pid}:{fields[19]}"
