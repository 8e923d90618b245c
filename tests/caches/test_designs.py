"""What each design promises: what it copies, reserves and loses."""

import inspect

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import BLOCK
from kvviz.caches.concat import Concat
from kvviz.caches.designs import DESIGNS
from kvviz.caches.hf_layer import DesignCache
from kvviz.caches.paged import Paged
from kvviz.caches.prealloc import Offloaded, Prealloc
from kvviz.caches.quantized import GROUP, RESIDUAL, Codes, Int2, Int4, Int8, Rotated2, rotated
from kvviz.caches.ring import BUDGET, SINKS, Ring, Sinks
from tests.caches.conftest import prompt_of

TOKEN = 2 * 2 * 8 * 4  # K and V x heads x D x bytes


def tokens(count, batch=1, seed=0):
    return torch.randn(batch, 2, count, 8, generator=torch.Generator().manual_seed(seed))


def fed(cache, prompt, steps):
    """The cache after a prefill and single steps; bytes copied and gathered by each append."""
    x = tokens(prompt + steps)
    books = []
    for part in x.split([prompt, *[1] * steps], dim=2):
        got = cache.append(part, part)
        books.append((cache.copied, cache.gathered))
    return x, got, books


def test_each_design_has_a_gloss_short_enough_for_a_chart():
    assert not [name for name, row in DESIGNS.items() if not (row.own or 2 <= len(row.gloss.split()) <= 6)]
    assert not [name for name, row in DESIGNS.items() if len(row.gloss) > 32 or "{" in row.gloss]
    assert str(BLOCK) in DESIGNS["paged"].gloss
    levels = {name: str(2 ** DESIGNS[name].implementation().bits) for name in ("int8", "int4", "int2", "rotated2")}
    assert all(f"{count} levels" in DESIGNS[name].gloss for name, count in levels.items())


def test_joining_copies_the_whole_cache_at_each_step():
    _, _, books = fed(Concat(), 10, 20)
    assert [copied for copied, _ in books] == [TOKEN * n for n in range(10, 31)]


def test_a_reserved_buffer_copies_the_new_token_alone():
    cache = Prealloc(capacity=64)
    x, (keys, _), books = fed(cache, 10, 20)
    assert [copied for copied, _ in books] == [TOKEN * 10, *[TOKEN] * 20]
    assert torch.equal(keys, x) and keys.data_ptr() == cache.keys.data_ptr(), "a view, not a copy"
    assert (cache.nbytes, cache.allocated) == (30 * TOKEN, 64 * TOKEN)
    assert cache.picture() | {"kind": "buffer"} == cache.picture() and cache.picture()["slots"] == 64
    with pytest.raises(KvvizError, match="room for 64 tokens of each sequence; 70 do not fit"):
        cache.append(tokens(40), tokens(40))


def test_a_buffer_of_unknown_length_doubles():
    """n tokens cost at most 2 n copies in all, and never is more than half of it empty once it has grown."""
    cache = Prealloc()
    _, _, books = fed(cache, 20, 300)
    assert sum(copied for copied, _ in books) < 3 * 320 * TOKEN
    assert cache.slots == 320 and cache.picture()["doubles"]
    sizes = {count * 20 for count in (1, 2, 4, 8, 16)}
    assert cache.slots in sizes


def test_a_paged_cache_wastes_less_than_a_block():
    cache = Paged()
    _, _, books = fed(cache, 10, 60)
    assert cache.allocated == 80 * TOKEN and cache.nbytes == 70 * TOKEN
    assert books[-1] == (TOKEN, 70 * TOKEN), "one token written, all of them gathered for attention"
    assert len(cache.picture()["tables"][0]["blocks"]) == 5


def test_a_window_gives_blocks_back():
    cache = Paged(window=20)
    fed(cache, 10, 90)
    assert cache.held == 100 - (100 - 19) // 16 * 16 == 20
    assert cache.allocated == 3 * BLOCK * TOKEN, "two blocks in use, a third as the window moves on"


