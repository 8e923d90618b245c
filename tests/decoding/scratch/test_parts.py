"""The parts by themselves, against torch's and transformers' own or against a figure that can be checked by hand."""

import math

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from kvviz.decoding.scratch.attention import causal
from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.design import Rope
from kvviz.decoding.scratch.parts import LayerNorm, RMSNorm
from kvviz.decoding.scratch.positions import SCALINGS, Alibi, Encoding, Learned, Rotary, slopes
from tests.decoding.scratch.conftest import token_ids


def test_a_new_token_sees_itself_and_all_before_it():
    assert causal(3, 3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal(2, 5).tolist() == [[True, True, True, True, False], [True] * 5]
    assert causal(1, 4).tolist() == [[True] * 4]


def test_the_cache_joins_on_along_the_time_axis():
    cache = LayerCache()
    assert cache.seen == 0
    first, then = torch.randn(2, 2, 3, 5, 4), torch.randn(2, 2, 3, 1, 4)  # K and V: (B, Hkv, T, D)
    assert [t.shape for t in cache.append(*first)] == [(2, 3, 5, 4)] * 2
    k, v = cache.append(*then)
    assert (cache.seen, k.shape) == (6, (2, 3, 6, 4))
    assert k.equal(torch.cat([first[0], then[0]], dim=2)) and v.equal(torch.cat([first[1], then[1]], dim=2))
    assert cache.k is k and cache.v is v
    assert k.untyped_storage().nbytes() == k.numel() * 4, "each step makes a storage of exactly what is held"


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_torchs(bias):
    ours, theirs = LayerNorm(16, 1e-5, bias), torch.nn.LayerNorm(16, 1e-5, bias=bias)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    x = 5 * torch.randn(3, 7, 16) + 2
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)


def test_rms_norm_is_torchs():
    ours, theirs = RMSNorm(16, 1e-6), torch.nn.RMSNorm(16, 1e-6)
    torch.nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    x = 5 * torch.randn(3, 7, 16) + 2
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)


# --- positions -------------------------------------------------------------------------------------------------


class _Like:
    rope, head_dim, heads, context, width = Rope(10_000.0), 8, 4, 32, 8


def test_rope_knows_distances_only():
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    rotary = Rotary(_Like)

    def score(query_at, key_at):
        rotated_q, rotated_k = (rotary.encoding(torch.tensor([at])).rotate(x) for x, at in ((q, query_at), (k, key_at)))
        return (rotated_q * rotated_k).sum().item()

    assert score(7, 3) == pytest.approx(score(104, 100), abs=1e-5)
    assert score(7, 3) != pytest.approx(score(7, 4), abs=1e-3)
    assert score(0, 0) == pytest.approx((q * k).sum().item(), abs=1e-6)


def test_rope_rotates_the_first_pair_by_one_radian_a_token():
    x = torch.zeros(1, 1, 1, 8)
    x[..., 0] = 1.0
    rotated = Rotary(_Like).encoding(torch.tensor([2])).rotate(x)[0, 0, 0]
    assert rotated[0] == pytest.approx(math.cos(2)) and rotated[4] == pytest.approx(math.sin(2))


def test_llama_3_slows_the_slow_turns_alone():
    rope = Rope(500_000.0, "llama3", factor=8.0, low=1.0, high=4.0, original_context=8192)
    periods = torch.tensor([8.0, 4.0, 2.5, 1.0, 0.5])  # in the trained context
    turns = periods * 2 * math.pi / 8192
    scaled = SCALINGS["llama3"](turns, rope) / turns
    assert scaled.tolist() == pytest.approx([1, 1, 0.5 + 0.5 / 8, 1 / 8, 1 / 8])
    assert (SCALINGS["linear"](turns, rope) / turns).tolist() == pytest.approx([1 / 8] * 5)


@pytest.mark.parametrize("heads", [4, 8, 16])
def test_alibi_is_blooms_up_to_what_softmax_does_not_see(heads):
    """Bloom counts from the first token, we back from the query: a row's scores differ by one number."""
    like = type("Design", (), {"heads": heads})
    length, new = 9, 3
    bloom = build_alibi_tensor(torch.ones(1, length), heads, torch.float32).view(1, heads, 1, length)
    scores = torch.randn(1, heads, new, length)
    ours = Alibi(like).encoding(torch.arange(length - new, length)).bias(scores)
    assert torch.allclose(ours.softmax(-1), (scores + bloom).softmax(-1), atol=1e-6)
    assert torch.allclose(ours[0, :, -1, -1], scores[0, :, -1, -1]), "a token leans on itself in full"


def test_alibis_slopes():
    assert slopes(8) == [2.0**-n for n in range(1, 9)]
    assert slopes(2) == [2**-4, 2**-8]
    assert slopes(6) == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]


def test_a_scheme_leaves_alone_what_is_not_its_own():
    x, scores, at = torch.randn(1, 4, 3, 8), torch.randn(1, 4, 3, 5), torch.arange(2, 5)
    assert Rotary(_Like).add(x, at) is x and Alibi(_Like).add(x, at) is x
    assert type(Learned(_Like).encoding(at)) is Encoding
    assert Learned(_Like).encoding(at).rotate(x) is x and Learned(_Like).encoding(at).bias(scores) is scores
    assert Rotary(_Like).encoding(at).bias(scores) is scores and Alibi(_Like).encoding(at).rotate(x) is x


# --- what is given instead -------------------------------------------------------------------------------------


@torch.no_grad()
def test_positions_and_mask_can_be_given_to_do_it_wrong(pair):
    """What the caches imply can be replaced: the way to show what a mistake does."""
    model, ids = pair("gpt2").ours, token_ids(1, 12)
    right = model(ids)[:, -1]
    for wrong in (
        {"at": torch.zeros(4, dtype=torch.long)},
        {"mask": lambda T, T_total, device: causal(T, T_total) | True},
    ):
        caches = model.new_caches()
        model(ids[:, :8], caches)
        assert torch.allclose(model(ids[:, 8:], caches, at=torch.arange(8, 12))[:, -1], right, atol=1e-4)
        caches = model.new_caches()
        model(ids[:, :8], caches)
        assert (model(ids[:, 8:], caches, **wrong)[:, -1] - right).abs().max() > 0.01
