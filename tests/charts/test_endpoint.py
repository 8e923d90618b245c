"""The share of a server's cache in use: its line, and what is said of it."""

from kvviz.charts.endpoint import (
    cache_in_use,
    claim_of_most_use,
    claim_of_use,
    hits_by_part,
    tokens_by_level,
    use_over_time,
    waits_by_level,
)


def test_the_line_and_its_claim():
    looks = [(0.1, 0.01), (0.4, 0.03), (0.6, 0.02)]
    (line,) = cache_in_use(looks).data
    assert (list(line.x), list(line.y)) == ([0.1, 0.4, 0.6], [1, 3, 2])
    assert claim_of_use(looks) == "While the server answered, from 1% to 3% of its cache was in use"
    assert "3% of its cache was in use at each of 2 looks" in claim_of_use([(0.1, 0.03), (0.2, 0.03)])


def test_the_cache_over_a_sweep():
    looks = [
        {"at_s": 0.1, "part": 0, "concurrency": 1, "used_share": 0.1, "prefix_queries": 10, "prefix_hits": 4},
        {"at_s": 0.5, "part": 1, "concurrency": 8, "used_share": 0.4, "prefix_queries": 30, "prefix_hits": 4},
        {"at_s": 0.9, "part": 2, "concurrency": 8, "used_share": None, "prefix_queries": 50, "prefix_hits": 20},
    ]
    (used,) = use_over_time(looks).data
    assert (list(used.x), list(used.y)) == ([0.1, 0.5], [10, 40])
    assert [mark.text for mark in use_over_time(looks).layout.annotations] == ["1", "8", "8, alike"]
    (bars,) = hits_by_part([{"concurrency": 1}, {"concurrency": 8}], [0.05, None, 0.8]).data
    assert (list(bars.x), list(bars.y), list(bars.text)) == (["1", "prompts alike"], [5, 80], ["5%", "80%"])
    assert claim_of_most_use(looks) == "At most 40% of its cache was in use, with 8 at once"


def test_each_level_has_its_tokens_and_its_waits():
    rows = [
        {"concurrency": 1, "tokens_per_s": 10.0, "itl_s_p50": 0.01, "itl_s_p99": 0.02, "requests": 5, "pieces": 105},
        {"concurrency": 8, "tokens_per_s": 40.0, "itl_s_p50": None, "itl_s_p99": None, "requests": 40, "pieces": 40},
    ]
    (tokens,) = tokens_by_level(rows).data
    assert (list(tokens.x), list(tokens.y)) == ([1, 8], [10, 40])
    *_, diamond = tokens_by_level(rows, {"concurrency": 8, "tokens_per_s": 60.0}).data
    assert (diamond.name, list(diamond.x), list(diamond.y)) == ("prompts alike", [8], [60])
    half, slow = waits_by_level(rows, "itl_s", "A pause").data
    waits = {line.name: (list(line.x), list(line.y)) for line in (half, slow)}
    assert waits == {"p50": ([1], [10]), "p99": ([1], [20])}
    assert half.line.width > slow.line.width, "the claim above is of the median"


def test_a_p99_of_fewer_than_a_hundred_waits_is_the_slowest_an_open_mark():
    rows = [
        {"concurrency": n, "requests": count, "pieces": 2 * count, "ttft_s_p50": 0.01, "ttft_s_p99": 0.02}
        for n, count in ((1, 99), (2, 100))
    ]
    for some, name, marks in (
        (rows, "p99", ["circle-open", "circle"]),
        (rows[:1], "slowest", ["circle-open"]),
        (rows[1:], "p99", ["circle"]),
    ):
        half, most = waits_by_level(some, "ttft_s", "First token").data
        assert (half.name, most.name, list(most.marker.symbol)) == ("p50", name, marks)
