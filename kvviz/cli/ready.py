"""`kvviz ready`: whether a server is ready for a lesson: device, disk, models that load and decode, times.

Each check is one line. Its figures are measured now or estimated from measured rates, and it says which. Needs no
dashboard; torch is imported to try a model.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.records import new_id
from kvviz.base.settings import Settings, settings
from kvviz.base.words import human, lasting
from kvviz.cli.measure_here import alone, settle
from kvviz.cli.options import AsJson, names
from kvviz.cli.output import print_json
from kvviz.cli.port import asked_port, bind_problem, health_at
from kvviz.decoding.requirements import foresee, needs
from kvviz.experiments.comparison.spec import ComparisonSpec, opening
from kvviz.experiments.kind import Device
from kvviz.experiments.selftest.children import FIRST, checks
from kvviz.experiments.sweep.plan import preset_spec, within
from kvviz.experiments.sweep.spec import PRESETS
from kvviz.models.catalog.rows import models
from kvviz.models.sources import beside_catalog, find_source, stored_weights

if TYPE_CHECKING:
    from kvviz.decoding.loaded_models import LoadedModels
    from kvviz.decoding.loading import Loaded

LEAST_DISK = 1_000_000_000  # bytes: thousands of runs, and what a system needs to live
LONGEST_TRIAL = 120.0  # seconds; a comparison with a longer estimate is tried with fewer tokens
TRIAL_TOKENS = 4  # of such a trial
LOCAL = ("127.0.0.1", "localhost", "::1")

Trial = dict[str, Any]  # what it took to load a model and to decode with it; `measured_s` is None if that was cut short


def ready(
    models: Annotated[
        str | None, typer.Option(help="Separated by commas; all with trained weights if not given.")
    ] = None,
    students: Annotated[int, typer.Option(help="How many will press Run.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Check a server before a lesson: device, disk, models, port, times; status 1 if it is not ready."""
    chosen = None if models is None else [name for name in names(models) if name]
    found = Readiness(chosen, students, os.environ.get("HOST", "127.0.0.1"), asked_port(os.environ))
    for check in found.checks():
        if not as_json:
            typer.echo(f"{'✓' if check.ok else '✗'} {check.name}: {check.says}")
            if not check.ok:
                typer.echo(f"    {check.do}")
    if as_json:
        print_json(found.document())
    else:
        typer.echo("ready" if found.ready else "not ready: see the lines with ✗")
    raise typer.Exit(0 if found.ready else 1)


@dataclass(frozen=True)
class Check:
    """One line: whether it is as it should be, what was seen, and what to do if it is not."""

    name: str
    ok: bool
    says: str
    do: str = ""


def with_weights() -> list[str]:
    """The models with trained weights: those that come with kvviz and those in the folder of models."""
    catalog = [name for name, row in models().items() if not row.has_encoder and stored_weights(name) != "random"]
    return [*catalog, *beside_catalog()]


