"""Speculation: what a draft proposes, what is accepted, and that the text is the one without it."""

import math
from collections import Counter
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel

from kvviz import compare
from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.base.words import ratio
from kvviz.decoding import speculation
from kvviz.decoding.loop import Sampler, chooser, decode, draw
from kvviz.decoding.modes import check_modes
from kvviz.decoding.speculation import COPIED, PROPOSED, LookupDraft, verified
from kvviz.experiments.comparison.expected_text import compare_modes
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.comparison.speculated import speculated
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.models.sources import usual_draft
from kvviz.models.text import STORY
from tests.draws import draws
from tests.tiny_configs import TINY

NEW = 40


@pytest.fixture(scope="module")
def pair(load):
    """A trained model and one with the same tokenizer that drafts for it."""
    return load("mini-qwen3"), load("mini-gpt2")


def steps(pair, mode, sampling=Sampling(), prompt=STORY, new_tokens=NEW):
    loaded, draft = pair
    ids = torch.tensor([loaded.codec.encode(prompt)])
    return list(
        decode(loaded.model, ids, mode=mode, new_tokens=new_tokens, choose=chooser(sampling), draft=draft.model)
    )


def tokens(found):
    return [int(step.token_ids) for step in found]


@pytest.mark.parametrize(
    ("mode", "sampling"),
    [("lookup", Sampling()), ("speculative", Sampling()), ("lookup", Sampling(temperature=0.9, top_k=40, seed=5))],
)
def test_the_text_is_the_models_own(pair, mode, sampling):
    found = steps(pair, mode, sampling)
    assert tokens(found) == tokens(steps(pair, "cached", sampling))
    forwards = [step for step in found if step.proposed is not None]
    assert sum(len(step.proposed) for step in forwards) > 0
    assert len(found) - len(forwards) >= (10 if mode == "speculative" else 0), "accepted tokens need no forward"


@pytest.mark.parametrize("mode", ["lookup", "speculative"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, seed=5)])
def test_a_token_is_accepted_only_if_it_was_proposed_and_chosen(pair, mode, sampling):
    found = steps(pair, mode, sampling)
    assert tokens(found) == tokens(steps(pair, mode, sampling)), "one seed, one text"
    proposed, at = (), 0
    for i, step in enumerate(found):
        if step.proposed is None:
            assert proposed[i - 1 - at] == int(found[i - 1].token_ids)
        else:
            rejected = proposed[i - 1 - at : i - at]
            assert not rejected or rejected[0] != int(found[i - 1].token_ids), "an accepted proposal needs no forward"
            proposed, at = step.proposed, i


def test_the_cache_is_cropped_to_the_tokens_that_stand(pair):
    loaded, draft = pair
    ids, held = torch.tensor([loaded.codec.encode(STORY)]), []
    for step in decode(loaded.model, ids, mode="speculative", new_tokens=NEW, draft=draft.model):
        held.append(step.cache.get_seq_length())
        assert ids.shape[1] + step.index <= held[-1] <= ids.shape[1] + step.index + PROPOSED
    grown = {after - before for before, after in pairwise(held)}
    assert grown & set(range(1, PROPOSED + 1)), (
        "a forward reads one token more than were proposed; what is rejected goes"
    )


def right(token, q, p, numbers):
    return verified(token, q, p, numbers)


def from_the_model_again(token, q, p, numbers):
    """Is wrong: in place of a rejected token it draws from p, so what p and q agree on comes too often."""
    return token if numbers[0] * q[token] < p[token] else int(draw(p[None], numbers[1:]))


def by_its_share_alone(token, q, p, numbers):
    """Is wrong: it accepts with p(x), as if the draft had been certain of x."""
    return token if numbers[0] < p[token] else int(draw((p - q).clamp(min=0)[None], numbers[1:]))


def always(token, q, p, numbers):
    return token


def chi_square(drawn, shares, count):
    """How far counts lie from their expectations; what can't be drawn must not be."""
    if set(drawn) - {one for one, share in shares.items() if share}:
        return math.inf
    return sum((drawn[one] - count * share) ** 2 / (count * share) for one, share in shares.items() if share)


@pytest.mark.parametrize("rule", [right, from_the_model_again, by_its_share_alone, always])
def test_the_rejection_rule_gives_the_models_distribution(rule):
    p = torch.tensor([0.45, 0.3, 0.15, 0.1, 0], dtype=torch.float64)
    q = torch.tensor([0, 0.2, 0.3, 0.2, 0.3], dtype=torch.float64)
    numbers = torch.rand(3000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    guesses = draw(q.expand(3000, -1), numbers[:, 0]).tolist()
    drawn = Counter(rule(guess, q, p, own) for guess, own in zip(guesses, numbers[:, 1:], strict=True))
    chi = chi_square(drawn, dict(enumerate(p.tolist())), 3000)
    assert (chi < 16.3) == (rule is right), "the 99.9% quantile for 3 degrees of freedom"


def four_tokens(seed):
    """A model of one layer and four tokens."""
    torch.manual_seed(seed)
    size = {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 16, "vocab_size": 4, "initializer_range": 0.4}
    return GPT2LMHeadModel(GPT2Config(**size, bos_token_id=None, eos_token_id=None)).eval()


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "count"), [(right, 600), (from_the_model_again, 200)])
def test_drawn_texts_are_distributed_as_the_models_own(monkeypatch, rule, count):
    """Chi-square over the second and third token of texts of four, which a draft proposed, against exact shares."""
    monkeypatch.setattr(speculation, "verified", rule)
    model, draft, prompt, shares = four_tokens(1), four_tokens(2), [1, 2, 3], Counter()
    for text in product(range(4), repeat=3):
        with torch.inference_mode():
            each = Sampler(Sampling(1.0, top_k=3)).shares(model(torch.tensor([[*prompt, *text]])).logits[0, 2:5])
        shares[text[1:]] += float((each / each.sum(-1, keepdim=True))[range(3), text].prod())
    assert sum(shares.values()) == pytest.approx(1)

    def text(seed):
        choose = chooser(Sampling(1.0, top_k=3, seed=seed))
        found = decode(model, torch.tensor([prompt]), mode="speculative", new_tokens=4, choose=choose, draft=draft)
        return tuple(tokens(found))

    chi = chi_square(Counter(text(seed)[1:3] for seed in range(count)), shares, count)
    assert (chi < 31.3) == (rule is right), "the 99.9% quantile for 11 degrees of freedom"


