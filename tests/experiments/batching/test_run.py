"""A serving run: when what happened, by a clock of the test's own; the document of a real one; the command."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from kvviz.base.errors import KvvizError, Stopped
from kvviz.cli import measure_here as headless
from kvviz.cli.main import app
from kvviz.experiments.batching import run as batching_run
from kvviz.experiments.batching.engine import Engine
from kvviz.experiments.batching.policies import THEIRS, policy_named
from kvviz.experiments.batching.run import run
from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.batching.timeline import Return, figures_of, returned, returns, serve, together
from kvviz.experiments.batching.words import (
    _takes,
    all_answered,
    claim,
    compared_returns,
    fair,
    intact,
    preemption_claim,
    preemption_in_all,
    sentences,
    text,
    told_by_returns,
    untouched,
)
from kvviz.models.text import ByteCodec, Speller

SPEC = BatchingSpec(
    "tiny-qwen3",
    arrivals_s=(0.0, 0.0, 0.0, 0.01, 0.02, 0.02),
    prompts=(20, 5, 0, 60, 9_000, 33),
    answers=(6, 20, 4, 8, 5, 12),
    policies=("shortest", "chunked", THEIRS),
    places=2,
    slots=96,
    shared=16,
    budget=16,
    alone=2,
)


@pytest.fixture(scope="module")
def records(bench):
    return list(run(SPEC, bench()))


@pytest.fixture(scope="module")
def document(records):
    return records[-1]["document"]


class Clock:
    """Seconds that pass only when an engine steps, or when somebody sleeps."""

    def __init__(self):
        self.now = 100.0

    def sleep(self, seconds):
        self.now += seconds


def test_what_happened_when_is_kept_of_each_request(family, alone):
    """Steps of one second, and two places: the third request has to wait for the second to end."""
    clock, known = Clock(), alone("gpt2")
    engine = Engine(family("gpt2")[0], policy_named("continuous"), 64, places=2)
    taken = engine.step

    def step():
        clock.now += 1
        return taken()

    engine.step = step
    requests = [replace(known[i][0], number=number) for number, i in enumerate((2, 1, 3))]
    arrivals = list(zip((0.0, 0.5, 5.5), requests, strict=True))
    parts = list(serve(engine, arrivals, Speller(ByteCodec(512)), clock=lambda: clock.now, sleep=clock.sleep))
    assert len(parts) == 13 and all(len(part["steps"]["began_s"]) <= 1 for part in parts), "a step takes long enough"
    rows, steps, memory = together(parts)
    first, second, third = rows
    assert first["admitted_s"] == [0] and first["chunks"] == [[0, 1, 0, 17]]
    assert first["token_s"] == [float(at) for at in range(1, 13)] and first["ended_s"] == 12
    assert second["arrival_s"] == 0.5 and second["admitted_s"] == [1] and second["ended_s"] == 10
    assert third["admitted_s"] == [10] and third["chunks"] == [[10, 11, 16, 33]] and third["hit_tokens"] == 16
    assert steps["running"] == [1] + [2] * 11 + [1] and steps["waiting"][5:11] == [0, 1, 1, 1, 1, 0]
    assert steps["computed"][:3] == [17, 8, 2] and steps["ended_s"] == [float(at) for at in range(1, 14)]
    assert (memory.stride, len(memory.kept)) == (1, 13) and memory.kept[0]["tables"] == [(0, [0, 1], 17)]
    assert "".join(first["pieces"]) == ByteCodec(512).decode(first["token_ids"]) and len(first["pieces"]) == 12
    figures = figures_of(rows)
    assert (figures["ttft_s_p50"], figures["ttft_s_p99"], figures["itl_s_p99"]) == (1.5, 5.5, 1)
    assert figures["tokens_per_s"] == 24 / 13 and figures["seconds"] == 13


@pytest.mark.slow
def test_every_policy_serves_the_same_requests_with_the_same_tokens(document):
    assert [row["policy"] for row in document["rows"]] == list(SPEC.policies) and document["checked"] == 2
    refused = {2: "request 2 has no prompt: there is nothing to continue"}
    refused[4] = "request 4 has 9,005 tokens in all; the model has 2,048 positions"
    for row in document["rows"]:
        assert row["identical"] and (row["requests"], row["done"], row["refused"]) == (6, 4, 2)
        assert row["new_tokens"] == 46 and row["tokens_per_s"] == pytest.approx(46 / row["seconds"])
        assert 0 < row["ttft_s_p50"] <= row["ttft_s_p90"] <= row["ttft_s_p99"]
        assert 0 <= row["itl_s_p50"] <= row["itl_s_p90"] <= row["itl_s_p99"]
        for one in row["each"]:
            assert one["sentence"] == refused.get(one["number"], "")
            if one["state"] == "done":
                assert len(one["token_ids"]) == one["new_tokens"]
                assert len(one["token_s"]) == one["new_tokens"] or row["policy"] == THEIRS
                times = [one["arrival_s"], *one["admitted_s"][:1], *one["token_s"], one["ended_s"]]
                assert all(earlier <= later for earlier, later in pairwise(times))
    for row in document["rows"][:2]:
        assert row["hit_tokens"] > 0 and max(row["steps"]["running"]) <= 2 and max(row["steps"]["blocks"]) <= 6
        computed = sum(row["steps"]["computed"])
        prompts = sum(one["prompt_tokens"] - one["hit_tokens"] for one in row["each"] if one["state"] == "done")
        assert computed == prompts + row["recomputed_tokens"] + 46 - 4
    assert max(document["rows"][1]["steps"]["computed"]) <= 16


@pytest.mark.slow
def test_the_document_is_json_and_says_what_it_shows(records, document):
    json.dumps(document, allow_nan=False)
    assert [record["t"] for record in records if record["t"] != "part"] == ["look", "way", "way", "way", "done"]
    said = " ".join(document["sentences"])
    assert "Identical**: each request got the same tokens under every policy; 2 of them" in said
    assert "**Refused**: request 2 has no prompt: there is nothing to continue; 1 more was refused" in said
    shown = text({**document, "notes": ["A note."]})
    assert "transformers" in shown and "A note." in shown and "**" not in shown


@pytest.mark.slow
def test_the_parts_put_together_are_the_document(records, document):
    codec = ByteCodec(512)
    for row in document["rows"]:
        parts = [json.loads(json.dumps(record)) for record in records if record.get("policy") == row["policy"]]
        each, steps, memory = together(parts)
        assert (each, steps) == (row["each"], row["steps"]) and len(parts) >= 1
        assert (memory.stride, memory.kept) == (row["stride"], json.loads(json.dumps(row["pictures"])))
        assert all("".join(one["pieces"]) == codec.decode(one["token_ids"]) for one in each)
        assert [picture["step"] for picture in memory.kept] == [*range(1, len(steps["began_s"]) + 1)]
    assert records[0]["prompts"] == document["prompts"] and len(document["prompts"]) == 6


def test_what_starves_and_what_differs_is_said():
    row = {
        "title": "Shortest",
        "requests": 9,
        "tokens_per_s": None,
        "preempted": 1,
        "recomputed_tokens": 7,
        "swapped_out_blocks": 0,
        "starved": 2,
    }
    told = sentences([{**row, "identical": False, "each": []}], 0)
    both = [
        {"policy": name, "ttft_s_p50": first, "itl_s_p99": pause, "clean": first > 0.1}
        for name, first, pause in (("static", 0.3, 0.002), ("continuous", 0.01, 0.006))
    ]
    said = "Continuous batching: the first token after ≈ 10 ms instead of 300 ms (median), "
    assert claim(both) == f"{said}but pauses between tokens of ≈ 6 ms instead of 2 ms (p99)"
    even = [both[0], {**both[1], "itl_s_p99": 0.002}]
    assert claim(even) == f"{said}and pauses between tokens of ≈ 2 ms instead of 2 ms (p99)"
    assert claim([{**both[0], "ttft_s_p50": None}, both[1]]) == "Requests that are decoded together"
    rates = [{**row, "seconds": s, "tokens_per_s": 760 / s} for row, s in zip(both, (0.51, 0.4), strict=True)]
    assert all_answered(rates) == (
        "**All requests are answered** after 510 ms in static batches, ≈ 400 ms with continuous batching."
    )
    assert all_answered(rates[:1]) == ""
    assert told[0] == "**Shortest**: 1 preemption, because the blocks ran out; 7 tokens were computed again."
    swap = {"swapped_out_blocks": 5, "swapped_in_blocks": 4, "swapped_out_bytes": 5120, "swapped_in_bytes": 4096}
    assert sentences([{**row, **swap, "identical": True, "each": []}], 0)[0].endswith(
        "5 blocks were copied to the host's memory and 4 blocks back, 9.0 KiB in all, and 7 tokens were computed again."
    )
    assert "starves: 2 of 9 requests saw more later ones go first" in told[1] and "Not identical**: Shortest" in told[2]


def row_of_returns(policy, again=0, more=0.004, untouched=0.01):
    """Steps of 10 ms in which two run, in some beside a new prompt; in the fourth and the sixth a request returns."""
    began = [0.1 * number for number in range(1, 10)]
    computed = [2, 2, 22, 2 + again, 2, 22 + again, 2, 22, 22]
    ended = [at + 0.01 + more * (number in (3, 5)) for number, at in enumerate(began)]
    one = {
        "number": 1,
        "prompt_tokens": 16,
        "token_s": [0.15, ended[3], ended[5]],
        "admitted_s": [0.0, began[3], began[5], 1.2],
        "preempted_s": [0.19, began[4], 0.95, 1.2],  # in the last it had to go at once
        "chunks": [[began[place], ended[place], 0, again + 1] for place in (3, 5) if again],
    }
    quiet = {"number": 0, "token_s": [0.0, untouched], "admitted_s": [0.0], "preempted_s": [], "chunks": []}
    steps = {"began_s": began, "ended_s": ended, "running": [2] * 9, "computed": computed}
    return {"policy": policy, "clean": True, "seconds": 0.6, "preempted": 4, "each": [one, quiet], "steps": steps}


def test_a_step_with_a_return_is_held_against_its_like_without_one():
    found = returned(row_of_returns("continuous", again=15))
    assert [(one.requests, one.tokens, one.beside) for one in found] == [(1, 16, False), (1, 17, True)]
    assert [one.more_s for one in found] == pytest.approx([0.004, 0.004])
    short = row_of_returns("swap")
    short["steps"] = {name: column[:-1] for name, column in short["steps"].items()}
    assert [one.more_s is None for one in returned(short)] == [False, True], "two steps are too few to compare with"


def test_what_a_return_takes_is_said_of_all_that_can_be_compared():
    rows = [row_of_returns("continuous", again=15), row_of_returns("swap", more=0.0005)]
    assert preemption_claim(rows) == (
        "A preempted request's return takes 4.0 ms if its tokens are computed again, 0.50 ms if they are copied back "
        "(2 and 2 returns)"
    )
    assert preemption_claim([rows[0], {**row_of_returns("swap"), "clean": False}]) == (
        "No clear difference: a preempted request's return takes 4.0 ms if its tokens are computed again, ≈ 4.0 ms if "
        "they are copied back (2 and 2 returns)"
    )
    assert "no time that could be measured if they are copied back" in preemption_claim(
        [rows[0], row_of_returns("swap", more=-0.001)]
    )
    assert told_by_returns(rows) == (
        "A point is a **step** in which preempted requests return, one or several at once: 2 in 2 steps, computed "
        "again, and 2 in 2 steps, copied back; of 16 and 16 tokens on average. Its height is **what each return "
        "adds to the step's time**, over the median step that does the same other work without one. Copying out, at "
        "the preemption, is not in it."
    )
    short = row_of_returns("swap")
    short["steps"] = {name: column[:-1] for name, column in short["steps"].items()}
    assert told_by_returns([rows[0], short]).endswith(" 1 more had no steps to be compared with.")
    alone = {**short, "steps": {name: column[3:4] for name, column in short["steps"].items()}}
    assert preemption_claim([rows[0], alone]).startswith("No comparison: too few steps without a return")
    assert preemption_claim([rows[0], {**rows[1], "preempted": 0}]).startswith("Nobody was preempted")
    assert compared_returns(rows[0]) == returned(rows[0])


def test_a_return_from_a_preemption_lasts_until_the_next_token():
    each = [
        {"token_s": [0.1, 0.2, 0.5, 0.6], "admitted_s": [0.0, 0.48], "preempted_s": [0.3], "chunks": []},
        {"token_s": [0.9], "admitted_s": [0.8], "preempted_s": [], "chunks": []},
    ]
    again = {
        "token_s": [0.1, 0.504],
        "admitted_s": [0.0, 0.3, 0.5],
        "preempted_s": [0.2, 0.4],  # at 0.4 before a token
        "chunks": [],
    }
    assert returns(each) == {(0.48, 0.5): 1} and returns([again]) == {(0.5, 0.504): 1}
    assert returns([again, again]) == {(0.5, 0.504): 2}, "two returns in one step"


@pytest.mark.parametrize(
    ("again", "back", "says"), [(33, 5, ""), (22, 5, "67% of the tokens had to be computed again, 100% of the blocks")]
)
def test_blocks_that_nobody_overwrote_come_back_for_nothing(again, back, says):
    rows = [{**row_of_returns("continuous", again=15), "recomputed_tokens": again}]
    rows.append({"swapped_out_blocks": 5, "swapped_in_blocks": back})
    said = intact(rows)
    assert said == (says and f"Blocks that were still intact came back for nothing: {says} to be copied back.")


@pytest.mark.parametrize(
    ("pace", "is_fair", "says"), [(0.0105, True, "1.05 times"), (0.013, False, "serve them again")]
)
def test_two_rules_are_compared_only_where_the_machine_was_as_fast(pace, is_fair, says):
    rows = [row_of_returns("continuous"), row_of_returns("swap", untouched=pace)]
    assert untouched(rows) == pytest.approx(pace / 0.01) and fair(rows) is is_fair
    assert says in preemption_in_all(rows) and preemption_claim(rows).startswith("No comparison") is not is_fair
    nobody = [{**each, "each": each["each"][:1]} for each in rows]
    assert untouched(nobody) is None and fair(nobody) and preemption_in_all(nobody).endswith("if they are copied.")


def test_it_stops_between_two_steps(bench):
    asked = []
    with pytest.raises(Stopped):
        list(
            run(
                replace(SPEC, alone=0, policies=("static",)),
                bench(should_stop=lambda: asked.append(1) or len(asked) > 9),
            )
        )
    assert len(asked) == 10


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"policies": ()}, "at least one policy"),
        ({"policies": ("fastest",)}, "no policy 'fastest'"),
        ({"arrivals_s": (0.0,)}, "not equally long"),
        ({"arrivals_s": (0.0, 0.0, 0.0, 1.0, 0.5, 2.0)}, "in order"),
        ({"prompts": (1, 2, 3, 4, 5, -6)}, "prompts is -6"),
        ({"budget": 2}, "take a budget of at least 3"),
        ({"slots": 8}, "slots is 8"),
        ({"temperature": 1.0}, "transformers draws other random numbers"),
        ({"model": ""}, "needs a model"),
        ({"preemption": "wait"}, "no preemption 'wait'; it is recompute or swap"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(fields, said):
    with pytest.raises(KvvizError, match=said):
        replace(SPEC, **fields)


def test_the_command_serves_a_trace(monkeypatch, capsys, document, tmp_path):
    asked = []
    monkeypatch.setattr(
        batching_run, "run", lambda spec, bench: asked.append(spec) or iter([{"t": "done", "document": document}])
    )
    monkeypatch.setattr(headless, "settle", lambda: None)
    path = tmp_path / "mine.csv"
    rows = ["2024-01-01 00:00:05,7,3", "2024-01-01 00:00:04,5,2"]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows))
    app(
        ["serving", "tiny-qwen3", "--trace", str(path), "--policy", "static,chunked", "--preemption", "swap", "--json"],
        standalone_mode=False,
    )
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == json.loads(json.dumps(document["rows"])) and "goes back in time once" in found["notes"][0]
    assert asked[0].preemption == "swap"
    assert (asked[0].prompts, asked[0].answers, asked[0].policies) == ((5, 7), (2, 3), ("static", "chunked"))
    with pytest.raises(KvvizError, match="name one, such as mini-qwen3"):
        app(["serving", "--trace", "sample"], standalone_mode=False)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ((0.0006, 0.0022), "0.6 to 2.2 ms"),
        ((-0.0001, 0.00061), "0 to 0.61 ms"),
        ((0.002, 0.002), "2.0 ms"),
        ((-0.001, 0.0), "no time that could be measured"),
    ],
)
def test_what_returns_take_is_told_from_the_least_to_the_most_in_the_digits_of_the_most(costs, said):
    steps = [Return(2, 160, 2 * cost, False) for cost in costs]
    assert _takes({"clean": True}, steps) == said
