"""What an accelerator holds: the last token that fits fits, and the next one doesn't."""

import time
from dataclasses import replace

import pytest

from kvviz.base.errors import ConfigError
from kvviz.memory.capacity import UNLIMITED, Activations, fits_all, states_intermediate, widths
from kvviz.memory.engine_views import VIEWS
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import accelerators, models
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec

GIB = 2**30


def spec_of(model):
    return ModelSpec.from_config(models()[model].config, name=model)


def fit(accelerator, spec, tokens, **case):
    (one,) = fits_all(spec, tokens, devices=[accelerator], **case)
    return one


def largest_context(spec, room, **case):
    return fit(replace(accelerators()["t4"], memory_bytes=room), spec, 1, **case).context


def most_sequences(spec, room, tokens, **case):
    return fit(replace(accelerators()["t4"], memory_bytes=room), spec, tokens, **case).sequences


def test_activations_of_llama():
    """8,192 tokens x (2 x 4,096 + 2 x 14,336) x 2 bytes."""
    found = Activations(4096, 14_336, 8192)
    assert found.nbytes == 8192 * 36_864 * 2
    assert Activations(4096, 14_336, 8192, batch=3, element_bytes=4).nbytes == 6 * found.nbytes


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama-3.1-8b", (4096, 14_336)),
        ("gpt2", (768, 3072)),  # states none
        ("opt-13b", (5120, 20_480)),  # ffn_dim
        ("t5-large", (1024, 4096)),  # d_ff
        ("whisper-large-v3", (1280, 5120)),  # decoder_ffn_dim
        ("gemma-3-12b", (3840, 15_360)),  # of the text part
        ("mixtral-8x7b", (4096, 2 * 14_336)),  # two experts a token
        ("qwen3-30b-a3b", (2048, 8 * 768)),
        ("deepseek-v3", (7168, 18_432)),  # 8 experts and the shared one are as wide as the plain layers
    ],
)
def test_widths(model, expected):
    assert widths(models()[model].config) == expected


def test_widths_say_what_they_assume():
    assert states_intermediate(models()["llama-3.1-8b"].config)
    ctrl = {"model_type": "ctrl", "n_layer": 48, "n_embd": 1280, "n_head": 16, "dff": 8192}
    assert states_intermediate(ctrl) and widths(ctrl) == (1280, 8192)
    assert not states_intermediate(models()["gpt2"].config)
    assert widths({"model_type": "unheard-of", "hidden_size": 10, "num_hidden_layers": 1}) == (10, 40)


def test_widths_of_a_config_without_any_are_refused():
    with pytest.raises(ConfigError, match="hidden_size"):
        widths({"model_type": "unheard-of", "num_hidden_layers": 2})


def test_the_largest_context_of_llama_in_a_gibibyte():
    """131,072 bytes a token."""
    spec = spec_of("llama-3.1-8b")
    assert largest_context(spec, GIB) == 8192
    assert largest_context(spec, GIB - 1) == 8191
    assert largest_context(spec, GIB, batch=4) == 2048
    assert largest_context(spec, GIB, dtype="fp8") == 16_384
    assert largest_context(spec, GIB, tensor_parallel=8) == 65_536
    assert largest_context(spec, GIB - 1, view="vllm") == 8176
    assert largest_context(spec, GIB - 1, view="llama.cpp") == 7936


@pytest.mark.parametrize("room", [-5, 0, 131_071])
def test_where_not_one_token_fits_there_is_no_context(room):
    assert largest_context(spec_of("llama-3.1-8b"), room) is None


def test_a_cache_that_does_not_grow_sets_no_limit():
    slides = ModelSpec("slides", (LayerSpec("sliding", 2, 16, 16, window=100),))
    assert largest_context(slides, 100 * 128) == UNLIMITED
    assert largest_context(slides, 100 * 128 - 1) == 99
    assert largest_context(spec_of("mamba2-2.7b"), GIB) == UNLIMITED


