"""What figures claim: sentences whose numbers are the data's, and none where the data says nothing."""

import pytest

from kvviz.charts import claims
from kvviz.memory.calculator import Asked, answers
from kvviz.memory.what_if import ideas


def run(mode, step_s, kl=None, title=None):
    return {"mode": mode, "title": title or mode, "step_s": step_s, "quality": kl and {"kl": kl}}


def request(found, cold, warm, computed=4):
    warm = {"found_tokens": found, "computed_tokens": computed, "ttft_s": warm}
    return {"prompt_tokens": found + computed, "cold": {"ttft_s": cold}, "warm": warm}


def test_latency_is_of_the_steps_and_not_of_the_prefill():
    runs = [run("uncached", [0.5, 0.006, 0.009]), run("cached", [0.5, 0.001, 0.002, 0.002]), run("int8", [0.5, 0.004])]
    assert claims.of_latency(runs) == "With a cache the median step takes 2 ms to 4 ms, without one 7.5 ms"
    assert claims.of_latency(runs[1:]) == "With a cache the median step takes 2 ms to 4 ms"
    assert claims.of_latency([run("cached", [0.5])]) == ""


def test_it_is_said_over_which_tokens_the_mean_runs_and_which_lose_nothing():
    runs = [run("cached", [], [0.0, 0.0]), run("int8", [], [0.0, 0.02], "8 bits"), run("sinks", [], [0.0, 0.4], "Ring")]
    assert claims.of_mean(runs) == "a mean over all 2 tokens, of which the first loses nothing"
    assert claims.of_mean(runs[:1]) == "a mean over all 2 tokens", "no design loses anything"
    later = run("int8", [], [0.0] * 1_200 + [0.1], "8 bits")
    assert claims.of_mean([later]) == "a mean over all 1,201 tokens, of which the first 1,200 lose nothing"
    assert claims.of_mean([run("sinks", [], [0.1, 0.1])]) == "a mean over all 2 tokens", "all tokens lose"


def test_what_is_written_is_held_against_the_least_of_all_that_count_it():
    rows = [{"title": title, "copied": n} for title, n in (("A", 4096), ("B", 1024), ("C", None), ("D", 1024))]
    assert claims.of_written(rows) == "For the last token “A” writes 4.0 KiB, 2 designs write 1.0 KiB"
    assert claims.of_written(rows[:2]).endswith("4.0 KiB, “B” 1.0 KiB") and claims.of_written(rows[1:3]) == ""


def test_quality_names_the_memory_saved():
    runs = [run("cached", [], [0.0, 0.0]), run("int8", [], [0.0, 0.02], "8 bits"), run("sinks", [], [0.0, 0.4], "Ring")]
    for one, nbytes in zip(runs, (1000, 300, 400), strict=True):
        one["quality"]["nbytes"] = nbytes
    both = "“8 bits” saves 70% of a float32 cache; “Ring” saves 60%"
    assert claims.of_quality(runs, "float32") == f"{both}, and its predictions drift about 20 times as far on this text"
    assert claims.of_quality(runs[::2], "float32") == "“Ring” saves 60% of a float32 cache and loses most"
    runs[2]["quality"]["nbytes"] = 1000
    assert claims.of_quality(runs, "float32") == "“Ring” loses most, and saves no memory on this text"
    assert claims.of_quality(runs[:1], "float32") == "No design loses anything on this text"


def test_waits_are_of_those_who_found_something():
    rows = [request(0, 0.1, 0.1, 20), request(16, 0.02, 0.01), request(16, 0.04, 0.01)]
    assert claims.of_shared_prompt(rows) == (
        "With the shared prompt in the cache, the first token comes after 10 ms, the median of 2 requests; "
        "without it, after 30 ms"
    )
    assert claims.of_shared_prompt(rows[:1]) == "No request found anything in the cache"
    turns = [{**row, "turn": turn} for row, turn in zip(rows, ("first", "second", "edited"), strict=True)]
    assert claims.of_turns(turns).endswith("the second turn's first token comes after 10 ms; without it, after 20 ms")


