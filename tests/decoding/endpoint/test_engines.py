"""Engines are recognised, and their metrics are read under whatever name their version has for them."""

import pytest

from kvviz.decoding.endpoint.engines import engine_of, engines, known_metrics, title_of_engine

VLLM = """# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 60.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 40.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 5e1
vllm:num_requests_running{engine="0",model_name="m"} nan
"""
OLDER_VLLM = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
SGLANG = 'sglang:token_usage{model_name="m"} 0.28\nsglang:cache_hit_rate{model_name="m"} 0.0075\n'
LLAMA = "llamacpp:requests_processing 0\nllamacpp:n_decode_total 125\nllamacpp:prompt_seconds_total 13.6\n"


@pytest.mark.parametrize(
    ("exposition", "name", "figures"),
    [
        (VLLM, "vllm", {"cache_usage": 0.25, "prefix_queries": 100, "prefix_hits": 50}),
        (OLDER_VLLM, "vllm", {"cache_usage": 0.5}),
        (SGLANG, "sglang", {"cache_usage": 0.28, "hit_rate": 0.0075}),
        (LLAMA, "llamacpp", {"running": 0, "decodes": 125}),
    ],
)
def test_known_metrics(exposition, name, figures):
    engine = engine_of(exposition, [])
    assert engine.name == name and known_metrics(engine, exposition) == figures


def test_unknown_engines_and_garbage():
    assert engine_of("process_cpu_seconds_total 3\n", ["somebody"]) is None
    assert known_metrics(None, VLLM) == {}
    assert known_metrics(engines()[0], "<html>vllm:kv_cache_usage_perc -1\nvllm:kv_cache_usage_perc{ x\n\0") == {}
    assert engine_of("", ["library"]).title == "Ollama" and "does not say" in title_of_engine(None)