PLAIN = ("sglang", "tensorrt-llm", "mlx")  # views of plain attention
KINDS = ("llama-3.1-8b", "gemma-3-4b", "llama-4-scout", "deepseek-v3", "zamba2-7b", "t5-large")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "model"), [(view, model) for view in VIEWS for model in (KINDS[:1] if view in PLAIN else KINDS)]
)
def test_the_last_token_fits_and_so_do_all_before_it(model, view):
    spec = spec_of(model)
    for room in (GIB // 3, 23 * GIB + 12_345):
        found = largest_context(spec, room, view=view)
        if found is None or found == UNLIMITED:
            continue
        near = [n for n in (*range(found - 17, found + 1, 4), found, found // 2, found // 3) if n >= 1]
        assert all(kv_memory(spec, n, view=view).reserved_bytes <= room for n in near)
        assert any(kv_memory(spec, n, view=view).reserved_bytes > room for n in (found + 1, found + 17))


def test_a_chunk_that_is_given_back_does_not_hide_what_it_took():
    """Llama 4 in vLLM takes less just behind a chunk of 8,192 than just before its end."""
    spec = spec_of("llama-4-scout")
    peak, after = (kv_memory(spec, n, view="vllm").reserved_bytes for n in (16_384, 16_385))
    assert after < peak
    assert largest_context(spec, peak - 1, view="vllm") < 16_384


def test_sequences():
    spec = spec_of("llama-3.1-8b")
    assert most_sequences(spec, 10 * GIB, 8192) == 10
    assert most_sequences(spec, 10 * GIB - 1, 8192, beams=2) == 4
    assert most_sequences(spec, -1, 8192) == 0
    assert most_sequences(ModelSpec("none", (LayerSpec("none", 0, 0, 0),)), GIB, 8192) == UNLIMITED


def test_a_fit():
    """Llama 3.1-8B's weights take 16 GB; 24 GB hold them beside 8,192 tokens, 16 GB don't."""
    spec, weights = spec_of("llama-3.1-8b"), models()["llama-3.1-8b"].params * 2
    rows = accelerators()
    roomy = fit(rows["rtx-4090"], spec, 8192, batch=4, weights_bytes=weights, activation_bytes=GIB)
    assert roomy.room == rows["rtx-4090"].memory_bytes - weights - GIB
    assert (roomy.fits, roomy.sequences, roomy.context) == (True, roomy.room // GIB, roomy.room // 4 // 131_072)
    tight = fit(rows["v100-16gb"], spec, 8192, weights_bytes=weights)
    assert (tight.fits, tight.sequences) == (False, 0)
    full = fit(rows["t4"], spec, 8192, weights_bytes=weights, activation_bytes=GIB)
    assert full.room < 0 and (full.fits, full.sequences, full.context) == (False, 0, None)


def test_a_batch_that_does_not_fit_whole_does_not_fit():
    spec = spec_of("llama-3.1-8b")
    found = fit(accelerators()["t4"], spec, 8192, batch=16)
    assert (found.sequences, found.fits) == (15, False)
    assert found.context == found.room // 16 // 131_072


def test_all_accelerators_in_the_catalogs_order_and_soon():
    spec = spec_of("gemma-3-27b")
    start = time.process_time()
    found = fits_all(spec, 8192, weights_bytes=54 * 10**9, view="vllm")
    seconds = time.process_time() - start
    assert [row.accelerator.id for row in found] == list(accelerators())
    assert all(row == fit(row.accelerator, spec, 8192, weights_bytes=54 * 10**9, view="vllm") for row in found[:3])
    assert seconds < 1  # a fifth of it where nothing else runs


@pytest.mark.parametrize("case", [{"view": "mine"}, {"dtype": "int3"}, {"batch": 0}, {"beams": 0}])
def test_a_case_that_there_is_not_is_refused(case):
    with pytest.raises(ConfigError):
        fits_all(spec_of("gpt2"), 100, **case)