def test_policies_are_compared_at_a_tick_and_while_some_wait():
    ways = [
        {
            "name": name,
            "ticks": {"running": running},
            "internal_share_while_some_wait": share,
            "ended_at_tick": len(running),
        }
        for name, running, share in (("reserved", [1, 2, 2], 0.67), ("paged", [1, 5], 0.08), ("batched", [1] * 9, 0.7))
    ]
    assert "At time step 2, 2 sequences run" in claims.of_moment(ways, 2) and claims.of_moment(ways, 2).endswith(
        "5 in blocks"
    )
    assert claims.of_moment(ways, 3).endswith("0 in blocks"), "it was over before"
    assert "67% of the memory is taken and empty if it is reserved, 8% in blocks" in claims.of_waste(ways)
    nobody = [{**way, "internal_share_while_some_wait": None} for way in ways]
    assert "%" not in claims.of_waste(nobody)


@pytest.mark.parametrize(
    ("seconds", "bound", "said"),
    [
        (
            0.5,
            "launch",
            "Starting operations takes up to 80% of a decode step; a prefill is mostly arithmetic",
        ),
        (
            0.25,
            "memory",
            "A decode step is mostly reading; a prefill is mostly arithmetic",
        ),
        (
            0.25,
            "compute",
            "A decode step is mostly arithmetic; a prefill is mostly arithmetic",
        ),
    ],
)
def test_a_roofline_says_what_bounds_the_phases_by_the_division_of_the_bars(seconds, bound, said):
    step = {"phase": "decode", "batch": 1, "tokens": 64, "bound": bound, "s": seconds, "bytes": 1e8, "flops": 1e6}
    whole = {"phase": "prefill", "batch": 1, "tokens": 64, "bound": "compute", "s": 1.0, "bytes": 1e8, "flops": 1e12}
    found = {
        "points": [step, whole, {**step, "batch": 8, "bound": "memory"}],
        "roof": {"read": 1e9, "flops": 1e12},
        "row": {"read": 0.5e9, "flops": 1e12},
        "starting_s": 0.4 if bound == "launch" else 0.05,
        "profiles": [],
    }
    if bound == "launch":
        step["bytes"] = 1e7
    if bound == "compute":
        step["flops"] = 2.2e11
    assert claims.of_roofline(found) == said
    call = {"forward": "compiled step", "tokens": 64, "wall_s": 0.2, "unprofiled_s": 0.125}
    assert ("memory-bound on this device.**" in claims.of_bounds(found)) == (bound == "memory")
    found["row"] = found["roof"]
    if bound == "memory":
        assert claims.of_roofline(found).startswith("Reading takes 40% of a decode step; "), "nothing reads slower"
    compiled = claims.of_roofline({**found, "profiles": [call]})
    assert (" of a decode step, 80% once it is compiled; " in compiled) is (bound == "memory")
    bounds = [claims.of_bounds({**found, "profiles": calls}) for calls in ([], [call], [{**call, "wall_s": 0.05}])]
    assert (
        bounds
        == {
            "launch": ["", "", ""],
            "memory": [
                "**So neither reading nor arithmetic bounds this decode step.**",
                "**Once it is compiled, a decode step is memory-bound on this device**; not compiled, it takes "
                "2.0 times as long, because launch and the rest take longer.",
                "",
            ],
            "compute": ["**Arithmetic is a decode step's largest part: the step is compute-bound on this device.**"] * 2
            + [""],
        }[bound]
    )


@pytest.mark.parametrize(
    ("call_s", "launch", "cache", "said"),
    [
        (0.5, 0.2, 0.1, "500 ms**: launches (at most 200 ms), copying the cache (100 ms), "
            "slower reading (at least 100 ms of 300 ms); about 100 ms are not explained."),
        (0.65, 0.25, 0.1, "350 ms**: launches (at most 250 ms), copying the cache (100 ms)."),
        (0.8, 0.4, 0.0, "200 ms**: launches (at most 200 ms)."),
        (0.7, 0.0, 0.0, "300 ms**; about 300 ms are not explained."),
        (1.1, 0.4, 0.0, ""),
    ],
)  # fmt: skip
def test_what_compiling_removes_is_said_as_far_as_the_run_shows_it(call_s, launch, cache, said):
    step = {"phase": "decode", "batch": 1, "tokens": 64, "s": 1.0, "bytes": 3e8, "flops": 1e6}
    whole = {**step, "phase": "prefill", "flops": 1e12}
    classes = {"weights": 1 - launch - cache, "attention": 0.0, "cache": cache, "other": 0.0, "gaps": launch}
    decode = {"forward": "decode", "tokens": 64, "wall_s": 1.0, "unprofiled_s": 1.0, "classes": classes}
    call = {"forward": "compiled step", "tokens": 64, "wall_s": call_s, "unprofiled_s": call_s}
    found = {
        **{"points": [step, whole], "roof": {"read": 1e9, "flops": 1e12}, "row": {"read": 0.5e9, "flops": 1e12}},
        **{"starting_s": 0.1, "profiles": [decode, call]},
    }
    assert claims.of_compiling(found) == (said and f"**Compiling saves {said}")
    assert claims.of_compiling({**found, "profiles": [decode]}) == "", "no compiled step"
    assert claims.of_compiling({**found, "profiles": [decode, {**call, "wall_s": call_s / 2}]}) == "", "was busy"


