"""Engines are recognised, and their metrics are read under whatever name their version has for them."""

import gzip
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from kvviz.decoding.endpoint.engines import (
    capacity_tokens,
    engine_by_routes,
    engine_of,
    engines,
    known_metrics,
    slot_figures,
    title_of_engine,
    unknown_metrics,
    used_share,
)

VLLM = """# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.35
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 60.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 40.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 5e1
vllm:num_requests_running{engine="0",model_name="m"} nan
"""
OLDER_VLLM = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
STATED = 'vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="573"} 1.0\n'
SGLANG = 'sglang:token_usage{model_name="m"} 0.28\nsglang:cache_hit_rate{model_name="m"} 0.0075\n'
LLAMA = "llamacpp:requests_processing 0\nllamacpp:n_decode_total 125\nllamacpp:prompt_seconds_total 13.6\n"
# What real servers said, as it was published; only the lines that speak of the cache and the queue.
VLLM_0_10_0 = """# https://github.com/vllm-project/production-stack/issues/617
# HELP vllm:gpu_prefix_cache_queries_created DEPRECATED: Use vllm:prefix_cache_queries instead.
vllm:gpu_prefix_cache_queries_created{engine="0",model_name="zai-org/GLM-4.5"} 1.7537953269352946e+09
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="zai-org/GLM-4.5"} 0.0
vllm:gpu_prefix_cache_hits_created{engine="0",model_name="zai-org/GLM-4.5"} 1.7537953269353123e+09
vllm:kv_cache_usage_perc{engine="0",model_name="zai-org/GLM-4.5"} 9.75010481363281e-06
vllm:prefix_cache_queries_total{engine="0",model_name="zai-org/GLM-4.5"} 32.0
"""
VLLM_0_8 = """# https://github.com/vllm-project/production-stack/issues/318
vllm:num_requests_running{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
vllm:num_requests_waiting{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
vllm:gpu_cache_usage_perc{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
"""
VLLM_0_28 = """# a hybrid model, whose blocks hold fewer tokens of the context than their number times their size
vllm:num_requests_running{engine="0",model_name="qwen3.8-27b"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen3.8-27b"} 0.0
vllm:prefix_cache_queries_total{engine="0",model_name="qwen3.8-27b"} 16681.0
vllm:prefix_cache_hits_total{engine="0",model_name="qwen3.8-27b"} 7840.0
vllm:cache_config_info{_block_size_resolved="True",block_size="784",cache_dtype="auto",kv_cache_size_tokens="141994",\
num_gpu_blocks="208",num_gpu_blocks_override="None",sliding_window="None"} 1.0
""".replace("\\\n", "")
# The whole of what vLLM 0.32.0 said on a CPU, with two requests at work: 40 blocks of 32 tokens.
VLLM_0_32 = gzip.decompress(Path(__file__).with_name("vllm-0.32.0-metrics.txt.gz").read_bytes()).decode()
LLAMA_B11549 = """# recorded here: the server in xllamacpp 2026.10.11549, asked twice for 8 tokens after 4
llamacpp:prompt_tokens_total 5
llamacpp:prompt_tokens_cached_total 3
llamacpp:tokens_predicted_total 16
llamacpp:n_decode_total 16
llamacpp:n_tokens_max 11
llamacpp:requests_processing 0
llamacpp:requests_deferred 0
"""
SGLANG_0_5 = """# https://docs.sglang.io/docs/references/production_metrics
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
sglang:cache_hit_rate{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.007507552643049313
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 162.0
sglang:num_used_tokens{model_name="meta-llama/Llama-3.1-8B-Instruct"} 123859.0
sglang:gen_throughput{model_name="meta-llama/Llama-3.1-8B-Instruct"} 86.50814177726902
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
"""


@pytest.mark.parametrize(
    ("said", "name", "figures"),
    [
        (VLLM_0_8, "vllm", {"cache_usage": 0, "running": 0}),
        (VLLM_0_10_0, "vllm", {"cache_usage": 9.75010481363281e-06, "prefix_queries": 32, "prefix_hits": 0}),
        (
            VLLM_0_28,
            "vllm",
            {"cache_usage": 0, "prefix_queries": 16681, "prefix_hits": 7840, "running": 0}
            | {"blocks": 208, "block_tokens": 784, "capacity_tokens": 141994},
        ),
        (
            VLLM_0_32,
            "vllm",
            {"cache_usage": 24 / 39, "prefix_queries": 931, "prefix_hits": 192, "running": 2}
            | {"blocks": 40, "block_tokens": 32, "capacity_tokens": 1280},
        ),
        (
            LLAMA_B11549,
            "llamacpp",
            {"running": 0, "decodes": 16, "prefix_hits": 3, "prefix_queries": 8},
        ),
        (
            SGLANG_0_5,
            "sglang",
            {"cache_usage": 0.28, "hit_rate": 0.007507552643049313, "running": 162, "used_tokens": 123859},
        ),
    ],
)
def test_what_real_servers_of_several_versions_said(said, name, figures):
    engine = engine_of(said, [])
    assert engine.name == name and known_metrics(engine, said) == figures
    assert unknown_metrics(engine, said) == []
    assert capacity_tokens(figures) == figures.get("capacity_tokens", 0)


