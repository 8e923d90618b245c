"""Whose turn it is, how long that will be, what a server allows, and that a stop needs no second step."""

import gc
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.settings import Limits
from kvviz.cost.step_estimate import OPERATIONS_PER_LAYER
from kvviz.decoding.requirements import foresee, traced_steps
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.eta import Countdown, PastDurations, in_line
from kvviz.experiments.limits import check_prompt
from kvviz.experiments.sweep.plan import estimate
from kvviz.experiments.sweep.run import run
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.models.sources import find_source
from kvviz.server.fair_queue import FairQueue
from kvviz.server.jobs import mark_of, may_change
from kvviz.server.scheduler import Scheduler
from tests.draws import ORDINARY

SPEC = ComparisonSpec(model="tiny-gpt2", prompt="x")
DEVICE = {"rates": {"read": 2e10, "flops": 8e10, "launch": 2e-6}}
ANN, BEN = "a" * 22, "b" * 22

# --- the queue itself: what anyone does to it, in any order ---------------------------------------------------------

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("ABC")),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("put back"), st.none()),
    ),
    max_size=40,
)


def played(actions):
    """A queue after these actions, and what waits in it, each with its owner."""
    queue, waiting, taken = FairQueue(), {}, None
    for number, (action, value) in enumerate(actions):
        if action == "add":
            queue.add(f"{value}{number}", value)
            waiting[f"{value}{number}"] = value
        elif action == "take":
            taken = queue.take()
            waiting.pop(taken, None)
        elif action == "put back" and taken is not None:
            queue.put_back(taken, taken[0])
            waiting[taken], taken = taken[0], None
        elif action == "remove" and value < len(waiting):
            name = sorted(waiting)[value]
            queue.remove(name)
            del waiting[name]
    return queue, waiting


def emptied(queue):
    return list(iter(queue.take, None))


@given(ACTIONS)
def test_the_order_foretold_is_the_order_that_comes_and_nothing_is_lost_or_doubled(actions):
    queue, waiting = played(actions)
    foretold = queue.order()
    assert len(queue.order()) == len(waiting)
    assert emptied(queue) == foretold and sorted(foretold) == sorted(waiting)
    assert queue.take() is None and queue.order() == []


@given(ACTIONS)
def test_each_owners_works_keep_their_order(actions):
    for owner in "ABC":
        own = [int(name[1:]) for name in played(actions)[0].order() if name[0] == owner]
        assert own == sorted(own)


@given(ACTIONS)
def test_between_two_turns_of_one_owner_every_other_has_its_turn(actions):
    queue, _ = played(actions)
    served = emptied(queue)
    for first, name in enumerate(served):
        later = [i for i in range(first + 1, len(served)) if served[i][0] == name[0]]
        if later:
            between = [other[0] for other in served[first + 1 : later[0]]]
            still = {other[0] for other in served[later[0] :]} - {name[0]}
            assert len(between) == len(set(between)), "none twice"
            assert still <= set(between), "none that waits is passed over"


@given(ACTIONS, st.sampled_from("ABCD"))
def test_a_newcomer_puts_nobody_back_by_more_than_a_place(actions, owner):
    queue, _ = played(actions)
    before = queue.order()
    queue.add(f"{owner}99", owner)
    after = queue.order()
    assert [name for name in after if name != f"{owner}99"] == before
    assert after.index(f"{owner}99") <= len({name[0] for name in before}) * (1 + sum(n[0] == owner for n in before))


def test_who_floods_the_queue_waits_behind_who_comes_once():
    queue = FairQueue()
    for number in range(20):
        queue.add(f"A{number}", "A")
    assert queue.take() == "A0"
    queue.add("B0", "B")
    assert queue.order()[:3] == ["B0", "A1", "A2"], "A is being served: B is next"


# --- in the scheduler -----------------------------------------------------------------------------------------------


