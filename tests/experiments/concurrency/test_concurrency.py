"""Many requests at once: each is asked once, what fails is counted, and the words follow from the rows."""

import threading
from dataclasses import replace

import pytest

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.settings import Limits
from kvviz.charts.endpoint import claim_of_most_use
from kvviz.decoding.endpoint import poll
from kvviz.decoding.endpoint.server import Server
from kvviz.experiments.comparison import endpoint_words
from kvviz.experiments.concurrency import run as run_module
from kvviz.experiments.concurrency import words
from kvviz.experiments.concurrency.run import run
from kvviz.experiments.concurrency.spec import ConcurrencySpec, check
from kvviz.experiments.registry import kind_of, read_spec
from kvviz.server.scheduler import Scheduler
from tests.kv_publisher import publishing
from tests.openai_server import serving


def measured(bench, does, levels=(1, 3), **told):
    """The records of a sweep and its document."""
    spec = ConcurrencySpec(does.url, concurrency=levels, requests=2, prompt="Say:", new_tokens=4)
    *records, done = run(spec, bench(**told))
    return records, done["document"]


def test_each_level_asks_as_often_as_it_says(bench, monkeypatch):
    monkeypatch.setattr(poll, "PATIENCE", 60.0)  # a look at each level, however late
    with serving(pieces=tuple("abcd"), owner="vllm", paths={"/metrics": "vllm:kv_cache_usage_perc 0.25\n"}) as does:
        records, found = measured(bench, does, key="sk-mine")
    one, three = found["rows"]
    assert [record["title"].partition(",")[0] for record in records] == ["1 at once", "3 at once", "3 at once"]
    sent = {value for row in does.headers for name, value in row.items() if name.lower() == "authorization"}
    assert sent == {"Bearer sk-mine"} and "sk-mine" not in repr((records, found))
    assert found["sentences"] == words.sentences(found)
    assert (one["requests"], three["requests"], three["failed"]) == (2, 6, 0)
    prompts = [asked["prompt"] for asked in does.asked]
    new, alike = prompts[: 1 + 2 + 6], prompts[1 + 2 + 6 :]
    assert len({prompt[:9] for prompt in new}) == len(new), "the first is not counted, and no two prompts begin alike"
    assert len(set(alike)) == len(alike) == 1 + 6 and all(prompt.startswith("Say: ") for prompt in alike)
    assert found["alike"]["requests"] == 6 and found["alike"]["hit_rate"] is None
    assert {(look["part"], look["used_share"]) for look in found["looks"]} == {(0, 0.25), (1, 0.25), (2, 0.25)}
    assert [look["at_s"] for look in found["looks"]] == sorted(look["at_s"] for look in found["looks"])
    assert {asked["max_tokens"] for asked in does.asked} == {4}
    assert (one["tokens"], three["pieces"], one["cache_usage"]) == (8, 24, 0.25)
    for row in (*found["rows"], found["alike"]):
        assert 0 < row["ttft_s_p50"] <= row["ttft_s_p99"] <= row["seconds"] and row["itl_s_p50"] <= row["itl_s_p99"]
        assert row["tokens_per_s"] == pytest.approx(row["tokens"] / row["seconds"], rel=1e-3)