def test_a_draft_that_is_the_model_itself_draws_what_the_model_draws(load):
    same, hot = (load("mini-gpt2"),) * 2, Sampling(temperature=0.9, top_k=40, top_p=0.95, seed=5)
    found = steps(same, "speculative", hot)
    assert tokens(found) == tokens(steps(same, "cached", hot))
    assert all(step.proposed is None or step.index % (PROPOSED + 1) == 1 for step in found[1:]), "all are accepted"


def test_sampled_speculation_is_told_from_a_wrong_text():
    modes, made = ("speculative", "cached", "lookup"), {"new_tokens": 12, "repeats": 1, "prompt": "A story"}
    done = compare("tiny-llama", modes=modes, draft="tiny-qwen3", temperature=1.5, seed=3, **made).document
    assert done["reference"] == "cached" and done["identical"]
    assert [(run["exact"], run["identical"]) for run in done["runs"]] == [(False, False), (True, True), (True, True)]
    same, (sentence,) = compare_modes(done)
    assert same and "sampled (same distribution, other draws)" in sentence
    assert speculated(done["runs"][0], done["runs"][1]).endswith(
        "Its tokens are sampled: same distribution, other draws."
    )


@draws(60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, COPIED))
def test_a_lookup_copies_what_followed_the_longest_match(ids, count):
    found = [proposal.token for proposal in LookupDraft().propose(ids, count)]
    assert len(found) <= count
    seen = [n for n in (3, 2, 1) if n < len(ids) and any(ids[i : i + n] == ids[-n:] for i in range(len(ids) - n))]
    if not seen:
        assert found == []
        return
    starts = [i for i in range(len(ids) - seen[0]) if ids[i : i + seen[0]] == ids[-seen[0] :]]
    assert found == ids[starts[-1] + seen[0] :][:count]


def test_what_it_can_not_do_is_said(pair, load):
    with pytest.raises(KvvizError, match="one sequence, not 2"):
        next(decode(pair[0].model, torch.ones(2, 4, dtype=torch.long), mode="lookup", new_tokens=2))
    with pytest.raises(KvvizError, match=r"kind sliding: take cached"):
        check_modes(["lookup"], TINY["mistral"])
    with pytest.raises(KvvizError, match="with the tokenizer of tiny-qwen3: name one"):
        usual_draft("tiny-qwen3")
    with pytest.raises(KvvizError, match="do not have the same tokenizer"):
        compare("mini-qwen3", modes=("speculative",), draft="tiny-gpt2", new_tokens=2, repeats=1)
    with pytest.raises(KvvizError, match="one sequence, not 2: take batch 1"):
        ComparisonSpec(model="mini-gpt2", prompt="x", batch=2, modes=("cached", "lookup"))
    with pytest.raises(KvvizError, match="a sweep takes no draft model"):
        SweepSpec(models=("mini-gpt2",), modes=("cached", "speculative"), prompt_tokens=(8,), new_tokens=(4,))
    with pytest.raises(KvvizError, match="draft is a model"):
        ComparisonSpec(model="mini-gpt2", prompt="x", draft=" ")
    assert usual_draft("mini-qwen3") == "mini-gpt2" and usual_draft("mini-gpt2") == "mini-qwen3"


@pytest.mark.slow
def test_the_document_counts_and_the_verdict_explains():
    done = compare("mini-gpt2", modes=("cached", "lookup", "speculative"), new_tokens=NEW, repeats=1)
    usual, lookup, speculative = done.document["runs"]
    assert usual["steps"] is None and done.document["identical"]
    for run in (lookup, speculative):
        assert run["steps"] + run["accepted"] == NEW and run["accepted"] <= run["drafted"]
        assert run["identical"] and run["repeatable"] and run["estimate"] is None
        assert run["accepted"] <= run["tried"] <= min(run["drafted"], run["accepted"] + run["steps"] - 1)
        assert run["usual_s"] > 0 and all(row["forward_s"] > row["draft_s"] > 0 for row in run["verified"])
    (full,) = speculative["verified"]
    assert full["proposals"] == PROPOSED and 0 < full["forwards"] < speculative["steps"]
    words = speculated(speculative, usual)
    gain = sum(usual["step_s"][1:]) / sum(speculative["step_s"][1:])
    assert f"{speculative['accepted']} of {speculative['drafted']} proposals were accepted" in words
    assert (f"{ratio(gain)} times as fast" if gain > 1 else f"at {gain:.0%} of its pace") in words
    busy = {"passes": {"clean": 0, "disturbed": 1}}
    assert "≈: other work" in speculated({**speculative, **busy}, usual)
    assert "≈: other work" in speculated(speculative, {**usual, **busy})
    assert done.document["runs"][2]["memory"]["formula"] <= done.document["runs"][2]["memory"]["tensors"]