def test_what_two_sequences_do_not_gain_is_said_of_what_was_measured():
    step = {"phase": "decode", "batch": 1, "tokens": 64, "s": 0.4, "bytes": 1e8, "flops": 1e6}
    two = {**step, "batch": 2, "s": 0.72}
    alone = "At a context of 64 tokens, from one to two sequences a step takes 1.8 times as long."
    told = [of_two([step, two]), of_two([step, two, {**two, "batch": 4, "s": 1.4}])]
    assert told == [alone, alone]
    shared = of_two([step, two, {**two, "batch": 4, "s": 0.86}])
    said = (
        "At a context of 64 tokens, from one to two sequences a step takes 1.8 times as long, with each doubling after "
        "that only {} times: all share the reading of the weights."
    )
    assert shared == said.format("1.2")
    more = [step, two, {**two, "batch": 4, "s": 0.86}, {**two, "batch": 8, "s": 1.29}]
    assert of_two(more) == said.format("1.2 to 1.5")
    assert of_two([step, {**step, "batch": 2, "s": 0.5}]) == "" == of_two([step])
    assert claims.of_second({"points": [step], "profiles": []}) == ""


def of_two(points, profiles=()):
    return claims.of_two({"points": points, "profiles": profiles})


def profiled(name, seconds, **classes):
    """A profile of a step that takes as long without the profiler."""
    return {"forward": name, "tokens": 64, "wall_s": seconds, "unprofiled_s": seconds, "classes": classes}


@pytest.mark.parametrize(
    ("weights", "attention", "said"),
    [
        (
            0.55,
            0.07,
            "250 ms are products with the weights, though both steps read the same weights; "
            "the cause was not measured.",
        ),
        (0.3, 0.32, "310 ms are attention."),
    ],
)
def test_what_the_second_sequence_adds_is_said_by_the_profiles(weights, attention, said):
    step = {"phase": "decode", "batch": 1, "tokens": 64, "s": 0.4}
    points = [step, {**step, "batch": 2, "s": 0.71}]
    one = profiled("decode", 0.4, weights=0.3, attention=0.01, gaps=0.09)
    two = profiled("2 sequences", 0.71, weights=weights, attention=attention, gaps=0.09)
    found = {"points": points, "profiles": [one, two]}
    assert claims.of_second(found) == f"Of the 310 ms that a second sequence adds, {said}"
    for profiles in ([one], [one, {**two, "unprofiled_s": 2.0}]):
        unknown = claims.of_second({**found, "profiles": profiles})
        assert unknown.endswith("was not measured."), "a profile is missing, or was disturbed"


def test_what_the_largest_batch_waits_for_is_said_by_its_profile():
    step = {"phase": "decode", "batch": 1, "tokens": 64, "s": 0.4, "roof_share": 0.4}
    found = {
        "points": [step, {**step, "batch": 4, "s": 1.0, "roof_share": 0.236}],
        "profiles": [profiled("4 sequences", 1.0, weights=0.5, attention=0.1, cache=0.25, other=0.05, gaps=0.1)],
    }
    assert claims.of_most(found) == (
        "4 sequences reach 24% of the roof at 64 tokens: of 1,000 ms a step, most goes to products with the weights "
        "(500 ms), copying the caches (250 ms) and attention (100 ms)."
    )
    assert claims.of_most({**found, "profiles": []}) == "" == claims.of_most({**found, "points": [step]})


def test_the_emptiest_caches_are_all_named():
    rows = [
        {"title": title, "quality": quality, "empty_share": share}
        for title, quality, share in (("No cache", None, 0), ("A", {}, 0.31), ("B", {}, 0.0), ("C", {}, 0.314))
    ]
    assert claims.of_empty(rows) == "“A” and “C” leave the most empty: 31% of the memory, over all steps"
    assert claims.of_empty(rows[::2]) == "No cache leaves memory empty"


