"""What a race is said to have shown holds for all of its steps, and of all designs that did alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.base.words import human
from kvviz.experiments.cache_designs.words import (
    at_16_bits,
    cost_of_bytes,
    cost_of_gathering,
    designs_of,
    in_perplexity,
    nats,
    sentences,
    time_of_bytes,
    wasted_most,
)
from tests.draws import draws

KEPT = [10 * 1024, 20 * 1024, 30 * 1024]


def run(mode, title, allocated, copied, gathered=0):
    account = {"copied": [copied] * 3, "gathered": [gathered] * 3}
    quality = {"kl": [0.0], "perplexity": 2.0}
    return {
        **{"mode": mode, "title": title, "exact": True, "identical": True, "step_s": [1.0] * 3, "books": account},
        **{"cache_bytes": KEPT, "allocated_bytes": allocated, "quality": quality},
    }


@pytest.mark.parametrize(
    ("kl", "words"),
    [
        (0.0, "0"),
        (9e-10, "0"),
        (5.2e-8, "5 × 10⁻⁸ nats"),
        (9.7e-8, "1 × 10⁻⁷ nats"),
        (1.8e-5, "1.8 × 10⁻⁵ nats"),
        (0.0372, "0.037 nats"),
    ],
)
def test_a_loss_near_rounding_has_one_digit(kl, words):
    assert nats(kl) == words


def said(*runs):
    return sentences({"runs": [run("cached", "KV cache", KEPT, 9), *runs]})[1:]


def test_waste_is_that_of_all_steps_and_not_of_the_last():
    reserved = run("prealloc", "Preallocated", [31 * 1024] * 3, 10)
    paged = run("paged", "Paged", [14 * 1024, 24 * 1024, 34 * 1024], 10, 20 * 1024)
    assert said(reserved, paged)[-1] == (
        "Over the whole run, “Preallocated” wastes most, 11.0 KiB on average and 21.0 KiB at most; “KV cache” "
        "wastes nothing."
    )


def test_designs_that_write_alike_are_named_together():
    eight, four = (run(name, title, KEPT, 4096) for name, title in (("int8", "8 bits"), ("int4", "4 bits")))
    found = said(eight, four, run("prealloc", "Preallocated", KEPT, 512))
    assert found == ["At the last step “8 bits” and “4 bits” write 4.0 KiB into the cache, “Preallocated” 512 B."]


@draws(60)
@given(
    st.lists(
        st.lists(st.sampled_from([0, 16, 1024, 1030, 4096, 9 * 1024]), min_size=3, max_size=3), min_size=1, max_size=4
    )
)
def test_what_wastes_most_does_so_over_the_whole_run(wasted):
    """Held against all steps of all designs, one by one; sizes that are written alike are ties."""
    runs = [
        run(f"m{n}", f"Design {n}", [held + more for held, more in zip(KEPT, empty, strict=True)], 10)
        for n, empty in enumerate(wasted)
    ]
    found = wasted_most(designs_of({"runs": [run("cached", "KV cache", KEPT, 9), *runs]}))
    means = [human(sum(empty) / 3) for empty in wasted]
    peaks = [human(max(empty)) for empty in wasted]
    highest = human(max(sum(empty) / 3 for empty in wasted)), human(max(map(max, wasted)))
    on_average, at_once = (
        [n for n, size in enumerate(each) if size == top] for each, top in zip((means, peaks), highest, strict=True)
    )
    if not any(map(any, wasted)):
        assert found == ""
        return
    head = found.split("; ")[0].removesuffix(".")
    if on_average == at_once:
        assert head.endswith(f"most, {highest[0]} on average and {highest[1]} at most")
        assert [n for n in range(len(runs)) if f"“Design {n}”" in head] == on_average
    else:
        first, second = head.split(", and ")
        assert [[n for n in range(len(runs)) if f"“Design {n}”" in part] for part in (first, second)] == [
            on_average,
            at_once,
        ]
        assert first.endswith(highest[0]) and second.endswith(highest[1])
    nothing = [n for n, empty in enumerate(wasted) if not any(empty)]
    assert [n for n in range(len(runs)) if f"“Design {n}”" in found.partition("; ")[2]] == nothing


def stepping(mode, title, copied, ms, spread=0.0):
    """A row whose median step takes `ms`, and whose quartiles lie `spread` from that."""
    steps = [9.0, *(each / 1e3 for each in (ms - spread, ms, ms + spread))]
    return {"mode": mode, "title": title, "copied": copied, "gathered": 0, "itl_s": ms / 1e3, "step_s": steps}


def joined(ms, spread=0.0, mode="concat", title="Concatenated"):
    return stepping(mode, title, 8_000, ms, spread)


RESERVED = stepping("prealloc", "Preallocated", 80, 1.0)
BOTH, WRITTEN = "“Concatenated” and “Twin”", "100 times the bytes of “Preallocated”"


def test_one_finding_says_how_long_steps_take_that_write_ten_times_as_much():
    for ms, took in (
        (1.1, "1.1 ms a step instead of 1.0 ms"),
        (1.0, "1.0 ms a step, too"),
        (3.0, "3.0 ms a step instead of 1.0 ms"),
    ):
        assert time_of_bytes([joined(ms), RESERVED]) == f"“Concatenated” writes {WRITTEN} and takes {took}"
    slower = [joined(1.1), RESERVED]
    assert time_of_bytes([joined(2.0, mode="cached"), *slower]) == (
        f"“Concatenated” writes {WRITTEN} and takes 1.1 ms a step instead of 1.0 ms"
    ), "nobody counted its bytes"
    for ms, takes in ((1.2, "1.1 ms to 1.2 ms"), (2.0, "")):
        held = f"{BOTH} write {WRITTEN} and take {takes} a step instead of 1.0 ms" if takes else ""
        assert time_of_bytes([*slower, joined(ms, title="Twin")]) == held, "it holds for each of them"
    both_slow = [joined(2.0), joined(3.0, title="Twin"), RESERVED]
    assert time_of_bytes(both_slow) == f"{BOTH} write {WRITTEN} and take 2.0 ms to 3.0 ms a step instead of 1.0 ms"
    assert time_of_bytes([*both_slow, stepping("sinks", "Ring", 80, 2.1)]) == "", "a light step is as long"
    assert time_of_bytes([]) == cost_of_bytes([]) == ""
    assert "more than “Preallocated”; its step is about 0.1 ms longer." in cost_of_bytes(slower)
    assert cost_of_bytes([joined(1.0), RESERVED]).endswith("“Concatenated” no time that this run can tell.")


@pytest.mark.parametrize(
    ("heavy", "said"),
    [
        ([joined(1.1, 0.1)], "“Concatenated” writes {}; its median step is 10% longer, and the quartiles overlap"),
        ([joined(1.1, 0.09)], "“Concatenated” writes {} and takes 1.1 ms a step instead of 1.0 ms"),
        ([joined(0.9, 0.2)], "“Concatenated” writes {}; its median step is not longer, and the quartiles overlap"),
        ([joined(0.9, 0.01)], "“Concatenated” writes {} and takes 0.90 ms a step instead of 1.0 ms"),
        (
            [joined(2.0, 1.5)],
            "“Concatenated” writes {}; the steps vary too much to tell whether that makes them longer "
            "(2.0 ms against 1.0 ms)",
        ),
        (
            [joined(1.1, 0.2), joined(1.2, 0.3, title="Twin")],
            BOTH + " write {}; their median steps are 10% to 20% longer, and the quartiles overlap",
        ),
        (
            [joined(1.1, 0.2), joined(1.2, title="Twin")],
            BOTH + " write {} and take 1.1 ms to 1.2 ms a step instead of 1.0 ms",
        ),
    ],
)
def test_no_effect_is_claimed_where_the_quartiles_overlap(heavy, said):
    assert time_of_bytes([*heavy, RESERVED]) == said.format(WRITTEN)


def test_bytes_are_no_reason_where_another_cache_refutes_it():
    of = stepping
    joins, reserved = of("concat", "Concatenated", 8_000, 0.7), of("prealloc", "Preallocated", 80, 0.64)
    quick, slow, agrees = of("twin", "Twin", 8_000, 0.64), of("sinks", "Ring", 80, 0.7), of("own", "O", 80, 0.63)
    began = "“Concatenated” takes 0.06 ms longer than “Preallocated”, but"
    for other, said in (
        (quick, "“Twin” writes as much in 0.64 ms"),
        (slow, "“Ring” writes 80 B in 0.7 ms"),
    ):
        words = f"{began} {said}: here what is written does not decide."
        assert cost_of_bytes([joins, reserved, other]).startswith(words)
    assert "is about 0.06 ms longer." in cost_of_bytes([joins, {**quick, "itl_s": 0.69e-3}, reserved, agrees])
    uncounted = {**quick, "mode": "cached"}
    assert cost_of_bytes([uncounted, joins, reserved]).endswith(
        "is about 0.06 ms longer. “Twin” takes 0.64 ms: its bytes were not counted; if it writes as many, they alone "
        "do not explain the longer step."
    )


@pytest.mark.parametrize(
    ("gathering_ms", "cost"),
    [
        (
            [0.8, 0.96],
            "**Median steps with grey take 0.2 ms to 0.3 ms longer** than “R”",
        ),
        (
            [0.8],
            "**The median step with grey takes 0.2 ms longer** than “R”",
        ),
        ([0.66, 0.96], ""),  # one is faster than a design that does not gather
        ([], ""),
    ],
)
def test_gathering_is_named_where_all_steps_that_gather_are_slower(gathering_ms, cost):
    def of(name, copied, gathered, ms):
        return {**stepping(name, name, copied, ms), "gathered": gathered}

    others = [of("J", 8_000, 0, 0.704), of("R", 80, 0, 0.64)]
    designs = [*others, *(of(str(number), 80, 8_000, ms) for number, ms in enumerate(gathering_ms))]
    assert time_of_bytes(designs).endswith("100 times the bytes of “R” and takes 0.70 ms a step instead of 0.64 ms")
    said = cost_of_gathering(designs)
    assert cost in said and bool(said) == bool(cost)


def test_the_largest_loss_is_told_as_perplexity():
    def race(weights, kl, perplexity):
        full, ring = run("cached", "KV cache", KEPT, 9), run("sinks", "Ring", KEPT, 9)
        return {"weights": weights, "runs": [full, {**ring, "quality": {"kl": [kl], "perplexity": perplexity}}]}

    assert in_perplexity(race("trained", 0.037, 2.2)) == (
        "“Ring”, at 0.037 nats, takes the perplexity from 2 to 2.2: the model hesitates as if between 2.2 "
        "equally likely tokens, not 2."
    )
    assert in_perplexity(race("trained", 1e-5, 2.0)).startswith(
        "“Ring”, at 1 × 10⁻⁵ nats, leaves the perplexity on this text at 2."
    )
    assert in_perplexity(race("random", 0.037, 2.2)) == in_perplexity(race("trained", 0.0, 2.0)) == ""


@pytest.mark.parametrize(
    ("share", "dtype", "said"),
    [
        (0.19, "float32", " **Of a 16-bit cache the codes would hold up to 38%.**"),
        (0.9, "float32", " **Of a 16-bit cache the codes would hold up to 100%.**"),
        (0.3, "bfloat16", ""),
    ],
)
def test_codes_take_at_most_twice_the_share_of_a_cache_of_half_the_size(share, dtype, said):
    assert at_16_bits(share, dtype) == said
