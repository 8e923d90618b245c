"""Requests that begin alike through a real model: the same tokens, and only the rest computed."""

import pytest

from kvviz.base.errors import KvvizError
from kvviz.experiments.serving.prefix_sharing import engine_for_one, serve, submit
from tests.caches.conftest import check, prompt_of

SYSTEM = prompt_of(1, 64, seed=11)[0].tolist()
ASKED = [SYSTEM + prompt_of(1, 9, seed=seed)[0].tolist() for seed in (1, 2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3", "deepseek_v3"])
def test_only_what_is_new_is_computed_and_the_tokens_are_the_same(family, name):
    model, _ = family(name)
    counted = []
    hook = model.register_forward_pre_hook(lambda m, args, kwargs: counted.append(kwargs["input_ids"].shape[1]),
                                           with_kwargs=True)  # fmt: skip
    try:
        done = serve(model, ASKED, new_tokens=6, repeats=1)
    finally:
        hook.remove()
    assert [row["warm"]["found_tokens"] for row in done["requests"]] == [0, 64, 64]
    assert [row["cold"]["found_tokens"] for row in done["requests"]] == [0, 0, 0]
    assert all(row["identical"] for row in done["requests"])
    assert len({tuple(row["cold"]["token_ids"]) for row in done["requests"]}) == 3
    prefills = [count for count in counted if count > 5]  # the engine tries shorter ones first
    assert prefills == [73, 73, 73, 9, 73, 9], "cold and warm in turn, as the model itself has met them"


@pytest.mark.slow
def test_the_bytes_of_the_beginning_are_kept_once(family):
    model, spec = family("llama")
    done = serve(model, ASKED, new_tokens=6, repeats=1)
    token = 2 * sum(layer.kv_heads * layer.key_dim * 4 for layer in spec.layers)
    assert done["cold_bytes"] == 3 * (73 + 5) * token
    assert done["kept_bytes"] == 64 * token, "the four blocks of the system prompt; the others are not full"


@pytest.mark.slow
def test_a_conversation(family):
    """A second turn finds the first with its answer; an edit, what stands before it; a cut history, nothing."""
    model, _ = family("llama")
    first = SYSTEM[:40]
    answer = serve(model, [first], new_tokens=12, repeats=1)["requests"][0]["cold"]["token_ids"]
    second = first + answer + SYSTEM[50:57]
    edited = [*second[:20], (second[20] + 1) % 96, *second[21:]]
    cut = second[10:]
    done = serve(model, [first, second, edited, cut], new_tokens=12, repeats=1)["requests"]
    # of 40 + 12 tokens the cache has all but the last chosen one, 51: three full blocks
    assert [row["warm"]["found_tokens"] for row in done] == [0, 48, 16, 0]
    assert all(row["identical"] for row in done)


@pytest.mark.slow
def test_a_longer_beginning_saves_time(family):
    """Six tokens instead of a thousand: were they not skipped, the warm prefill would take as long as the cold one."""
    model, _ = family("llama")
    long = prompt_of(1, 1200, seed=3)[0].tolist()
    for _ in range(3):  # on a busy machine once may not do
        _, second = serve(model, [long, [*long[:1190], 1, 2, 3, 4, 5, 6]], new_tokens=1, repeats=3)["requests"]
        assert second["warm"]["computed_tokens"] == 1196 - 1184 and second["identical"]
        if second["warm"]["ttft_s"] < 0.7 * second["cold"]["ttft_s"]:
            return
    raise AssertionError("the warm prefill took as long as the cold one")


def test_what_can_not_be_served(family):
    with pytest.raises(KvvizError, match="without tokens"):
        serve(family("llama")[0], [[1], []])


@pytest.mark.slow
def test_nothing_is_left_in_use(family):
    engine = engine_for_one(family("llama")[0], 8)
    one = submit(engine, SYSTEM, 1)
    engine.step()
    assert one.chosen and engine.cancel(one.request.number)
    (tables,) = engine.cache.groups.tables.values()
    check(tables)
    assert tables.pool.used == 0 and len(tables.pool.cached_free) == 4
    engine.cache.groups.forget()
    assert submit(engine, SYSTEM, 1) and engine.step() and not tables.pool.cached_free
