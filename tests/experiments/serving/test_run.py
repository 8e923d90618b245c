"""Looks at many requests: what is asked, what is really done, what is said of it."""

import json
from dataclasses import replace

import pytest

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.settings import Limits
from kvviz.caches.block_table import BLOCK
from kvviz.cli import measure_here as headless
from kvviz.cli.main import app
from kvviz.experiments.serving import run as serving_run
from kvviz.experiments.serving.arrivals import MOST_PICTURES, compare_policies
from kvviz.experiments.serving.run import arrivals, conversation, prefixes, sharing
from kvviz.experiments.serving.spec import ArrivalsSpec, PrefixesSpec, SharingSpec, TalkSpec
from kvviz.experiments.serving.words import at_once_bytes, common, evicted_of, identity, little_saved, runs_of, text

ARRIVALS = ArrivalsSpec(requests=40, slots=512, longest=128)
SYSTEM = "You are a kind teller of short stories about animals. "
SHARING = SharingSpec("tiny-llama", SYSTEM, ("A fox.", "An owl!", "Two mice"), new_tokens=4, repeats=2)
PREFIXES = PrefixesSpec("tiny-llama", SYSTEM, ("A fox.", "And?"), ("An owl!", "So?"), SYSTEM[::-1], new_tokens=6)
TALK = TalkSpec("tiny-llama", SYSTEM + "A fox.", "And then?", SYSTEM[:40] + "X" + SYSTEM[41:], new_tokens=5, repeats=2)


@pytest.fixture(scope="module")
def records(bench):
    runs = {"arrivals": (arrivals, ARRIVALS), "sharing": (sharing, SHARING)}
    runs |= {"prefixes": (prefixes, PREFIXES), "conversation": (conversation, TALK)}
    return {name: list(run(spec, bench())) for name, (run, spec) in runs.items()}


@pytest.fixture(scope="module")
def crowd(records):
    return records["arrivals"][-1]["document"]


@pytest.fixture(scope="module")
def shared(records):
    return records["sharing"][-1]["document"]


@pytest.fixture(scope="module")
def talk(records):
    return records["conversation"][-1]["document"]


@pytest.fixture(scope="module")
def talks(records):
    return records["prefixes"][-1]["document"]


