"""What the queue says of the jobs in it."""

from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.server.jobs import Job
from kvviz.ui.shared.devices import _what


def test_each_model_of_a_job_is_named_but_nobodys_own():
    assert _what(Job("1", ComparisonSpec("mini-gpt2", prompt="x"))).startswith("a comparison of mini-gpt2")
    sweep = _what(Job("2", SweepSpec(models=("mini-gpt2", "/home/ann/one", "/home/ann/two")), kind="sweep"))
    assert sweep.startswith("a sweep of mini-gpt2") and ", a model of somebody's own: " in sweep
    assert "ann" not in sweep and sweep.count("somebody") == 1