def test_works_take_turns_by_browser(scheduler_without_worker):
    scheduler = scheduler_without_worker
    anns = [scheduler.submit(SPEC, ANN) for _ in range(3)]
    ben = scheduler.submit(SPEC, BEN)
    assert [scheduler.ahead(own) for own in (anns[0], ben, anns[1], anns[2])] == [0, 1, 2, 3]
    scheduler.stop(anns[0], ANN)
    assert [scheduler.ahead(own) for own in (anns[1], ben, anns[2])] == [0, 1, 2]
    assert scheduler.ahead("unknown") == scheduler.ahead(anns[0]) == 0


def test_the_wait_is_the_sum_of_the_estimates_before(scheduler_without_worker):
    scheduler = scheduler_without_worker
    long = replace(SPEC, new_tokens=512)
    first, second, third = scheduler.submit(long, ANN), scheduler.submit(SPEC, BEN), scheduler.submit(SPEC, "c" * 22)
    each = [foresee(find_source("tiny-gpt2"), work, scheduler.device).whole for work in (long, SPEC)]
    assert scheduler.expected_wait(first) == 0
    assert scheduler.expected_wait(second) == pytest.approx(each[0])
    assert scheduler.expected_wait(third) == pytest.approx(sum(each))
    sweep = SweepSpec(models=("tiny-gpt2",))
    scheduler.submit(sweep, owner="d" * 22)
    last = scheduler.submit(SPEC, "e" * 22)
    assert scheduler.expected_wait(last) == pytest.approx(sum(each) + each[1] + estimate(sweep, scheduler.device))


def test_an_unknown_estimate_before_makes_the_wait_unknown(scheduler_without_worker, tmp_path):
    scheduler = scheduler_without_worker
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8}')
    unknown = scheduler.submit(replace(SPEC, model=str(tmp_path)), ANN)  # its size is known once it is built
    after = scheduler.submit(SPEC, BEN)
    assert scheduler.expected_wait(unknown) == 0 and scheduler.expected_wait(after) is None
    scheduler.stop(unknown, ANN)
    assert scheduler.expected_wait(after) == 0
    scheduler.worker.held_by = "someone else has had the device since noon"
    assert scheduler.expected_wait(after) is None


def test_the_estimate_is_set_right_as_the_run_goes():
    countdown = Countdown(replace(SPEC, new_tokens=10, repeats=1, modes=("cached",)))
    countdown.estimate(DEVICE)
    whole = countdown.whole
    assert countdown.left(5.0) == whole, "it has not begun"
    countdown.note("started", "{}", 100.0)
    assert countdown.left(100.0 + whole / 4) == pytest.approx(whole * 3 / 4)
    part = sum(10 * countdown._estimate.records[name] for name in ("first_look", "proof"))
    assert whole > part > whole / 2, "a first look and the check are most of a run with one repeat"
    for step in range(10):  # they take four times as long as foreseen
        countdown.note("first_look", "{}", 100.0 + 4 * part * (step + 1) / 20)
    for step in range(10):
        countdown.note("proof", "{}", 100.0 + 4 * part * (step + 11) / 20)
    assert countdown.left(100.0 + 4 * part) == pytest.approx(4 * (whole - part))
    assert countdown.left(100.0 + 100 * whole) == 0


def test_the_time_left_stands_on_the_curves_that_the_run_predicts():
    countdown = Countdown(replace(SPEC, new_tokens=4, repeats=5))
    countdown.estimate(DEVICE)
    before = countdown.whole
    curves = {"uncached": [1.0, 2.0, 3.0, 4.0], "cached": [1.0, 0.5, 0.5, 0.5]}
    record = json.dumps({"t": "predicted", "step_s": curves, "tracing_s": 0.25})
    countdown.note("predicted", record, 100.0)
    one = sum(map(sum, curves.values()))
    steps = len(curves) * 4
    records = countdown._estimate.records
    assert countdown._estimate.passes == {"uncached": 10.0, "cached": 2.5}
    assert records["proof"] * 4 == pytest.approx(one + steps * 0.25) and records["first_look"] * 4 == one
    assert countdown.left(100.0) == pytest.approx(7 * one + steps * 0.25 + 2 * records["memory"])
    assert countdown.foreseen == before, "what is learnt of estimates is learnt of those before"