@pytest.mark.parametrize(
    ("held", "allocated", "said"),
    [
        ([20, 30], [40, 40], "“B” leaves as many bytes empty as “A” but holds fewer, so its share is larger."),
        ([20, 30], [30, 50], ""),  # as much in all, at other steps
        ([60, 70], [80, 80], ""),  # the same share, too
    ],
)
def test_a_larger_empty_share_of_the_same_room_is_explained(held, allocated, said):
    rows = [
        {
            "title": title,
            "quality": {},
            "cache_bytes": held,
            "allocated_bytes": allocated,
            "mean_wasted": 15,
            "empty_share": (sum(allocated) - sum(held)) / sum(allocated),
        }
        for title, held, allocated in (("A", [60, 70], [80, 80]), ("B", held, allocated))
    ]
    assert claims.of_same_room(rows) == claims.of_same_room(rows[::-1]) == said
    assert claims.of_same_room([{**row, "mean_wasted": 0} for row in rows]) == ""


def test_written_tokens_are_counted_and_the_most_is_named():
    assert claims.of_written_slots({"A": 1, "B": 1}) == "To add one token, every design writes 1 token"
    assert claims.of_written_slots({"A": 1, "B": 71, "C": 39}) == (
        "To add one token, “B” writes 71 tokens; 1 design writes 1"
    )
    assert claims.of_written_slots({"A": 1, "B": 9, "C": 1, "D": 9}).endswith(
        "“B” and “D” write 9 tokens; 2 designs write 1"
    )


def test_profiles_and_batches_are_ratios_of_what_was_measured():
    profiles = [
        {"forward": name, "classes": {"weights": weights, "gaps": gaps}, "wall_s": weights + gaps, "unprofiled_s": s}
        for name, weights, gaps, s in (("prefill", 3.0, 1.0, 3.0), ("decode", 1.0, 4.0, 2.0))
    ]
    said = claims.of_shares(profiles)
    assert "makes the decode step 2.5 times as long, its largest part is time between operations (at most 80%)" in said
    assert said.endswith("of the prefill, products with the weights (75%)")
    assert claims.of_profiles(profiles) == "A decode step takes 2,000 ms, the prefill 3,000 ms"
    assert claims.of_profiles(profiles[:1]) == "" == claims.of_shares(profiles[:1])
    compiled = {"forward": "compiled step", "unprofiled_s": 0.5, "wall_s": 0.6}
    assert claims.of_profiles([*profiles, compiled]).endswith("the same step as one compiled call 500 ms")
    assert claims.of_profiles([*profiles, {**compiled, "unprofiled_s": 1.0}]) == "", "something else used the device"
    points = [
        {"phase": "decode", "tokens": tokens, "batch": batch, "tokens_per_s": rate}
        for tokens, batch, rate in ((32, 1, 10), (32, 8, 60), (64, 1, 10), (64, 8, 40), (16, 1, 9))
    ]
    assert claims.of_batches(points).endswith(
        "decode 6 times as many tokens a second as one, at a context of 32 tokens, and 4 times at 64"
    )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("llama-3.1-8b", "With 8 KV heads instead of 32, LLaMA 3.1-8B keeps a quarter of the cache"),
        ("falcon-7b", "With 1 KV head instead of 71, Falcon-7B keeps 1/71 of the cache"),
        ("deepseek-v3", "With one latent row instead of 128 keys and values, DeepSeek-V3 keeps 1/71 of the cache"),
        ("gpt2", "With a KV head for each of its 12 query heads, GPT-2 small keeps the whole cache: 36.0 KiB a token"),
        ("gemma-3-12b", "In Gemma 3-12B, 8 of 48 layers go on growing with the text, by 64.0 KiB a token"),
        ("t5-small", "In T5-small, 6 of 12 layers go on growing with the text, by 12.0 KiB a token"),
        ("mamba-130m", "No further token adds anything to the cache of Mamba-130M: it stays at 2.5 MiB"),
    ],
)
def test_a_cache_is_told_by_what_makes_it_as_large_as_it_is(model, words):
    (found,) = answers(Asked(models=(model,)))
    assert claims.of_cache(found.title, found.spec, found.memory, found.config) == words


