"""Whether a server is ready for a lesson: device, disk, models that really load and decode, what the lesson takes.

Each check is a line; figures are measured here and now, or estimated from rates that were, and say which. Needs no
dashboard; torch is imported when a model is tried.
"""

import json
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.records import new_id
from kvviz.base.settings import Settings, settings
from kvviz.base.words import human, lasting
from kvviz.cli.measure_here import settle
from kvviz.decoding.requirements import needs, seconds
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.plan import estimate, preset_spec
from kvviz.experiments.sweep.spec import PRESETS
from kvviz.models.catalog.rows import models
from kvviz.models.sources import beside_catalog, find_source, stored_weights
from kvviz.models.text import STORY

ROOM = 1_000_000_000  # bytes of disk: thousands of runs, and what a system needs to live
MEASURED_UP_TO = 120.0  # seconds; a comparison that is estimated to take longer is tried with fewer tokens
FEW = 4  # tokens of such a trial
LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Check:
    """One line: whether it is as it should be, what was found, and what to do where it is not."""

    name: str
    ok: bool
    says: str
    do: str = ""


def lesson(model: str) -> ComparisonSpec:
    """The comparison that the live page offers as it opens."""
    return ComparisonSpec(model=model, prompt=STORY)


def with_weights() -> list[str]:
    """The models that really write: those that come with kvviz and those of the folder of models."""
    catalog = [name for name, row in models().items() if not row.has_encoder and stored_weights(name) != "random"]
    return [*catalog, *beside_catalog()]


