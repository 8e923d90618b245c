"""The law of the engine: every request's tokens are those that it gets alone, whatever shares its forwards.

A state machine submits, cancels and steps at random, in memories so small that sequences are preempted.
"""

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import hypothesis.strategies as st
import pytest
import torch
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from transformers import AutoConfig, AutoModelForCausalLM

from kvviz.base.errors import KvvizError
from kvviz.caches.ragged import has_to_be_padded
from kvviz.experiments.batching.batcher import Request
from kvviz.experiments.batching.engine import Engine
from kvviz.experiments.batching.policies import POLICIES, policy_named
from tests.caches.conftest import check
from tests.draws import draws
from tests.experiments.batching.conftest import POOL, requests_of, tokens_alone

LONGEST = max(shared + own + new for shared, own, new, _ in POOL)  # fits in the smallest memory, 4 blocks of 16


class EngineMachine(RuleBasedStateMachine):
    """`expected` has the tokens of every request that was submitted, `seen` how often things happened."""

    seen: ClassVar[Counter] = Counter()

    @initialize(
        name=st.sampled_from(["gpt2", "gemma3"]),
        policy=st.sampled_from(list(POLICIES)),
        places=st.integers(2, 5),
        blocks=st.integers(4, 7),
        budget=st.integers(1, 12),
        share=st.booleans(),
        host_blocks=st.sampled_from([None, 3, 9]),
    )
    def begin(self, name, policy, places, blocks, budget, share, host_blocks):
        self.known = self.alone(name)
        sizes = {"places": places, "budget": places + budget, "share": share, "context": 120}
        sizes |= {"preemption": "swap" if host_blocks else "recompute", "host_blocks": host_blocks}
        self.engine = Engine(self.family(name)[0], policy_named(policy), blocks, **sizes)
        self.batcher, self.groups = self.engine.batcher, self.engine.cache.groups
        self.expected, self.cancelled, self.computed = {}, set(), 0

    @rule(which=st.integers(0, len(POOL) - 1), again=st.integers(1, 4))
    def submit(self, which, again):
        for _ in range(again):
            request, tokens = self.known[which]
            number = len(self.batcher.sequences)
            self.expected[number] = tokens
            assert self.engine.submit(replace(request, number=number)).state == "waiting"

    @rule(prompt=st.sampled_from([0, 5, 110, 300]), new=st.sampled_from([0, 100]))
    def submit_what_never_fits(self, prompt, new):
        one = self.engine.submit(Request(len(self.batcher.sequences), tuple(range(prompt)), new))
        room = self.groups.blocks * 16
        fits = prompt and new and prompt + new <= 120 and prompt + new - 1 <= room
        assert one.state == ("waiting" if fits else "refused") and bool(one.why) == (not fits)
        if fits:
            assert self.engine.cancel(one.request.number)

    @precondition(lambda self: self.expected)
    @rule(share=st.floats(0, 0.999))
    def cancel(self, share):
        number = sorted(self.expected)[int(share * len(self.expected))]
        state = self.batcher.sequences[number].state
        assert self.engine.cancel(number) == (state in ("waiting", "running"))
        assert not self.engine.cancel(number) and not self.engine.cancel(-1)
        self.seen[f"cancelled while {state}"] += 1
        if state != "done":
            self.cancelled.add(number)

    @rule(count=st.integers(1, 12))
    def step(self, count):
        for _ in range(count):
            if self.engine.busy:
                self.one_step()

    def one_step(self):
        one = self.engine.step()
        self.computed += sum(tokens for _, _, tokens in one.parts)
        self.seen.update(steps=1, preempted=len(one.preempted), tokens=len(one.tokens))
        assert one.parts, "a step without work"
        computed = sum(tokens for _, _, tokens in one.parts)
        assert self.batcher.budget is None or computed <= self.batcher.budget
        joins, before = self.batcher.policy.joins, one.running - len(one.admitted) + len(one.preempted)
        assert joins != "empty" or not one.admitted or not before, "somebody joined a batch that had begun"

    @invariant()
    def no_block_is_lost_or_owned_by_somebody_who_is_gone(self):
        running, waiting = self.batcher.running, self.batcher.waiting
        states = Counter(one.state for one in self.batcher.sequences.values())
        assert states["running"] == len(running) <= self.batcher.places and states["waiting"] == len(waiting)
        for tables in self.groups.tables.values():
            check(tables)
            assert set(tables.sequences) == {one.place for one in running}
            for one in running:
                assert tables.sequences[one.place].length == one.computed < len(one.ids)
        swap = self.batcher.swap
        away = [hosts for one in waiting for _, hosts in swap.rows.get(one.request.number, {}).values()]
        assert set(swap.rows) <= {one.request.number for one in waiting}, "somebody who is gone has room there"
        assert sum(map(len, away)) == sum(pool.used for pool in swap.pools.values()), "a host block is lost"
        assert all(pool.used <= swap.blocks and max(pool.refs, default=0) <= 1 for pool in swap.pools.values())

    @invariant()
    def the_tokens_so_far_are_those_of_each_alone(self):
        for number, tokens in getattr(self, "expected", {}).items():
            chosen = self.batcher.sequences[number].chosen
            assert chosen == tokens[: len(chosen)], f"request {number} under {self.batcher.policy.name}"

    def teardown(self):
        """Everybody who was not cancelled gets all tokens, and every block is free in the end."""
        if not hasattr(self, "engine"):
            return
        while self.engine.busy:
            self.one_step()
        self.no_block_is_lost_or_owned_by_somebody_who_is_gone()
        for number, tokens in self.expected.items():
            one = self.batcher.sequences[number]
            done = number not in self.cancelled
            assert one.state == ("done" if done else "cancelled") and (not done or one.chosen == tokens)
            self.seen.update(hits=one.hits, recomputed=one.recomputed, overtaken=one.overtaken)
            self.seen.update(one.swapped)
        assert self.groups.free == self.groups.blocks
        ended = [one for one in self.batcher.sequences.values() if one.state == "done"]
        needed = sum(len(one.ids) - 1 - one.hits + one.recomputed for one in ended)
        assert needed == self.computed or self.cancelled


