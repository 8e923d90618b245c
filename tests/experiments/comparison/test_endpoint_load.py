"""Many requests at once: each is asked once, what fails is counted, and the words follow from the rows."""

import pytest

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.settings import Settings
from kvviz.decoding.endpoint.address import find_place
from kvviz.decoding.endpoint.server import Server
from kvviz.experiments.comparison import endpoint_load
from tests.openai_server import serving


def measured(does, levels=(1, 3), **more):
    server = Server(find_place(does.url, Settings()))
    try:
        return endpoint_load.measure(server, levels, "Say:", 4, 2, **more)
    finally:
        server.close()


def test_each_level_asks_as_often_as_it_says():
    told = []
    with serving(pieces=tuple("abcd"), owner="vllm", paths={"/metrics": "vllm:kv_cache_usage_perc 0.25\n"}) as does:
        found = measured(does, tell=told.append)
    one, three = found["rows"]
    assert told == [one, three] and (one["requests"], three["requests"], three["failed"]) == (2, 6, 0)
    prompts = {asked["prompt"] for asked in does.asked}
    assert len(does.asked) == len(prompts) == 1 + 2 + 6, "the first is not counted, and no two prompts begin alike"
    assert {asked["max_tokens"] for asked in does.asked} == {4}
    assert (one["tokens"], three["pieces"], one["cache_usage"]) == (8, 24, 0.25)
    for row in found["rows"]:
        assert 0 < row["ttft_s_p50"] <= row["ttft_s_p99"] <= row["seconds"] and row["itl_s_p50"] <= row["itl_s_p99"]
        assert row["tokens_per_s"] == pytest.approx(row["tokens"] / row["seconds"], rel=1e-3)


def test_the_words_follow_from_the_rows():
    row = {"concurrency": 1, "failed": 0, "tokens": 8, "pieces": 8, "tokens_per_s": 10.0, "client_busy": 0.1}
    row |= {"ttft_s_p50": 0.1, "ttft_s_p99": 0.1, "itl_s_p50": 0.01, "itl_s_p99": 0.01, "cache_usage": None}
    more = {"concurrency": 4, "tokens_per_s": 30.0, "ttft_s_p99": 0.25, "client_busy": 0.9, "failed": 1}
    last = {**row, **more, "pieces": 4, "why_failed": "too many"}
    found = {"rows": [row, last], "engine": {"name": "vllm", "version": "0.12.0", "model": "m"}}
    said = endpoint_load.sentences(found)
    assert said[:3] == [
        "Asked was vLLM 0.12.0, model m; times are of arrival.",
        "With 4 times the requests at once it writes 3 times the tokens a second.",
        "The first token of the slowest hundredth takes 2.5 times as long: 250 ms.",
    ]
    assert "not equally many" in said[4] and "Of 4 at once 1 requests failed: too many." in said[5]
    assert "busy for 90%" in said[6]
    table = endpoint_load.text({**found, "sentences": said}).splitlines()
    assert table[2].split()[:2] == ["4", "30"] and table[2].endswith(" -")
    uncounted = {**found, "rows": [{**row, "tokens": None}]}
    assert "did not count" in endpoint_load.sentences(uncounted)[1]


def test_a_server_that_refuses_is_its_sentence_and_a_stop_ends_it():
    with serving(status=503) as does, pytest.raises(KvvizError, match=r"refuses the request \(503\)"):
        measured(does)

    def stop():
        raise Stopped

    with serving(pieces=tuple("abcd")) as does, pytest.raises(Stopped):
        measured(does, check_stop=stop)


@pytest.mark.parametrize("levels", [(), (0,), (2, 1), (1, 1), (65,)])
def test_levels_that_can_not_be(levels):
    with pytest.raises(KvvizError, match="from 1 to 64"):
        endpoint_load.check_levels(levels)
