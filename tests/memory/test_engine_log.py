"""Lines as engines print them, read and held against the formula."""

import re

import pytest

from kvviz.base.errors import KvvizError
from kvviz.memory.check_engine_log import judge
from kvviz.memory.engine_log import parse
from kvviz.models.catalog.rows import models, references
from kvviz.models.spec import ModelSpec

MIB, GIB = 2**20, 2**30

VLLM = """\
(Worker_TP0 pid=2412213) INFO 12-11 00:06:53 [gpu_worker.py:359] Available KV cache memory: 6.51 GiB
(EngineCore_DP0 pid=2412130) INFO 12-11 00:06:53 [kv_cache_utils.py:1286] GPU KV cache size: 42,656 tokens
(EngineCore_DP0 pid=2412130) INFO [kv_cache_utils.py:1291] Maximum concurrency for 40,960 tokens per request: 1.04x
"""

# gpt-oss-20b in 131,072 tokens
TWO_CACHES = """\
llama_kv_cache_unified_iswa: creating non-SWA KV cache, size = 131072 cells
llama_kv_cache_unified:      CANN0 KV buffer size =   256.00 MiB
llama_kv_cache: size = 3072.00 MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB
llama_kv_cache_unified_iswa: creating     SWA KV cache, size = 768 cells
llama_kv_cache_unified:      CANN0 KV buffer size =     3.00 MiB
llama_kv_cache: size =   18.00 MiB (   768 cells,  12 layers,  1/1 seqs), K (f16):    9.00 MiB, V (f16):    9.00 MiB
"""

# Qwen3.5-9B: 8 layers of attention, 24 with a state
WITH_STATES = """\
llama_kv_cache: size = 4224.00 MiB (135168 cells,   8 layers,  4/1 seqs), K (f16): 2112.00 MiB, V (f16): 2112.00 MiB
llama_memory_recurrent: size = 201.00 MiB ( 4 cells, 32 layers, 4 seqs  0 rs_seq), R (f32): 9.00 MiB, S (f32): 192.0 MiB
"""
QWEN = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def spec_of(model):
    return ModelSpec.from_config(models()[model].config, name=model)


def verdict_on(text, model, tokens=4096, batch=1, dtype="bfloat16", **more):
    return judge(parse(text), spec_of(model), tokens=tokens, batch=batch, dtype=dtype, **more)


def test_vllms_lines():
    log = parse(VLLM)
    assert (log.tokens, log.request_tokens, log.requests) == (42_656, 40_960, 1.04)
    assert log.nbytes == round(6.51 * GIB)
    assert log.tolerance_bytes == pytest.approx(0.005 * GIB, abs=1)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("INFO 11-04 10:23:22 llm_engine.py:196] # GPU blocks: 865, # CPU blocks: 327", "blocks", 865),
        ("INFO 07-09 12:57:45 [executor_base.py:111] # cuda blocks: 307335, # CPU blocks: 18724", "blocks", 307_335),
        ("takes 0.32GiB; the rest of the memory reserved for KV Cache is 65.65GiB.", "nbytes", round(65.65 * GIB)),
        ("Maximum concurrency for 4096 tokens per request: 1,131.48x", "requests", 1131.48),
        ("\x1b[1;36m(EngineCore)\x1b[0;0m GPU KV cache size: 1,024 tokens, Maximum concurrency for 10", "tokens", 1024),
        ("Available KV cache memory: 7 GiB", "tolerance_bytes", GIB // 2),
    ],
)
def test_older_and_newer_lines_of_vllm(line, field, value):
    assert getattr(parse(line), field) == value


def test_of_several_workers_the_least_pool_counts():
    assert parse("Available KV cache memory: 6.60 GiB\nAvailable KV cache memory: 6.51 GiB").nbytes == round(6.51 * GIB)


def test_llama_cpps_two_caches():
    log = parse(TWO_CACHES)
    assert [(part.name, part.cells, part.layers, part.key_dtype) for part in log] == [
        ("full", 131_072, 12, "f16"),
        ("window", 768, 12, "f16"),
    ]
    assert sum(part.nbytes for part in log) == 3090 * MIB


@pytest.mark.parametrize(
    ("line", "dtypes", "cells"),
    [
        ("KV self size  =  112.00 MiB, K (f16):   56.00 MiB, V (q8_0):   56.00 MiB", ("f16", "q8_0"), None),
        ("llama_init_from_file: kv self size  =  112.00 MB", (None, None), None),
        ("KV self size  = 112.00 MiB, c^KV (q8_0): 112.00 MiB, kv^T: not used", ("q8_0", "q8_0"), None),
        (
            "size = 112.00 MiB (  2048 cells,  28 layers,  1 seqs), K (q4_0): 56.00 MiB, V (q4_0): 5",
            ("q4_0", "q4_0"),
            2048,
        ),
    ],
)
def test_forms_of_llama_cpp(line, dtypes, cells):
    (part,) = parse(line)
    assert (part.key_dtype, part.value_dtype) == dtypes
    assert (part.nbytes, part.cells) == (112 * MIB, cells)