@pytest.mark.parametrize("pieces", [[7], [3, 4], [40], [5, 40, 3], [12, 1, 1, 1]])
def test_a_ring_holds_the_sinks_and_the_newest(pieces):
    cache = Ring(sinks=2, window=10)
    x = tokens(sum(pieces) + 30)
    for part in x.split([*pieces, *[1] * 30], dim=2):
        length, first = cache.span(part.shape[2])
        keys, _ = cache.append(part, part)
        assert keys.shape[2] == length and first == cache.seen - length
    kept = [0, 1, *range(cache.seen - 10, cache.seen)]
    assert cache.positions() == kept and cache.held == 12
    slots = [cache.slot_of(p) for p in kept]
    assert torch.equal(cache.keys[:, :, slots], x[:, :, kept])
    assert sorted(p for p in cache.picture()["positions"]) == kept
    assert cache.copied == TOKEN and cache.gathered == 0


@pytest.mark.slow
def test_sinks_give_what_a_mask_over_the_middle_gives(family):
    """Keys keep the positions at which their tokens stood, so the model without a cache, masked, must agree."""
    model, _ = family("llama")
    prompt, new = 50, 40
    cache = DesignCache(DESIGNS["sinks"], model.config)
    ids, step = prompt_of(2, prompt), prompt_of(2, prompt)
    with torch.inference_mode():
        for index in range(new):
            logits = model(input_ids=step, past_key_values=cache, use_cache=True).logits[:, -1]
            mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
            for row in range(prompt, ids.shape[1]):
                mask[row, SINKS : max(SINKS, row - (BUDGET - SINKS) + 1)] = False
            whole = model(input_ids=ids, attention_mask=mask[None, None].expand(2, 1, -1, -1), use_cache=False)
            assert torch.allclose(logits, whole.logits[:, -1], atol=1e-3), f"step {index}"
            step = logits.argmax(-1, keepdim=True)
            ids = torch.cat([ids, step], dim=1)
        without = model(input_ids=ids[:, :-1], use_cache=False).logits[:, -1]
    assert cache.own[0].held == BUDGET and not torch.allclose(logits, without, atol=1e-3), "something was lost"


