"""How a server is, for monitoring: a status code and plain values without any prompt, path or name."""

import time
from collections.abc import Mapping

import kvviz
from kvviz.server.scheduler import Scheduler

_STARTED = time.monotonic()


def health(scheduler: Scheduler, viewers: int) -> tuple[int, Mapping[str, object]]:
    """200 while runs are measured and kept, 503 with a reason while they are not."""
    reason = _reason(scheduler)
    return 503 if reason else 200, {
        "status": "degraded" if reason else "ok",
        "reason": reason,
        "worker": scheduler.worker_state,
        "device": (scheduler.device or {}).get("device_name"),
        "queue": sum(job.active for job in scheduler.jobs()),
        "viewers": viewers,
        "version": kvviz.__version__,
        "uptime_s": round(time.monotonic() - _STARTED, 1),
    }


def _reason(scheduler: Scheduler) -> str | None:
    if scheduler.worker_state == "down":
        return "the measuring process does not start"
    if scheduler.worker_state == "off":
        return "the server is starting or leaving"
    return "runs are not being kept: the store can't be written" if scheduler.trouble else None