def test_what_llama_cpp_prints_twice_counts_once():
    assert len(parse(TWO_CACHES + TWO_CACHES)) == 2


@pytest.mark.parametrize("text", ["", "hello", "llama_kv_cache: CPU KV buffer size = 16.00 MiB", "KV cache size: lots"])
def test_other_text_is_refused_with_the_lines_that_are_read(text):
    with pytest.raises(KvvizError, match=r"GPU KV cache size.*KV self size"):
        parse(text)


@pytest.mark.parametrize("line", ["GPU KV cache size: {} tokens", "size = 1.00 MiB ({} cells, 1 layers, 1 seqs)"])
def test_numbers_that_no_cache_has_are_refused(line):
    with pytest.raises(KvvizError, match="more than any cache"):
        parse(line.format("9" * 5000))


@pytest.mark.parametrize("model", ["gemma-3-27b", "mamba2-2.7b", "t5-large", "zamba2-7b"])
@pytest.mark.parametrize(
    "text",
    [
        VLLM,
        TWO_CACHES,
        WITH_STATES,
        "Available KV cache memory: 0 GiB",
        "# GPU blocks: 0",
        "Maximum concurrency for 0 tokens per request: 0.00x",
        "KV self size = 0.00 MiB",
        "size = 0.00 MiB ( 0 cells, 0 layers, 0/0 seqs)",
    ],
)
def test_every_log_gets_a_sentence(text, model):
    found = verdict_on(text, model)
    assert found.sentence.endswith(".") and "\n" not in found.sentence


def test_two_engines_at_once_are_refused():
    with pytest.raises(KvvizError, match="mixed"):
        parse(VLLM + TWO_CACHES)


LOGS = [row for row in references() if row.view in ("vllm", "llama.cpp") and row.method == "published figure"]


@pytest.mark.parametrize("row", LOGS, ids=lambda row: row.id)
def test_published_logs(row):
    if row.view == "vllm":
        pool, tokens = re.fullmatch(r"(\S+) GiB for (\S+) tokens", row.printed).groups()
        text = f"Available KV cache memory: {pool} GiB\nGPU KV cache size: {tokens} tokens"
    else:
        text = f"KV self size  = {row.printed}"
    spec = ModelSpec.from_config(row.model_config)
    found = judge(parse(text), spec, tokens=row.tokens, batch=row.batch, dtype=row.dtype)
    assert found.agrees is True
    other = judge(parse(text), spec, tokens=row.tokens, batch=row.batch, dtype={"vllm": "fp8"}.get(row.view, "q5_0"))
    assert other.agrees is False
    assert re.search(rf"would agree for (a cache in )?({row.dtype}|bfloat16|float32)", other.sentence)


def test_there_are_logs_of_both_engines():
    assert {row.view for row in LOGS} == {"vllm", "llama.cpp"}


def test_another_model_does_not_agree():
    found = verdict_on(VLLM, "llama-3.1-8b")
    assert found.agrees is False
    assert "more" in found.sentence or "fewer" in found.sentence


def test_one_block_off_agrees_and_three_do_not():
    lines = "Available KV cache memory: 6.5100000 GiB\nGPU KV cache size: {} tokens"
    assert verdict_on(lines.format(42_656 - 16), "qwen3-14b").agrees is True
    assert verdict_on(lines.format(42_656 + 48), "qwen3-14b").agrees is False


def test_tensor_parallel_is_found():
    """On each of two devices a token takes half, as it does in half the precision."""
    text = "Available KV cache memory: 6.51 GiB\nGPU KV cache size: 85,312 tokens"
    assert verdict_on(text, "qwen3-14b", tensor_parallel=2).agrees is True
    alone = verdict_on(text, "qwen3-14b")
    assert alone.agrees is False
    assert alone.sentence.endswith("agree for a cache in fp8 or a tensor_parallel of 2.")


def test_blocks_and_requests_stand_for_tokens():
    pool = "reserved for KV Cache is 3.81GiB.\n"
    assert verdict_on(pool + "# GPU blocks: 1952, # CPU blocks: 2048", "llama-3.1-8b").agrees is True
    assert verdict_on(pool + "# GPU blocks: 976, # CPU blocks: 2048", "llama-3.1-8b").agrees is False
    requests = "Maximum concurrency for 10000 tokens per request: 3.12x"
    assert verdict_on(pool + requests, "llama-3.1-8b").agrees is True


def test_newer_versions_multiply_requests_by_their_tokens():
    """2,666 blocks hold 3.99 requests of 668 blocks, which are 10,681 tokens and not 10,688."""
    text = (
        "Available KV cache memory: 6.51 GiB\n"
        "GPU KV cache size: 42,628 tokens, Maximum concurrency for 10,681 tokens per request: 3.99x"
    )
    assert verdict_on(text, "qwen3-14b").agrees is True


