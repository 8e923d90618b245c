"""Where a forward's time goes: kinds by name and scope, sums, and nothing left on the model."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers.cache_utils import Cache

from kvviz.decoding.loop import decode
from kvviz.device.clock import synchroniser
from kvviz.device.profiler import (
    ATTENTION,
    CACHE,
    CLASSES,
    ROTARY,
    Operation,
    _operations,
    class_of,
    divided,
    profile,
    scopes,
)

SYNC = synchroniser("cpu")


@pytest.mark.parametrize(
    ("name", "around", "kind"),
    [
        ("aten::linear", (), "weights"),
        ("aten::addmm", (ATTENTION,), "weights"),  # a projection, within attention's module
        ("aten::scaled_dot_product_attention", (ATTENTION,), "attention"),
        ("aten::matmul", (ATTENTION,), "attention"),  # scores, where attention is not fused
        ("aten::softmax", (ATTENTION,), "attention"),
        ("aten::matmul", (), "weights"),
        ("aten::matmul", (ROTARY,), "other"),  # angles
        ("aten::cat", (CACHE, ATTENTION), "cache"),
        ("aten::cat", (ATTENTION,), "other"),  # halves that are turned
        ("aten::layer_norm", (), "other"),
    ],
)
def test_a_kind_follows_from_name_and_scope(name, around, kind):
    assert class_of(name, around) == kind


def test_the_classes_sum_to_the_wall_time():
    found = divided([Operation("aten::linear", (), 0.5), Operation("aten::add", (), 0.2)], 1.0)
    assert found == {"weights": 0.5, "attention": 0, "cache": 0, "other": 0.2, "call": 0, "gaps": pytest.approx(0.3)}
    rounded = divided([Operation("aten::linear", (), 1.0000001)], 1.0)
    assert (sum(rounded.values()), rounded["gaps"]) == (pytest.approx(1.0, abs=1e-12), 0)


def calls(loaded, mode, count=3):
    prompt = torch.arange(64)[None]
    steps = decode(loaded.model, prompt, mode=mode, new_tokens=count + 2)
    next(steps), next(steps)
    return [lambda: next(steps)] * count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "mode"), [("tiny-gpt2", "uncached"), ("tiny-qwen3", "cached"), ("tiny-gemma3", "cached")]
)
def test_a_real_step_divides_into_kinds_that_sum(load, model, mode):
    loaded = load(model)
    found = profile(loaded.model, calls(loaded, mode), "cpu", SYNC)
    assert tuple(found.classes) == CLASSES
    assert sum(found.classes.values()) == pytest.approx(found.wall, rel=1e-9)
    assert all(found.classes[name] > 0 for name in ("weights", "attention", "other", "gaps"))
    assert (found.classes["cache"] > 0) == (mode == "cached")
    assert found.operations > 10 * len(loaded.spec.layers)


@pytest.mark.slow
def test_the_quickest_of_the_calls_is_taken(load):
    loaded = load("tiny-qwen3")
    waits = [0.2, 0.0, 0.2]

    def call():
        time.sleep(waits.pop(0))
        loaded.model(torch.arange(4)[None])

    assert profile(loaded.model, [call] * 3, "cpu", SYNC).wall < 0.2 and not waits


@pytest.mark.slow
def test_eager_attention_is_attention(load):
    loaded = load("tiny-llama", attn="eager")
    found = profile(loaded.model, calls(loaded, "cached"), "cpu", SYNC)
    assert found.classes["attention"] > 0


@pytest.mark.slow
def test_nothing_is_left_behind(load):
    loaded = load("tiny-llama")
    before = Cache.update

    def hooks():
        modules = list(loaded.model.modules())
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)

    had = hooks()
    with pytest.raises(ValueError), scopes(loaded.model):
        assert hooks() > had and Cache.update is not before
        raise ValueError
    assert (hooks(), Cache.update) == (had, before)


def event(name, micros, device, *children):
    span = SimpleNamespace(elapsed_us=lambda: micros)
    return SimpleNamespace(name=name, time_range=span, device_time_total=device, cpu_children=children)


def test_on_cuda_the_kernels_count_and_not_the_time_to_start_them():
    step = event(
        "kvviz::step",
        1000,
        0,
        event(ATTENTION, 300, 0, event("aten::linear", 40, 200, event("aten::addmm", 30, 200))),
        event("aten::add", 10, 50),
        event("cudaDeviceSynchronize", 500, 0),
        event("kvviz::call", 70, 0),
    )
    assert list(_operations(step, (), True)) == [
        Operation("aten::linear", (ATTENTION,), 200e-6),
        Operation("aten::add", (), 50e-6),
        Operation("kvviz::call", (), 70e-6),
    ]
    assert [one.seconds for one in _operations(step, (), False)] == [40e-6, 10e-6, 70e-6]
    assert class_of("kvviz::call", ()) == "call"


# --- as an H100 recorded it ------------------------------------------------------------------------------------------

RECORDED = json.loads(Path(__file__).with_name("h100_profile.json").read_text())  # steps of tiny-gpt2, torch 2.11


def replayed(event):
    """An event as torch.profiler gives it; microseconds."""
    start, end = event["us"]
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    children = [replayed(child) for child in event["children"]]
    return SimpleNamespace(
        name=event["name"], time_range=span, device_time_total=event["device_us"], cpu_children=children
    )


@pytest.mark.parametrize("step", RECORDED)
def test_a_recorded_step_of_a_gpu_divides_as_it_did_there(step):
    recorded = RECORDED[step]
    found = list(_operations(replayed(recorded["event"]), (), True))
    assert len(found) == recorded["operations"]
    assert divided(found, recorded["wall"]) == pytest.approx(recorded["classes"], abs=2e-6)


def test_on_a_gpu_a_small_step_is_mostly_gaps_and_a_captured_one_mostly_its_call():
    cached, compiled = (RECORDED[name] for name in ("cached", "compiled"))
    assert cached["classes"]["gaps"] > 0.9 * cached["wall"] and cached["classes"]["weights"] > 0
    assert compiled["classes"]["call"] > 0.5 * compiled["wall"], "the device is waited for within the call"
    assert compiled["wall"] < cached["wall"] / 4
