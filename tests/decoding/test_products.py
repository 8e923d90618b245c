"""The engine's products by oneDNN: the same numbers on the same tensors, and only where they are faster."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from kvviz.decoding import products

WIDE = products.LEAST_WEIGHT // 256  # outputs of a product with 256 inputs that is wide enough


def gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=256, n_head=4, vocab_size=WIDE, n_positions=64)).eval()


def llama() -> LlamaForCausalLM:
    sizes = {"num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": WIDE, "vocab_size": 64}
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes)).eval()


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("rows", [1, 7])
def test_the_numbers_are_the_same_and_the_tensors_too(make, rows, monkeypatch):
    monkeypatch.setattr(products, "faster", lambda threads: True)
    model, ids = make(), torch.arange(rows)[None]
    twin = products.with_faster_products(model)
    assert twin is not model
    assert [p.data_ptr() for p in twin.parameters()] == [p.data_ptr() for p in model.parameters()]
    assert not any(type(part) in products.OURS.values() for part in model.modules())  # nothing stays on the model
    with torch.inference_mode():
        torch.testing.assert_close(twin(input_ids=ids).logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-4)


def test_products_of_few_rows_or_a_small_weight_are_left_to_torch(monkeypatch):
    taken = []
    monkeypatch.setattr(products, "linear", lambda x, weight, bias: taken.append((*x.shape, *weight.shape)) or x)
    wide, small = torch.ones(WIDE, 256), torch.ones(WIDE - 1, 256)
    for rows, weight in ((products.LEAST_ROWS - 1, wide), (products.LEAST_ROWS, wide), (9, small)):
        products.product(torch.ones(rows, 256), weight, None)
    assert taken == [(products.LEAST_ROWS - 1, 256, WIDE, 256), (9, 256, WIDE - 1, 256)]


def test_a_model_is_left_as_it_is_where_nothing_would_be_faster(monkeypatch):
    narrow = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32, n_positions=16))
    monkeypatch.setattr(products, "faster", lambda threads: True)
    assert products.with_faster_products(narrow) is narrow
    wide = gpt2()
    assert products.with_faster_products(wide.bfloat16()) is wide
    monkeypatch.setattr(products, "faster", lambda threads: False)
    assert products.with_faster_products(wide.float()) is wide


def test_without_onednn_torch_computes_them(monkeypatch):
    def missing(*args):
        raise AttributeError("no mkldnn")

    monkeypatch.setattr(products, "product", missing)
    assert products.faster.__wrapped__(1) is False
