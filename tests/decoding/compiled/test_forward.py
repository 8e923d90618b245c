"""The mode `compiled`: whatever does its steps, the logits are transformers', and the run holds its cache alone."""

import copy
import gc
import hashlib
import shutil
import subprocess
import sys
import tarfile
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from kvviz import compare
from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.decoding.compiled import forward as module
from kvviz.decoding.compiled import graph, machine_code, native
from kvviz.decoding.compiled.forward import CompiledForward
from kvviz.decoding.compiled.reader import joined
from kvviz.decoding.loop import chooser, decode, greedy
from kvviz.decoding.modes import LARGEST, check_modes
from kvviz.decoding.read_cache import layer_states
from kvviz.decoding.scratch.cache import SlotCache
from tests.decoding.scratch.conftest import FAMILIES, token_ids

LENGTH = 40
CHUNKS = {
    "prefill, then decode": [29] + [1] * 11,
    "uneven chunks": [1, 13, 2, 1, 1, 22],
    "decode from the first token": [1] * LENGTH,
}
TOLERANCE = 1e-4


# The third is the step that a GPU would replay, here done operation by operation.
STEPS = {
    "native": lambda forward: forward._step,
    "operations": lambda forward: forward._read,
    "graph": lambda forward: graph.GraphStep(forward._read, forward.caches),
}


def prepared(model, batch, room, step="native"):
    forward = CompiledForward(model, room)
    forward.prepare(batch)
    assert forward.path == "native", forward.reason
    with torch.inference_mode():
        forward._step = STEPS[step](forward)
    forward._few = forward._few if step == "native" else 0
    return forward


@torch.inference_mode()
def fed_in(forward, ids, chunks):
    """Logits after each piece."""
    return torch.stack([forward(None, piece)[0] for piece in ids.split(chunks, dim=1)], dim=1)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_transformers(pair, name, step):
    for batch in (1, 3):
        ids = token_ids(batch, LENGTH)
        with torch.no_grad():
            expected = pair(name).theirs(ids).logits
        for chunks in CHUNKS.values():
            forward = prepared(pair(name).theirs, batch, LENGTH, step)
            ends = torch.tensor(chunks).cumsum(0) - 1
            assert (fed_in(forward, ids, chunks) - expected[:, ends]).abs().max() < TOLERANCE
            assert [cache.seen for cache in forward.caches] == [LENGTH] * len(forward.caches)


@pytest.mark.slow
def test_the_whole_proof():
    sizes = {"prompt_tokens": 30, "new_tokens": 12, "repeats": 1, "batch": 2}
    done = compare("mini-qwen3", modes=("uncached", "cached", "compiled"), **sizes).document
    _, cached, compiled = done["runs"]
    assert done["identical"] and compiled["exact"] and compiled["repeatable"]
    assert compiled["token_ids"] == cached["token_ids"] and compiled["max_abs_logit_diff"] < 1e-3
    assert compiled["cache_class"] == "SlotCache" and compiled["cache_bytes"] == cached["cache_bytes"]
    assert len(set(compiled["allocated_bytes"])) == 1, "a buffer for all of the run, from the start"
    assert compiled["outliving_bytes"] == compiled["allocated_bytes"], "of all that a run makes, its cache alone stays"
    memory = compiled["memory"]
    assert any("room for all tokens of the run" in why for why in memory["reasons"])
    assert memory["formula"] == memory["tensors"] == compiled["cache_bytes"][-1]
    assert memory["storages"] == memory["allocator"]["kept"] == memory["tensors"] * 42 // 41  # a slot for the last one


@pytest.mark.slow
def test_nothing_is_kept_after_a_run(load):
    model = load("tiny-llama").model
    before = {name: id(value) for name, value in vars(model).items()}
    steps = list(decode(model, token_ids(1, 9), mode="compiled", new_tokens=5))
    kept = [weakref.ref(cache) for cache in steps[-1].cache]
    assert kept[0]() is not None
    del steps
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept)
    assert {name: id(value) for name, value in vars(model).items()} == before


