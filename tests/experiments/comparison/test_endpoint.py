"""A server's lane in a comparison: its tokens, its times, its words, and what stays unknown."""

import json
import threading
from importlib.util import find_spec

import pytest

from bench import own_servers
from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits
from kvviz.experiments.comparison.endpoint import answered, per_piece, waits
from kvviz.experiments.comparison.endpoint_words import told_of_cache
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.comparison.verdict import verdict
from kvviz.experiments.concurrency.run import run as run_levels
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.kind import Bench
from kvviz.models.text import STORY, ByteCodec
from kvviz.store.files import exchange, reading
from kvviz.store.files.tables import columns
from tests.kv_publisher import publishing
from tests.openai_server import TEXT, serving


def compared(load, url, model="tiny-gpt2", key=None, **fields):
    options = {"modes": ("cached", "endpoint"), "prompt": STORY, "new_tokens": 20, "repeats": 2, **fields}
    work = ComparisonSpec(model, endpoint=url, **options)
    return finished(list(perform(work, load(model), comparison_id="x", watched=True, key=key)))


@pytest.fixture(scope="module")
def ran(load):
    counters = "vllm:kv_cache_usage_perc 0.5\nvllm:prefix_cache_queries_total 9\nvllm:prefix_cache_hits_total 3\n"
    counters += 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1\nvllm:kv_cache_new 1\n'
    with serving(owner="vllm", paths={"/metrics": counters}) as does, publishing("0.23.0") as publisher:

        def engine():
            publisher.pub.recv()
            publisher.number = 3
            publisher.send(publisher.wire.stored([1, 2], parent=9, size=16))
            publisher.send(publisher.wire.removed([2]))
            publisher.raw(b"no event")

        thread = threading.Thread(target=engine)
        thread.start()
        document, records = compared(load, does.url, key="sk-secret", kv_events=publisher.address)
        thread.join()
    return document, records, does


@pytest.mark.slow
def test_the_lane_takes_turns_and_is_not_held_to_the_text(ran):
    document, records, does = ran
    cached, lane = document["runs"]
    assert document["identical"] and document["reference"] == "cached"
    assert (lane["text"], lane["identical"], lane["first_divergence"]) == (TEXT[:20], False, 0)
    turns = dict.fromkeys((r["mode"], r["repeat"]) for r in records if r["t"] == "clocked")  # one may be judged again
    assert [mode for mode, _ in turns] == ["cached", "endpoint", "endpoint", "cached"]
    assert len(does.asked) == 3, "the check, two timed passes"
    assert len(lane["arrivals_s"]) == 20 and lane["tokens_per_chunk"] == [1] * 20
    assert lane["arrivals_s"] == sorted(lane["arrivals_s"]) and lane["ttft_s"] > 0
    assert cached["engine"] is None and cached["arrivals_s"] is None


@pytest.mark.slow
def test_what_can_not_be_known_is_null(ran):
    document, records, _ = ran
    lane = document["runs"][1]
    unknown = ("cache_class", "cache_bytes", "allocated_bytes", "outliving_bytes", "memory", "peak_bytes", "estimate")
    assert {lane[name] for name in (*unknown, "max_abs_logit_diff", "predicted_s")} == {None} and lane["layers"] == []
    told = {"cache_usage": 0.5, "prefix_queries": 9, "prefix_hits": 3, "blocks": 100, "block_tokens": 16}
    assert lane["metrics"]["after"] == lane["metrics"]["polled"][0]["figures"] == told
    assert set(columns(document, records)["cache_bytes"][-20:]) == {None}
    written = exchange.written(reading.Imported(document, records), "json")
    assert reading.read(written).document == document, "a file holds it, and every field is checked on the way back"
    assert "–" in exchange.written(reading.Imported(document, records), "html").decode()


@pytest.mark.slow
def test_its_key_is_sent_and_kept_nowhere(ran):
    document, records, does = ran
    assert any(sent.get("Authorization") == "Bearer sk-secret" for sent in does.headers)
    assert "secret" not in json.dumps([document, records])


@pytest.mark.slow
def test_its_words(ran):
    found = verdict(ran[0])
    (words,), (cache,) = found["endpoint"], found["endpoint_cache"]
    assert words.startswith("vLLM decoded with its model m.")
    for part in ("Each token came in a piece", "server counted 47", "another from token 1 on"):
        assert part in words
    assert "50.0% of its cache" in cache
    assert "room for 1,600 tokens: by the calculator 3.1 MiB" in cache, "4 layers of 64 values, as keys and values"
    assert "52 tokens are 4.00% of that" in cache and "not what was in use: it has another model" in cache
    assert "not known here: vllm:kv_cache_new" in cache
    assert "2 batches of KV events, in the form of vLLM 0.9 to 0.23 (stored 1, removed 1)" in cache
    assert "In its cache: 1 block of 16 tokens (1 in GPU), 16 tokens in all; removed so far: 1." in cache
    assert "first batch had the number 3: what was stored before it is not known. Blocks that continue one" in cache
    assert "Messages that were no KV events: 1." in cache


