"""Reading caches, and observing that a run which claims to hold nothing holds nothing."""

import torch
from transformers import DynamicCache

from kvviz.decode import decode
from kvviz.modes import MODES, Mode
from kvviz.snapshot import Outliving, snapshot


def walk(loaded, mode, new_tokens=4, prompt=40):
    ids = torch.randint(0, 256, (1, prompt), generator=torch.Generator().manual_seed(1))
    loop = decode(loaded.model, ids, mode=mode, new_tokens=new_tokens)
    made = Outliving(loaded.tensors)
    while True:
        with made:
            step = next(loop, None)
        if step is None:
            return
        rows, kept = snapshot(step.cache), made.survivors(step.logits)
        del step  # who keeps a step keeps its logits
        yield rows, kept


def test_nothing_outlives_an_uncached_step(load):
    for model in ("tiny-gpt2", "tiny-qwen3", "tiny-mistral"):
        for mode in ("uncached", "unpassed"):
            assert [kept for _, kept in walk(load(model), mode)] == [0] * 4


def test_what_outlives_a_cached_step_is_the_cache(load):
    for rows, kept in walk(load("tiny-qwen3"), "cached"):
        assert kept == sum(row.allocated for row in rows) > 0


def test_a_mode_that_hoards_is_caught(load, monkeypatch):
    """The observation can fail: a mode that says it holds nothing but keeps one layer's keys is seen."""
    hoard = []

    def opened(model):
        def forward(ids, new):
            out = model(input_ids=ids, use_cache=True)
            hoard.append(out.past_key_values.layers[0].keys)
            return out.logits[:, -1], None

        return forward

    monkeypatch.setitem(MODES, "hoarding", Mode("hoarding", "", "", True, False, False, opened))
    for rows, kept in walk(load("tiny-gpt2"), "hoarding"):
        assert rows == ()
        assert kept == sum(keys.numel() * 4 for keys in hoard)


def test_right_after_a_long_prefill_a_window_is_a_view(load):
    _, (rows, _) = walk(load("tiny-mistral"), "cached", new_tokens=2, prompt=64)
    # 2 (K, V) x 2 heads x 16 dims x 4 bytes = 256 bytes a token: 15 held, 64 still in the storage, then 16
    assert {(row.seen, row.held, row.nbytes, row.allocated) for row in rows} == {(65, 15, 15 * 256, 16 * 256)}


def test_prefill_view_before_the_next_step(load):
    loaded = load("tiny-mistral")
    loop = decode(loaded.model, torch.zeros(1, 64, dtype=torch.long), mode="cached", new_tokens=1)
    row = snapshot(next(loop).cache)[0]
    assert (row.nbytes, row.allocated) == (15 * 256, 64 * 256)


def test_a_shared_storage_is_counted_once():
    cache = DynamicCache()
    both = torch.zeros(2, 1, 2, 5, 8)
    cache.update(both[0], both[1], 0)
    cache.layers[0].keys, cache.layers[0].values = both[0], both[1]
    (row,) = snapshot(cache)
    assert row.nbytes == row.allocated == both.numel() * 4


def test_no_cache_has_no_rows():
    assert snapshot(None) == ()
