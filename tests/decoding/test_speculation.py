"""Speculation: what a draft proposes, what is accepted, and that the text is the one without it."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvviz import compare
from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.decoding.loop import chooser, decode
from kvviz.decoding.modes import check_modes
from kvviz.decoding.speculation import COPIED, PROPOSED, LookupDraft
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.comparison.verdict import speculated
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


@pytest.mark.parametrize("mode", ["lookup", "speculative"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, top_k=40, seed=5)])
def test_the_text_is_the_models_own(pair, mode, sampling):
    found = steps(pair, mode, sampling)
    assert tokens(found) == tokens(steps(pair, "cached", sampling))
    forwards = [step for step in found if step.proposed is not None]
    assert sum(len(step.proposed) for step in forwards) > 0
    assert len(found) - len(forwards) >= (10 if mode == "speculative" else 0), "accepted tokens need no forward"


@pytest.mark.parametrize("mode", ["lookup", "speculative"])
def test_a_token_is_accepted_only_if_it_was_proposed_and_chosen(pair, mode):
    found = steps(pair, mode)
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


@pytest.mark.slow
def test_drawn_texts_are_distributed_as_the_models_own(pair):
    """Chi-square over all texts of three tokens, with two that can be drawn at each place, against exact shares."""
    loaded, _ = pair
    hot = {"temperature": 2.0, "top_k": 2}
    shares, prompt = {(): 1.0}, loaded.codec.encode(STORY)
    for _ in range(3):
        texts = list(shares)
        with torch.inference_mode():
            logits = loaded.model(torch.tensor([[*prompt, *text] for text in texts])).logits[:, -1]
        best = (logits / hot["temperature"]).double().topk(2, -1)
        shares = {
            (*text, int(token)): shares[text] * float(share)
            for text, tokens, row in zip(texts, best.indices, best.values.softmax(-1), strict=True)
            for token, share in zip(tokens, row, strict=True)
        }
    drawn = Counter(
        tuple(tokens(steps(pair, "speculative", Sampling(**hot, seed=i), new_tokens=3))) for i in range(200)
    )
    assert drawn.keys() <= shares.keys()
    chi = sum((drawn[text] - 200 * share) ** 2 / (200 * share) for text, share in shares.items())
    assert chi < 24.3, "the 99.9 % quantile for 7 degrees of freedom"


@draws(60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, COPIED))
def test_a_lookup_copies_what_followed_the_longest_match(ids, count):
    found = LookupDraft().propose(ids, count)
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
    words = speculated(speculative, usual)
    gain = sum(usual["step_s"][1:]) / sum(speculative["step_s"][1:])
    assert f"{speculative['accepted']} of {speculative['drafted']} proposals were accepted" in words
    assert (f"{gain:.3g} times as fast" if gain > 1 else f"at {gain:.0%} of its pace") in words
    busy = {"passes": {"clean": 0, "disturbed": 1}}
    assert "≈: other work" in speculated({**speculative, **busy}, usual)
    assert "≈: other work" in speculated(speculative, {**usual, **busy})
    assert done.document["runs"][2]["memory"]["formula"] <= done.document["runs"][2]["memory"]["tensors"]
