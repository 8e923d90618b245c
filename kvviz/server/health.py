"""How a server is, for whoever watches over it: a status code and plain values, no prompt, no path, no name."""

import time
from typing import Any

import kvviz
from kvviz.server.scheduler import Scheduler

_STARTED = time.monotonic()


def health(scheduler: Scheduler, viewers: int, store_problem: str) -> tuple[int, dict[str, Any]]:
    """200 while runs are measured and kept, 503 with a reason while they are not. `store_problem`: the persister's."""
    reason = _reason(scheduler.worker_state, store_problem)
    return 503 if reason else 200, {
        "status": "degraded" if reason else "ok",
        "reason": reason,
        "worker": scheduler.worker_state,
        "device": (scheduler.device or {}).get("device_name"),
        "queue": sum(work.active for work in scheduler.jobs()),
        "viewers": viewers,
        "version": kvviz.__version__,
        "uptime_s": round(time.monotonic() - _STARTED, 1),
    }


def _reason(worker: str, store_problem: str) -> str | None:
    if worker == "down":
        return "the measuring process does not start"
    if worker == "off":
        return "the server is starting or leaving"
    return "runs are not being kept: the store can't be written" if store_problem else None
