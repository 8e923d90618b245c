"""What each design that evicts keeps: the choice of its paper's rule, written here as plain loops."""

import pytest
import torch
from torch.nn.functional import avg_pool1d
from transformers import LlamaConfig, LlamaForCausalLM

from kvviz.base.errors import KvvizError
from kvviz.caches.attention import rotation
from kvviz.caches.designs import DESIGNS, held_within, pyramid_budget, tokens_of
from kvviz.caches.formula import kept_bytes
from kvviz.caches.hf_layer import DesignCache
from kvviz.caches.kvzip import KVzip
from kvviz.decoding.modes import reading_new_tokens
from tests.caches.conftest import prompt_of

HEADS, KV_HEADS, BUDGET, PROMPT, STEPS = 4, 2, 16, 41, 30


def random_heads(heads):
    return torch.randn(2, heads, PROMPT + STEPS, 8, generator=torch.Generator().manual_seed(heads))


def weights_of(q, k):
    """(B, Hkv, T, S): the mean weights of the heads that share each KV head; the queries are the last ones of all."""
    scores = q @ k.repeat_interleave(HEADS // KV_HEADS, dim=1).transpose(-2, -1) / 8**0.5
    ahead = torch.ones(scores.shape[-2:]).triu(scores.shape[3] - scores.shape[2] + 1).bool()
    return scores.masked_fill(ahead, float("-inf")).softmax(-1)


def by_the_cache(design):
    """The positions that a design holds after the prefill and after each step, as sets by sequence and KV head."""
    q, k, cache, held = random_heads(HEADS), random_heads(KV_HEADS), DESIGNS[design].at(BUDGET).new(), []
    for new, seen in [(PROMPT, PROMPT), *((1, PROMPT + step + 1) for step in range(STEPS))]:
        now = slice(seen - new, seen)
        keys, _ = cache.append(k[:, :, now], k[:, :, now])
        weights = weights_of(q[:, :, now], keys)
        watched = new if cache.queries is None else min(new, cache.queries)
        cache.observe(weights[:, :, new - watched :], after=0)
        cache.settle()
        held.append(cache.positions[:, :, : cache.held].clone())
    return held


class Plain:
    """One sequence and KV head, as a list of positions; `look` gets the weights of each query as {position: weight}."""

    def __init__(self):
        self.kept, self.score, self.looks = [], {}, []

    def evict(self, seen, score, recent, count):
        while len(self.kept) > count:
            self.kept.remove(min((p for p in self.kept if p < seen - recent), key=score.__getitem__))


def h2o(plain, seen, looks, count):
    for look in looks:
        for position, weight in look.items():
            plain.score[position] = plain.score.get(position, 0) + weight
    plain.evict(seen, plain.score, BUDGET // 2, count)


def snapkv(plain, seen, looks, count):
    window = BUDGET // 2
    plain.looks = [*plain.looks, *looks][-window:]
    if len(plain.kept) > count:
        older = plain.kept[:-window]
        votes = torch.tensor([[sum(look.get(p, 0) for look in plain.looks) for p in older]])
        pooled = avg_pool1d(votes, 5, stride=1, padding=2)[0]
        plain.evict(seen, dict(zip(older, pooled.tolist(), strict=True)), window, count)


@pytest.mark.parametrize(("design", "rule"), [("h2o", h2o), ("snapkv", snapkv)])
def test_the_tokens_kept_are_those_of_the_papers_rule(design, rule):
    """A decode step's eviction happens when the next token comes, so `count` is what is left then."""
    q, k, at_once = random_heads(HEADS), random_heads(KV_HEADS), DESIGNS[design].at(BUDGET).at_once
    plains = {(b, h): Plain() for b in range(2) for h in range(KV_HEADS)}
    for (seen, new), held in zip([(PROMPT, PROMPT), *((PROMPT + i + 1, 1) for i in range(STEPS))],
                                 by_the_cache(design), strict=True):  # fmt: skip
        for (b, h), plain in plains.items():
            if new == 1:
                full = len(plain.kept) == BUDGET
                rule(plain, seen - (at_once > 1), [], BUDGET - at_once if full else BUDGET)
            plain.kept += range(seen - new, seen)
            weights = weights_of(q[b : b + 1, :, seen - new : seen], k[b : b + 1, :, plain.kept])
            rows = weights.unflatten(1, (KV_HEADS, -1)).mean(2)[0, h]
            looks = [dict(zip(plain.kept, row.tolist(), strict=True)) for row in rows]
            rule(plain, seen, looks, held_within(BUDGET, at_once, seen) if new > 1 else len(plain.kept))
            assert sorted(held[b, h].tolist()) == plain.kept, f"{seen} tokens, sequence {b}, KV head {h}"


@pytest.mark.parametrize("design", ["snapkv", "expected"])
def test_an_eviction_moves_no_more_rows_than_leave(design):
    cache, rows = DESIGNS[design].at(BUDGET).new(), random_heads(KV_HEADS)
    for seen in range(BUDGET):
        cache.append(rows[:, :, seen : seen + 1], rows[:, :, seen : seen + 1])
        cache.settle()
    cache.scores += torch.rand(cache.scores.shape, generator=torch.Generator().manual_seed(0))
    before, count = cache.positions.clone(), BUDGET - cache.at_once
    cache.append(rows[:, :, BUDGET : BUDGET + 1], rows[:, :, BUDGET : BUDGET + 1])
    assert cache.copied == (cache.at_once + 1) * cache.step_bytes
    stayed = (cache.positions == before)[:, :, :count].sum(-1)
    assert (stayed >= count - cache.at_once).all() and (stayed < count).any()
    kept = cache.positions[:, :, : cache.held]
    assert all(len(set(head.tolist())) == count + 1 for head in kept.flatten(0, 1)), "none twice"
    held = rows.gather(2, kept.long()[..., None].expand(-1, -1, -1, 8))
    assert torch.equal(cache.filled()["keys"], held) and torch.equal(cache.filled()["values"], held)


def test_tova_lets_go_of_what_the_newest_token_attends_to_least():
    q, k = random_heads(HEADS), random_heads(KV_HEADS)
    held = by_the_cache("tova")
    for b in range(2):
        kept = list(range(PROMPT))
        for step, now in enumerate(held):
            if step:
                kept.append(PROMPT + step - 1)
            assert not step or all(sorted(head.tolist()) == kept for head in now[b]), "all heads keep the same tokens"
            newest = kept[-1]
            looked = weights_of(q[b : b + 1, :, newest : newest + 1], k[b : b + 1, :, kept])[0, :, 0].mean(0)
            stay = looked.topk(BUDGET - (step > 0)).indices.sort().values
            if not step:
                assert torch.equal(now[b, 0].sort().values.long(), stay)
                stay = looked.topk(BUDGET - 1).indices.sort().values
            kept = [kept[i] for i in stay]


def test_expected_attention_scores_by_the_mean_and_the_variance_of_the_products_so_far():
    """For one key, μ·k and kᵀΣk are the mean and the variance of q·k over the queries q."""
    q, k, cache = random_heads(HEADS), random_heads(KV_HEADS), DESIGNS["expected"].at(BUDGET).new()

    def unrotated(rows, positions, mean):
        assert mean or torch.equal(rows, q[:, :, -positions]), "each query is turned back from its own position"
        return rows

    for new, seen in [(PROMPT, PROMPT), *((1, PROMPT + step + 1) for step in range(STEPS))]:
        cache.append(k[:, :, seen - new : seen], k[:, :, seen - new : seen])
        due = cache.held >= BUDGET
        cache.meet(q[:, :, seen - new : seen], unrotated, 8**-0.5)
        if due:
            recent = q[:, :, 4:PROMPT] if new > 1 else q[:, :, seen - cache.at_once : seen]
            index = cache.positions[:, :, : cache.held].long()
            keys = k.gather(2, index[..., None].expand(-1, -1, -1, 8))
            products = recent @ keys.repeat_interleave(HEADS // KV_HEADS, dim=1).mT / 8**0.5  # (B, H, queries, held)
            share = (products.mean(2) + products.var(2, correction=0) / 2).softmax(-1)
            expected = share.unflatten(1, (KV_HEADS, -1)).mean(2) * keys.norm(dim=-1)
            torch.testing.assert_close(cache.ranking(), expected)
            expected[index < 4] = float("inf")
            best = index.gather(2, expected.topk(held_within(BUDGET, cache.at_once, seen)).indices)
        cache.settle()
        if due and new > 1:
            assert torch.equal(cache.positions[:, :, : cache.held].long(), best.sort().values), (
                "the first 4 always stay"
            )
        assert cache.held == held_within(BUDGET, cache.at_once, seen)


def test_a_rotation_is_the_models_own_and_can_be_taken_back(family):
    model, _ = family("llama")
    turn, rows = rotation(model, model.model.layers[0].self_attn), torch.randn(1, 2, 9, 16)
    there = turn(rows, torch.arange(9), False)
    assert (there[:, :, 1:] - rows[:, :, 1:]).abs().max() > 0.1
    torch.testing.assert_close(turn(there, -torch.arange(9), False), rows)
    one = rows[:, :, :1]
    each = turn(one.expand(-1, -1, 9, -1), torch.arange(9), False)
    torch.testing.assert_close(turn(one, torch.arange(9), True), each.mean(2, keepdim=True))


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_kvzip_scores_by_a_second_reading_that_leaves_no_trace(family, name):
    """The scores are the highest weights that `output_attentions` gives in a text that stands there twice."""
    model, _ = family(name)
    ids, kept = prompt_of(2, 24), {}
    for design in ("kvzip", "h2o"):
        cache = DesignCache(DESIGNS[design].at(24), model.config)
        forward = reading_new_tokens(model, cache, cache.note, cache.watching(model))
        with torch.inference_mode():
            forward(ids, ids)
            kept[design] = cache, forward(torch.cat([ids, ids[:, :1]], 1), ids[:, :1])[0]
    with torch.inference_mode():
        model.set_attn_implementation("eager")
        try:
            twice = model(input_ids=ids.repeat(1, 2), output_attentions=True).attentions
        finally:
            model.set_attn_implementation("sdpa")
    zip_cache = kept["kvzip"][0]
    for own in zip_cache.own:
        most = twice[own.number if name == "llama" else 1][:, :, 24:, :24].amax(2)
        most = most.unflatten(1, (own.shape[1], -1)).amax(2)
        for row, head in ((0, 0), (1, own.shape[1] - 1)):
            at = own.positions[row, head, : own.held - 1].long()
            torch.testing.assert_close(own.scores[row, head, : own.held - 1], most[row, head][at], rtol=1e-4, atol=1e-5)
        assert own.seen == 25 and own.held == held_within(24, own.at_once, 25)
    assert torch.isfinite(kept["kvzip"][1]).all()
    assert zip_cache.get_seq_length() == kept["h2o"][0].get_seq_length() == 25


def test_a_second_reading_that_fails_evicts_nothing(family, monkeypatch):
    model, _ = family("llama")
    cache, ids = DesignCache(DESIGNS["kvzip"].at(24), model.config), prompt_of(1, 40)
    monkeypatch.setattr(KVzip, "chunks", lambda *_: [torch.tensor([[10**6]])])
    cache.note(ids)
    with pytest.raises(IndexError), torch.inference_mode(), cache.watching(model)():
        model(input_ids=ids, past_key_values=cache)
    assert all(own.held == 40 and not own.again for own in cache.own)


def test_a_rotation_leaves_the_models_own_rope_as_it_is():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=64, max_position_embeddings=32, rope_parameters=rope, **sizes)
    model, ids = LlamaForCausalLM(config).eval(), torch.arange(60)[None]
    cache = DesignCache(DESIGNS["expected"].at(24), config)
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        with cache.watching(model)():
            model(input_ids=ids, past_key_values=cache)
        assert cache.own[0].held < 60
        torch.testing.assert_close(model(input_ids=ids).logits, before, rtol=0, atol=0)


def test_a_rope_under_another_name_is_refused():
    config = LlamaConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    model = LlamaForCausalLM(config)
    model.model.turning = model.model.rotary_emb
    del model.model.rotary_emb
    with pytest.raises(KvvizError, match="rotates in a way of its own"):
        rotation(model, model.model.layers[0].self_attn)


def test_a_budget_can_fall_from_layer_to_layer(family):
    for at_once in (1, 16):
        budgets = [pyramid_budget(64, at_once, 1_000, number, 8) for number in range(8)]
        assert budgets == sorted(budgets, reverse=True) and budgets[0] > 100 and budgets[-1] >= 8
        assert abs(sum(budgets) - 8 * 64) <= 8, "the mean is the budget, but for what the top layer keeps at least"
    assert pyramid_budget(64, 1, 80, 0, 8) == 80 and pyramid_budget(64, 1, 80, 7, 8) == 48, "no more than the text has"
    model, spec = family("gpt2")
    for design in ("h2o", "sinks", "expected"):
        row = DESIGNS[design].at(24, pyramid=60)
        cache = DesignCache(row, model.config)
        with torch.inference_mode(), cache.watching(model)():
            model(input_ids=prompt_of(1, 60), past_key_values=cache)
        first, second = cache.own
        assert first.held > second.held and 36 <= first.held + second.held <= 2 * 24
        assert sum(own.nbytes for own in cache.own) == kept_bytes(row, spec, 60, 1, "float32")


def test_random_keeps_each_token_as_likely_as_any_other():
    cache = DESIGNS["random"].at(40).new()
    x = torch.zeros(64, 4, 60, 1)
    cache.append(x, x)
    for _ in range(40):
        cache.append(x[:, :, :1], x[:, :, :1])
    shares = torch.bincount(cache.positions.flatten(), minlength=100)[:99] / 256  # the newest is always there
    assert abs(shares.mean() - 0.394) < 0.001 and shares.min() > 0.25 and shares.max() < 0.55  # sd is 0.03


@pytest.mark.parametrize("name", ["gpt2", "llama", "deepseek_v3"])
def test_the_scores_are_the_weights_that_the_model_itself_returns(family, name):
    """With room for every token, H2O's scores are the sums of what `output_attentions` gives."""
    model, _ = family(name)
    ids = prompt_of(2, 24)
    cache = DesignCache(DESIGNS["h2o"], model.config)
    watch = cache.watching(model)
    with torch.inference_mode():
        for part in ids.split([20, 1, 3], dim=1):
            with watch():
                model(input_ids=part, past_key_values=cache)
        model.set_attn_implementation("eager")
        try:
            returned = model(input_ids=ids, output_attentions=True).attentions
        finally:
            model.set_attn_implementation("sdpa")
    for own, weights in zip(cache.own, returned, strict=True):
        torch.testing.assert_close(own.scores[:, :, :24], own.by_head(weights.sum(2)), rtol=1e-4, atol=1e-4)


def test_without_the_weights_it_refuses_to_choose():
    cache = DESIGNS["h2o"].at(8).new()
    x = torch.zeros(1, 2, 12, 4)
    cache.append(x, x)
    with pytest.raises(KvvizError, match="H2O was not shown the weights of attention"):
        cache.append(x, x)


@pytest.mark.parametrize(("said", "tokens"), [("128", 128), ("25%", 250), ("0.5%", None), ("3", 8), ("many", None)])
def test_a_budget_is_a_number_of_tokens_or_a_percentage(said, tokens):
    if tokens is None:
        with pytest.raises(KvvizError, match="number of tokens such as 128, or a percentage such as 25%"):
            tokens_of(said, 1_000)
    else:
        assert tokens_of(said, 1_000) == tokens
