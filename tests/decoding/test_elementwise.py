"""The elementwise operations of a forward are counted in a trace, and grow with the tokens as the trace says."""

import dataclasses
from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvviz.decoding import elementwise, measure_paces
from kvviz.decoding.elementwise import Operation, elementwise_seconds, operations_of
from kvviz.decoding.loading import hf_config
from kvviz.decoding.meta_model import on_meta
from kvviz.models.catalog.rows import models


def traced(name):
    with on_meta():
        model = AutoModelForCausalLM.from_config(hf_config(models()[name].config), attn_implementation="sdpa")
    return operations_of(model.eval())


def counted(name):
    found = Counter()
    for one in traced(name):
        found[one.func.overloadpacket.__name__] += one.count
    return found


def test_each_family_by_its_own_layers():
    """GPT-2: two norms and two residuals a layer. Qwen3: its four norms are made of five operations each."""
    gpt2, layers = counted("tiny-gpt2"), models()["tiny-gpt2"].config["n_layer"]
    assert gpt2["layer_norm"] == 2 * layers + 1 and not gpt2["silu"]
    qwen3, layers = counted("tiny-qwen3"), models()["tiny-qwen3"].config["num_hidden_layers"]
    assert qwen3["rsqrt"] == qwen3["pow"] == qwen3["mean"] == 4 * layers + 1, "two in a layer, of queries and of keys"
    assert qwen3["silu"] == layers and qwen3["neg"] == 2 * layers, "half of each query and key is negated"
    assert qwen3["cat"] == 2 * layers + 1
    for found in (gpt2, qwen3):
        assert not {"linear", "addmm", "view", "transpose", "embedding", "scaled_dot_product_attention"} & found.keys()


def test_an_operation_grows_with_the_tokens_as_the_trace_says():
    config = models()["tiny-qwen3"].config
    gate = next(one for one in traced("tiny-qwen3") if one.func.overloadpacket.__name__ == "silu")
    for tokens in (1, 5, 100):
        with torch.inference_mode():
            assert gate.at(tokens, "cpu")().shape == (1, tokens, config["intermediate_size"])


def test_seconds_are_summed_over_counts_and_those_of_one_token_are_the_launch(monkeypatch):
    many = [Operation(torch.ops.aten.neg.default, ((), ()), count) for count in (2, 3)]
    monkeypatch.setattr(elementwise, "_seconds", lambda one, rows, device, sync: 0.01 * (rows + 1))
    rows, seconds = elementwise_seconds(many, "cpu", lambda: None, (1, 3, 5, 9, 100))
    assert rows == (1, 3, 5, 9) and seconds == pytest.approx((0.0, 0.1, 0.2, 0.4)), "no slower forward is tried"


def test_where_memory_ends_the_numbers_of_rows_end_and_another_error_is_raised(monkeypatch, caplog):
    one = Operation(torch.ops.aten.neg.default, ((), ()), 1)

    def seconds(operation, rows, device, sync):
        if rows > 3:
            raise error
        return 0.01 * rows

    monkeypatch.setattr(elementwise, "_seconds", seconds)
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    rows, took = elementwise_seconds([one], "cpu", lambda: None, (1, 3, 5, 9))
    assert rows == (1, 3) and took == pytest.approx((0.0, 0.02)) and "5 rows does not fit" in caplog.text
    with pytest.raises(RuntimeError, match="can't allocate"):
        elementwise_seconds([one], "cpu", lambda: None, (5, 9))
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        elementwise_seconds([one], "cpu", lambda: None, (1, 3, 5))


BROKEN = Operation(torch.ops.aten.mm.default, (((), {}), ((), {})), 1)


def test_what_can_not_be_timed_alone_is_told_and_not_counted_as_nothing():
    with pytest.raises(ValueError, match=r"aten\.mm\.default can't be timed alone"):
        elementwise_seconds([BROKEN], "cpu", lambda: None, (1, 2))


def test_only_what_the_device_has_no_operation_for_counts_nothing():
    counts = torch.zeros(3, dtype=torch.int32)
    experts = Operation(torch.ops.aten.histc.default, ((((described := elementwise._described(counts)),), {}),) * 2, 1)
    assert described.shape == (3,) and elementwise_seconds([experts], "cpu", lambda: None, (1, 2))[1] == (0.0, 0.0)


def test_a_forward_with_such_an_operation_takes_those_of_a_llama_as_large(monkeypatch, caplog):
    config = hf_config(models()["tiny-qwen3"].config)
    config._attn_implementation = "sdpa"
    monkeypatch.setattr(measure_paces, "ON_CPU", dataclasses.replace(measure_paces.ON_CPU, rows=(1, 3)))
    monkeypatch.setattr(measure_paces, "_elementwise_operations", lambda config, kind: [BROKEN])
    rows, seconds = measure_paces.elementwise_paces(config, "cpu", "float32")
    assert rows == (1, 3) and len(seconds) == 2
    assert "qwen3: elementwise work is a Llama's, because aten.mm.default can't be timed alone" in caplog.text


def test_a_family_that_can_not_be_traced_takes_the_operations_of_a_llama_as_large(monkeypatch):
    config, made = hf_config(models()["tiny-qwen3"].config), []

    def untraceable(model):
        made.append(model.config.model_type)
        if made[-1] != "llama":
            raise ValueError
        return operations_of(model)

    config._attn_implementation = "sdpa"
    monkeypatch.setattr(measure_paces, "operations_of", untraceable)
    found = measure_paces._elementwise_operations(config, torch.float32)
    gate = next(one for one in found if one.func.overloadpacket.__name__ == "silu")
    assert made == ["qwen3", "llama"] and gate.count == config.num_hidden_layers
    assert gate.at(3, "cpu")().shape[-1] == config.intermediate_size