class Readiness:
    """`checks()` goes through everything once; `document()` is what was found, as JSON values."""

    def __init__(self, names: Sequence[str] | None, students: int, host: str, port: int) -> None:
        if students < 1:
            raise KvvizError(f"--students is {students}; it is a whole number of at least 1")
        self._names, self._students, self._host, self._port = names, students, host, port
        self._settings = Settings()
        self._device: dict[str, Any] = {}
        self._tried: list[dict[str, Any]] = []
        self._sweeps: list[dict[str, Any]] = []
        self._worst: float | None = None
        self._done: list[Check] = []

    def checks(self) -> Iterator[Check]:
        """Each check as soon as it is made."""
        for part in (self._what_is_set, self._disk, self._place, self._look_at_device, self._try_models, self._plan):
            for check in part():
                self._done.append(check)
                yield check

    @property
    def ready(self) -> bool:
        """Whether every check so far was as it should be."""
        return all(check.ok for check in self._done)

    def document(self) -> dict[str, Any]:
        """Plain JSON values; docs/operations.md has the fields."""
        return {
            "ready": self.ready,
            "checks": [asdict(check) for check in self._done],
            "device": self._device,
            "models": self._tried,
            "sweeps": self._sweeps,
            "students": self._students,
            "queue_worst_s": self._worst,
        }

    # --- the server ----------------------------------------------------------------------------------------------

    def _what_is_set(self) -> Iterator[Check]:
        try:
            self._settings = settings()
        except KvvizError as error:
            yield Check("settings", False, str(error), "put it right; until then the defaults are assumed below")
        where = "this machine alone" if self._host in LOCAL else f"others too (HOST={self._host})"
        public = (
            "open to all: lower limits, no paths" if self._settings.public else "not public: trusts who can reach it"
        )
        advice = "; HOST=0.0.0.0 lets a class in" if self._host in LOCAL else ""
        if self._host not in LOCAL and not self._settings.public:
            advice = "; KVVIZ_PUBLIC=1 where strangers can reach it"
        yield Check("access", True, f"serves {where}, {public}{advice}")

    def _disk(self) -> Iterator[Check]:
        try:
            free = shutil.disk_usage(home()).free
        except (KvvizError, OSError) as error:
            yield Check("disk", False, str(error), "set KVVIZ_HOME to a folder that can be written")
            return
        yield Check(
            "disk",
            free >= ROOM,
            f"{human(free)} free for runs under KVVIZ_HOME",
            f"make room for {human(ROOM)} at least",
        )
        if find_spec("sqlalchemy") is None or find_spec("streamlit") is None:
            yield Check("dashboard", True, "not installed here: this machine measures on the command line alone")
            return
        from kvviz.store.db.store import Store

        try:
            Store().close()
            yield Check("store", True, "runs can be kept")
        except KvvizError as error:
            yield Check("store", False, str(error), "runs would be measured and not be kept")

    def _place(self) -> Iterator[Check]:
        """The port: free, or a server of ours."""
        host = "127.0.0.1" if self._host in ("0.0.0.0", "::", "") else self._host
        told = asked(host, self._port)
        if told is None:
            problem = why_not_bound(self._host, self._port)
            yield Check("port", not problem, problem or f"port {self._port} is free", "take another PORT or HOST")
        elif "worker" not in told:
            yield Check("port", False, f"another program answers at port {self._port}", "take another PORT")
        else:
            busy = f", {told['queue']} in its queue: what is measured below suffers" if told.get("queue") else ""
            says = f"kvviz {told.get('version')} answers at port {self._port}: {told.get('status')}{busy}"
            yield Check("port", told.get("status") == "ok", says, f"{told.get('reason')}; its log says more")

    # --- the device ----------------------------------------------------------------------------------------------

    def _look_at_device(self) -> Iterator[Check]:
        settle()

        from kvviz.device.measure_rates import measure_rates
        from kvviz.device.memory import device_memory
        from kvviz.device.pick import device_name, pick_device

        device = pick_device()
        free, total = device_memory(device)
        rates = asdict(measure_rates(device))
        self._device = {"device": device, "device_name": device_name(device), "free_bytes": free, "total_bytes": total}
        self._device["rates"] = rates
        yield Check("device", True, f"{self._device['device_name']} ({device}), {human(free)} of {human(total)} free")

    def _try_models(self) -> Iterator[Check]:
        from kvviz.decoding.loaded_models import LoadedModels

        models = LoadedModels()
        names = with_weights() if self._names is None else list(self._names)
        for name in names:
            try:
                yield self._tried_out(models, name)
            except KvvizError as error:
                yield Check(f"model {name}", False, str(error), "choose another, or mend it as said")
            except Exception as error:  # whatever a model does here it would do in the lesson
                first = (str(error).strip().splitlines() or [""])[0][:200]
                yield Check(f"model {name}", False, f"can't be run ({type(error).__name__}: {first})", "choose another")

    def _tried_out(self, models: Any, name: str) -> Check:
        """Load it, decode with and without the cache, hold them against each other, note what it took."""
        work, source = lesson(name), find_source(name)
        room = int(self._device["free_bytes"] * self._settings.limits.memory_share)
        if source.params is not None and source.spec is not None:
            needs(source, work).check(room, self._device["device_name"])  # before anything is loaded
        begun = time.monotonic()
        loaded = models.get(work)
        load_s = time.monotonic() - begun
        source = replace(loaded.source, params=loaded.params)
        needs(source, work).check(room, self._device["device_name"])
        estimated = seconds(source, work, self._device)
        _, identical = _compared(replace(work, new_tokens=FEW, repeats=1), loaded)  # takes what only a first time takes
        took = None
        if estimated <= MEASURED_UP_TO:
            took, same = _compared(work, loaded)
            identical &= same
        found = {
            "model": name,
            "weights": source.weights,
            "params": loaded.params,
            "bytes": needs(source, work).total,
            "load_s": round(load_s, 3),
            "estimated_s": round(estimated, 3),
            "measured_s": None if took is None else round(took, 3),
            "identical": identical,
        }
        self._tried.append(found)
        return self._verdict(found)

    def _verdict(self, found: dict[str, Any]) -> Check:
        limit = self._settings.limits.run_seconds
        takes = found["measured_s"] or found["estimated_s"]
        how = "measured" if found["measured_s"] else f"by estimate, tried with {FEW} tokens"
        says = (
            f"{found['weights']} weights, loaded in {lasting(found['load_s'])}, the live page's comparison takes "
            f"{lasting(takes)} ({how}; estimate {lasting(found['estimated_s'])})"
        )
        name = f"model {found['model']}"
        if not found["identical"]:
            return Check(
                name, False, f"{says}; with and without the cache the tokens differ", "don't show it as a proof"
            )
        if takes > limit:
            return Check(name, False, f"{says}; a run is stopped after {lasting(limit)}", "raise run_seconds")
        return Check(name, True, f"{says}; identical tokens")

    # --- the lesson ----------------------------------------------------------------------------------------------

    def _plan(self) -> Iterator[Check]:
        limits = self._settings.limits
        for name in PRESETS:
            spec = preset_spec(name, self._device)
            takes = estimate(spec, self._device)
            self._sweeps.append({"preset": name, "models": list(spec.models), "estimated_s": takes})
            cut = f"; longer than sweep_seconds ({lasting(limits.sweep_seconds)}), so give it a budget"
            long = takes is not None and takes > limits.sweep_seconds
            told = "unknown" if takes is None else f"about {lasting(takes)}"
            yield Check(f"sweep {name}", True, f"{', '.join(spec.models)}: {told} by estimate{cut if long else ''}")
        yield from self._queue()

    def _queue(self) -> Iterator[Check]:
        """The worst case: each presses Run once at the same moment, on the slowest of the models."""
        count, waiting = self._students, self._settings.limits.waiting
        if count > waiting:
            do = f"raise waiting in kvviz.toml to {count}"
            yield Check("queue", False, f"{count} students, and the queue takes {waiting} runs at once", do)
        if not self._tried:
            return
        each = max(found["measured_s"] or found["estimated_s"] for found in self._tried)
        together = sum(found["bytes"] for found in self._tried) <= self._device["free_bytes"]
        loading = 0.0 if together else max(found["load_s"] for found in self._tried)
        self._worst = round(count * (each + loading), 3)
        change = "" if together else f" and {lasting(loading)} to change models, which do not fit in memory together"
        says = f"if {count} press Run at once, the last has its result after {lasting(self._worst)}"
        yield Check("wait", True, f"{says} ({count} times {lasting(each)}, the slowest comparison above{change})")