class Readiness:
    """All checks of a server. `checks()` makes them; `document()` is their result as JSON values."""

    def __init__(self, names: Sequence[str] | None, students: int, host: str, port: int) -> None:
        if students < 1:
            raise KvvizError(f"--students is {students}; it is a whole number of at least 1")
        self._names, self._students, self._host, self._port = names, students, host, port
        self._settings = Settings()
        self._device_name, self._free = "", 0
        self._device: Device = {}
        self._trials: list[Trial] = []
        self._sweeps: list[dict[str, object]] = []
        self._longest_wait: float | None = None
        self._done: list[Check] = []

    def checks(self) -> Iterator[Check]:
        """Yield each check as soon as it is made."""
        server = (self._access, self._disk, self._listening)
        for part in (*server, self._inspect_device, self._try_models, self._time_sweeps, self._queue):
            for check in part():
                self._done.append(check)
                yield check

    @property
    def ready(self) -> bool:
        """Whether every check so far was as it should be."""
        return all(check.ok for check in self._done)

    def document(self) -> dict[str, object]:
        """The checks and their figures as JSON values; docs/operations.md names the fields."""
        return {
            "ready": self.ready,
            "checks": [asdict(check) for check in self._done],
            "device": self._device,
            "models": self._trials,
            "sweeps": self._sweeps,
            "students": self._students,
            "queue_worst_s": self._longest_wait,
        }

    def _access(self) -> Iterator[Check]:
        try:
            self._settings = settings()
        except KvvizError as error:
            yield Check("settings", False, str(error), "correct it; the checks below assume the defaults")
        public, local = self._settings.public, self._host in LOCAL
        where = "this machine alone" if local else f"others too (HOST={self._host})"
        trust = "open to all: lower limits, no paths" if public else "not public: trusts whoever can reach it"
        advice = "; HOST=0.0.0.0 lets a class in" if local else ""
        if not local and not public:
            advice = "; set KVVIZ_PUBLIC=1 if strangers can reach it"
        yield Check("access", True, f"serves {where}, {trust}{advice}")

    def _disk(self) -> Iterator[Check]:
        try:
            free = shutil.disk_usage(home()).free
        except (KvvizError, OSError) as error:
            yield Check("disk", False, str(error), "set KVVIZ_HOME to a folder that can be written")
            return
        says, do = f"{human(free)} free for runs under KVVIZ_HOME", f"make room: at least {human(LEAST_DISK)}"
        yield Check("disk", free >= LEAST_DISK, says, do)
        if find_spec("sqlalchemy") is None or find_spec("streamlit") is None:
            yield Check("dashboard", True, "not installed here: this machine measures on the command line alone")
            return
        from kvviz.store.db.store import Store

        try:
            Store().close()
            yield Check("store", True, "runs can be kept")
        except KvvizError as error:
            yield Check("store", False, str(error), "until then runs are measured but not kept")

    def _listening(self) -> Iterator[Check]:
        """The port is free, or a kvviz server answers there."""
        host = "127.0.0.1" if self._host in ("0.0.0.0", "::", "") else self._host
        health = health_at(host, self._port)
        if health is None:
            problem = bind_problem(self._host, self._port)
            yield Check("port", not problem, problem or f"port {self._port} is free", "take another PORT or HOST")
        elif "worker" not in health:
            yield Check("port", False, f"another program answers at port {self._port}", "take another PORT")
        else:
            busy = f", {health['queue']} in its queue, which disturbs the times below" if health.get("queue") else ""
            says = f"kvviz {health.get('version')} answers at port {self._port}: {health.get('status')}{busy}"
            yield Check("port", health.get("status") == "ok", says, f"{health.get('reason')}; its log says more")

    def _inspect_device(self) -> Iterator[Check]:
        settle()

        from kvviz.decoding.read_cache import tracing_seconds
        from kvviz.device.environment import about, pick_device
        from kvviz.device.measure_ceilings import measure_rates

        device = pick_device()
        with alone("kvviz ready"):
            found = {**about(device), "rates": asdict(measure_rates(device)), "tracing_s": tracing_seconds(device)}
        self._device = cast(Device, found)
        self._device_name, self._free, total = (found[name] for name in ("device_name", "free_bytes", "total_bytes"))
        yield Check("device", True, f"{self._device_name} ({device}), {human(self._free)} of {human(total)} free")
        for check in checks(device, FIRST):
            yield Check(f"device: {check.name}", check.ok is not False, check.says, "`kvviz selftest` says more")

    def _try_models(self) -> Iterator[Check]:
        from kvviz.decoding.loaded_models import LoadedModels

        loaded_models = LoadedModels()
        for name in with_weights() if self._names is None else self._names:
            try:
                with alone("kvviz ready"):
                    trial = self._try_model(loaded_models, name)
                self._trials.append(trial)
                yield self._judge(trial)
            except KvvizError as error:
                yield Check(f"model {name}", False, str(error), "choose another model, or do as the sentence says")
            except Exception as error:  # whatever a model does here it would do in the lesson
                first = (str(error).strip().splitlines() or [""])[0][:200]
                yield Check(f"model {name}", False, f"can't be run ({type(error).__name__}: {first})", "choose another")

    def _try_model(self, loaded_models: "LoadedModels", name: str) -> Trial:
        """Load a model, decode with and without the cache, compare the tokens, note the times."""
        work, source = opening(name), find_source(name)
        allowed = int(self._free * self._settings.limits.memory_share)
        if source.params is not None and source.spec is not None:
            needs(source, work).check(allowed, self._device_name)  # before anything is loaded
        begun = time.monotonic()
        loaded = loaded_models.get(work)
        load_s = time.monotonic() - begun
        source = replace(loaded.source, params=loaded.params)
        needed = needs(source, work)
        needed.check(allowed, self._device_name)
        estimated = foresee(source, work, self._device, watched=False).whole
        short = replace(work, new_tokens=TRIAL_TOKENS, repeats=1)
        _, identical = _compare(short, loaded)  # its time would hold what only a first run takes
        measured = None
        if estimated <= LONGEST_TRIAL:
            measured, same = _compare(work, loaded)
            identical &= same
        return {
            "model": name,
            "weights": source.weights,
            "params": loaded.params,
            "bytes": needed.total,
            "load_s": round(load_s, 3),
            "estimated_s": round(estimated, 3),
            "measured_s": None if measured is None else round(measured, 3),
            "identical": identical,
        }

    def _judge(self, trial: Trial) -> Check:
        limit, takes = self._settings.limits.run_seconds, _comparison_s(trial)
        how = "measured" if trial["measured_s"] else f"by estimate, tried with {TRIAL_TOKENS} tokens"
        says = (
            f"{trial['weights']} weights, loaded in {lasting(trial['load_s'])}, the live page's comparison takes "
            f"{lasting(takes)} ({how}; estimate {lasting(trial['estimated_s'])})"
        )
        name = f"model {trial['model']}"
        if not trial["identical"]:
            problem = f"{says}; with and without the cache the tokens differ"
            return Check(name, False, problem, "choose another model for a lesson on equal tokens")
        if takes > limit:
            return Check(name, False, f"{says}; a run is stopped after {lasting(limit)}", "raise run_seconds")
        return Check(name, True, f"{says}; identical tokens")

    def _time_sweeps(self) -> Iterator[Check]:
        limit = self._settings.limits.sweep_seconds
        for name in PRESETS:
            try:
                spec = preset_spec(name, self._device)
            except KvvizError as error:  # it is not for this device
                self._sweeps.append({"preset": name, "models": [], "estimated_s": None})
                yield Check(f"sweep {name}", True, str(error))
                continue
            takes = within(spec, spec.budget_s, self._device).seconds
            self._sweeps.append({"preset": name, "models": list(spec.models), "estimated_s": takes})
            long = takes is not None and takes > limit
            advice = f"; longer than sweep_seconds ({lasting(limit)}), so give it a budget" if long else ""
            duration = "unknown" if takes is None else f"about {lasting(takes)}"
            yield Check(f"sweep {name}", True, f"{', '.join(spec.models)}: {duration} by estimate{advice}")

    def _queue(self) -> Iterator[Check]:
        """The worst case: all press Run at the same moment, on the slowest model."""
        count, waiting = self._students, self._settings.limits.waiting
        if count > waiting:
            do = f"raise waiting in kvviz.toml to {count}"
            yield Check("queue", False, f"{count} students, but the queue takes {waiting} runs at once", do)
        if not self._trials:
            return
        each = max(map(_comparison_s, self._trials))
        together = sum(trial["bytes"] for trial in self._trials) <= self._free
        loading = 0.0 if together else max(trial["load_s"] for trial in self._trials)
        self._longest_wait = round(count * (each + loading), 3)
        change = "" if together else f" and {lasting(loading)} to change models, which do not fit in memory together"
        says = f"if {count} press Run at once, the last has a result after {lasting(self._longest_wait)}"
        yield Check("wait", True, f"{says} ({count} times {lasting(each)}, the slowest comparison above{change})")


def _comparison_s(trial: Trial) -> float:
    return trial["measured_s"] or trial["estimated_s"]


def _compare(work: ComparisonSpec, loaded: "Loaded") -> tuple[float, bool]:
    """Seconds of a whole comparison, its equivalence check and memory accounting included; whether tokens agreed."""
    from kvviz.experiments.comparison.figures import finished
    from kvviz.experiments.comparison.run import perform

    begun = time.monotonic()
    document, _ = finished(list(perform(work, loaded, comparison_id=new_id())))
    return time.monotonic() - begun, document["identical"]
