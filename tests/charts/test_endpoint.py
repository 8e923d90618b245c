"""The share of a server's cache in use: its line, and what is said of it."""

from kvviz.charts.endpoint import cache_in_use, claim_of_use


def test_the_line_and_its_claim():
    looks = [(0.1, 0.01), (0.4, 0.03), (0.6, 0.02)]
    (line,) = cache_in_use(looks).data
    assert (list(line.x), list(line.y)) == ([0.1, 0.4, 0.6], [1, 3, 2])
    assert claim_of_use(looks) == "While the server answered, from 1 % to 3 % of its cache was in use"
    assert "3 % of its cache was in use at each of 2 looks" in claim_of_use([(0.1, 0.03), (0.2, 0.03)])
