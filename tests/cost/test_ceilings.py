"""The ceilings: as far up as another way of measuring finds them, kept for each environment, read back strictly."""

import ctypes
import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch

from bench.ceiling import step_cost, with_shares
from kvviz.base.errors import KvvizError
from kvviz.cli import experiments as command
from kvviz.cli.main import app
from kvviz.cost import ceilings
from kvviz.cost.ceilings import ESTIMATE, Ceilings, Machine, MatrixRate, ceilings_text, keep, kept, kept_for, path, read
from kvviz.cost.flops import Rates
from kvviz.cost.shape import read_shape
from kvviz.device import measure_ceilings as module
from kvviz.device.clock import fastest_calls, synchroniser
from kvviz.device.environment import set_threads
from kvviz.device.lock import measuring
from kvviz.device.remembered import Remembered
from kvviz.models.catalog.rows import model_row
from kvviz.worker import loop

ROOT = Path(__file__).resolve().parents[2]
SIZE = 2**26  # bytes: as little as may be, where no rate matters
SYNC = synchroniser("cpu")

HERE = Machine("cpu", "A test's processor", 3, 4, "2.0", "3.12", "somewhere")
SET = Ceilings(
    environment=HERE,
    measured_at="2026-01-02T03:04:05Z",
    buffer_bytes=2**28,
    read_bandwidth=2e10,
    read_by="largest",
    reads={"sum": 1e10, "largest": 2e10},
    row_product={"float32": 1.5e10},
    matrix=(MatrixRate("float32", 512, 512, 512, 9e10), MatrixRate("float32", *ESTIMATE, 8e10)),
    launch=2e-6,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    set_threads(1)
    yield
    set_threads(before)


def read_otherwise(buffer, calls):
    """B/s of the fastest of some reads of the same memory that torch has no part in."""
    best = float("inf")
    for call in calls:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return buffer.nbytes / best


@pytest.mark.long
def test_the_bandwidth_is_what_other_libraries_find(one_thread):
    buffer = torch.ones(2**26)  # 256 MiB: less, and a part of it would still be in the processor's cache
    values, memchr = buffer.numpy(), ctypes.CDLL(None).memchr
    memchr.argtypes, memchr.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
    assert memchr(buffer.data_ptr(), 1, buffer.nbytes) is None  # it has read all of it and found no such byte
    calls = (values.max, lambda: numpy.dot(values, values), lambda: memchr(buffer.data_ptr(), 1, buffer.nbytes))
    ours = theirs = 0.0
    for _ in range(25):  # others use this machine too: each side is as fast as its fastest try
        ours = max(ours, *module.read_rates(buffer, SYNC, 0).values())
        theirs = max(theirs, read_otherwise(buffer, calls))
        if abs(ours / theirs - 1) <= 0.2:
            return
    pytest.fail(f"{ours / 1e9:.1f} GB/s, and others read {theirs / 1e9:.1f} GB/s")


def measured(monkeypatch):
    """A quick set of ceilings, and the FLOP/s of each shape in float32."""
    monkeypatch.setattr(module, "LONGEST", 0.05)
    found = module.measure_ceilings("cpu", seconds=0.3, buffer_bytes=2**27)
    return found, {row.shape: row.flops_per_s for row in found.matrix if row.dtype == "float32"}


@pytest.mark.slow
def test_the_laws_of_a_set(one_thread, monkeypatch):
    found, rates = measured(monkeypatch)
    halves = {row.shape: row.flops_per_s for row in found.matrix if row.dtype == "bfloat16"}
    assert found.read_bandwidth == found.reads[found.read_by] == max(found.reads.values())
    assert set(module.READS) <= set(found.reads) and "float32" in found.row_product
    assert max(found.row_product.values()) <= found.read_bandwidth, "no read is slower than what has read"
    assert found.launch > 0 and found.rates() == Rates(
        found.row_product["float32"], rates[ESTIMATE], found.launch, halves.get(ESTIMATE)
    )
    assert found.environment == module.machine("cpu") and found.environment.threads == 1
    assert read(json.dumps({"kvviz": "ceilings", "version": 1, "measured": [asdict(found)]}).encode()) == [found]


@pytest.mark.long
def test_larger_products_are_not_much_slower_than_small_ones(one_thread, monkeypatch):
    """Each shape is as fast as its fastest try, which needs a machine that is quiet for some of the tries."""
    best: dict[tuple[int, int, int], float] = {}
    for _ in range(20):
        best |= {shape: max(rate, best.get(shape, 0.0)) for shape, rate in measured(monkeypatch)[1].items()}
        small, large = best[256, 256, 256], best.get((512, 512, 512), 0)
        if large >= small / 2 and best[ESTIMATE] <= 2 * max(small, large):
            return
    pytest.fail(f"products {best}")


def test_a_race_takes_turns_for_its_time_and_the_fastest_call_of_each_but_for_the_first(monkeypatch):
    """By a clock that only the calls move: both first calls are the fastest, and the race of 20 s ends after 21."""
    now, order = [0.0], []

    def call(name, seconds):
        costs = iter(seconds)

        def run():
            order.append(name)
            now[0] += next(costs)

        return run

    monkeypatch.setattr("kvviz.device.clock.time", SimpleNamespace(perf_counter=lambda: now[0]))
    calls = {"a": call("a", [0.5, 3.0, 2.0, 4.0]), "b": call("b", [0.5, 5.0, 4.0, 2.0])}
    assert fastest_calls(calls, lambda: None, 20.0) == {"a": 2.0, "b": 2.0}
    assert order == ["a", "b"] * 4


def test_a_slow_memory_is_read_five_times_all_the_same(monkeypatch):
    """By a clock that only the reads move: each takes longer than the time for all, and the fourth is undisturbed."""
    now, costs = [0.0], iter([0.01, 0.055, 0.055, 0.05, 0.055, 0.055])
    monkeypatch.setattr("kvviz.device.clock.time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(module, "READ_AGAIN", 2**20)
    monkeypatch.setitem(module.READS, "row-sums", lambda buffer: now.__setitem__(0, now[0] + next(costs)))
    assert module.read_figure("cpu") == pytest.approx(2**20 / 0.05) and next(costs, None) is None


@pytest.mark.slow
def test_a_dtype_that_the_device_does_not_know_is_left_out(monkeypatch):
    def refuses(row, weight):
        if row.dtype is torch.float16:
            raise RuntimeError('"addmm" not implemented for Half')
        return weight

    monkeypatch.setattr(torch.nn.functional, "linear", refuses)
    found = module.measure_ceilings("cpu", seconds=0.05, buffer_bytes=SIZE)
    assert list(found.row_product) == ["float32", "bfloat16"]
    assert {row.dtype for row in found.matrix} == {"float32", "bfloat16"}


def test_a_product_that_would_take_too_long_is_left_out(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "_product", lambda device, dtype, shape, *rest: asked.append((dtype, shape)) or 0.2)
    found = list(module._matrix_rates("cpu", SYNC, 1.0))
    assert [shape[0] for dtype, shape in asked if dtype == "float16"] == [256]  # eight times 0.2 s is too long
    assert ("float32", ESTIMATE) in asked and len(found) == len(asked)


def test_no_memory_to_read_is_said(monkeypatch):
    monkeypatch.setattr(module, "device_memory", lambda device: (2**27, 2**30))
    with pytest.raises(KvvizError, match="too little memory is free on cpu"):
        module.measure_ceilings("cpu")


def test_the_buffer_is_many_caches_long(monkeypatch):
    monkeypatch.setattr(module, "device_memory", lambda device: (2**40, 2**40))
    monkeypatch.setattr(module, "last_level_cache", lambda: 2**30)
    assert module.reading_bytes("cpu") == 2**33
    monkeypatch.setattr(module, "last_level_cache", lambda: 0)
    assert module.reading_bytes("cpu") == 2**28


def test_each_environment_keeps_its_own():
    assert kept() == [] and kept_for(HERE) is None
    other, newer = replace(SET, environment=replace(HERE, threads=1)), replace(SET, launch=3e-6)
    for each in (SET, other, newer):
        keep(each)
    assert kept() == [other, newer]
    assert kept_for(HERE) == newer and kept_for(other.environment) == other
    assert kept_for(replace(HERE, python="3.13", platform="elsewhere")) == newer
    for change in ({"device": "cuda"}, {"device_name": "another"}, {"threads": 2}, {"torch": "2.1"}):
        assert kept_for(replace(HERE, **change)) is None
    assert [file.name for file in path().parent.iterdir()] == ["ceilings.json"]


def test_only_so_many_environments_are_kept(monkeypatch):
    monkeypatch.setattr(ceilings, "MAX_ENVIRONMENTS", 4)
    for number in range(6):
        keep(replace(SET, environment=replace(HERE, threads=number + 1)))
    assert [found.environment.threads for found in kept()] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"launch": -1.0}, "launch has to be"),
        ({"launch": True}, "launch has to be"),
        ({"row_product": {}}, "row_product has to be"),
        ({"reads": {"sum": 1e10, "largest": "fast"}}, "largest has to be"),
        ({"read_bandwidth": 1e10}, "read_bandwidth has to be the highest"),
        ({"read_by": "sum"}, "read_bandwidth has to be the highest"),
        ({"matrix": [{"dtype": "float32", "rows": 1, "inner": 1, "columns": 1}]}, "matrix lacks flops_per_s"),
        ({"environment": {"device": "cpu"}}, "environment lacks device_name"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(change, says):
    path().write_text(json.dumps({"kvviz": "ceilings", "version": 1, "measured": [asdict(SET) | change]}))
    with pytest.raises(KvvizError, match=says):
        kept()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kvviz": "ceilings", "version": 2, "measured": []}', "\xff", "NaN"])
def test_another_file_is_refused_and_replaced(text):
    path().write_bytes(text.encode("latin-1"))
    with pytest.raises(KvvizError):
        kept()
    keep(SET)
    assert kept() == [SET]


def test_what_a_start_takes(monkeypatch):
    monkeypatch.setattr(module, "machine", lambda device: HERE)
    monkeypatch.setattr(module, "_rates", Remembered(lambda one, other: True))
    monkeypatch.setattr(module, "measure_rates", lambda device: Rates(1.0, 2.0, 3.0))
    assert loop.hello()["rates"] == {"read": 1.0, "flops": 2.0, "launch": 3.0, "half": None}
    keep(SET)
    assert loop.hello()["rates"] == {"read": 1.5e10, "flops": 8e10, "launch": 2e-6, "half": None}
    keep(replace(SET, matrix=SET.matrix[:1]))  # without the product that estimates take
    assert loop.hello()["rates"]["flops"] == 2.0
    path().write_text("{")
    assert loop.hello()["rates"]["flops"] == 2.0


def test_measured_once_then_on_demand(monkeypatch):
    found = iter([SET, replace(SET, launch=5e-6)])
    monkeypatch.setattr(module, "machine", lambda device: HERE)
    monkeypatch.setattr(module, "measure_ceilings", lambda device: next(found))
    monkeypatch.setattr("kvviz.device.environment.take_cores", lambda: None)
    for again, launch in ((False, 2e-6), (False, 2e-6), (True, 5e-6)):
        command.ceilings(refresh=again, device="cpu")
        assert kept_for(HERE).launch == launch


def test_the_text_names_every_figure():
    text = ceilings_text(SET)
    for part in ("20.0 GB/s  (largest of 268,435,456 B)", "15.0 GB/s  float32, 75%", "80.0 GFLOP/s", "2.00 µs"):
        assert part in text
    assert SET.to_dict()["matrix_rate"] == {"float32": 9e10}


def test_the_command_prints_what_is_kept(monkeypatch, capsys):
    monkeypatch.setattr("kvviz.device.environment.take_cores", lambda: None)
    monkeypatch.setattr(module, "measure_ceilings", lambda device: replace(SET, environment=module.machine(device)))
    app(["ceilings", "--json", "--device", "cpu"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == kept()[0].to_dict()
    app(["ceilings", "--device", "cpu"], standalone_mode=False)
    assert capsys.readouterr().out == ceilings_text(kept()[0]) + "\n"
    path().write_text("{")
    with pytest.raises(KvvizError, match="`kvviz ceilings --refresh` replaces them"):
        app(["ceilings", "--device", "cpu"], standalone_mode=False)
    app(["ceilings", "--refresh", "--device", "cpu"], standalone_mode=False)
    assert len(kept()) == 1


def test_it_waits_its_turn(monkeypatch):
    monkeypatch.setattr("kvviz.device.environment.take_cores", lambda: None)
    monkeypatch.setattr(module, "measure_ceilings", lambda device: pytest.fail("measured while another has the device"))
    with measuring("another measurement"), pytest.raises(KvvizError, match="another measurement"):
        command.ceilings(refresh=True, device="cpu", no_wait=True)


@pytest.mark.slow
@pytest.mark.worker
def test_torch_is_all_that_it_needs():
    code = """
import sys
sys.modules.update(dict.fromkeys(("transformers", "streamlit", "sqlalchemy", "plotly", "platformdirs")))
from functools import partial
from kvviz.device import measure_ceilings as module
module.LONGEST = 0.01
module.measure_ceilings = partial(module.measure_ceilings, seconds=0.05, buffer_bytes=2**26)
sys.argv = ["kvviz", "ceilings", "--device", "cpu", "--json"]
from kvviz.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == kept()[0].to_dict()


def test_what_a_decode_step_reads():
    shape = read_shape(model_row("gpt2").config)
    weights = 4 * (124_439_808 - 1024 * 768 - 12 * (4 * 768 + 9 * 768) - 2 * 768 + 768)  # no positions, biases, norms
    assert step_cost(shape, 100, "float32", caches=True)[0] == weights + 2 * 12 * 100 * 768 * 4
    assert step_cost(shape, 100, "float32", caches=False)[0] == weights + 99 * 768 * 4
    row = with_shares({"bytes_read_per_step": 1_000, "flops_per_step": 50, "itl_s": 0.5}, 4_000.0, 1_000.0)
    assert (row["bandwidth_share"], row["compute_share"], row["roof_share"]) == (0.5, 0.1, 0.5)
    alone, four = (step_cost(shape, 100, "float32", caches=True, batch=batch) for batch in (1, 4))
    assert (four[0] - weights, four[1]) == (4 * (alone[0] - weights), 4 * alone[1]), "the weights are read once for all"