@pytest.mark.parametrize(
    ("exposition", "name", "figures"),
    [
        (VLLM, "vllm", {"cache_usage": 0.3, "prefix_queries": 100, "prefix_hits": 50}),
        (OLDER_VLLM, "vllm", {"cache_usage": 0.5}),
        (STATED, "vllm", {"blocks": 573, "block_tokens": 16}),
        (STATED.replace("573", "None"), "vllm", {"block_tokens": 16}),
        (
            SGLANG + "sglang:max_total_num_tokens 471258.0",
            "sglang",
            {"cache_usage": 0.28, "hit_rate": 0.0075, "capacity_tokens": 471258},
        ),
        (SGLANG, "sglang", {"cache_usage": 0.28, "hit_rate": 0.0075}),
        (
            SGLANG.replace("sglang:", "sglang_") + "sglang_max_total_num_tokens 471258.0",
            "sglang",
            {"cache_usage": 0.28, "hit_rate": 0.0075, "capacity_tokens": 471258},
        ),
        (LLAMA, "llamacpp", {"running": 0, "decodes": 125}),
    ],
)
def test_known_metrics(exposition, name, figures):
    engine = engine_of(exposition, [])
    assert engine.name == name and known_metrics(engine, exposition) == figures


def test_transformers_serve_is_recognised_by_its_routes():
    """Each is in the source of the installed version; one missing, or no description at all, is no engine."""
    (engine,) = (engine for engine in engines() if engine.routes)
    source = Path(find_spec("transformers").origin).parent / "cli/serving/server.py"
    routes = re.findall(r'@app\.\w+\("(.+?)"\)', source.read_text(encoding="utf-8"))
    assert set(engine.routes) < set(routes)
    assert engine_by_routes(json.dumps({"paths": dict.fromkeys(routes)})) is engine
    for other in ("", "<html>", "[]", '{"paths": null}', json.dumps({"paths": dict.fromkeys(engine.routes[1:])})):
        assert engine_by_routes(other) is None
    assert known_metrics(engine, VLLM) == {} and unknown_metrics(engine, "kv_cache_x 1") == []


def test_unknown_engines_and_garbage():
    assert engine_of("process_cpu_seconds_total 3\n", ["somebody"]) is None
    assert known_metrics(None, VLLM) == {}
    assert known_metrics(engines()[0], "<html>vllm:kv_cache_usage_perc -1\nvllm:kv_cache_usage_perc{ x\n\0") == {}
    assert engine_of("", ["library"]).title == "Ollama" and "does not say" in title_of_engine(None)


def test_names_that_the_table_lacks_are_told():
    newer = (
        VLLM
        + "vllm:kv_cache_pages_used 3\nvllm:prefix_cache_queries_created 1\nvllm:e2e_seconds_sum 2\nother:cache 1\n"
    )
    assert unknown_metrics(engines()[0], newer) == ["vllm:kv_cache_pages_used"]
    assert unknown_metrics(None, newer) == []
    assert unknown_metrics(engine_of("", ["sglang"]), "sglang_hicache_host_used_tokens 3") == [
        "sglang_hicache_host_used_tokens"
    ]


SLOT = {"id": 0, "n_ctx": 4096, "is_processing": True, "next_token": {"n_decoded": 136}}


@pytest.mark.parametrize(
    ("slots", "figures"),
    [
        ([SLOT, {"id": 1, "n_ctx": 4096, "is_processing": False}], (2, 4096, 1, 136)),
        ([{**SLOT, "next_token": [{"n_decoded": 7}]}], (1, 4096, 1, 7)),
        ([], None),
        ({"error": {"code": 501}}, None),
        ([{**SLOT, "n_ctx": "many"}], None),
        ([{**SLOT, "n_ctx": -1}], None),
        ([{**SLOT, "next_token": []}], None),
    ],
)
def test_llama_cpps_slots_in_both_of_their_forms(slots, figures):
    names = ("slots", "slot_tokens", "running", "decoded")
    found = slot_figures(json.dumps(slots))
    assert found == dict(zip(names, figures, strict=True)) if figures else "slot_tokens" not in found


def test_the_share_in_use_of_slots_and_of_a_metric():
    slot = {**SLOT, "n_prompt_tokens_processed": 100, "n_prompt_tokens_cache": 276}
    found = slot_figures(json.dumps([slot, {"id": 1, "n_ctx": 4096, "is_processing": False}]))
    assert found["used_tokens"] == 512 and used_share(found) == 512 / 8192
    assert used_share({"cache_usage": 0.5, "used_tokens": 3}) == 0.5
    assert used_share({"used_tokens": 3}) is used_share({}) is None


def test_slots_of_garbage_are_none():
    assert slot_figures("<html>") == slot_figures("[" * 100_000) == slot_figures("3") == {}