@pytest.mark.parametrize(("bits", "axis"), [(8, 3), (8, 4), (4, 3), (4, 4), (2, 3), (2, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_code_is_at_most_half_a_step_off(bits, axis, dtype):
    x = torch.randn(2, 3, 2, GROUP, 10, generator=torch.Generator().manual_seed(1)).to(dtype) * 3
    x[..., 4] += 50  # a channel that stands out, as keys have
    codes = Codes.of(x, bits, axis)
    back = codes.numbers(bits, axis, torch.float32).unflatten(2, (2, GROUP))
    step = codes.scale.float().unflatten(2, (2, -1))
    rounded = 2.0**-7 if dtype is torch.bfloat16 else 2.0**-10  # of the zeros and scales themselves
    assert ((back - x.float()).abs() <= step * 0.51 + x.float().abs().amax() * rounded).all()
    assert codes.codes.numel() == x.numel() * bits // 8


def test_a_channel_that_stands_out_spoils_tokens_not_channels():
    """Why keys are coded by channel: a scale for each token would have to span the channel that stands out."""
    x = torch.randn(1, 1, 1, GROUP, 16, generator=torch.Generator().manual_seed(1))
    x[..., 4] += 50
    by_channel, by_token = (
        (Codes.of(x, 4, axis).numbers(4, axis, x.dtype) - x.flatten(2, 3)).abs().mean() for axis in (3, 4)
    )
    assert by_channel < by_token / 5


def test_a_rotation_spreads_a_channel_over_all_and_is_undone_by_itself():
    x = torch.randn(1, 2, GROUP, 48, generator=torch.Generator().manual_seed(1))  # in three parts of 16
    assert torch.allclose(rotated(rotated(x)), x, atol=1e-5) and torch.allclose(rotated(x).norm(), x.norm())
    one = torch.zeros(48)
    one[4] = 1
    assert torch.equal(rotated(one).abs(), torch.tensor([0.25] * 16 + [0.0] * 32))
    x[..., 4] += 20
    lost = [(Codes.of(y[:, :, None], 2, 4).numbers(2, 4, x.dtype) - y).norm() for y in (x, rotated(x))]
    assert lost[1] < lost[0] / 1.5, "of a token's numbers with one scale, once they are rotated"


@pytest.mark.parametrize(("design", "most"), [(Int8, 0.02), (Int4, 0.4), (Int2, 2.0), (Rotated2, 2.0)])
def test_the_newest_tokens_stay_as_they_came(design, most):
    cache = design()
    x, (keys, values), _ = fed(cache, 70, 50)
    coded = cache.groups * GROUP
    assert coded == (120 - RESIDUAL) // GROUP * GROUP == 64 and cache.keys.shape[2] == 56
    assert torch.equal(keys[:, :, 64:], x[:, :, 64:]) and not torch.equal(keys[:, :, :64], x[:, :, :64])
    worst = (keys - x).abs().max(), (values - x).abs().max()
    assert max(worst) < most
    picture = cache.picture()
    assert picture["codes_bytes"] + picture["scale_bytes"] + picture["residual_bytes"] == cache.nbytes
    assert cache.stored_as == f"int{design.bits}" and 0 < cache.beside_bytes < cache.nbytes


def test_what_the_host_keeps_comes_back_in_order():
    cache = Offloaded(capacity=40)
    x, (keys, values), books = fed(cache, 10, 20)
    assert torch.equal(keys, x) and torch.equal(values, x)
    assert books[-1] == (TOKEN, 30 * TOKEN) and cache.keys.shape == (40, 1, 2, 8)
    assert cache.picture()["host"] and cache.picture()["fetched_bytes"] == 30 * TOKEN


CROPPING = [Concat, Prealloc, Paged, Offloaded]


@pytest.mark.parametrize("design", [*CROPPING, Int8])
def test_tokens_can_be_taken_back(design):
    cache = design()
    x, _, _ = fed(cache, 20, 5)
    cache.crop(7)
    assert (cache.seen, cache.held) == (18, 18)
    new = tokens(1, seed=9)
    assert torch.equal(cache.append(new, new)[0], torch.cat([x[:, :, :18], new], dim=2))


def test_what_is_lost_can_not_come_back():
    with pytest.raises(KvvizError, match="25 tokens have passed; 26"):
        cropped(Concat(), 26)
    with pytest.raises(KvvizError, match="window has let go"):
        cropped(Concat(window=6), 3)
    with pytest.raises(KvvizError, match="Sinks can't take tokens back"):
        cropped(Sinks(), 1)
    with pytest.raises(KvvizError, match="older ones are codes"):
        cropped(Int8(), 60, prompt=100)


def cropped(cache, count, prompt=20):
    fed(cache, prompt, 5)
    cache.crop(count)


@pytest.mark.parametrize("design", [Concat, Prealloc, Paged, Int8, Sinks])
def test_sequences_can_change_places(design):
    cache, rows = design(), torch.tensor([1, 1, 0])
    x = tokens(100, batch=2)
    cache.append(x, x)
    cache.append(x[:, :, :1], x[:, :, :1])
    twin = design()
    for part in (x, x[:, :, :1]):
        twin.append(part[rows], part[rows])
    cache.reorder(rows)
    new = tokens(1, batch=3, seed=4)
    for one, other in zip(cache.append(new, new), twin.append(new, new), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", DESIGNS)
def test_freed_is_as_new(name):
    cache = DESIGNS[name].new()
    for _ in range(2):
        x, (keys, _), _ = fed(cache, 30, 3)
        assert keys.shape[2] == cache.held and torch.equal(keys[:, :, -1], x[:, :, -1])
        cache.free()
        assert (cache.seen, cache.held, cache.nbytes, cache.allocated) == (0, 0, 0, 0)


def test_every_row_is_there_and_says_where_it_comes_from():
    for row in DESIGNS.values():
        cache = row.new(capacity=8)
        assert cache.exact == row.exact and row.source.startswith("https://") and row.slow.endswith(".")
        assert row.source in inspect.getsource(inspect.getmodule(type(cache))) or row.name == "prealloc"
