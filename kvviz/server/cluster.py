"""Workers on the nodes of a Ray cluster join a scheduler, and leave it when their node does.

Ray is imported when a cluster is joined, and nowhere else. On each node a `Relay` in a Ray actor starts the same worker
process that a server starts beside itself, so that a measurement has that node's lock and its pinned cores. The node on
which the server itself runs is left out: its devices have workers already.
"""

import logging
import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypedDict

import kvviz
from kvviz.base.errors import KvvizError, in_a_line
from kvviz.base.logs import event
from kvviz.base.settings import settings
from kvviz.device.cores import share_of_cores
from kvviz.server.remote import MachineLost, Relay, RemoteLink
from kvviz.server.scheduler import Scheduler
from kvviz.server.staff import WorkingDevice, planned, working_devices

log = logging.getLogger("kvviz.server.cluster")

WATCH_S = 2.0  # seconds between two looks at the list of nodes
AGAIN_S = 60.0  # seconds before a node that could not take part, or has lost a worker, is asked again
ANSWER_S = 30.0  # seconds after which a node that does not answer counts as lost
START_S = 180.0  # seconds that a node may take to start an actor and to list its devices


class Offer(TypedDict):
    """What a node brings: its version of kvviz, its devices, and the workers that it would start, with their cores."""

    version: str
    host: str
    devices: list[WorkingDevice]
    workers: list[tuple[str, list[int]]]


def offer() -> Offer:
    """Say what this machine brings: a worker for each device, or those that its own settings name."""
    devices, (measuring, serving) = working_devices(), share_of_cores()
    names = list(settings().workers)
    names = [one["device"] for one in devices] if names in ([], ["all"]) else names
    return {
        "version": kvviz.__version__,
        "host": socket.gethostname(),
        "devices": devices,
        "workers": planned(names, measuring, serving),
    }


class Node(TypedDict):
    """A living node of the cluster, apart from the server's own."""

    id: str
    name: str


class Ray:
    """What is asked of Ray. Raises KvvizError for a cluster that can't be joined."""

    def __init__(self, address: str) -> None:
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # else a call after `leave` starts a cluster here
        try:
            import ray
        except ImportError as error:
            raise KvvizError("a cluster needs Ray: pip install 'kvviz[cluster]'") from error
        self._ray = ray
        try:
            ray.init(address=address, namespace="kvviz", log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises what its layers raise
            raise KvvizError(f"the Ray cluster at {address} can't be joined ({in_a_line(error)})") from error

    def nodes(self) -> list[Node]:
        """The living nodes apart from the one to which this process is attached, each with a name of its own."""
        own = self._ray.get_runtime_context().get_node_id()
        found: list[Node] = []
        for node in self._ray.nodes():
            if node["Alive"] and node["NodeID"] != own:
                named = node["NodeName"] if node["NodeName"] != node["NodeManagerAddress"] else ""
                name = re.sub("[^A-Za-z0-9.-]", "-", named or node["NodeManagerHostname"])
                if any(other["name"] == name for other in found):
                    name = f"{name}-{node['NodeID'][:4]}"
                found.append({"id": node["NodeID"], "name": name})
        return found

    def offer_of(self, node: Node) -> Offer:
        """Ask a node what it brings. Raises MachineLost."""
        asked = self._ray.remote(offer).options(num_cpus=0, max_retries=0, scheduling_strategy=self._on(node))
        found: Offer = self._answer(asked.remote(), START_S)
        return found

    def relay(self, node: Node, name: str, cores: list[int]) -> "_Actor":
        """Make a relay on a node."""
        there = {"num_cpus": 0, "max_concurrency": 8, "scheduling_strategy": self._on(node)}
        actor = self._ray.remote(Relay).options(**there).remote(name, cores, public=settings().public)
        return _Actor(actor, self._answer)

    def leave(self) -> None:
        """Leave the cluster; its actors end."""
        self._ray.shutdown()

    def _on(self, node: Node) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node_id=node["id"], soft=False)

    def _answer(self, reference: Any, seconds: float) -> Any:
        try:
            return self._ray.get(reference, timeout=seconds)
        except self._ray.exceptions.GetTimeoutError as error:
            raise MachineLost(f"it has not answered for {seconds:.0f} s") from error
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, ImportError):
                raise MachineLost(f"its Python has no kvviz ({in_a_line(cause)})") from error
            raise MachineLost(in_a_line(cause) if isinstance(cause, Exception) else _why(error)) from error


def _why(error: Exception) -> str:
    """Say in words what a Ray error means; its own text runs over many lines with ids and addresses."""
    name = type(error).__name__
    if name.startswith(("Actor", "Node", "RayActor", "WorkerCrashed", "TaskUnschedulable")):
        return "it does not answer any more"
    return f"Ray has a {name}"


