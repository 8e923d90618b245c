"""The same model with other heads, latent rows and windows: the layers that come out, and what they take."""

from dataclasses import replace

import pytest

from kvviz.base.errors import ConfigError
from kvviz.memory.formula import kv_memory
from kvviz.memory.what_if import as_it_is, as_latent, ideas, with_kv_heads, with_window, without_windows
from kvviz.models.catalog.rows import models
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec
from tests.tiny_configs import TINY


def spec_of(model):
    return ModelSpec.from_config(models()[model].config, name=model)


def by_name(spec, tokens=8192, **case):
    return {idea.name: idea for idea in ideas(spec, kv_memory(spec, tokens, **case))}


def test_llama_2_70b_as_the_paper_of_grouped_queries_compares_it():
    """64 query heads, 8 groups: https://arxiv.org/abs/2307.09288 has it an eighth of multi-head attention."""
    spec = spec_of("llama-3.1-70b")
    per_token = [
        kv_memory(change(spec), 1).total_bytes
        for change in (with_kv_heads, lambda s: with_kv_heads(s, 8), lambda s: with_kv_heads(s, 1))
    ]
    assert per_token == [80 * 2 * 64 * 128 * 2, 80 * 2 * 8 * 128 * 2, 80 * 2 * 128 * 2]


@pytest.mark.parametrize("heads", [5, 0, -4, 64, True, 2.0])
def test_heads_that_do_not_divide_the_query_heads_are_refused(heads):
    with pytest.raises(ConfigError, match="heads"):
        with_kv_heads(spec_of("llama-3.1-8b"), heads)


def test_latent_rows_have_no_kv_heads_to_change():
    with pytest.raises(ConfigError, match="by head"):
        with_kv_heads(spec_of("deepseek-v3"))


def test_query_heads_have_to_be_known():
    with pytest.raises(ConfigError, match="num_attention_heads"):
        with_kv_heads(ModelSpec("one", (LayerSpec("full", 2, 16, 16),)), 1)


def test_heads_that_are_repeated_before_caching_stay_as_many():
    """Falcon's newer architecture stores a copy for each query head; GPT-Neo stores what its windows leave."""
    layer = LayerSpec("full", 8, 64, 64)
    repeats = replace(layer, stored=replace(layer, kv_heads=128))
    slides = replace(layer, kind="sliding", window=256, stored=layer)
    spec = with_kv_heads(ModelSpec("two", (repeats, slides), heads=128), 1)
    assert [(row.kv_heads, row.as_stored.kv_heads) for row in spec.layers] == [(1, 128), (1, 1)]


def test_heads_leave_states_and_layers_without_attention_alone():
    spec = spec_of("jamba-v0.1")
    changed = with_kv_heads(spec)
    assert {layer.kv_heads for layer in changed.layers} == {0, 32}
    assert [layer.states for layer in changed.layers] == [layer.states for layer in spec.layers]


def test_latent_rows_of_llama_take_what_those_of_deepseek_take():
    llama = as_latent(spec_of("llama-3.1-8b"))
    deepseek = spec_of("deepseek-v3")
    assert kv_memory(llama, 100).total_bytes / 32 == kv_memory(deepseek, 100).total_bytes / 61
    assert set(as_latent(deepseek).layers) == set(deepseek.layers)


def test_cross_attention_is_not_made_latent():
    kinds = [(layer.kind, layer.latent) for layer in as_latent(spec_of("whisper-large-v3")).layers]
    assert kinds == [("latent", True)] * 32 + [("cross", False)] * 32


def test_without_windows_gemma_3_grows_with_every_token():
    spec = without_windows(spec_of("gemma-3-27b"))
    assert {(layer.kind, layer.window) for layer in spec.layers} == {("full", None)}
    assert kv_memory(spec, 131_072).total_bytes == 62 * 2 * 16 * 128 * 2 * 131_072


def test_a_window_in_five_of_six_layers_is_gemma_3s_pattern():
    llama = with_window(spec_of("llama-3.1-8b"), 1024, full_each=6)
    gemma = [layer.kind for layer in spec_of("gemma-3-27b").layers]
    assert [layer.kind for layer in llama.layers] == gemma[:32]


def test_a_window_shortens_and_never_lengthens():
    windows = {layer.window for layer in with_window(spec_of("gpt-oss-20b"), 4096).layers}
    assert windows == {128, 4096}


def test_ideas_for_llama():
    found = by_name(spec_of("llama-3.1-8b"))
    assert found["MHA"].factor == 4.0 and found["MHA"].saved == -3 * 2**30
    assert found["MQA"].factor == 1 / 8
    assert found["Windows of 4,096"].saved == 2**29
    assert found["fp8"].factor == 0.5
    assert "No windows" not in found and "GQA, 8 KV heads" not in found and "float16" not in found


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("gpt2", "MHA"),
        ("llama-3.1-8b", "GQA, 8 KV heads"),
        ("falcon-7b", "MQA"),
        ("deepseek-v3", "latent rows"),
    ],
)
def test_what_a_model_has_is_named(model, said):
    assert as_it_is(spec_of(model)) == f"As it is: {said}"


def test_ideas_are_those_that_the_view_can_keep():
    found = by_name(spec_of("llama-3.1-8b"), view="vllm")
    assert {"fp8", "int8", "float32"} <= set(found) and "q8_0" not in found
    assert set(by_name(spec_of("gpt2"), view="hf-dynamic")) >= {"MQA", "float32"}


def test_ideas_compare_the_same_case():
    memory = kv_memory(spec_of("gemma-3-12b"), 3000, batch=3, beams=2, dtype="float32")
    for idea in ideas(spec_of("gemma-3-12b"), memory):
        assert (idea.memory.tokens, idea.memory.batch, idea.memory.beams) == (3000, 3, 2)
        assert idea.saved == memory.reserved_bytes - idea.memory.reserved_bytes
        assert idea.factor == pytest.approx(idea.memory.reserved_bytes / memory.reserved_bytes)


@pytest.mark.parametrize("model", {row.config["model_type"]: row.id for row in models().values()}.values())
def test_every_model_has_ideas_and_none_is_the_model_itself(model):
    spec = spec_of(model)
    memory = kv_memory(spec, 4096)
    found = ideas(spec, memory)
    attends = any(layer.kv_heads for layer in spec.layers)
    assert len({idea.name for idea in found}) == len(found) > (2 if attends else 0)
    assert all(idea.memory.layers != memory.layers for idea in found)


def test_a_model_that_caches_nothing_has_no_ideas():
    spec = ModelSpec("none", (LayerSpec("none", 0, 0, 0),), heads=4)
    assert ideas(spec, kv_memory(spec, 10)) == ()


@pytest.mark.parametrize("model_type", ["deepseek_v4", "xlnet"])
def test_heads_are_no_idea_where_one_row_is_key_and_value(model_type):
    spec = ModelSpec.from_config(TINY[model_type])
    names = {idea.name for idea in ideas(spec, kv_memory(spec, 1000))}
    assert "fp8" in names and not names & {"MHA", "MQA", "Latent rows"}