@pytest.mark.parametrize(
    ("used", "running", "says"),
    [
        (0.04, 1, "they agree"),
        (0.045, 1, "they agree"),
        (0.5, 3, "3 requests were running"),
        (0.0, 1, "none may have come"),
    ],
)
def test_what_is_in_use_is_held_against_the_calculator(ran, used, running, says):
    lane = ran[0]["runs"][1]
    looks = [{"at_s": 0.1, "figures": {"cache_usage": used, "running": running}}]
    assert says in told_of_cache({**lane, "metrics": {**lane["metrics"], "polled": looks}})


@pytest.mark.slow
def test_several_tokens_in_a_piece(load):
    with serving(pieces=(TEXT[:3], TEXT[3:9], TEXT[9:20]), counts=False) as does:
        document, _ = compared(load, does.url, modes=("endpoint",))
    (lane,) = document["runs"]
    assert lane["tokens_per_chunk"] == [3, 6, 11]
    assert [i for i, seconds in enumerate(lane["step_s"]) if seconds] == [0, 3, 9], "the first of a piece has the wait"
    found = verdict(document)
    assert found["modes"][0]["fit"] is None and "several at a time" in found["modes"][0]["untold"][0]
    assert "20 tokens came in 3 pieces, up to 11 at once" in found["endpoint"][0]
    assert "did not count its tokens" in found["endpoint"][0]


@pytest.mark.slow
def test_an_answer_that_ends_early_and_one_of_a_single_token(load):
    with serving(pieces=tuple("soon")) as does:
        document, _ = compared(load, does.url)
        assert [len(run["token_ids"]) for run in document["runs"]] == [20, 4]
    with serving(pieces=("a",)) as does, pytest.raises(KvvizError, match="wrote 1 tokens, too few"):
        compared(load, does.url)


def test_specs_that_can_not_be():
    with pytest.raises(KvvizError, match="needs the address of a server"):
        ComparisonSpec("tiny-gpt2", prompt="x", modes=("endpoint",))
    with pytest.raises(KvvizError, match="endpoint decodes one sequence"):
        ComparisonSpec("tiny-gpt2", prompt="x", modes=("endpoint",), endpoint="http://x", batch=2)


def test_tokens_are_counted_where_their_last_character_arrives():
    codec = ByteCodec(256)
    assert answered(codec, codec.encode("ab"), "ab", "cd") == codec.encode("cd")
    assert per_piece(codec, codec.encode("abcd"), ["", "abc", "d"]) == [0, 3, 1]
    assert waits([1.0, 2.0, 4.0], [0, 2, 1]) == [2.0, 0.0, 2.0]


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.skipif(
    not (find_spec("fastapi") and find_spec("accelerate")),
    reason='needs pip install "transformers[serving]" accelerate',
)
def test_a_real_server_writes_the_text_that_is_decoded_here(load):
    """`transformers serve` with the weights of a bundled model, over loopback."""
    with own_servers.transformers_serve("mini-gpt2") as url:
        document, _ = compared(load, url, "mini-gpt2", endpoint_model=own_servers.bundled("mini-gpt2"))
    cached, lane = document["runs"]
    assert lane["text"] == cached["text"] and lane["identical"]
    assert lane["engine"]["completion_tokens"] == sum(lane["tokens_per_chunk"]) == 20


@pytest.mark.long
@pytest.mark.worker
@pytest.mark.skipif(not (find_spec("xllamacpp") and find_spec("gguf")), reason="needs pip install xllamacpp gguf")
def test_llama_cpps_server_writes_the_text_that_is_decoded_here(load):
    """llama.cpp's own server, with the same weights and tokens in a GGUF file, and its cache as it tells it."""
    with own_servers.llama_cpp("mini-gpt2") as url:
        document, _ = compared(load, url, "mini-gpt2")
        long_enough_to_be_seen = ConcurrencySpec(url, concurrency=(1, 2), requests=24, new_tokens=48)
        *_, last = run_levels(long_enough_to_be_seen, Bench("x", None, Limits()))
    cached, lane = document["runs"]
    assert lane["text"] == cached["text"] and lane["identical"]
    assert lane["engine"]["name"] == "llamacpp" and lane["engine"]["completion_tokens"] == 20
    metrics = lane["metrics"]
    assert metrics["unknown"] == [] and metrics["calculated"]["capacity_tokens"] == 512
    assert metrics["after"]["prefix_queries"] > metrics["before"]["prefix_queries"]
    assert 0 < metrics["after"]["prefix_hits"] < metrics["after"]["prefix_queries"], "the prompt was asked twice"
    levels = last["document"]["rows"]
    assert [(row["requests"], row["tokens"]) for row in levels] == [(24, 24 * 48), (48, 48 * 48)]
    alike = last["document"]["alike"]
    assert alike["concurrency"] == 2 and alike["hit_rate"] > 0.5 > levels[-1]["hit_rate"]
    assert max(look["used_share"] or 0 for look in last["document"]["looks"]) > 0