def test_weights_are_taken_where_they_lie(pair):
    for name in ("gpt2", "qwen3"):
        own = {tensor.untyped_storage().data_ptr() for tensor in pair(name).theirs.parameters()}
        forward = prepared(pair(name).theirs, 1, 8)
        rows = np.concatenate([forward._step.weights.table.reshape(-1, 4), forward._step.weights.own])
        assert set(rows[:, 0]) | set(rows[:, 3]) >= own, "the addresses of weights and of biases"
        layer = forward._read._layers[0]
        assert (layer._fused is not None) == (name == "gpt2")
        assert layer._fused is None or layer._fused.untyped_storage().data_ptr() in own


def test_only_neighbours_are_joined():
    whole = torch.arange(24.0).view(6, 4)
    assert joined([whole[:2], whole[2:3], whole[3:]]).equal(whole)
    assert joined(list(whole.t().split(2))).equal(whole.t())
    assert joined([whole[:2], whole[3:]]) is None
    assert joined([whole[:2], whole[2:].clone()]) is None


class Counted(TorchDispatchMode):
    """How many operations torch is asked for."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def operations(steps):
    """Of one decode step."""
    for _ in range(2):
        next(steps)
    with Counted() as counted:
        next(steps)
    return counted.calls


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mini-gpt2", "mini-qwen3"])
def test_a_step_asks_torch_for_next_to_nothing(load, model, monkeypatch):
    def asked(mode):
        return operations(decode(load(model).model, token_ids(1, 9), mode=mode, new_tokens=4))

    compiled, cached = asked("compiled"), asked("cached")
    assert 8 * compiled < cached, (compiled, cached)  # the choice and the joining of tokens are in both
    monkeypatch.setattr(module, "refusal", lambda twin, batch: "for the test")
    assert compiled < asked("compiled") < 0.9 * cached, "one by one they are still fewer than transformers'"


@pytest.mark.parametrize("batch", [1, 3])
def test_the_step_chooses_among_equal_logits_as_torch_does(pair, batch):
    """The first of the largest; what is no number is larger than any other."""
    model = copy.deepcopy(pair("llama, grouped queries").theirs)
    head, half = model.lm_head.weight.detach(), 48
    forward = prepared(model, batch, 8)
    choose = forward.choosing(greedy)

    def chosen():
        logits = fed_in(forward, token_ids(batch, 1), [1])[:, 0]
        assert choose(logits, 0).equal(greedy(logits, 0)) and choose(logits, 0) is forward._step.likeliest
        return choose(logits, 0)

    chosen()
    head[half:] = head[:half]  # each logit twice
    assert (chosen() < half).all()
    head[[70, 80]] = torch.nan
    assert (chosen() == 70).all()
    head.zero_()
    assert (chosen() == 0).all()


@pytest.mark.parametrize(("least", "prompt"), [(native.LEAST, 9), (native.LEAST, 70), (1, 70)])
def test_whoever_makes_the_logits_the_tokens_are_chosen_by_the_same_rule(pair, least, prompt, monkeypatch):
    """A larger model's prompt is read by torch, its later steps by the compiled code; the caller may stop any time."""
    monkeypatch.setattr(native, "LEAST", least)
    model = pair("llama, grouped queries").theirs
    steps = decode(model, token_ids(1, prompt), mode="compiled", new_tokens=6)
    done = [next(steps) for _ in range(4)]
    steps.close()
    assert all(step.token_ids.equal(greedy(step.logits, step.index)) for step in done)
    sampler = chooser(Sampling(0.8, seed=3))
    drawn = list(decode(model, token_ids(1, prompt), mode="compiled", new_tokens=6, choose=sampler))
    assert all(step.token_ids.equal(sampler(step.logits, step.index)) for step in drawn)


def test_a_small_model_reads_a_prompt_in_one_call(pair):
    def asked(batch, tokens):
        forward = prepared(pair("llama, grouped queries").theirs, batch, tokens)
        with torch.inference_mode(), Counted() as counted:
            forward(None, token_ids(batch, tokens))
        return counted.calls

    half = native.FEW // 2
    assert asked(1, 2 * native.FEW) == asked(2, half)
    assert 8 * asked(2, half) < asked(2, half + 1), "several threads of torch read many sequences sooner"