def test_a_run_takes_its_untimed_parts_too():
    """The first look is a pass, the proof one of the modes with a cache and traced steps; the account reads all."""
    few, many = (foresee(find_source("gpt2", "random"), replace(SPEC, model="gpt2", repeats=n), DEVICE) for n in (1, 4))
    one = sum(few.passes.values())
    assert many.whole - few.whole == pytest.approx(3 * one)
    assert few.whole - one == pytest.approx(
        sum(few.records[name] * SPEC.new_tokens for name in ("first_look", "proof")) + 2 * few.records["memory"]
    )
    slower = foresee(find_source("gpt2", "random"), replace(SPEC, model="gpt2"), {**DEVICE, "tracing_s": 1e-3})
    steps = 2 * len(traced_steps(SPEC.new_tokens)) * 12 * OPERATIONS_PER_LAYER / 2
    plain = foresee(find_source("gpt2", "random"), replace(SPEC, model="gpt2"), DEVICE)
    assert slower.whole - plain.whole == pytest.approx(steps * 1e-3)
    alone = foresee(find_source("gpt2", "random"), replace(SPEC, model="gpt2", repeats=1), DEVICE, watched=False)
    assert few.whole == alone.whole and alone.records["first_look"] == 0
    assert sum(alone.records.values()) > few.records["proof"] + few.records["memory"], (
        "and the proof's records cover it"
    )


def test_a_sweep_says_itself_what_it_has_left():
    countdown = Countdown(SweepSpec(models=("tiny-gpt2",)))
    countdown.note("sweep_started", "{}", 10.0)
    countdown.note("progress", '{"left_s": 60.0}', 20.0)
    assert countdown.left(25.0) == 55.0
    countdown.note("progress", '{"left_s": null}', 30.0)
    assert countdown.left(31.0) is None


def test_what_earlier_runs_took_sets_later_estimates_right():
    past = PastDurations(remembered=2)
    assert past.correction == 1
    for foreseen, took in ((1.0, 9.0), (10.0, 20.0), (1.0, 2.0), (None, 5.0), (3.0, None)):
        past.note(foreseen, took)
    assert past.correction == 2, "the last two, the longer one counting more"


def test_places_in_words():
    assert in_line(0, None) == "Waiting for the device"
    assert in_line(3, 41.2) == "3rd in line, about 41 s"
    assert in_line(1, 0.0) == "1st in line, soon", "the run before it takes longer than its estimate"
    assert in_line(12, None) == "12th in line, how long is not known"
    assert in_line(1, 5.0, "kvviz run has had it since noon") == "Waiting: kvviz run has had it since noon"


# --- limits --------------------------------------------------------------------------------------------------------

TIGHT = Limits(prompt_tokens=10, new_tokens=20, batch=2, repeats=3, waiting=4, waiting_per_session=2)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt": None, "prompt_tokens": 11}, "11 prompt tokens; this server allows at most 10"),
        ({"prompt": "x" * 161}, "161 characters of the prompt"),
        ({"new_tokens": 21}, "21 new tokens"),
        ({"batch": 3}, "3 sequences"),
        ({"repeats": 4}, "4 timed passes"),
        ({"warmup": 4}, "4 warm-up passes"),
    ],
)
def test_what_goes_beyond_a_limit_is_refused_with_both_figures(fields, said):
    scheduler = Scheduler(limits=TIGHT)
    fits = replace(SPEC, new_tokens=20)
    scheduler.submit(fits)
    with pytest.raises(KvvizError, match=said):
        scheduler.submit(replace(fits, **fields))
    assert len(scheduler.jobs()) == 1


@pytest.mark.parametrize("fields", [{"prompt_tokens": (5, 11)}, {"new_tokens": (8, 21)}, {"batches": (1, 3)}])
def test_a_sweeps_largest_values_count(fields):
    within = {"models": ("tiny-gpt2",), "prompt_tokens": (5,), "new_tokens": (8,)}
    scheduler = Scheduler(limits=TIGHT)
    scheduler.submit(SweepSpec(**within))
    with pytest.raises(KvvizError, match="this server allows"):
        scheduler.submit(SweepSpec(**within | fields))