class _Actor:
    """Calls the relay in an actor."""

    def __init__(self, actor: Any, answer: Callable[[Any, float], Any]) -> None:
        self._actor, self._answer, self._started = actor, answer, False

    def call(self, method: str, *args: object) -> Any:
        """Call a method of the relay, and wait for its answer."""
        answer = self._answer(getattr(self._actor, method).remote(*args), ANSWER_S if self._started else START_S)
        self._started = True
        return answer

    def send(self, method: str, *args: object) -> None:
        """Call a method of the relay; nobody waits."""
        with suppress(Exception):  # Ray raises what its layers raise; `call` notices a lost machine
            getattr(self._actor, method).remote(*args)


class Cluster:
    """Looks at the list of nodes every two seconds, and employs the workers of each new one."""

    def __init__(self, scheduler: Scheduler, address: str, join: Callable[[str], Ray] = Ray) -> None:
        self._scheduler, self._address, self._join = scheduler, address, join
        self._ray: Ray | None = None
        self._offers: dict[str, Offer] = {}  # by node
        self._again_at: dict[str, float] = {}  # by node: when it may be asked again
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)

    def start(self) -> None:
        """Begin to look; a cluster that can't be joined is tried again."""
        self._thread.start()

    def close(self) -> None:
        """Leave the cluster, after the scheduler has ended its workers."""
        self._closing.set()
        self._thread.join(timeout=5)
        if self._ray is not None:
            self._ray.leave()

    def _run(self) -> None:
        said = ""
        while not self._closing.is_set():
            try:
                ray = self._ray = self._ray or self._join(self._address)
                for node in filter(self._is_due, ray.nodes()):
                    self._again_at[node["id"]] = math.inf  # until its thread has its answer
                    threading.Thread(target=self._employ, args=(ray, node), name="node", daemon=True).start()
                said = ""
            except Exception as error:  # Ray raises what its layers raise, and this thread has to live on
                why = str(error) if isinstance(error, KvvizError) else f"the Ray cluster is lost ({in_a_line(error)})"
                if why != said:
                    said = why
                    log.warning("%s", said, exc_info=not isinstance(error, KvvizError))
                if self._ray is not None:  # a connection that was lost does not come back: the next look makes another
                    with suppress(Exception):
                        self._ray.leave()
                    self._ray = None
            self._closing.wait(WATCH_S)

    def _there(self) -> set[str]:
        return {worker.name for worker in self._scheduler.workers}

    def _is_due(self, node: Node) -> bool:
        """Whether one of a node's workers is not there, and a minute has passed since the node was asked."""
        there, known = self._there(), self._offers.get(node["id"])
        missing = known is None or any(f"{node['name']}/{device}" not in there for device, _ in known["workers"])
        return missing and self._again_at.get(node["id"], 0.0) <= time.monotonic()

    def _employ(self, ray: Ray, node: Node) -> None:
        """Start those of a node's workers that are not there; in a thread of its own, since a node may not answer."""
        there = self._there()
        try:
            found = self._offers[node["id"]] = ray.offer_of(node)
            if found["version"] != kvviz.__version__:
                raise MachineLost(f"it has kvviz {found['version']}, and this server {kvviz.__version__}")
            for device, cores in found["workers"]:
                if (name := f"{node['name']}/{device}") not in there:
                    self._scheduler.join(RemoteLink(name, ray.relay(node, name, cores)))
            event(log, "node_joined", name=node["name"], workers=len(found["workers"]))
        except MachineLost as error:
            event(log, "node_left_out", logging.WARNING, name=node["name"], why=str(error))
        except Exception as error:  # Ray raises what its layers raise
            event(log, "node_left_out", logging.WARNING, name=node["name"], why=in_a_line(error))
        finally:
            self._again_at[node["id"]] = time.monotonic() + AGAIN_S


def listed(address: str) -> list[dict[str, object]]:
    """The devices of a cluster's nodes: `node`, `device`, `name`, `free_bytes`. Raises KvvizError.

    A node that can't take part has one row, with nothing but `why`; that is None for every other.
    """
    ray = Ray(address)
    rows: list[dict[str, object]] = []
    try:
        for node in ray.nodes():
            try:
                found = ray.offer_of(node)
            except MachineLost as error:
                rows.append(_row(node["name"], why=str(error)))
                continue
            rows += [_row(node["name"], d["device"], d["device_name"], d["free_bytes"]) for d in found["devices"]]
    finally:
        ray.leave()
    return rows


def _row(
    node: str, device: str | None = None, name: str | None = None, free_bytes: int | None = None, why: str | None = None
) -> dict[str, object]:
    return {"node": node, "device": device, "name": name, "free_bytes": free_bytes, "why": why}
