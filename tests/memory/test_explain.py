"""The typeset formula: its numbers, multiplied out, give the figure beside it."""

import re

import pytest

from kvviz.memory.explain import equation, origins, terms
from kvviz.memory.formula import kv_memory
from kvviz.memory.llama_cpp import LlamaCpp
from kvviz.models.catalog.rows import models
from kvviz.models.spec import ModelSpec
from tests.tiny_configs import TINY


def evaluated(latex):
    """Left and right side of an equation as numbers: what a reader with a pocket calculator gets."""
    latex = re.sub(r"\\textbf\{([\d,]+) B\}", lambda total: total[1].replace(",", ""), latex)
    latex = re.sub(r"\\hspace\{1.7em\}\\mathclap\{(\\text\{[^}]*\})\}\\hspace\{1.7em\}", r"\1", latex)
    text = re.sub(r"\\underset\{\\vphantom\{\\text\{Aly\}\}(?:\\text\{[^}]*\}|[a-z_]+)\}", "", latex)
    text = text.replace(r"\vphantom{,}", "")
    text = re.sub(r"\\tfrac\{(\d+)\}\{(\d+)\}", r"(\1/\2)", text).replace("{,}", "")
    text = re.sub(r"\\(?:begin|end)\{aligned\}|\\left|\\right|\\;|&|\\\\|\\ \\text\{B\}", " ", text)
    text = text.replace(r"\allowbreak{\times}", "*").replace(r"\times", "*").replace(r"\allowbreak{=}", "=")
    left, right = text.replace("{", "(").replace("}", ")").split("=")
    return eval(left), eval(right)


CASES = [
    ("gpt2", "float16", "architecture"),
    ("llama-3.1-8b", "q8_0", "llama.cpp"),
    ("qwen3-4b", "int8", "vllm"),
    ("gemma-3-27b", "bfloat16", "hf-dynamic"),
    ("deepseek-v3", "bfloat16", "architecture"),
    ("deepseek-v3", "int8", "architecture"),
    ("qwen3-next-80b-a3b", "bfloat16", "architecture"),
    ("qwen3-next-80b-a3b", "float16", "llama.cpp"),
    ("jamba-v0.1", "float32", "vllm"),
    ("falcon-h1-7b", "bfloat16", "architecture"),
    ("gemma-3n-e2b", "bfloat16", "architecture"),
    ("mamba-2.8b", "float32", "architecture"),
    ("t5-small", "int4", "architecture"),
    ("deepseek_v32", "int8", "architecture"),
    ("deepseek_v32", "bfloat16", "vllm"),
    ("deepseek_v32", "fp8", "sglang"),
    ("qwen3-4b", "nvfp4", "vllm"),
    ("deepseek_v4", "int8", "architecture"),
    ("deepseek_v4", "bfloat16", "hf-dynamic"),
    ("qwen4_exp_text", "bfloat16", "architecture"),
    ("reformer", "float32", "architecture"),
]


@pytest.mark.parametrize(("model", "dtype", "view"), CASES)
def test_the_numbers_of_the_formula_give_the_total(model, dtype, view):
    spec = ModelSpec.from_config(TINY[model] if model in TINY else models()[model].config)
    for batch in (1, 3):
        memory = kv_memory(spec, 3000, dtype=dtype, view=view, batch=batch)
        left, right = evaluated(equation(spec, memory))
        assert left == right == memory.total_bytes


@pytest.mark.parametrize("model", models())
def test_every_layer_is_in_one_term(model):
    spec = ModelSpec.from_config(models()[model].config)
    memory = kv_memory(spec, 100)
    found = terms(spec, memory)
    assert sum(term.count for term in found) == len(memory.layers)
    assert sum(term.nbytes for term in found) == memory.total_bytes


def test_keys_and_values_of_two_types():
    spec, options = ModelSpec.from_config(models()["llama-3.1-8b"].config), LlamaCpp("q4_0")
    memory = kv_memory(spec, 100, dtype="q8_0", view="llama.cpp", llama_cpp=options)
    left, right = evaluated(equation(spec, memory))
    assert left == right == memory.total_bytes


def test_each_number_names_its_field():
    found = {what: told for what, *told in origins(ModelSpec.from_config(models()["qwen3-4b"].config))}
    assert found["layers"] == ["36", "num_hidden_layers"]
    assert found["KV heads"] == ["8", "num_key_value_heads"]
    assert found["head dim"] == ["128", "head_dim"]
    latent = [what for what, *_ in origins(ModelSpec.from_config(models()["deepseek-v3"].config))]
    assert "width of the latent" in latent and "KV heads" not in latent


def test_a_derived_number_and_a_default_say_so():
    gpt2 = {what: field for what, _, field in origins(ModelSpec.from_config(models()["gpt2"].config))}
    assert gpt2["head dim"] == "n_embd / n_head" and gpt2["KV heads"] == "n_head"
    bare = {"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 32}
    assert ("head dim", "128", "head_dim, absent: qwen3's default") in origins(ModelSpec.from_config(bare))