def _compared(work: ComparisonSpec, loaded: Any) -> tuple[float, bool]:
    """Seconds of a whole comparison, its proof and account of memory included, and whether the tokens agreed."""
    from kvviz.experiments.comparison.run import perform

    begun = time.monotonic()
    *_, last = perform(work, loaded, comparison_id=new_id())
    return time.monotonic() - begun, last["document"]["identical"]


def asked(host: str, port: int) -> dict[str, Any] | None:
    """What /healthz at a port says; {} where something else answers, None where nothing does."""
    address = f"[{host}]" if ":" in host else host
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    body = b""
    try:
        with opener.open(f"http://{address}:{port}/healthz", timeout=5) as answer:
            body = answer.read(10_000)
    except urllib.error.HTTPError as error:
        body = error.read(10_000)
    except urllib.error.URLError as error:
        return None if isinstance(error.reason, OSError) and not isinstance(error.reason, TimeoutError) else {}
    except (OSError, ValueError):
        return {}
    with suppress(ValueError):
        found = json.loads(body)
        return found if isinstance(found, dict) else {}
    return {}


def why_not_bound(host: str, port: int) -> str:
    """Why a server could not listen there, "" where it could."""
    try:
        family = socket.getaddrinfo(host or "127.0.0.1", port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError) as error:
        return f"nothing can listen at {host} port {port} ({error.strerror if isinstance(error, OSError) else error})"
    return ""
