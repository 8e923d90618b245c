"""Reading caches, and observing that a run which claims to hold nothing holds nothing."""

import pytest
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    QuantizedCache,
    StaticCache,
)

from kvviz.decoding.loop import decode
from kvviz.decoding.modes import MODES, Mode
from kvviz.decoding.read_cache import LiveTensors, cache_class, layer_states, tracing_seconds, whereabouts
from kvviz.decoding.scratch.cache import LayerCache


def walk(loaded, mode, new_tokens=4, prompt=40):
    ids = torch.randint(0, 256, (1, prompt), generator=torch.Generator().manual_seed(1))
    loop = decode(loaded.model, ids, mode=mode, new_tokens=new_tokens)
    made = LiveTensors(loaded.tensors)
    while True:
        with made:
            step = next(loop, None)
        if step is None:
            return
        rows, kept = layer_states(step.cache), made.live_bytes(step.logits)
        del step  # who keeps a step keeps its logits
        yield rows, kept


@pytest.mark.slow
def test_nothing_outlives_an_uncached_step(load):
    for model in ("tiny-gpt2", "tiny-qwen3", "tiny-mistral"):
        for mode in ("uncached", "unpassed"):
            assert [kept for _, kept in walk(load(model), mode)] == [0] * 4


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["cached", "scratch"])
@pytest.mark.parametrize("model", ["tiny-gpt2", "tiny-qwen3"])
def test_what_outlives_a_cached_step_is_the_cache(load, mode, model):
    for rows, kept in walk(load(model), mode):
        assert kept == sum(row.allocated for row in rows) > 0


@pytest.mark.slow
def test_the_cache_from_scratch_is_read_like_any_other(load):
    loaded = load("tiny-qwen3")
    both = zip(walk(loaded, "cached"), walk(loaded, "scratch"), strict=True)
    for (theirs, _), (ours, _) in both:
        assert ours == theirs
    # 2 (K, V) x 2 heads x 32 dims x 4 bytes = 512 bytes a token; joined on anew at each step, so no more than is held
    assert {(row.kind, row.seen, row.held, row.nbytes, row.allocated) for row in ours} == {
        ("full", 43, 43, 43 * 512, 43 * 512)
    }


def test_a_cache_is_named_by_its_class_or_by_its_layers():
    assert cache_class(None) is None
    assert cache_class(DynamicCache()) == "DynamicCache"
    assert cache_class([LayerCache(), LayerCache()]) == "LayerCache"
    assert cache_class([torch.zeros(1), torch.zeros(1)]) == "list"  # RWKV's states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "model", "said"),
    [
        ("cached", "tiny-gpt2", "DynamicCache → layers[0].keys"),
        ("scratch", "tiny-qwen3", "list of LayerCache → [0].k"),
        ("static", "tiny-qwen3", "StaticCache → layers[0].keys"),
        ("concat", "tiny-qwen3", "DesignCache of Concat → layers[0].own.keys"),
    ],
)
def test_the_way_to_the_keys_is_one_that_can_be_gone(load, mode, model, said):
    loaded = load(model)
    *_, last = decode(loaded.model, torch.arange(5)[None], mode=mode, new_tokens=2)
    assert whereabouts(last.cache) == said
    keys = eval(f"cache{'' if '→ [' in said else '.'}{said.split(' → ')[1]}", {"cache": last.cache})
    shape = layer_states(last.cache)[0].key_shape
    assert (*keys.shape[:2], keys.shape[3]) == (*shape[:2], shape[3]) and keys.shape[2] >= shape[2] == 6


def test_what_keeps_no_keys_has_no_way_to_them():
    assert whereabouts(None) is None is whereabouts([torch.zeros(1)]) is whereabouts(DynamicCache())


@pytest.mark.slow
def test_a_mode_that_hoards_is_caught(load, monkeypatch):
    """The observation can fail: a mode that says it holds nothing but keeps one layer's keys is seen."""
    hoard = []

    def opened(model, capacity):
        def forward(ids, new):
            out = model(input_ids=ids, use_cache=True)
            hoard.append(out.past_key_values.layers[0].keys)
            return out.logits[:, -1], None

        return forward

    monkeypatch.setitem(MODES, "hoarding", Mode("hoarding", "", "", opened, caches=False, fills=False))
    for rows, kept in walk(load("tiny-gpt2"), "hoarding"):
        assert rows == ()
        assert kept == sum(keys.numel() * 4 for keys in hoard)


@pytest.mark.slow
def test_right_after_a_long_prefill_a_window_is_a_view(load):
    _, (rows, _) = walk(load("tiny-mistral"), "cached", new_tokens=2, prompt=64)
    # 2 (K, V) x 2 heads x 16 dims x 4 bytes = 256 bytes a token: 15 held, 64 still in the storage, then 16
    assert {(row.seen, row.held, row.nbytes, row.allocated) for row in rows} == {(65, 15, 15 * 256, 16 * 256)}