def test_the_tokens_of_a_text_are_counted_where_the_tokenizer_is():
    check_prompt(10, 10)
    with pytest.raises(KvvizError, match="11 prompt tokens"):
        check_prompt(11, 10)


def test_one_browser_and_all_together_have_a_limit():
    scheduler = Scheduler(limits=TIGHT)
    small = replace(SPEC, new_tokens=8)
    first, _ = scheduler.submit(small, ANN), scheduler.submit(small, ANN)
    with pytest.raises(KvvizError, match="2 of your runs"):
        scheduler.submit(small, ANN)
    scheduler.stop(first, ANN)
    scheduler.submit(small, ANN)
    scheduler.submit(small, BEN), scheduler.submit(small, BEN)
    with pytest.raises(KvvizError, match="4 comparisons are waiting already"):
        scheduler.submit(small, "c" * 22)


# --- whose ---------------------------------------------------------------------------------------------------------


def test_only_its_browser_may_stop_a_work(scheduler_without_worker):
    scheduler = scheduler_without_worker
    own = scheduler.submit(SPEC, ANN)
    for other in (BEN, ""):
        assert not scheduler.may_stop(own, other)
        with pytest.raises(KvvizError, match="another browser"):
            scheduler.stop(own, other)
    assert scheduler.get(own).active and scheduler.may_stop(own, ANN)
    scheduler.stop(own, ANN)
    assert scheduler.get(own).state == "stopped" and not scheduler.may_stop(own, ANN)
    nobodys = scheduler.submit(SPEC)
    scheduler.stop(nobodys, BEN)
    assert scheduler.get(nobodys).state == "stopped"


def test_a_mark_tells_owners_apart_and_names_nobody():
    assert mark_of("") == "" and mark_of(ANN) != mark_of(BEN)
    assert ANN not in mark_of(ANN) and len(mark_of(ANN)) == 32
    for trusted in (True, False):
        assert may_change(mark_of(ANN), ANN, trusted=trusted)
        assert not may_change(mark_of(ANN), BEN, trusted=trusted)
        assert not may_change(mark_of(ANN), "", trusted=trusted)
        assert may_change("", ANN, trusted=trusted) == trusted


# --- stop: a law on steps, not on seconds ----------------------------------------------------------------------------

WORK = ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=2, repeats=1, warmup=2)
GRID = SweepSpec(models=("tiny-gpt2",), modes=("cached",), prompt_tokens=(5,), new_tokens=(2,), repeats=2)


def forwards(loaded, records_of, stop_in):
    """Forwards begun when a stop comes during forward number `stop_in`, and the kinds of records until then."""
    begun, told, kinds = [0], [False], set()

    def count(*_):
        begun[0] += 1
        told[0] |= begun[0] == stop_in

    hook = loaded.model.register_forward_pre_hook(count)
    try:
        for record in records_of(lambda: told[0]):
            kinds.add(record["t"])
    except Stopped:
        kinds.add("stopped")
    finally:
        hook.remove()
    return begun[0], kinds


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["comparison", "sweep"])
def test_after_a_stop_no_further_step_begins_wherever_it_comes(bench, load, kind, monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda: 0)  # before every pass: it would take most of this test's time
    loaded = load("tiny-gpt2")

    def records_of(should_stop):
        if kind == "comparison":
            return perform(WORK, loaded, comparison_id="c", should_stop=should_stop)
        return run(GRID, bench(device=DEVICE, should_stop=should_stop))

    total, _ = forwards(loaded, records_of, None)
    reached = set()
    apart = max(3, total // 6) if ORDINARY else 3
    for number in {*range(1, total + 1, apart), total}:
        begun, kinds = forwards(loaded, records_of, number)
        assert begun == number and "stopped" in kinds, f"a stop during forward {number} of {total}"
        reached |= kinds
    parts = {"comparison": {"proof", "memory", "pass"}, "sweep": {"cell_proof", "cell_pass"}}
    assert parts[kind] <= reached, "proof, accounts, warm-up and timed passes"