@pytest.mark.parametrize(
    ("spec", "fields", "said"),
    [
        (ARRIVALS, {"requests": 1}, "requests is 1; it is a whole number from 2 to 200"),
        (ARRIVALS, {"slots": True}, "slots is True"),
        (ARRIVALS, {"rate": 0}, "from 0.1 to 8"),
        (ARRIVALS, {"rate": "x"}, "rate is 'x'"),
        (ARRIVALS, {"slots": 130}, "take at least 144"),
        (SHARING, {"system": " "}, "the system prompt is empty"),
        (SHARING, {"asks": ("one",)}, "take 2 to 8"),
        (SHARING, {"asks": ("one", "")}, "request 2 is empty"),
        (SHARING, {"new_tokens": 0}, "from 1 to 48"),
        (SHARING, {"weights": "x"}, "weights is 'x'"),
        (TALK, {"edited": TALK.first}, "unchanged; change a word"),
        (TALK, {"drop": 0}, "drop is 0"),
        (TALK, {"second": ""}, "the second turn is empty"),
        (PREFIXES, {"percent": 0}, "percent is 0"),
        (PREFIXES, {"other": ("Who?",)}, "as many turns, from 1 to 4"),
        (PREFIXES, {"visitor": " "}, "request 3, V, is empty"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(spec, fields, said):
    with pytest.raises(KvvizError, match=said):
        replace(spec, **fields)


# --- one memory for many ------------------------------------------------------------------------------------


def slots_of(picture):
    """(slots with a token in them, slots that are somebody's, free slots) by the picture alone."""
    if picture["kind"] == "regions":
        owned = sum(length for _, _, length, _ in picture["regions"])
        return sum(tokens for *_, tokens in picture["regions"]), owned, sum(n for _, n in picture["holes"])
    filled = {}
    for _, blocks, tokens in picture["tables"]:
        for place, block in enumerate(blocks):
            filled[block] = max(filled.get(block, 0), min(BLOCK, tokens - place * BLOCK))
    assert not set(filled) & set(picture["free"]) and set(picture["findable"]) <= set(picture["free"])
    return sum(filled.values()), len(filled) * BLOCK, len(picture["free"]) * BLOCK


def test_every_picture_accounts_for_every_slot(crowd):
    """The pictures are bounded and evenly apart."""
    for way in crowd["ways"]:
        ticks = way["ticks"]
        assert 10 < len(way["pictures"]) < MOST_PICTURES
        assert len(way["pictures"]) == len(ticks["tick"]) // way["stride"]
        for number, picture in enumerate(way["pictures"], 1):
            tick = number * way["stride"]
            row = {name: column[tick - 1] for name, column in ticks.items()}
            used, owned, free = slots_of(picture)
            assert row["tick"] == tick and used == row["used"]
            assert owned == row["used"] + row["internal"] and free == row["free"] + row["external"]
            assert owned + free == crowd["slots"]
            owners = picture["regions"] if picture["kind"] == "regions" else picture["tables"]
            assert len(owners) == row["running"]


def test_no_slot_is_in_two_regions(crowd):
    for way in crowd["ways"][:2]:
        for picture in way["pictures"]:
            places = [(start, length) for _, start, length, _ in picture["regions"]] + list(
                map(tuple, picture["holes"])
            )
            slots = sorted(slot for start, length in places for slot in range(start, start + length))
            assert slots == list(range(crowd["slots"]))


def test_what_happens_is_noted_at_its_tick(crowd):
    for way in crowd["ways"]:
        assert sum(way["ticks"]["preempted"]) == way["preempted"]
        assert sum(way["ticks"]["evicted"]) == way["evicted_blocks"]
        assert sum(way["ticks"]["moved"]) == way["moved_tokens"]
    assert crowd["ways"][2]["preempted"] > 0 and crowd["ways"][3]["evicted_blocks"] > 0


def test_a_shared_block_is_in_more_than_one_table(crowd):
    counts = [
        max((sum(b in blocks for _, blocks, _ in picture["tables"]) for b in range(32)), default=0)
        for picture in crowd["ways"][3]["pictures"]
    ]
    assert max(counts) > 1


def test_the_document_is_json_and_says_what_it_shows(crowd):
    assert len(json.dumps(crowd, allow_nan=False)) < 2_000_000
    words = " ".join(crowd["sentences"])
    assert f"{crowd['ways'][2]['preempted']:,} preemptions in blocks" in words
    assert f"{crowd['ways'][1]['moved_tokens']:,} tokens to larger holes" in words
    assert "While some waited" in words


def test_with_room_for_all_it_says_that_nobody_waited(bench):
    found = list(arrivals(ArrivalsSpec(requests=4, rate=0.2, slots=4096, longest=128), bench()))[-1]["document"]
    assert found["ways"][2]["mean_running_while_some_wait"] is None
    assert "in blocks nobody ever had to wait" in found["sentences"][0]


def test_it_stops_between_two_ways(bench):
    with pytest.raises(Stopped):
        list(arrivals(ARRIVALS, bench(should_stop=lambda: True)))


def test_the_same_as_compare_policies(crowd):
    again = compare_policies(ARRIVALS)
    assert [way["ended_at_tick"] for way in crowd["ways"]] == [way["ended_at_tick"] for way in again["ways"]]


# --- a shared prompt ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_shared_prompt_is_computed_once(shared):
    alike = shared["alike_tokens"]
    assert alike == len(SYSTEM)  # a byte is a token; the blank before what is asked is alike too
    kept = BLOCK * (alike // BLOCK)
    assert [row["warm"]["found_tokens"] for row in shared["requests"]] == [0, kept, kept]
    for row in shared["requests"]:
        assert row["identical"] and row["cold"]["computed_tokens"] == row["prompt_tokens"]
        assert row["warm"]["computed_tokens"] == row["prompt_tokens"] - row["warm"]["found_tokens"]
        for name in ("cold", "warm"):
            assert 0 < row[name]["ttft_s_q1"] <= row[name]["ttft_s"] <= row[name]["ttft_s_q3"]
        assert row["answer"] and row["ask"] in SHARING.asks
    first, second, _ = shared["requests"]
    assert first["warm"]["found_bytes"] == 0
    assert second["warm"]["found_bytes"] * (second["prompt_tokens"] + 3) == kept * second["warm"]["cache_bytes"]
    assert shared["kept_bytes"] < shared["cold_bytes"]
    twice = 2 * second["warm"]["found_bytes"]
    assert at_once_bytes(shared["requests"]) == shared["cold_bytes"] - twice, (
        "the beginning of two requests is not theirs"
    )


def test_its_sentences_have_the_documents_figures(shared):
    work, time, memory, same = shared["sentences"]
    cold = sum(row["prompt_tokens"] for row in shared["requests"])
    assert f"3 prompts have {cold:,} tokens" in work
    assert "cold and" in time and "take" in memory and same.startswith("**Identical**")
    rows = [{**row, "identical": i != 1} for i, row in enumerate(shared["requests"])]
    assert identity(rows).startswith("**Not identical**: cold and warm gave different tokens in 2.")


# --- two conversations ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_tree_accounts_for_what_each_request_hit_and_computed(talks):
    assert talks["identical"] and talks["needed_blocks"] == 5 + 5 + 4 - 3 and talks["blocks"] == 7
    for row in talks["rows"]:
        assert [one["who"] for one in row["requests"]] == ["A", "B", "V", "A", "B"]
        assert row["evicted_blocks"] == sum(evicted_of(row).values()) > 0
        for number, one in enumerate(row["requests"]):
            runs = list(runs_of(one["tree"]))
            states = [state for run in runs for state in run["states"]]
            assert BLOCK * states.count("hit") == one["hit_tokens"]
            assert BLOCK * states.count("again") == one["recomputed_tokens"]
            assert states.count("evicted") == one["evicted_blocks"]
            assert len(states) - states.count("evicted") - states.count("gone") <= talks["blocks"]
            path = [run for run in runs if number in run["requests"]]
            said = "".join(text for run in path for text in run["texts"])
            asked = ("" if one["who"] == "V" else SYSTEM.strip() + " ") + PREFIXES.asked[number][1].strip()
            assert said.startswith(asked[: len(said)]) or number > 2
        assert row["hit_tokens"] + row["computed_tokens"] == sum(one["prompt_tokens"] for one in row["requests"])


# --- a conversation -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_turn_keeps_the_full_blocks_before_the_first_difference(talk):
    first, second, edited, trimmed = talk["requests"]
    held = first["prompt_tokens"] + 5 - 1
    assert second["alike_tokens"] == held and edited["alike_tokens"] == 40 and trimmed["alike_tokens"] == 0
    for row in talk["requests"]:
        assert row["warm"]["found_tokens"] == BLOCK * (row["alike_tokens"] // BLOCK)
        assert row["identical"] and len(row["pieces"]) == row["prompt_tokens"]
    assert [row["warm"]["found_tokens"] > 0 for row in talk["requests"]] == [False, True, True, False]
    assert trimmed["prompt_tokens"] == second["prompt_tokens"] - TALK.drop


def test_each_turn_says_what_was_kept_and_why(talk):
    first, second, edited, trimmed = (row["sentence"] for row in talk["requests"])
    assert first.startswith("Nothing is there yet")
    assert "the 4 full blocks of them are kept, 64 tokens" in second
    assert "the same for 40 tokens, up to the edit" in edited and "the 2 full blocks" in edited
    assert "moves 16 positions" in trimmed and "No tokens are cache hits" in trimmed


@pytest.mark.slow
def test_more_cannot_be_cut_off_than_there_is(bench):
    with pytest.raises(KvvizError, match="400 can't be cut off"):
        list(conversation(replace(TALK, drop=400), bench()))


@pytest.mark.slow
def test_texts_that_are_too_long_are_refused(bench):
    with pytest.raises(KvvizError, match="here it is at most 800: write less"):
        list(sharing(replace(SHARING, system="a" * 900), bench()))
    with pytest.raises(KvvizError, match="this server allows at most 30"):
        list(sharing(SHARING, bench(limits=Limits(prompt_tokens=30))))


@pytest.mark.slow
def test_a_look_stops_between_two_prompts(bench):
    asked = []

    def should_stop():
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(Stopped):
        list(sharing(SHARING, bench(should_stop=should_stop)))
    assert len(asked) == 3


def test_that_hardly_any_time_was_saved_is_said_where_it_was_so():
    def row(found, cold, warm):
        return {"cold": {"ttft_s": cold, "found_tokens": 0}, "warm": {"ttft_s": warm, "found_tokens": found}}

    assert little_saved([row(0, 1.0, 2.0)]) is None, "nothing was kept"
    assert little_saved([row(0, 1.0, 9.0), row(32, 1.0, 0.5)]) is None
    assert "32 tokens were cache hits and hardly any time" in little_saved([row(32, 1.0, 0.9)])
    assert "90% of the time" in little_saved([row(32, 1.0, 0.9)])


def test_what_two_sequences_have_in_common():
    assert [common([1, 2, 3], other) for other in ([1, 2, 4], [1, 2], [], [1, 2, 3, 4])] == [2, 2, 0, 3]


# --- headless -----------------------------------------------------------------------------------------------


def test_the_command_prints_the_documents(records, monkeypatch, capsys):
    asked = []
    for name, found in records.items():
        monkeypatch.setattr(serving_run, name, lambda spec, bench, found=found: asked.append(spec) or iter(found))
    monkeypatch.setattr(headless, "settle", lambda: None)
    given = ["--requests", "20", "--slots", "512", "--longest", "128", "--share", "2"]
    app(["serving", "tiny-llama", *given, "--system", SYSTEM, "--json"], standalone_mode=False)
    said = capsys.readouterr()
    documents = [found[-1]["document"] for found in records.values()]
    assert json.loads(said.out) == dict(
        zip(("fragmentation", "sharing", "prefixes", "conversation"), json.loads(json.dumps(documents)), strict=True)
    )
    assert (asked[0].requests, asked[0].longest, len(asked[1].asks), asked[1].system) == (20, 128, 2, SYSTEM)
    assert "4 of 5, Paged, prefixes shared" in said.err


def test_without_a_model_it_is_the_memory_alone_and_words_for_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(headless, "settle", lambda: None)
    app(["serving", "--requests", "20", "--slots", "512", "--longest", "128"], standalone_mode=False)
    said = capsys.readouterr().out
    assert "Growing in one piece moved" in said and "**" not in said and "Identical" not in said


def test_a_terminal_is_told_of_turns_as_well(crowd, shared, talks, talk):
    said = text({"fragmentation": crowd, "sharing": shared, "prefixes": talks, "conversation": talk})
    assert "Fewest hits first: " in said and "had been there before" in said
    assert "trimmed: The first 16 tokens are gone" in said and "Work: 3 prompts" in said and "**" not in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--slots", "10"], "slots is 10"),
        (["--share", "1"], "--share is 1"),
        (["no-such-model"], "no-such-model"),
        (["tiny-llama", "--system", " "], "the system prompt is empty"),
    ],
)
def test_the_command_refuses_in_a_sentence(monkeypatch, given, said):
    monkeypatch.setattr(headless, "settle", lambda: None)
    with pytest.raises(KvvizError, match=said):
        app(["serving", *given], standalone_mode=False)


# --- through the scheduler ------------------------------------------------------------------------------------------


def test_how_long_it_takes_is_foreseen_and_learnt(scheduler_without_worker):
    scheduler = scheduler_without_worker
    served = scheduler.submit(SHARING, "one")
    one_prompt = scheduler.get(served).countdown.whole / SHARING.prefills
    assert one_prompt > 0 and scheduler.get(scheduler.submit(TALK, "one")).countdown.whole > 0
    first = scheduler.submit(ARRIVALS, "another")
    assert scheduler.get(first).countdown.whole is None
    scheduler.record(first, {"t": "look"})
    scheduler.record(first, {"t": "done", "document": {}})
    assert scheduler.get(scheduler.submit(replace(ARRIVALS, seed=1), "another")).countdown.whole is not None


def test_a_model_that_keeps_states_is_refused_before_anything_is_queued(scheduler_without_worker):
    with pytest.raises(KvvizError):
        scheduler_without_worker.submit(replace(SHARING, model="mamba-130m"))
    assert scheduler_without_worker.jobs() == []