def test_a_cache_is_told_as_its_view_keeps_it():
    """Of Falcon-40B's 8 KV heads transformers keeps a copy for each query head."""
    (found,) = answers(Asked(models=("falcon-40b",), view="hf-dynamic"))
    assert claims.of_cache(found.title, found.spec, found.memory, found.config) == (
        "With a KV head for each of its 128 query heads, Falcon-40B keeps the whole cache: 1.9 MiB a token"
    )


def test_a_plan_says_whether_it_fits():
    assert claims.of_plan(True, (2**30, 2**30), 2**31) == (
        "It fits: a card needs 1.0 GiB of the 2.0 GiB that may be used"
    )
    assert claims.of_plan(None, (2**30, 2**31), 2**30).startswith("It may fit: what driver and engine take decides")
    assert claims.of_plan(False, (2**31, 2**32), 2**30).startswith("It does not fit: a card needs 2.0 GiB to 4.0 GiB")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("llama-3.1-8b", "All 32 layers keep the same: 32.0 MiB each"),
        ("deepseek-v3", "All 61 layers keep the same: 9.0 MiB each"),
        ("mistral-7b-v0.1", "All 32 layers keep the same: 16.0 MiB each, at most 4,096 tokens"),
        ("mamba-130m", "All 24 layers keep the same: 108.0 KiB each, a state that never grows"),
        ("falcon-h1-7b", "All 44 layers keep the same: 11.0 MiB each, every token and a state"),
        ("gemma-3-12b", "8 of 48 layers keep every token and take 62% of the bytes; 40 keep at most 1,024 tokens"),
        ("jamba-v0.1", "4 of 32 layers keep every token and take 89% of the bytes; 28 keep a state that never grows"),
        ("recurrentgemma-2b", "8 of 26 layers keep at most 2,048 tokens and take 97% of the bytes; "
            "18 keep a state that never grows"),
        ("gemma-3n-e2b", "4 of 30 layers keep every token and take 80% of the bytes; "
            "16 keep at most 512 tokens; 10 keep nothing of their own"),
        ("whisper-tiny", "4 of 8 layers keep every token and take 85% of the bytes; 4 keep the encoder's 1,500 tokens"),
    ],
)  # fmt: skip
def test_layers_are_told_by_what_they_keep(model, words):
    (found,) = answers(Asked(models=(model,)))
    assert claims.of_layers(found.memory) == words


def test_windows_that_are_not_full_keep_as_much_as_other_layers():
    (found,) = answers(Asked(models=("gemma-3-12b",), tokens=100))
    assert claims.of_layers(found.memory) == "All 48 layers keep the same: 800.0 KiB each"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked(models=("llama-3.1-8b",)), "Trained with MQA, the model would keep an eighth of the bytes; "
            "with its cache in nvfp4, int4 or q4_0, 28%"),
        (Asked(models=("falcon-7b",), view="hf-dynamic"), "Trained with windows of 1,024 in 5 of 6 layers, "
            "the model would keep 26% of the bytes"),
        (Asked(models=("deepseek-v3",), tokens=100), "With its cache in nvfp4, int4 or q4_0, "
            "the model would keep 28% of the bytes"),
        (Asked(models=("mamba-130m",)), "None of these would make the cache smaller"),
    ],
)  # fmt: skip
def test_the_best_ideas_are_named_with_what_they_leave(asked, words):
    (found,) = answers(asked)
    assert claims.of_ideas(ideas(found.spec, found.memory)) == words


@pytest.mark.parametrize(
    ("fit", "activations", "together", "words"),
    [
        (32, (2**30, 2**35), True, "32 sequences fit if all prompts are computed at once: "
            "each brings a cache of 1.0 GiB, and 1.0 GiB of activations"),
        (32, (2**30, 2**30), False, "32 sequences fit: each brings a cache of 1.0 GiB; "
            "the activations stay at 1.0 GiB, because one prompt is computed at a time"),
        (32, (2**26, 2**29), False, "32 sequences fit: each brings a cache of 1.0 GiB; "
            "the activations grow to 512.0 MiB, because a decode step takes all of them at once"),
        (1, (2**30, 2**30), True, "One sequence fits: it brings a cache of 1.0 GiB, and takes 1.0 GiB of activations"),
        (0, (2**30, 2**30), True, ""),
    ],
)  # fmt: skip
def test_sequences_are_told_with_what_each_of_them_brings(fit, activations, together, words):
    assert claims.of_sequences(fit, fit * 2**30, activations, together) == words
