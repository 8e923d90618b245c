"""Bytes by view: hand-worked cases, published figures, what engines reserve, and laws that hold for every model."""

from dataclasses import replace

import pytest

from kvviz.base.errors import ConfigError
from kvviz.memory.engine_views import VIEWS
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import models, references
from kvviz.models.layers import LayerSpec, State
from kvviz.models.rows import INDEXER, Rows
from kvviz.models.spec import ModelSpec

MODELS = ("gpt2", "gemma-3-27b", "deepseek-v3", "jamba-v0.1", "qwen3-next-80b-a3b", "t5-small")
OFFERED = {"sglang": ("gpt2", "deepseek-v3"), "tensorrt-llm": ("gpt2",), "mlx": ("gpt2",)}


def spec_of(model):
    return ModelSpec.from_config(models()[model].config, name=model)


def one(**fields):
    return ModelSpec("one", (LayerSpec(**{"kind": "full", "kv_heads": 2, "key_dim": 64, "value_dim": 64, **fields}),))


@pytest.mark.parametrize("row", references(), ids=lambda row: row.id)
def test_published_figures(row):
    memory = kv_memory(
        ModelSpec.from_config(row.model_config), row.tokens, batch=row.batch, dtype=row.dtype, view=row.view
    )
    assert row.agrees(memory.reserved_bytes), (memory.reserved_bytes, row.bytes, row.tolerance_bytes)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", 2 * 128 * 4),
        ("bfloat16", 2 * 128 * 2),
        ("fp8", 2 * 128),
        ("int8", 2 * (128 + 2 * 4)),  # a float32 scale per token and head, for keys and for values
        ("int4", 2 * 128 // 64 * 36),
        ("fp8_per_token_head", 2 * (128 + 2 * 4)),
        ("nvfp4", 2 * 128 // 16 * 9),
        ("q8_0", 2 * 128 // 32 * 34),
        ("q4_0", 2 * 128 // 32 * 18),
    ],
)
def test_bytes_of_a_token_by_dtype(dtype, expected):
    assert kv_memory(one(), 1, dtype=dtype).total_bytes == expected


def test_a_row_that_fills_no_whole_block_is_refused():
    with pytest.raises(ConfigError, match="32 values with one scale"):
        kv_memory(one(kv_heads=1, key_dim=40), 1, dtype="q8_0")


def test_a_view_offers_only_what_its_engine_has():
    with pytest.raises(ConfigError, match="hf-dynamic has no cache in q8_0"):
        kv_memory(one(), 1, dtype="q8_0", view="hf-dynamic")


WINDOW = one(kind="sliding", window=100)
TOKEN = 2 * 128 * 2  # bytes


@pytest.mark.parametrize(
    ("view", "held", "allocated"),
    [
        ("architecture", 100, 100),
        ("hf-dynamic", 99, 100),
        ("hf-static", 100, 100),
        ("vllm", 100, 112),  # of 63 blocks for 1,000 tokens the 56 that the window has left are freed
        ("llama.cpp", 100, 768),  # window and physical batch, padded to 256
    ],
)
def test_a_window_by_view(view, held, allocated):
    row = kv_memory(WINDOW, 1000, view=view).layers[0]
    assert (row.seen, row.held, row.nbytes, row.allocated) == (1000, held, held * TOKEN, allocated * TOKEN)


def test_engines_round_up():
    assert kv_memory(one(), 17, view="vllm").reserved_bytes == 32 * TOKEN
    assert kv_memory(one(), 17, view="llama.cpp").reserved_bytes == 256 * TOKEN
    assert kv_memory(one(), 17, view="vllm").total_bytes == 17 * TOKEN


def test_each_engine_has_its_own_pages():
    for view, cells in (("sglang", 17), ("tensorrt-llm", 32), ("mlx", 256)):
        memory = kv_memory(one(), 17, batch=3, view=view)
        assert (memory.total_bytes, memory.reserved_bytes) == (3 * 17 * TOKEN, 3 * cells * TOKEN)


@pytest.mark.parametrize("view", ["vllm", "sglang"])
def test_an_indexer_has_fp8_keys_and_blocks_of_64(view):
    """DeepSeek-V3.2: a latent of 512, a rotary key of 64 and an indexer's key of 128 for each layer and token."""
    layer = LayerSpec("indexed", 1, 512, 64, rows=(Rows(INDEXER, 128),), latent=True)
    for dtype, row in (("bfloat16", 1152), ("fp8", 656)):
        memory = kv_memory(ModelSpec("v3.2", (layer,)), 65, dtype=dtype, view=view)
        assert (memory.total_bytes, memory.reserved_bytes) == (65 * (row + 132), 128 * (row + 132))
    with pytest.raises(ConfigError, match="bfloat16, float16 or fp8"):
        kv_memory(ModelSpec("v3.2", (layer,)), 65, dtype="float32", view=view)


@pytest.mark.parametrize(
    ("view", "model"), [(view, model) for view in OFFERED for model in MODELS if model not in OFFERED[view]]
)
def test_what_is_not_known_of_an_engine_is_not_offered(model, view):
    with pytest.raises(ConfigError, match=f"{VIEWS[view].title}'s layout of .* is not known to kvviz"):
        kv_memory(spec_of(model), 10, view=view)


def test_vllm_fills_the_last_group_of_layers():
    layer = {"kv_heads": 2, "key_dim": 64, "value_dim": 64}
    layers = tuple(
        LayerSpec("full" if i % 6 == 5 else "sliding", **layer, window=None if i % 6 == 5 else 64) for i in range(62)
    )
    memory = kv_memory(ModelSpec("like gemma", layers), 1024, view="vllm")
    full, sliding = 10 * 1024, 52 * 64
    assert memory.reserved_bytes == TOKEN * (full + sliding + 8 * 64)  # 52 = 5 x 10 + 2: eight layers are empty


def test_vllm_makes_pages_equal_for_states():
    state = State("recurrent", (100_000,), float32=True)
    layers = (
        LayerSpec("full", 2, 64, 64),
        LayerSpec("linear", 0, 0, 0, states=(state,)),
    )
    memory = kv_memory(ModelSpec("hybrid", layers), 1, view="vllm")
    page = 400 * TOKEN  # 200,000 bytes of a state in bfloat16 need 391 tokens' bytes, in whole blocks of 16
    assert [row.allocated for row in memory.layers] == [page, page]
    assert memory.layers[1].state_bytes == 200_000


def test_states_are_float32_in_transformers_and_kept_in_columns_less_one_by_engines():
    layer = LayerSpec("linear", 0, 0, 0, states=(State("convolution", (10, 4)), State("recurrent", (10, 16), True)))
    spec = ModelSpec("mamba", (layer,))
    assert kv_memory(spec, 5, view="hf-dynamic").total_bytes == 10 * 4 * 2 + 10 * 16 * 4
    assert kv_memory(spec, 5, view="llama.cpp").total_bytes == 10 * 3 * 4 + 10 * 16 * 4
    assert kv_memory(spec, 5).fixed_bytes == kv_memory(spec, 5_000).total_bytes


def test_fixed_plateau_and_slope_tell_the_whole_curve():
    spec = spec_of("gemma-3-27b")
    memory = kv_memory(spec, 32_768)
    assert memory.plateau_bytes == 52 * 1024 * 2 * 16 * 128 * 2
    assert memory.total_bytes == memory.fixed_bytes + memory.plateau_bytes + memory.per_token_bytes * 32_768


@pytest.mark.parametrize(("devices", "heads"), [(2, 4), (8, 1), (16, 1)])
def test_tensor_parallel_shares_out_heads_or_repeats_them(devices, heads):
    memory = kv_memory(spec_of("llama-3.1-8b"), 1024, tensor_parallel=devices)
    assert {row.kv_heads for row in memory.layers} == {heads}
    assert memory.total_bytes == 32 * 1024 * 2 * heads * 128 * 2


def test_tensor_parallel_that_fits_no_heads_is_refused():
    llama = spec_of("llama-3.1-8b")
    for heads, devices, says in ((24, 3, "8 KV heads"), (32, 3, "32 query heads"), (32, 64, "32 query heads")):
        with pytest.raises(ConfigError, match=says):
            kv_memory(replace(llama, heads=heads), 1024, tensor_parallel=devices)


def test_a_latent_is_on_every_device():
    spec = spec_of("deepseek-v3")
    assert kv_memory(spec, 100, tensor_parallel=8).total_bytes == kv_memory(spec, 100).total_bytes


def test_batch_and_beams_multiply():
    spec = spec_of("qwen3-4b")
    alone = kv_memory(spec, 100)
    many = kv_memory(spec, 100, batch=3, beams=4)
    assert many.total_bytes == 12 * alone.total_bytes
    assert many.layers[0].key_shape == (12, 8, 100, 128)


def test_whisper_attends_to_1500_positions_of_its_encoder():
    memory = kv_memory(spec_of("whisper-tiny"), 10)
    crossing = [row for row in memory.layers if row.kind == "cross"]
    assert memory.source_tokens == 1500 and {row.held for row in crossing} == {1500}
    assert [row.index for row in crossing] == [0, 1, 2, 3]
    assert memory.fixed_bytes == 4 * 1500 * 2 * 384 * 2


def test_an_encoder_is_as_long_as_asked():
    spec = spec_of("t5-small")
    assert kv_memory(spec, 10, source_tokens=77).fixed_bytes == 6 * 77 * 2 * 8 * 64 * 2


@pytest.mark.parametrize(("view", "model"), [(view, model) for view in VIEWS for model in OFFERED.get(view, MODELS)])
def test_more_tokens_never_take_less(model, view):
    spec = spec_of(model)
    sizes = [
        kv_memory(spec, tokens, view=view, source_tokens=64).reserved_bytes for tokens in (1, 17, 600, 5_000, 5_001)
    ]
    assert sizes == sorted(sizes)
    assert all(
        kv_memory(spec, n, view=view).total_bytes <= kv_memory(spec, n, view=view).reserved_bytes for n in (1, 600)
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tokens": 0}, "tokens is 0"),
        ({"tokens": True}, "tokens is True"),
        ({"batch": 2**41}, "batch is"),
        ({"dtype": "float12"}, "dtype is 'float12'"),
        ({"view": "mine"}, "view is 'mine'"),
    ],
)
def test_bad_input_is_one_sentence(fields, says):
    with pytest.raises(ConfigError, match=says):
        kv_memory(one(), **{"tokens": 1, **fields})


def test_static_reserves_what_transformers_reserves():
    """StaticCache of the installed library, filled on the meta device."""
    torch = pytest.importorskip("torch")
    from transformers import StaticCache

    from kvviz.decoding.loading import hf_config

    for model in ("tiny-llama", "tiny-gemma3", "tiny-mistral"):
        config = hf_config(models()[model].config)
        text = config.get_text_config()
        dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        cache = StaticCache(config=config, max_cache_len=50)
        for layer in cache.layers:
            empty = torch.zeros(1, text.num_key_value_heads, 1, dim, dtype=torch.bfloat16)
            layer.lazy_initialization(empty, empty)
        real = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
        assert kv_memory(spec_of(model), 50, view="hf-static").reserved_bytes == real