@pytest.mark.slow
def test_everybody_gets_the_tokens_that_it_gets_alone(family, alone):
    assert alone("gpt2") and alone("gemma3")  # before hypothesis draws
    machine = type("Machine", (EngineMachine,), {"family": staticmethod(family), "alone": staticmethod(alone)})
    run_state_machine_as_test(machine, settings=draws(25, stateful_step_count=14))
    print(EngineMachine.seen)
    assert {"steps", "preempted", "hits"} <= {name for name, count in EngineMachine.seen.items() if count}, (
        EngineMachine.seen
    )


def finished(engine, known, count=None):
    """Submit the pool at once and step until all is done; every step, and the requests in the order of their ends."""
    for request, _ in known[:count]:
        engine.submit(request)
    steps = []
    while engine.busy:
        steps.append(engine.step())
    for request, tokens in known[:count]:
        assert engine.batcher.sequences[request.number].chosen == tokens
    return steps, [number for step in steps for number in step.ended]


# what each family's config calls its sizes; all compute attention in a way of their own
PADDED = {
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "codegen": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "falcon, with ALiBi": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True},
    "gpt_neo": {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 20,
                "attention_types": [[["global", "local"], 1]]},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 128},
    "xglm": {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "policy"), [(name, ("chunked", "swap")[number % 2]) for number, name in enumerate(PADDED)]
)
def test_families_that_have_to_be_padded_give_the_tokens_of_each_alone(name, policy):
    """In chunks, with shared prefixes, and in a memory so small that some are computed again or copied."""
    fields = {"model_type": name.split(",")[0], **PADDED[name], "vocab_size": 96, "initializer_range": 0.4}
    torch.manual_seed(4)
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields, **ends)).eval()
    assert has_to_be_padded(model)
    known = [(request, tokens_alone(model, request)) for request in requests_of(POOL[2:6])]
    engine = Engine(model, policy_named(policy), 5, places=4, budget=11)
    steps, _ = finished(engine, known)
    came_to = engine.batcher.sequences.values()
    assert any(step.preempted for step in steps) and any(one.hits for one in came_to)
    assert any(one.swapped for one in came_to) == (policy == "swap")


