"""A kind of experiment is a folder and a row: a toy of three files goes through a real scheduler and a real worker."""

import ast
import json
import re
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

import kvviz
from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits
from kvviz.experiments.architectures.spec import ArchitectureSpec
from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.cache_designs.spec import CachesSpec
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.forgetting.spec import ForgettingSpec
from kvviz.experiments.inside.spec import AnatomySpec, FirstStepsSpec, MistakeSpec
from kvviz.experiments.load.spec import LoadSpec
from kvviz.experiments.recall.spec import RecallSpec
from kvviz.experiments.registry import KINDS, kind_of, read_spec
from kvviz.experiments.roofline.spec import RoofSpec
from kvviz.experiments.serving.spec import ArrivalsSpec, PrefixesSpec, SharingSpec, TalkSpec
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.server.scheduler import Scheduler
from kvviz.server.worker_process import WorkerLink

ROOT = Path(kvviz.__file__).parents[1]
NAMES = tuple(KINDS)  # before a test adds one

# --- a kind that this test brings along -----------------------------------------------------------------------------

SPEC = '''"""Adding the numbers from 1 to `last`, slowly."""
from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole
from kvviz.experiments.kind import Estimate, Kind, Spec

@dataclass(frozen=True)
class AddingSpec(Spec):
    kind: ClassVar[str] = "adding"
    called: ClassVar[str] = "an addition"

    last: int = 3
    pause_s: float = 0.0

    def __post_init__(self):
        check_whole("last", self.last, 1, 10_000)

def check(spec, limits):
    if spec.last > limits.new_tokens:
        raise KvvizError(f"this server adds at most {limits.new_tokens} numbers")

def estimate(spec, device, earlier):
    return Estimate(spec.last * (spec.pause_s + 1 / device["rates"]["flops"]))

ROW = Kind(AddingSpec, check, estimate)
'''
RUN = '''"""Carries an addition out."""
import time

import torch

from adding.words import sentence
from kvviz.base.errors import Stopped

def run(spec, bench):
    total = torch.zeros((), dtype=torch.int64)
    for number in range(1, spec.last + 1):
        if bench.should_stop():
            raise Stopped
        total += number
        yield {"t": "added", "number": number}
        time.sleep(spec.pause_s)
    yield {"t": "done", "document": {"sum": total.item(), "sentence": sentence(spec, total.item())}}
'''
WORDS = '''"""What an addition says."""
def sentence(spec, total):
    return f"The numbers from 1 to {spec.last} add up to {total}."
'''
WORKER = """import sys
sys.path[:0] = [{root!r}, {folder!r}]
from adding.spec import ROW
from kvviz.experiments.registry import KINDS
KINDS[ROW.name] = ROW
from kvviz.worker.loop import main
main(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def adding(tmp_path_factory):
    """The toy's spec module; its row stands in the registry of this process and of each worker."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "adding").mkdir()
    for name, text in (("__init__", ""), ("spec", SPEC), ("run", RUN), ("words", WORDS)):
        (folder / "adding" / f"{name}.py").write_text(text)
    (folder / "worker.py").write_text(WORKER.format(root=str(ROOT), folder=str(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        module = import_module("adding.spec")
        patch.setitem(KINDS, "adding", module.ROW)
        yield module


@pytest.fixture(scope="module")
def scheduler(adding):
    script = Path(adding.__file__).parents[1] / "worker.py"
    link = WorkerLink(lambda descriptor, cores: [sys.executable, str(script), str(descriptor), cores])
    scheduler = Scheduler(link, limits=Limits(new_tokens=2_000))
    scheduler.start()
    yield scheduler
    scheduler.close()


def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def kinds_of(job):
    return [json.loads(record)["t"] for record in job.records]


@pytest.mark.slow
@pytest.mark.worker
def test_a_new_kind_runs_from_the_queue_to_its_document(adding, scheduler):
    job_id = scheduler.submit(adding.AddingSpec(last=4), "one browser")
    assert scheduler.submit(adding.AddingSpec(last=4), "another") == job_id, "it is not kept, so it is shared"
    until(lambda: not scheduler.get(job_id).active)
    job = scheduler.get(job_id)
    assert job.document == {"sum": 10, "sentence": "The numbers from 1 to 4 add up to 10."}
    assert kinds_of(job) == ["loading", *["added"] * 4, "done"]
    assert scheduler.submit(adding.AddingSpec(last=4), "another", again=True) != job_id


def test_what_a_new_kind_can_not_be_asked_for_is_a_sentence(adding, scheduler):
    with pytest.raises(KvvizError, match=r"^an addition has no field colour;"):
        read_spec("adding", {"colour": 1})
    with pytest.raises(KvvizError, match=r"^last is 0; it is a whole number from 1 to 10,000$"):
        read_spec("adding", {"last": 0})
    with pytest.raises(KvvizError, match=r"^this server adds at most 2000 numbers$"):
        scheduler.submit(adding.AddingSpec(last=2_001))


@pytest.mark.worker
def test_a_new_kind_is_waited_for_by_its_estimate_and_stops_between_two_records(adding, scheduler):
    until(lambda: scheduler.device is not None)
    slow = adding.AddingSpec(last=2_000, pause_s=0.05)
    assert seconds_of(slow, scheduler.device) == pytest.approx(100, rel=0.01)
    first, second = scheduler.submit(slow, "one browser"), scheduler.submit(adding.AddingSpec(last=2), "another")
    assert scheduler.expected_wait(second) > 0
    until(lambda: kinds_of(scheduler.get(first)).count("added") > 3)
    scheduler.stop(first, "one browser")
    until(lambda: not scheduler.get(second).active)
    stopped, after = scheduler.get(first), scheduler.get(second)
    records = kinds_of(stopped)
    assert records == ["loading", *["added"] * (len(records) - 2), "stopped"] and len(records) < 1_000
    assert (stopped.document, stopped.message) == (None, "") and after.document["sum"] == 3


# --- the rows that there are ----------------------------------------------------------------------------------------

SMALL = {"model": "tiny-gpt2", "prompt": "hello there"}
SPECS = (
    ComparisonSpec(**SMALL),
    SweepSpec(models=("tiny-gpt2",)),
    RoofSpec("tiny-gpt2", tokens=64),
    CachesSpec(**SMALL),
    RecallSpec(),
    ForgettingSpec("tiny-gpt2"),
    ArrivalsSpec(),
    SharingSpec("tiny-gpt2", "a system prompt", ("one", "two")),
    TalkSpec("tiny-gpt2", "first", "second", "edited"),
    PrefixesSpec("tiny-gpt2"),
    BatchingSpec("tiny-gpt2", (0.0, 0.5), (8, 4), (3, 2)),
    LoadSpec("tiny-gpt2"),
    ConcurrencySpec("http://localhost:8000"),
    AnatomySpec(**SMALL),
    MistakeSpec(**SMALL),
    FirstStepsSpec(),
    ArchitectureSpec("latent"),
)
DEVICE = {"rates": {"read": 2e10, "flops": 8e10, "launch": 2e-6}}


def test_every_kind_has_a_spec_here():
    assert [spec.kind for spec in SPECS] == list(NAMES)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_every_row_is_whole(spec):
    row = kind_of(spec)
    written = json.loads(json.dumps(spec.to_dict()))
    assert row.spec is type(spec) and read_spec(spec.kind, written) == spec
    with pytest.raises(KvvizError, match="no field colour"):
        read_spec(spec.kind, {**written, "colour": 1})
    with pytest.raises(KvvizError, match=f"is of the kind '{spec.kind}', not 'x'"):
        read_spec(spec.kind, {**written, "kind": "x"})
    row.check(spec, Limits())
    assert row.runner().__module__ == f"{row.spec.__module__.removesuffix('.spec')}.run"
    assert isinstance(row.title(spec), str) and getattr(Limits(), row.limit) > 0
    estimate = row.estimated(spec, DEVICE)
    assert estimate.whole > 0 if row.estimate else estimate is None
    assert row.estimated(spec, None) is row.estimated(spec, {}) is None, "no estimate without a device's rates"


def test_a_spec_that_lacks_a_field_or_is_no_object_is_refused():
    with pytest.raises(KvvizError, match="a sweep needs models"):
        read_spec("sweep", {})
    with pytest.raises(KvvizError, match="a sweep is an object"):
        read_spec("sweep", ["models"])
    with pytest.raises(KvvizError, match="no kind of experiment 'x'; there are comparison, sweep"):
        read_spec("x", {})


@pytest.mark.worker
def test_the_registry_needs_no_torch():
    code = "import sys, kvviz.experiments.registry as r; print(len(r.KINDS), 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [str(len(SPECS)), "False"]


# --- nobody else tells kinds apart ----------------------------------------------------------------------------------

SPEC_NAMES = {type(spec).__name__ for spec in SPECS}


def names_in(node):
    """Last parts of the names in an expression: `spec.SweepSpec` and `SweepSpec` alike."""
    return [
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in ast.walk(node)
        if hasattr(n, "attr") or hasattr(n, "id")
    ]


def told_apart(tree):
    """Line and words of each place that asks which kind a spec or a job is of."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            if SPEC_NAMES & set(names_in(node.args[1])):
                yield node.lineno, "asks for a spec's type"
        elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            if (
                sum(
                    isinstance(part, ast.Name | ast.Attribute) and SPEC_NAMES & set(names_in(part)[:1]) != set()
                    for part in parts
                )
                > 1
            ):
                yield node.lineno, "lists specs' types"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = {n.value for side in sides for n in ast.walk(side) if isinstance(n, ast.Constant)}
            if words & set(NAMES) and any("kind" in names_in(side) for side in sides):
                yield node.lineno, "compares a kind with a word"


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(x, (int, spec.SweepSpec))",
        "TYPES = (SweepSpec, RoofSpec)",
        "RUNS = {SweepSpec: 1, RoofSpec: 2}",
        "work.kind == 'sweep'",
        "kind in ('anatomy', 'mistake')",
    ],
)
def test_the_law_finds_what_it_forbids(code):
    assert list(told_apart(ast.parse(code)))


@pytest.mark.slow
def test_no_other_package_tells_kinds_apart():
    """A page of one kind may ask for it by its spec: `job.kind != SweepSpec.kind`."""
    files = [*(ROOT / "kvviz").rglob("*.py"), *(ROOT / "pages").glob("*.py"), ROOT / "app.py"]
    outside = [path for path in files if ROOT / "kvviz" / "experiments" not in path.parents]
    assert len(outside) > 100
    found = [
        f"{path.relative_to(ROOT)}:{line} {words}"
        for path in outside
        if re.search("kind|Spec", text := path.read_text(encoding="utf-8"))
        for line, words in told_apart(ast.parse(text))
    ]
    assert not found