def test_of_many_looks_the_peaks_and_every_part_are_kept():
    shares = [0.1, 0.9, 0.2, None, 0.3, 0.2, None, None, 0.0, 0.4]
    looks = [{"at_s": at, "part": at // 6, "concurrency": 1, "used_share": share} for at, share in enumerate(shares)]
    assert run_module.thinned(looks, 10**3) == looks
    kept = run_module.thinned(looks, 3)
    assert [(look["at_s"], look["part"]) for look in kept] == [(1, 0), (4, 0), (9, 1)]
    assert claim_of_most_use(kept) == claim_of_most_use(looks)


class HeldBack:
    """The pieces of answers: the first comes at once, all others once `go` is set."""

    def __init__(self):
        self.go, self.asked = threading.Event(), 0

    def __len__(self):
        return 4

    def __iter__(self):
        self.asked += 1
        assert self.asked == 1 or self.go.wait(60)
        return iter("abcd")


def test_its_kv_events_are_heard_meanwhile(bench, monkeypatch):
    monkeypatch.setattr(run_module, "LOOK_S", 0.01)
    answers, records = HeldBack(), []
    with publishing() as publisher, serving(pieces=answers) as does:

        def engine():
            publisher.pub.recv()
            for number in range(3):
                publisher.send(publisher.wire.stored([10 * number, 10 * number + 1]))

        thread = threading.Thread(target=engine)
        thread.start()
        spec = ConcurrencySpec(does.url, concurrency=(1, 2), requests=1, new_tokens=4, kv_events=publisher.address)
        for record in run(spec, bench()):
            records.append(record)
            if record["t"] == "blocks" and record["kv_events"]["batches"] == 3:
                answers.go.set()
        thread.join()
    found = records[-1]["document"]
    assert (found["kv_events"]["blocks"], found["kv_events"]["batches"]) == (6, 3)
    looks = [record for record in records if record["t"] == "blocks"]
    assert looks and {record["of"] for record in looks} == {3} and looks[0]["title"] == "1 at once"
    assert any("3 batches of KV events, in the form of vLLM 0.24 and later" in said for said in found["sentences"])
    assert endpoint_words.lying(found["kv_events"]) in found["sentences"]


def test_no_sweep_sends_what_an_earlier_one_sent(bench):
    with serving(pieces=("a",)) as does:
        for _ in range(2):
            measured(bench, does, levels=(1,))
    prompts = [asked["prompt"] for asked in does.asked]
    assert len(prompts) == len(set(prompts)) == 2 * (1 + 2 + 1 + 2)


def test_an_error_of_kvvizs_own_is_no_row_of_no_tokens(bench, monkeypatch):
    with serving(pieces=("a",)) as does:
        real = Server.ask

        def broken(self, text, *given, **more):
            if does.asked:
                raise ZeroDivisionError
            return real(self, text, *given, **more)

        monkeypatch.setattr(Server, "ask", broken)
        with pytest.raises(ZeroDivisionError):
            measured(bench, does, levels=(2,))


def test_what_a_key_may_have_opened_is_shared_with_nobody():
    queue = Scheduler()  # not started, so everything waits
    spec = ConcurrencySpec("https://models.example.org/v1", concurrency=(1,), requests=1, prompt="Say:", new_tokens=4)
    one, other = (queue.submit(spec, owner=name, key=f"sk-{name}") for name in ("one", "other"))
    assert one != other and queue.same(spec) is None


def test_the_words_follow_from_the_rows():
    row = {"concurrency": 1, "failed": 0, "tokens": 8, "pieces": 8, "tokens_per_s": 10.0, "client_busy": 0.1}
    row |= {"ttft_s_p50": 0.1, "ttft_s_p99": 0.1, "itl_s_p50": 0.01, "itl_s_p99": 0.01}
    row |= {"cache_usage": None, "hit_rate": None, "requests": 60}
    more = {"concurrency": 4, "tokens_per_s": 30.0, "ttft_s_p99": 0.25, "client_busy": 0.9, "failed": 1}
    last = {**row, **more, "requests": 240, "pieces": 4, "why_failed": "too many"}
    alike = {**last, "hit_rate": 0.75, "ttft_s_p50": 0.02}
    found = {"rows": [row, last], "alike": alike, "engine": {"name": "vllm", "version": "0.12.0", "model": "m"}}
    found["looks"] = []
    said = words.sentences(found)
    assert said[:3] == [
        "The server is vLLM 0.12.0, which serves m; times are measured when the text arrives here.",
        "With 4 times the requests at once it writes 3 times the tokens a second.",
        "First token, p99 or slowest: 2.5 times as long, 250 ms.",
    ]
    hits = "75% of the tokens came from the prefix cache, and the first token came after 20 ms, not 100 ms (p50)"
    assert said[4] == f"Of prompts that begin alike {hits}."
    assert said[5].endswith("hardly more tokens a second: computing the prompts is not what took most of the time.")
    assert "not equally many" in said[6] and "Of 4 at once 1 requests failed: too many." in said[7]
    assert "busy for 90%" in said[8]
    faster = {**found, "alike": {**alike, "tokens_per_s": 60.0}}
    assert "2 times the tokens a second with as many requests at once: so much of the time" in words.cause(faster)
    assert words.cause({**faster, "alike": {**alike, "hit_rate": 0.2, "tokens_per_s": 60.0}}) == ""
    for rank, named in (("p50", "median"), ("p99", "p99")):
        said = words.claim_of_wait(found, f"ttft_s_{rank}", "First token")
        assert said.endswith(f" times as long ({named}) with 4 at once")
    table = words.text({**found, "sentences": said}).splitlines()
    assert table[2].split()[:2] == ["4", "30"] and table[2].endswith(" -")
    uncounted = {**found, "rows": [{**row, "tokens": None}]}
    assert "did not count" in words.sentences(uncounted)[3]


def test_what_prompts_found_is_told_by_the_answers_or_by_the_metrics_of_that_part():
    counts = [(0, 100, 0), (0, 200, 10), (1, None, None), (1, 300, 30), (3, 400, 120)]
    looks = [{"part": part, "prefix_queries": asked, "prefix_hits": had} for part, asked, had in counts]
    rows = [{"hit_rate": None}] * 3
    found = {"rows": rows, "alike": {"hit_rate": None}, "looks": looks}
    assert words.hit_rates(found) == [0.1, 0.2, None, 0.9]
    assert words.hit_rates({**found, "alike": {"hit_rate": 0.94}})[-1] == 0.94
    assert words.hit_rates({"rows": rows, "alike": None, "looks": []}) == [None] * 3


def test_the_mean_length_of_a_prompt_follows_from_what_the_metrics_counted():
    counts = [(0, 100), (1, 500), (2, 890)]
    looks = [{"part": part, "prefix_queries": asked} for part, asked in counts]
    rows = [{"requests": count, "failed": 0} for count in (1, 4)]
    found = {"rows": rows, "alike": {"requests": 4, "failed": 0}, "looks": looks, "new_tokens": 16}
    assert "a prompt of about 99 tokens and an answer of at most 16." in words.asked(found)
    failed = [rows[0], {"requests": 4, "failed": 1}]
    for untold in ({**found, "looks": []}, {**found, "looks": looks[:2]}, {**found, "rows": failed}):
        assert words.asked(untold).endswith("the server's metrics do not tell.")


def test_a_server_that_refuses_is_its_sentence_and_a_stop_ends_it(bench):
    with serving(status=503) as does, pytest.raises(KvvizError, match=r"refuses the request \(503\)"):
        measured(bench, does)
    with serving(pieces=tuple("abcd")) as does, pytest.raises(Stopped):
        measured(bench, does, should_stop=lambda: True)


@pytest.mark.parametrize("levels", [(), (0,), (2, 1), (1, 1), (65,)])
def test_levels_that_can_not_be(levels):
    with pytest.raises(KvvizError, match="from 1 to 64"):
        ConcurrencySpec("http://localhost:1", concurrency=levels)


def test_a_spec_travels_and_keeps_to_the_limits():
    spec = ConcurrencySpec("http://localhost:1", "m", (1, 8))
    assert read_spec("concurrency", spec.to_dict()) == spec and kind_of(spec).spec is ConcurrencySpec
    assert "key" not in spec.to_dict()
    check(spec, Limits(batch=8, new_tokens=64))
    fewer, shorter = Limits(batch=4), Limits(new_tokens=8)
    for limits, says in ((fewer, "8 requests at once; this server allows at most 4"), (shorter, "64 new tokens")):
        with pytest.raises(KvvizError, match=says):
            check(spec, limits)
    for wrong in ({"endpoint": "localhost"}, {"requests": 0}, {"new_tokens": 5_000}, {"prompt": ""}):
        with pytest.raises(KvvizError):
            replace(spec, **wrong)


def test_the_claim_holds_the_last_level_against_the_first():
    row, last = {"concurrency": 1, "tokens_per_s": 10.0}, {"concurrency": 8, "tokens_per_s": 45.67}
    level = {"concurrency": 16, "tokens_per_s": 46.0}
    assert words.claim({"rows": [row]}) == "10 tokens/s with 1 at once"
    assert words.claim({"rows": [row, last]}) == "8 times the requests at once, 4.6 times the tokens a second"
    flat = "From 8 requests at once on, hardly more tokens a second"
    assert words.claim({"rows": [row, last, level]}) == flat, "of waits nothing is known"
    for late, says in ((0.21, ""), (0.4, ", but a later first token")):
        waits = [{**last, "ttft_s_p50": 0.2}, {**level, "ttft_s_p50": late}]
        assert words.claim({"rows": [row, *waits]}) == flat + says
    assert words.claim_of_tokens({"rows": [row, last]}).endswith("4.6 times as many tokens a second as one alone")


@pytest.mark.parametrize(
    ("title", "begins"),
    [
        (
            "a server, up to 8 requests at once, on one core",
            "on one CPU core, a counter-example: from 1 request on, hardly",
        ),
        ("a server, on 4 cores", "on 4 CPU cores, a counter-example: from 1 request on, hardly"),
    ],
)
def test_the_claim_of_a_recording_begins_with_what_it_was_measured_on(title, begins):
    rows = [{"concurrency": count, "tokens_per_s": 10.0} for count in (1, 2)]
    found = {"rows": rows, "title": title, "engine": {"name": "llamacpp", "model": "mini"}}
    assert words.claim_of_recording(found).startswith(f"llama.cpp with mini {begins}")
    gains = {**found, "rows": [rows[0], {**rows[1], "tokens_per_s": 14.0}]}
    assert "counter-example" not in words.claim_of_recording(gains)


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ((10.0,), "One point is no curve"),
        ((0.0, 0.0), "One point is no curve"),
        ((28.0, 31.5, 31.5, 37.3), "still rise at 8 at once"),
        ((10.0, 19.0, 20.0, 20.5), "alone gets 49% of the most tokens a second that were measured, 2 at once 93%."),
        ((10.0, 19.0, 20.0, 12.0), "2 at once 95%. With 8 at once there are fewer."),
        ((11.5, 11.9, 12.0, 12.0), "One request alone gets 96% of the most tokens a second that were measured."),
    ],
)
def test_the_ceiling_is_where_more_at_once_bring_no_more(tokens, says):
    rows = [{"concurrency": 2**power, "tokens_per_s": each} for power, each in enumerate(tokens)]
    assert says in words.ceiling({"rows": rows})


@pytest.mark.parametrize(
    ("pauses", "said"),
    [
        (
            (0.001, 0.0073),
            "With 8 at once, the median pause between two pieces of the streamed answer is 7.3 times as "
            "long as with 1: answering",
        ),
        ((0.001, 0.002), ""),  # a step for many saves much
        ((None, 0.002), ""),
        ((0.001,), ""),
    ],
)
def test_a_step_for_many_that_takes_as_many_times_as_long_is_named(pauses, said):
    rows = [{"concurrency": 8**power, "itl_s_p50": each} for power, each in enumerate(pauses)]
    found = words.of_sharing({"rows": rows})
    assert found.startswith(said) and bool(found) == bool(said)
