"""NVTX ranges: a pair around each step where they are asked for and can be seen, else nothing at all."""

import pytest
import torch

from kvviz.decoding.loop import decode
from kvviz.device.nvtx import ranged


@pytest.fixture
def nvtx(monkeypatch):
    """A stand-in that notes what is opened and closed, and a CUDA that seems to be there."""
    said = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", said.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: said.append("pop"))
    monkeypatch.setenv("KVVIZ_NVTX", "1")
    return said


@pytest.mark.slow
def test_each_step_is_a_range_of_its_phase_and_mode(nvtx, load):
    loaded = load("tiny-gpt2", device="cpu")
    nvtx.clear()
    steps = decode(loaded.model, torch.arange(5)[None], mode="cached", new_tokens=3)
    assert nvtx == []
    next(steps)
    assert nvtx == ["prefill.cached", "pop"]  # closed while the consumer has the step
    assert len(list(steps)) == 2
    assert nvtx[2:6] == ["decode.cached", "pop"] * 2


def test_a_step_that_fails_closes_its_range(nvtx):
    def failing():
        yield 1
        raise RuntimeError

    steps = ranged(failing(), "cached")
    assert next(steps) == 1
    with pytest.raises(RuntimeError):
        next(steps)
    assert nvtx == ["prefill.cached", "pop", "decode.cached", "pop"]


@pytest.mark.parametrize("value", ["", "0", "false", "no"])
def test_without_being_asked_the_steps_are_the_very_same(nvtx, monkeypatch, value):
    monkeypatch.setenv("KVVIZ_NVTX", value)
    steps = iter([1])
    assert ranged(steps, "cached") is steps


def test_without_cuda_the_steps_are_the_very_same(nvtx, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    steps = iter([1])
    assert ranged(steps, "cached") is steps
