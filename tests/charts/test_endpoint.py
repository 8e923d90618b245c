"""The share of a server's cache in use: its line, and what is said of it."""

from kvviz.charts.endpoint import cache_in_use, claim_of_use, tokens_by_level, waits_by_level


def test_the_line_and_its_claim():
    looks = [(0.1, 0.01), (0.4, 0.03), (0.6, 0.02)]
    (line,) = cache_in_use(looks).data
    assert (list(line.x), list(line.y)) == ([0.1, 0.4, 0.6], [1, 3, 2])
    assert claim_of_use(looks) == "While the server answered, from 1 % to 3 % of its cache was in use"
    assert "3 % of its cache was in use at each of 2 looks" in claim_of_use([(0.1, 0.03), (0.2, 0.03)])


def test_each_level_has_its_tokens_and_its_waits():
    rows = [
        {"concurrency": 1, "tokens_per_s": 10.0, "itl_s_p50": 0.01, "itl_s_p99": 0.02},
        {"concurrency": 8, "tokens_per_s": 40.0, "itl_s_p50": None, "itl_s_p99": None},
    ]
    (tokens,) = tokens_by_level(rows).data
    assert (list(tokens.x), list(tokens.y)) == ([1, 8], [10, 40])
    waits = {line.name: (list(line.x), list(line.y)) for line in waits_by_level(rows, "itl_s").data}
    assert waits == {"p50": ([1], [10]), "p99": ([1], [20])}
