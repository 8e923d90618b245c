"""The measuring process dies, runs out of memory, hangs, or finds its model gone: one run ends, the rest goes on."""

import json
import os
import resource
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.catalog.rows import models
from kvviz.models.weight_files import damage, whole_size
from kvviz.server import scheduler as scheduler_module
from tests.faults.conftest import asking, finished, until

pytestmark = pytest.mark.worker

SHORT = ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=4, repeats=1)
LONG = ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=1000, repeats=20)


def test_a_worker_killed_mid_run(fake):
    scheduler, few = fake(), asking("3 records")
    before = finished(scheduler, scheduler.submit(few, "a" * 22))
    victim = scheduler.submit(asking("100000 records"), "a" * 22)
    own, other = scheduler.submit(few, "a" * 22), scheduler.submit(few, "b" * 22)
    until(lambda: scheduler.get(victim).state == "running")
    records, pid = list(before.records), scheduler.workers[0].link.process.pid
    os.kill(pid, signal.SIGKILL)
    assert finished(scheduler, victim).state == "failed" and "killed" in scheduler.get(victim).message
    assert finished(scheduler, other).state == finished(scheduler, own).state == "done"
    assert scheduler.workers[0].link.process.pid != pid
    assert before.state == "done" and before.records == records, "what was finished is untouched"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps to RLIMIT_AS and has /proc")
def test_a_worker_out_of_memory(real, tmp_path):
    """It may take 300 MB more than it has: its allocators then really say no."""
    config = {**models()["tiny-gpt2"].config, "vocab_size": 4_000_000}  # its first tensor is too large
    (tmp_path / "config.json").write_text(json.dumps(config))
    huge = ComparisonSpec(model=str(tmp_path / "config.json"), prompt_tokens=4, weights="random")
    assert finished(real, real.submit(SHORT)).state == "done"
    pid, (_, hard) = real.workers[0].link.process.pid, resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + 300_000_000, hard))
    try:
        large, small = real.submit(huge), real.submit(SHORT)
        assert finished(real, large).state == "failed" and "out of memory" in real.get(large).message
        assert finished(real, small).state == "done", "the next run has the memory"
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, (hard, hard))


@pytest.fixture
def folder(tmp_path):
    """A model's folder with weights in safetensors."""
    from kvviz.decoding.loading import built, hf_config

    config = dict(models()["tiny-gpt2"].config)
    (tmp_path / "model").mkdir()
    torch.manual_seed(0)
    model = built(hf_config(config))
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(tensors, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    return tmp_path / "model"


def test_a_model_that_vanishes_between_form_and_load(real, folder):
    before = real.submit(LONG)
    own = real.submit(replace(SHORT, model=str(folder)))  # it is there when it is asked for
    shutil.rmtree(folder)
    until(lambda: real.get(before).state == "running")  # while it loads, a stop would cost a new worker
    real.stop(before)
    message = finished(real, own).message
    assert real.get(own).state == "failed" and str(folder) in message and "gone" in message
    with pytest.raises(KvvizError):
        real.submit(replace(SHORT, model=str(folder)))


def test_a_model_cut_off_in_the_middle(real, folder):
    file = folder / "model.safetensors"
    whole = file.stat().st_size
    work = replace(SHORT, model=str(folder), prompt=None, prompt_tokens=5)
    loaded = finished(real, real.submit(work))
    assert loaded.state == "done", loaded.message
    with file.open("r+b") as stream:
        stream.truncate(whole - 1000)
    own = real.submit(replace(work, dtype="bfloat16"))  # loaded anew
    assert finished(real, own).message.startswith(f"{file} is cut off: it has {whole - 1000:,} bytes of {whole:,}")
    assert finished(real, real.submit(SHORT)).state == "done"


@pytest.mark.parametrize("kept", [0, 4, 8, 20])
def test_the_file_is_named_wherever_it_is_cut(folder, kept):
    assert damage(folder) == ""
    file = folder / "model.safetensors"
    assert whole_size(file) == file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(kept)
    assert str(file) in damage(folder)


def test_a_runaway_run_ends_by_itself(real):
    real._given_limits = Limits(run_seconds=0.3)
    try:
        pid = real.workers[0].link.process.pid
        runaway = finished(real, real.submit(LONG))
        assert runaway.state == "stopped" and "0.3 s, which is this server's limit" in runaway.message
        assert any('"t":"started"' in record for record in runaway.records), "what was measured stands"
        assert real.workers[0].link.process.pid == pid
    finally:
        real._given_limits = None


@pytest.mark.parametrize("how", ["limit", "stop"])
def test_a_step_that_never_ends(fake, monkeypatch, how):
    monkeypatch.setattr(scheduler_module, "GRACE_S", 0.3)
    scheduler = fake(limits=Limits(run_seconds=0.3 if how == "limit" else 3600))
    stuck, after = scheduler.submit(asking("hang")), scheduler.submit(asking("3 records"))
    until(lambda: scheduler.get(stuck).state == "running")
    if how == "stop":
        scheduler.stop(stuck)
    work = finished(scheduler, stuck)
    assert work.state == "stopped" and "the measuring process was ended" in work.message
    assert ("this server's limit" if how == "limit" else "step did not end") in work.message
    assert finished(scheduler, after).state == "done"
