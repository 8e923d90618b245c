"""What figures claim: sentences whose numbers are the data's, and none where the data says nothing."""

import pytest

from kvviz.charts import claims


def run(mode, step_s, kl=None, title=None):
    return {"mode": mode, "title": title or mode, "step_s": step_s, "quality": kl and {"kl": kl}}


def request(found, cold, warm, computed=4):
    warm = {"found_tokens": found, "computed_tokens": computed, "ttft_s": warm}
    return {"cold": {"ttft_s": cold}, "warm": warm}


def test_latency_is_of_the_steps_and_not_of_the_prefill():
    runs = [run("uncached", [0.5, 0.006, 0.009]), run("cached", [0.5, 0.001, 0.002, 0.002]), run("int8", [0.5, 0.004])]
    assert claims.of_latency(runs) == "With a cache a step takes 2 ms to 4 ms; without one, the last takes 9 ms"
    assert claims.of_latency(runs[1:]) == "With a cache a step takes 2 ms to 4 ms"
    assert claims.of_latency([run("cached", [0.5])]) == ""


def test_quality_counts_what_loses_nothing():
    runs = [run("cached", [], [0.0, 0.0]), run("int8", [], [0.0, 0.02], "8 bits"), run("sinks", [], [0.0, 0.4], "Ring")]
    assert claims.of_quality(runs) == "1 of 3 lose nothing; Ring loses most, 0.2 nats a token"
    assert claims.of_quality(runs[:1]) == "No design loses anything on this text"


def test_waits_are_of_those_who_found_something():
    rows = [request(0, 0.1, 0.1, 20), request(16, 0.02, 0.01), request(16, 0.04, 0.01)]
    assert claims.of_first_tokens(rows) == "With a cache hit the first token comes after 10 ms, cold after 30 ms"
    assert claims.of_first_tokens(rows[:1]) == "No request found anything in the cache"
    assert claims.of_tokens(rows) == "Of 60 prompt tokens, 28 were computed and 32 were in the cache"


def test_running_is_compared_where_some_waited():
    ways = [
        {"title": name, "mean_running_while_some_wait": mean} for name, mean in (("A", 3.0), ("B", 8.04), ("C", None))
    ]
    assert claims.of_running(ways) == "While some wait, 8.0 run at once: B. Fewest, 3.0: A"
    assert claims.of_running(ways[1:]) == ""


def test_profiles_and_batches_are_ratios_of_what_was_measured():
    profiles = [{"forward": "prefill", "wall_s": 0.024}, {"forward": "decode", "wall_s": 0.003}]
    assert claims.of_profiles(profiles) == "Under the profiler the prefill takes 24 ms, a decode step 3 ms"
    assert claims.of_profiles(profiles[:1]) == ""
    points = [
        {"phase": "decode", "tokens": tokens, "batch": batch, "tokens_per_s": rate}
        for tokens, batch, rate in ((32, 1, 10), (32, 8, 60), (64, 1, 10), (64, 8, 40), (16, 1, 9))
    ]
    assert claims.of_batches(points).endswith("as one: 6 times at 32 tokens and 4 times at 64 tokens")


@pytest.mark.parametrize(("tokens", "words"), [(10, "each further token adds 36.0 KiB"), (2000, "no further token")])
def test_context_says_what_one_more_token_takes(tokens, words):
    from kvviz.memory.calculator import Asked, answers

    model = "gpt2" if tokens == 10 else "mamba-130m"
    (found,) = answers(Asked(models=(model,), tokens=tokens))
    assert words in claims.of_context(found.title, found.memory)
