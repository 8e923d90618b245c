"""The walk with four letters says what it does, and does what it says."""

from kvviz.experiments.inside.letters import APPEND, PREFILL, READ, walk


def test_the_lines_are_python_that_builds_the_same_cache():
    names = {}
    for moment in walk():
        exec(moment.line, names)
        assert tuple(names["kv_cache"]) == moment.cache
    assert names["query"] == "Q(D)"
    assert names["context"] == "attention(Q(D), cached=3 tokens)"


def test_prefill_fills_the_query_reads_and_decode_appends():
    words = [moment.words for moment in walk()]
    assert words.count(PREFILL) == 3
    assert words[-2:] == [READ, APPEND]


def test_the_cache_only_ever_grows_by_one():
    sizes = [len(moment.cache) for moment in walk()]
    assert sizes == [0, 1, 2, 3, 3, 3, 4]