# Sizes of which none is a multiple of a vector, in both layouts of a weight.
UNEVEN = {
    "gpt2": {"n_embd": 42, "n_head": 3, "n_inner": 101, "vocab_size": 97, "n_layer": 2, "activation_function": "gelu"},
    "qwen3": {
        "hidden_size": 41,
        "intermediate_size": 75,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 22,
        "num_hidden_layers": 2,
        "vocab_size": 97,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_any_sizes_on_any_processor_and_number_of_threads(lanes, monkeypatch):
    """The code for a vector of `lanes` numbers runs on each processor: LLVM splits what this one does not have."""
    monkeypatch.setattr(machine_code, "lanes_of", lambda features: lanes)
    monkeypatch.setattr(native, "LEAST", 1)
    machine_code.kernels.cache_clear()
    try:
        for family, sizes in UNEVEN.items():
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(
                AutoConfig.for_model(family, **sizes, initializer_range=0.2)
            ).eval()
            for batch, threads in ((1, 2), (7, 3)):
                ids = torch.randint(0, 97, (batch, LENGTH), generator=torch.Generator().manual_seed(1))
                with torch.no_grad():
                    expected = model(ids).logits
                torch.set_num_threads(threads)
                forward = prepared(model, batch, LENGTH)
                logits = fed_in(forward, ids, CHUNKS["uneven chunks"])
                ends = torch.tensor(CHUNKS["uneven chunks"]).cumsum(0) - 1
                assert (logits - expected[:, ends]).abs().max() < TOLERANCE, (family, batch, threads)
                single = logits[:, 4]  # the last piece is torch's to read
                assert forward._step.likeliest.equal(greedy(single, 0)), (family, batch, threads)
    finally:
        torch.set_num_threads(1)
        machine_code.kernels.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_threads_that_read_a_part_of_the_tokens_each(lanes, monkeypatch):
    """More parts than cores: whichever thread begins a part, it waits for the keys and values of those before."""
    monkeypatch.setattr(machine_code, "lanes_of", lambda features: lanes)
    machine_code.kernels.cache_clear()
    try:
        for family, sizes in UNEVEN.items():
            torch.manual_seed(0)
            config = AutoConfig.for_model(family, **sizes, initializer_range=0.2)
            model = AutoModelForCausalLM.from_config(config).eval()
            ids = torch.randint(0, 97, (1, 170), generator=torch.Generator().manual_seed(1))
            with torch.no_grad():
                expected = model(ids).logits
            torch.set_num_threads(5)
            chunks = [67, 2, 101]  # four parts, one, five (of which none begins at the first token)
            forward = prepared(model, 1, 170)
            for _ in range(10):
                for cache in forward.caches:
                    cache.seen = 0
                    with torch.inference_mode():
                        cache.k.fill_(torch.nan), cache.v.fill_(torch.nan)
                logits = fed_in(forward, ids, chunks)
                ends = torch.tensor(chunks).cumsum(0) - 1
                assert (logits - expected[:, ends]).abs().max() < TOLERANCE, family
                assert forward._short.likeliest.equal(greedy(logits[:, -1], 0))
    finally:
        torch.set_num_threads(1)
        machine_code.kernels.cache_clear()


def test_what_llvm_compiles_is_built_from_the_source_beside_it(tmp_path):
    folder = Path(machine_code.__file__).parent
    sources = {name: (folder / name).read_bytes() for name in ("kernels.c", "build.sh")}
    known = dict(reversed(line.split()) for line in (folder / "kernels.sha256").read_text().splitlines())
    packed = machine_code.bitcode()
    assert known == {name: hashlib.sha256(file).hexdigest() for name, file in {**sources, **packed}.items()}
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True) if shutil.which("clang") else None
    if version is None or " 14.0" not in version.stdout.splitlines()[0]:
        pytest.skip("clang 14 is not installed, which builds it")
    subprocess.run([str(folder / "build.sh"), str(tmp_path)], check=True)
    with tarfile.open(tmp_path / "kernels.tar.xz") as built:
        for name, file in packed.items():
            assert built.extractfile(f"./{name}").read() == file


def test_what_the_compiled_step_can_not_do_torch_does(pair, monkeypatch):
    theirs = pair("llama, grouped queries").theirs
    expected = [step.token_ids for step in decode(theirs, token_ids(1, 9), mode="cached", new_tokens=6)]

    def opened(model, batch=1):
        forward = CompiledForward(model, 16)
        forward.prepare(batch)
        return forward

    assert opened(theirs).path == "native" and opened(theirs).reason is None
    many = opened(theirs, LARGEST + 1)
    assert many.path == "operations" and "16 sequences" in many.reason
    half = opened(copy.deepcopy(theirs).to(torch.bfloat16))
    assert half.path == "operations" and half.reason == "the weights are not float32"
    monkeypatch.setitem(sys.modules, "kvviz.decoding.compiled.native", None)
    without = opened(theirs)
    assert without.path == "operations" and "can't be compiled" in without.reason
    tokens = [step.token_ids for step in decode(theirs, token_ids(1, 9), mode="compiled", new_tokens=6)]
    assert tokens == expected


def test_a_step_that_can_not_be_taken_down_is_done_by_operations(pair, monkeypatch):
    def refused(step):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(module, "replays", lambda caches: True)
    monkeypatch.setattr(graph, "replays", lambda caches: True)
    monkeypatch.setattr(graph, "captured", lambda step: step.run)
    forward = CompiledForward(pair("qwen3").theirs, 16)
    forward.prepare(1)
    assert forward.path == "graph"
    monkeypatch.setattr(graph, "captured", refused)
    forward.prepare(1)
    assert forward.path == "operations"
    assert forward.reason == "the step can't be captured (operation not permitted when stream is capturing)"


def test_half_precision_keeps_to_its_rounding(pair):
    ids = token_ids(2, 30)
    with torch.no_grad():
        exact = pair("qwen3").theirs(ids).logits[:, 20:]
        theirs = copy.deepcopy(pair("qwen3").theirs).to(torch.bfloat16)
        rounding = (theirs(ids).logits[:, 20:] - exact).abs().mean()
        forward = CompiledForward(theirs, 30)
        logits = fed_in(forward, ids, [21] + [1] * 9)
    assert logits.dtype == torch.bfloat16 and (logits - exact).abs().mean() < 2 * rounding


@pytest.mark.parametrize("token", [-1, 96])
def test_nothing_is_read_from_where_nothing_lies(pair, token):
    forward = prepared(pair("gpt2").theirs, 1, 140)
    fed_in(forward, token_ids(1, 128), [127, 1])  # all positions that the model has
    with pytest.raises(IndexError, match="no place for another token"):
        fed_in(forward, token_ids(1, 1), [1])
    forward = prepared(pair("gpt2").theirs, 1, 140)
    fed_in(forward, token_ids(1, 4), [4])
    with pytest.raises(IndexError, match="outside of the vocabulary"):
        fed_in(forward, torch.tensor([[token]]), [1])
    assert forward.caches[0].seen == 4


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compiled", "scratch"])
def test_a_model_is_refused_in_the_name_of_the_mode(load, mode):
    config = load("tiny-mistral").model.config.to_dict()
    with pytest.raises(KvvizError, match=f"{mode} can't decode this model: .* sliding window of 16 tokens"):
        check_modes([mode], config)


def test_a_cache_says_what_it_holds_and_what_it_has_room_for():
    cache = SlotCache(1, 2, 8, 4, torch.zeros(1))
    cache.append(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
    (row,) = layer_states([cache])
    assert (row.seen, row.held, row.nbytes, row.allocated) == (3, 3, 2 * 2 * 3 * 4 * 4, 2 * 2 * 8 * 4 * 4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_a_gpu_replays_the_same_tokens(pair, name):
    model = copy.deepcopy(pair(name).theirs).to("cuda")
    prompt = token_ids(2, 12).to("cuda")
    forward = CompiledForward(model, 40)
    forward.prepare(2)
    assert forward.path == "graph", forward.reason
    cached, compiled = (
        [step.token_ids.tolist() for step in decode(model, prompt, mode=mode, new_tokens=28)]
        for mode in ("cached", "compiled")
    )
    assert compiled == cached