@pytest.mark.slow
def test_prefill_view_before_the_next_step(load):
    loaded = load("tiny-mistral")
    loop = decode(loaded.model, torch.zeros(1, 64, dtype=torch.long), mode="cached", new_tokens=1)
    row = layer_states(next(loop).cache)[0]
    assert (row.nbytes, row.allocated) == (15 * 256, 64 * 256)


def test_a_shared_storage_is_counted_once():
    cache = DynamicCache()
    both = torch.zeros(2, 1, 2, 5, 8)
    cache.update(both[0], both[1], 0)
    cache.layers[0].keys, cache.layers[0].values = both[0], both[1]
    (row,) = layer_states(cache)
    assert row.nbytes == row.allocated == both.numel() * 4


def test_no_cache_has_no_rows():
    assert layer_states(None) == ()
    assert [row.kind for row in layer_states(DynamicCache(config=LlamaConfig(num_hidden_layers=2)))] == ["none"] * 2


def filled(cache, *, tokens=5, heads=2, dim=8):
    """A cache whose first layer has been given that many tokens."""
    cache.update(*torch.randn(2, 1, heads, tokens, dim), 0)
    return cache


def test_a_static_layer_holds_what_was_written():
    """It has seen 5, holds 5, and has allocated 64."""
    (row,) = layer_states(filled(StaticCache(config=LlamaConfig(num_hidden_layers=1), max_cache_len=64)))
    token = 2 * 2 * 8 * 4  # K and V x heads x dim x bytes
    assert (row.seen, row.held, row.nbytes, row.allocated, row.state_bytes) == (5, 5, 5 * token, 64 * token, 0)
    assert row.key_shape == (1, 2, 5, 8)


def test_a_static_window_holds_a_window():
    config = MistralConfig(num_hidden_layers=1, sliding_window=4)
    (row,) = layer_states(filled(StaticCache(config=config, max_cache_len=64)))
    assert (row.kind, row.seen, row.held, row.nbytes, row.allocated) == ("sliding", 5, 4, 4 * 128, 4 * 128)


def test_quantized_keys_are_keys():
    cache = filled(QuantizedCache("fp8", LlamaConfig(num_hidden_layers=1)))
    (row,) = layer_states(filled(cache, tokens=1))
    assert (row.kind, row.seen, row.held, row.state_bytes) == ("full", 6, 6, 0)
    assert row.nbytes == 6 * 2 * 2 * 8  # one byte an element


def test_states_are_beside_keys_and_values():
    cache = DynamicCache(config=Lfm2Config(num_hidden_layers=2, layer_types=["conv", "full_attention"]))
    cache.update_conv_state(torch.zeros(1, 6, 3), 0)
    cache.update(*torch.randn(2, 1, 2, 5, 8), 1)
    state, attention = layer_states(cache, seen=5)
    assert (state.kind, state.seen, state.held, state.nbytes, state.state_bytes) == ("linear", 5, 0, 72, 72)
    assert (attention.kind, attention.seen, attention.held, attention.state_bytes) == ("full", 5, 5, 0)
    assert state.key_shape == state.value_shape == ()


def test_cross_attention_comes_last():
    both = EncoderDecoderCache(filled(DynamicCache()), filled(DynamicCache(), tokens=9))
    own, cross = layer_states(both)
    assert (own.index, own.kind, own.held) == (0, "full", 5)
    assert (cross.index, cross.kind, cross.seen, cross.held, cross.state_bytes) == (0, "cross", 9, 9, 0)
    assert len(layer_states(EncoderDecoderCache(filled(DynamicCache()), DynamicCache()))) == 1


def test_keys_that_are_values_count_once():
    cache = filled(DynamicCache())
    cache.layers[0].values = cache.layers[0].keys
    (row,) = layer_states(cache)
    assert (row.nbytes, row.value_shape) == (5 * 2 * 8 * 4, ())


def test_a_list_has_one_item_a_layer():
    rows = layer_states([[torch.zeros(1, 4), torch.zeros(1, 3)], torch.zeros(2, 5)], seen=7)
    assert [(row.kind, row.seen, row.state_bytes) for row in rows] == [("linear", 7, 28), ("linear", 7, 40)]


def test_a_kind_can_be_given():
    assert [row.kind for row in layer_states(filled(DynamicCache()), ("latent",))] == ["latent"]


def test_tracing_an_operation_takes_time_that_is_measured_once():
    """Other work may slow the operations that are not traced as much as those that are: one try of ten has to tell."""

    def measured():
        tracing_seconds.cache_clear()
        return tracing_seconds("cpu")

    assert any(measured() > 0 for _ in range(10))
    assert tracing_seconds("cpu") == tracing_seconds("cpu")