def test_tokens_alone_tell_the_pool():
    found = verdict_on("GPU KV cache size: 42,656 tokens", "qwen3-14b")
    assert found.agrees is None
    assert "6.51 GiB" in found.sentence and "2,666 blocks of 16" in found.sentence


def test_a_pool_alone_tells_the_tokens():
    found = verdict_on("Available KV cache memory: 6.51 GiB", "qwen3-14b")
    assert found.agrees is None
    assert "6.51 GiB holds 42,656 tokens" in found.sentence


def test_no_room_is_nothing_to_compare():
    assert verdict_on("Available KV cache memory: -2.81 GiB", "qwen3-14b").agrees is None


def test_windows_leave_a_range():
    """vLLM counts all blocks of Gemma 3 or, in newer versions, those that a request needs."""
    lines = (
        "Available KV cache memory: 6.51 GiB\n"
        "GPU KV cache size: {} tokens, Maximum concurrency for 8,192 tokens per request: 2x"
    )
    agrees = [verdict_on(lines.format(n), "gemma-3-27b").agrees for n in (6_000, 12_176, 20_000, 200_000)]
    assert agrees == [False, True, None, False]


def test_both_caches_of_a_model_with_windows():
    found = verdict_on(TWO_CACHES, "gpt-oss-20b")
    assert found.agrees is True
    assert "3,072.00 MiB" in found.sentence and "18.00 MiB" in found.sentence
    assert "512 more, padded to 256" in found.sentence


def test_a_part_that_is_off_is_not_made_up_for_by_the_other():
    text = TWO_CACHES.replace("3072.00", "3071.00").replace("   18.00", "   19.00")
    assert verdict_on(text, "gpt-oss-20b").agrees is False


@pytest.mark.parametrize("number", [2, 5])
def test_one_of_two_caches_alone(number):
    assert verdict_on(TWO_CACHES.splitlines()[number], "gpt-oss-20b").agrees is True


def test_a_stream_for_each_sequence():
    """gpt-oss-20b, 16,384 tokens for 8 sequences, a physical batch of 256."""
    text = "size = 384.00 MiB ( 2048 cells, 12 layers, 8/8 seqs)\nsize =  96.00 MiB (  512 cells, 12 layers, 8/8 seqs)"
    assert verdict_on(text, "gpt-oss-20b", dtype="float16").agrees is True


def test_states_beside_a_cache():
    found = judge(parse(WITH_STATES), ModelSpec.from_config(QWEN), tokens=1, batch=1, dtype="bfloat16")
    assert found.agrees is True
    assert "4,224.00 MiB" in found.sentence and "201.00 MiB of states" in found.sentence
    earlier = WITH_STATES.replace("201.00", "603.00").replace("0 rs_seq", "2 rs_seq")
    assert judge(parse(earlier), ModelSpec.from_config(QWEN), tokens=1, batch=1, dtype="bfloat16").agrees is True


@pytest.mark.parametrize(
    ("text", "model", "says"),
    [
        ("KV self size = 112.00 MiB, K (f16): 56.00 MiB, V (f16): 56.00 MiB", "qwen2.5-7b", "agree for 2,048 tokens"),
        ("kv self size = 119.00 MiB", "qwen2.5-7b", "agree for q8_0"),
        (
            "size = 8.00 MiB ( 256 cells, 30 layers, 1/1 seqs), K (f16): 4 MiB, V (f16): 4 MiB",
            "qwen2.5-7b",
            "30 layers",
        ),
        (
            "size = 4148.00 MiB ( 32768 cells, 61 layers, 1/1 seqs), K (f16): 2196.00 MiB, V (f16): 1952.00 MiB",
            "deepseek-v3",
            "kept twice",
        ),
        ("size = 119.00 MiB ( 4096 cells, 28 layers, 1/1 seqs), K (iq4_nl): 9 MiB", "qwen2.5-7b", "iq4_nl"),
    ],
)
def test_why_it_differs(text, model, says):
    found = verdict_on(text, model)
    assert found.agrees is not True
    assert says in found.sentence


def test_keys_and_values_of_two_dtypes():
    """Qwen2.5-7B at 2,048 tokens: 56 MiB of f16 keys, 34/64 of that for q8_0 values."""
    text = "KV self size = 85.75 MiB, K (f16): 56.00 MiB, V (q8_0): 29.75 MiB"
    assert verdict_on(text, "qwen2.5-7b", tokens=2048).agrees is True


def test_tokens_are_padded_to_cells_and_the_sentence_says_so():
    found = verdict_on("KV self size = 112.00 MiB", "qwen2.5-7b", tokens=2000)
    assert found.agrees is True
    assert "padded to 2,048 cells" in found.sentence


def test_what_the_view_can_not_work_out_is_said():
    config = {**models()["llama-3.1-8b"].config, "num_key_value_heads": 3, "num_attention_heads": 24, "head_dim": 128}
    log = parse(VLLM)
    found = judge(log, ModelSpec.from_config(config), tokens=1, batch=1, dtype="bfloat16", tensor_parallel=8)
    assert found.agrees is None and "tensor_parallel" in found.sentence