def test_policies_differ_in_who_is_served_when(family, alone):
    model, known = family("gpt2")[0], alone("gpt2")
    runs = {name: finished(Engine(model, policy, 64, places=2, budget=8), known) for name, policy in POLICIES.items()}
    steps = {name: len(run[0]) for name, run in runs.items()}
    assert max(steps, key=steps.get) == "static"
    assert max(sum(tokens for *_, tokens in step.parts) for step in runs["chunked"][0]) == 8
    for step in runs["prefill-first"][0]:
        assert len({tokens > 1 for *_, tokens in step.parts}) == 1, "a prefill shares its step with a decode step"
    totals = {request.number: len(request.prompt) + request.new_tokens for request, _ in known}
    admitted = [number for step in runs["shortest"][0] for number in step.admitted]
    assert admitted == sorted(totals, key=totals.get)


def test_who_is_overtaken_is_counted(family, alone):
    """The longest request comes first and goes last: all the others pass it."""
    model, known = family("gpt2")[0], alone("gpt2")
    order = sorted(known, key=lambda one: -len(one[0].prompt) - one[0].new_tokens)
    engine = Engine(model, policy_named("shortest"), 64, places=1)
    finished(engine, order)
    assert [engine.batcher.sequences[request.number].overtaken for request, _ in order] == [6, 5, 4, 3, 2, 1, 0]


def test_shared_prefixes_are_computed_once(family, alone):
    model, known = family("gpt2")[0], alone("gpt2")
    computed = {}
    for share in (False, True):
        engine = Engine(model, policy_named("static"), 64, places=1, share=share)
        computed[share] = sum(tokens for step in finished(engine, known)[0] for *_, tokens in step.parts)
        assert sum(one.hits for one in engine.batcher.sequences.values()) == computed[False] - computed[share]
    assert computed[False] - computed[True] == 16 + 32 + 32, "whole blocks of what came before: of 40, of 33, of 37"


def test_what_is_copied_to_the_host_is_not_computed_again_while_there_is_room(family, alone):
    """Nothing is shared, so a block that was given up is gone: it is computed again, or it comes back from the host."""
    model, known = family("gemma3")[0], alone("gemma3")
    figures = {}
    for name, more in {
        "recompute": {},
        "swap": {"preemption": "swap"},
        "none": {"preemption": "swap", "host_blocks": 1},
    }.items():
        engine = Engine(model, policy_named("continuous"), 6, places=4, share=False, **more)
        steps, _ = finished(engine, known)
        every = engine.batcher.sequences.values()
        again, copied = sum(one.recomputed for one in every), sum((one.swapped for one in every), Counter())
        figures[name] = sum(len(step.preempted) for step in steps), again, copied
    assert figures["none"] == figures["recompute"] and figures["recompute"][1] > 0 == figures["recompute"][2].total()
    preempted, again, copied = figures["swap"]
    assert preempted and not again and copied["swapped_out_blocks"] == copied["swapped_in_blocks"]
    block = 2 * 16 * 4 * sum(memory[0, 0].numel() for memory in engine.cache.keys.values()) / 2
    assert copied["swapped_out_bytes"] == copied["swapped_in_bytes"] == copied["swapped_out_blocks"] * block


def test_what_cannot_be_is_refused(family):
    model = family("gpt2")[0]
    with pytest.raises(KvvizError, match="no policy 'fastest'; the policies are static, continuous"):
        policy_named("fastest")
    with pytest.raises(KvvizError, match=r"8 tokens is too short for 8 sequences .* at least 9"):
        Engine(model, policy_named("chunked"), 4, places=8, budget=8)
    engine = Engine(model, policy_named("static"), 4, context=128)
    said = [engine.submit(Request(number, (1,) * prompt, new)).why for number, (prompt, new) in
            enumerate([(0, 4), (4, 0), (100, 30), (40, 26), (40, 25)])]  # fmt: skip
    assert "has no prompt" in said[0] and "asks for no new token" in said[1]
    assert "130 tokens in all; the model has 128 positions" in said[2]
    assert "needs 65 tokens of memory, which has room for 64" in said[3] and not said[4]
    with pytest.raises(KvvizError, match="a request 4 already"):
        engine.submit(Request(4, (1,), 1))


def test_a_step_may_compute_a_token_again_and_write_nothing(family, alone):
    """Of two equal requests the second finds the first one's blocks, and computes their last token again."""
    machine = type("Machine", (EngineMachine,), {"family": staticmethod(family), "alone": staticmethod(alone)})()
    machine.begin(name="gpt2", policy="continuous", places=2, blocks=4, budget=1, share=True, host_blocks=None)
    machine.submit(which=4, again=2)
    machine.teardown()
