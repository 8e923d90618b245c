"""What the queue says of the jobs in it, and when a form offers to split a model."""

from types import SimpleNamespace

from kvviz.base.settings import Limits
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.server.jobs import Job
from kvviz.ui.shared.devices import _what, can_split


def test_each_model_of_a_job_is_named_but_nobodys_own():
    assert _what(Job("1", ComparisonSpec("mini-gpt2", prompt="x"))).startswith("a comparison of mini-gpt2")
    sweep = _what(Job("2", SweepSpec(models=("mini-gpt2", "/home/ann/one", "/home/ann/two")), kind="sweep"))
    assert sweep.startswith("a sweep of mini-gpt2") and ", a model of somebody's own: " in sweep
    assert "ann" not in sweep and sweep.count("somebody") == 1


def test_a_split_is_offered_where_it_may_help(monkeypatch):
    def offered(model="mini-gpt2", total=10**12, free=10**12, devices=("cpu",), workers=("",)):
        scheduler = SimpleNamespace(
            device={"total_bytes": total, "free_bytes": min(free, total)},
            devices=lambda: [{"device": name} for name in devices],
            workers=[SimpleNamespace(name=name) for name in workers],
            limits=Limits(),
        )
        return can_split(scheduler, ComparisonSpec(model, prompt="x"))

    assert offered(devices=("cuda", "cpu")) and offered(total=10**6)
    assert offered(free=10**6), "the memory that others have taken does not help"
    assert not offered() and not offered("no-such-model", total=10**6)
    assert not offered(devices=("cuda:0", "cpu"), workers=("cuda:0", "cpu")), "a worker for each has none for all"
    monkeypatch.setattr("kvviz.ui.shared.devices.find_spec", lambda name: None)
    assert not offered(total=10**6), "accelerate is missing"
