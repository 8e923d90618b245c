"""Names the store that writes a run, to tell a run cut off by a crash from one that still goes on elsewhere."""

import os
import secrets
from pathlib import Path

_open: set[str] = set()  # the owners of this process


def new_owner() -> str:
    """A name for one open store: its process, when that began, and a token."""
    owner = f"{process_mark(os.getpid())}/{secrets.token_hex(4)}"
    _open.add(owner)
    return owner


def give_up(owner: str) -> None:
    """Note that the store was closed."""
    _open.discard(owner)


def is_there(owner: str) -> bool:
    """Whether the store that began the work is still open, in this process or another of this machine."""
    process = owner.partition("/")[0]
    pid = process.partition(":")[0]
    if not pid.isdecimal():
        return False
    return owner in _open if int(pid) == os.getpid() else process_mark(int(pid)) == process


def process_mark(pid: int) -> str:
    """`PID:START`, START in clock ticks since the system's start where /proc tells it; "" for one that is gone.

    A number is given to another process some day; with its start it is not mistaken for the old one.
    """
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass  # it lives, and is someone else's
    except (OSError, OverflowError):
        return ""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{pid}:"
    return "" if fields[0] in "ZX" else f"{pid}:{fields[19]}"
