"""The chapter's attention and its GPT of attention alone: the dict of keys and values changes nothing but the time."""

import pytest
import torch
import torch.nn.functional as F

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch import first_steps
from kvviz.decoding.scratch.first_steps import (
    AttentionNoCache,
    AttentionWithCache,
    GPTWithCache,
    benchmark,
    drawn,
    generate_no_cache,
)


@pytest.fixture
def gpt():
    torch.manual_seed(0)
    model = GPTWithCache(vocab_size=128, d_model=64, n_heads=4, n_layers=3, max_len=96).eval()
    model.token_emb.weight.data *= 0.1  # else, its head being the same table, the likeliest token takes nearly all
    return model


def ids(length, batch=1):
    return torch.randint(0, 128, (batch, length), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_both_attentions_agree_token_by_token_and_in_chunks():
    torch.manual_seed(0)
    plain, cached = AttentionNoCache(32, 4), AttentionWithCache(32, 4)
    cached.load_state_dict(plain.state_dict())
    x = torch.randn(2, 11, 32)
    expected = plain(x)
    for sizes in ([11], [1] * 11, [4, 5, 1, 1]):
        kv_cache, parts = {}, []
        for part in x.split(sizes, dim=1):
            out, kv_cache = cached(part, kv_cache=kv_cache, layer_idx=2)
            parts.append(out)
        assert torch.allclose(torch.cat(parts, dim=1), expected, atol=1e-6)
        assert list(kv_cache) == [2] and [t.shape for t in kv_cache[2]] == [(2, 4, 11, 8)] * 2
    out, kept = cached(x)
    assert kept is None and torch.allclose(out, expected, atol=1e-6)


@torch.no_grad()
def test_attention_is_torchs():
    torch.manual_seed(0)
    attention, x = AttentionNoCache(32, 4), torch.randn(2, 9, 32)
    mixed = F.scaled_dot_product_attention(*attention.split(x), is_causal=True)
    assert torch.allclose(attention(x), attention.out(mixed.transpose(1, 2).flatten(2)), atol=1e-6)


@torch.no_grad()
def test_logits_are_the_same_with_the_cache_and_a_position_to_start_at(gpt):
    tokens = ids(20, batch=3)
    expected, _ = gpt(tokens)
    logits, kv_cache = gpt(tokens[:, :12], kv_cache={})
    assert torch.allclose(logits, expected[:, :12], atol=1e-5)
    for at in range(12, 20):
        logits, kv_cache = gpt(tokens[:, at : at + 1], kv_cache=kv_cache, start_pos=at)
        assert torch.allclose(logits[:, 0], expected[:, at], atol=1e-5)
    assert sorted(kv_cache) == [0, 1, 2] and kv_cache[0][0].shape == (3, 4, 20, 16)
    wrong, _ = gpt(tokens[:, 12:13], kv_cache=gpt(tokens[:, :12], kv_cache={})[1])  # start_pos forgotten
    assert (wrong[:, 0] - expected[:, 12]).abs().max() > 1e-3


@torch.no_grad()
def test_without_a_cache_it_fills_one_that_is_dropped(gpt):
    _, kv_cache = gpt(ids(5), kv_cache=None)
    assert [kv_cache[layer][0].shape[2] for layer in range(3)] == [5, 5, 5]


def test_it_is_attention_alone(gpt):
    assert {name.split(".")[-2] for name, _ in gpt.named_parameters()} == {"token_emb", "pos_emb", "qkv", "out", "ln_f"}
    assert gpt.lm_head.weight is gpt.token_emb.weight


def test_the_same_draws_give_the_same_text_with_and_without_the_cache(gpt):
    torch.manual_seed(7)
    expected = generate_no_cache(gpt, ids(16), 40)
    torch.manual_seed(7)
    assert gpt.generate_with_cache(ids(16), 40) == expected
    assert expected[:16] == ids(16)[0].tolist() and len(expected) == 56
    assert len(set(expected[16:])) >= 8


def test_temperature_sharpens_and_flattens():
    logits = torch.tensor([[[0.0, 1.0, 2.0]]]).expand(4000, 1, 3)
    torch.manual_seed(0)
    for temperature in (0.1, 1.0, 10.0):
        share = drawn(logits, temperature).flatten().bincount(minlength=3) / 4000
        assert torch.allclose(share, (logits[0, 0] / temperature).softmax(-1), atol=0.03)


def test_it_stops_at_a_full_stop_that_a_decode_step_has_drawn(gpt):
    torch.manual_seed(7)
    free = gpt.generate_with_cache(ids(16), 40)
    stop = free[20]
    place = free.index(stop, 17)  # the prompt's 16, and what the prefill has drawn, are not looked at
    torch.manual_seed(7)
    assert gpt.generate_with_cache(ids(16), 40, itos={stop: "."}) == free[: place + 1]
    torch.manual_seed(7)
    assert gpt.generate_with_cache(ids(16), 40, itos={stop: "!"}) == free


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(KvvizError, match="64 can't be shared among 5 heads"):
        AttentionNoCache(64, 5)


def test_the_benchmark_runs_each_way_as_often_as_it_says(monkeypatch):
    counted = []
    plain = first_steps.generate_no_cache
    monkeypatch.setattr(
        first_steps, "generate_no_cache", lambda model, prompt, n: counted.append(n) or plain(model, prompt, n)
    )
    done = benchmark(vocab=32, d_model=16, n_heads=2, n_layers=1, prompt_tokens=4, new_tokens=6, runs=3)
    assert counted == [6] * 4, "one that is not counted comes first"
    assert (done["prompt_tokens"], done["new_tokens"], done["runs"]) == (4, 6, 3)
    assert done["speedup"] == pytest.approx(done["no_cache_ms"] / done["cache_ms"]) and done["cache_ms"] > 0


def test_the_cache_spares_the_tokens_that_the_other_way_computes_again(gpt):
    """The law behind the benchmark's two times, by counting: P + (P + 1) + ... tokens against P + N - 1."""
    fed = []
    gpt.token_emb.register_forward_pre_hook(lambda module, args: fed.append(args[0].numel()))
    prompt = torch.tensor([[1, 2, 3, 4]])
    generate_no_cache(gpt, prompt, 6)
    without, fed[:] = sum(fed), []
    gpt.generate_with_cache(prompt, 6)
    assert (without, sum(fed)) == (sum(range(4, 10)), 4 + 5)
