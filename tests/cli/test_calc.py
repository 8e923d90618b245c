"""`kvviz calc` and `kvviz probe`: the same document, by formula and from a real forward."""

import json

import pytest

from tests.models.gguf.writer import header, model

CONFIG = '{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}'


@pytest.mark.slow
def test_calc_and_probe_print_the_same_document(kvviz):
    by_formula = kvviz("calc", "tiny-gemma3", "--tokens", "40", "--view", "hf-dynamic", "--json").document
    by_model = kvviz("probe", "tiny-gemma3", "--tokens", "40", "--json").document
    assert set(by_formula) == set(by_model)
    assert set(by_formula["layers"][0]) == set(by_model["layers"][0])
    for name in ("total_bytes", "per_token_bytes", "fixed_bytes", "reserved_bytes", "weights_bytes", "tokens", "dtype"):
        assert by_formula[name] == by_model[name]


def test_calc_of_a_published_model(kvviz):
    document = kvviz("calc", "llama-3.1-8b", "--tokens", "131072", "--json").document
    assert (document["total_bytes"], document["per_token_bytes"]) == (16 * 2**30, 131_072)
    assert document["weights_bytes"] == 8_030_261_248 * 2


@pytest.mark.parametrize("command", ["calc", "probe"])
def test_a_config_on_standard_input(kvviz, command):
    done = kvviz(command, "-", "--tokens", "10", "--dtype", "float32", stdin=CONFIG)
    assert f"{2 * 2 * 10 * 64 * 4:,} B" in done.out and done.status == 0
    assert done.out.startswith("standard input, ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["calc", "gpt2", "--tokens", "-5"], "tokens"),
        (["calc", "gpt2", "--dtype", "int3"], "dtype"),
        (["calc", "gpt2", "--view", "mine"], "view"),
        (["probe", "gpt2", "--tokens", "0"], "tokens"),
        (["calc", "gpt2", "--tokens", str(2**40)], "from 1 to 1,099,511,627,775"),
        (["calc", "llama-3.1-8b", "--tensor-parallel", "64"], "has to divide the 32 query heads"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(refused, arguments, says):
    refused(says, *arguments)


@pytest.mark.parametrize("text", ["{", "\udcff"])
def test_what_is_no_config_on_standard_input_is_named(refused, text):
    refused("standard input can't be read as JSON", "calc", "-", stdin=text)


PLAIN = {"num_hidden_layers": 2, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 100}
OWN_CODE = {**PLAIN, "model_type": "chatglm", "auto_map": {"AutoModel": "x.X"}, "multi_query_attention": True}


@pytest.mark.parametrize("kv_heads", [7, 64])
@pytest.mark.parametrize("model_type", ["llama", "glm4_moe", "falcon", "mimo_v2_flash"])
def test_kv_heads_that_query_heads_can_not_share_are_refused(refused, model_type, kv_heads):
    config = {**PLAIN, "model_type": model_type, "num_key_value_heads": kv_heads, "new_decoder_architecture": True}
    if model_type == "falcon":
        config["num_kv_heads"] = config.pop("num_key_value_heads")
    says = f"kv_heads is {kv_heads}" if model_type == "falcon" else f"num_key_value_heads is {kv_heads}"
    refused(says, "calc", "-", stdin="\ufeff" + json.dumps(config))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "blt"}, "use_cache=False"),
        ({"model_type": "xlnet", "n_layer": 2, "reuse_len": 64}, "reuse_len"),
        ({"model_type": "reformer", "is_decoder": True, "attn_layers": ["far"]}, "attn_layers"),
        ({"model_type": "deepseek_v4", "num_hidden_layers": 2, "compress_ratios": [4, 5]}, "compress_ratios"),
        ({**OWN_CODE, "attn_type_list": [0, 1]}, "attn_type_list"),
        ({**OWN_CODE, "sliding_window": 4096}, "sliding_window"),
        ({**PLAIN, "model_type": "chatglm"}, "is no decoder that kvviz knows"),
        ({"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B"}, "'meta-llama/Llama-3.1-8B'"),
    ],
)
def test_what_can_not_be_read_is_refused_by_its_name(refused, config, says):
    refused(says, "calc", "-", stdin=json.dumps(config))


def test_a_config_of_custom_code_is_read_with_a_caution(kvviz):
    config = {**OWN_CODE, "kv_channels": 128, "seq_length": 8192}
    done = kvviz("calc", "-", "--tokens", "10", stdin=json.dumps({**config, "multi_query_group_num": 2}))
    assert (done.status, f"{2 * 2 * 2 * 128 * 10 * 2:,} B" in done.out) == (0, True)
    assert "'chatglm' brings its own code, which kvviz never runs" in done.out
    assert "each query head" not in done.out
    alone = kvviz("calc", "-", "--json", stdin=json.dumps(config)).document
    assert alone["layers"][0]["kv_heads"] == 32 and "a KV head for each query head" in alone["notes"][0]


def test_a_context_beyond_what_the_model_was_made_for_is_said(kvviz):
    assert kvviz("calc", "gpt2", "--tokens", "1024", "--json").document["notes"] == []
    done = kvviz("calc", "gpt2", "--tokens", "1025")
    assert (done.status, "made for 1,024 tokens" in done.out) == (0, True)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = {**PLAIN, "model_type": "qwen2", "max_position_embeddings": 32768, "rope_scaling": yarn}
    assert "made for 131,072 tokens" in kvviz("calc", "-", "--tokens", "131073", stdin=json.dumps(config)).out


def test_a_draft_head_keeps_none_and_says_whose_it_reads(kvviz, refused):
    config = json.dumps({"model_type": "gemma4_assistant", "text_config": {"model_type": "gemma4_text"}})
    done = kvviz("calc", "-", stdin=config)
    assert "gemma4_assistant" not in done.err and "keeps none of its own" in done.out and " 0 B " in done.out
    refused("drafts with another model's keys and values", "cost", "-", stdin=config)


def test_an_adapter_alone_names_its_base(refused, tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "gpt2"}')
    refused("holds an adapter alone, which keeps no cache: give the model under it, 'gpt2'", "calc", str(tmp_path))


# --- GGUF files -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    """A Llama of 32 layers with 8 KV heads of 128, and two tensors of 4,096 x 4,096."""
    keys = {"block_count": 32, "embedding_length": 4096, "attention.head_count": 32, "attention.head_count_kv": 8}
    path = tmp_path_factory.mktemp("gguf") / "llama.gguf"
    square = 4096 * 4096
    tensors = [("a", (4096, 4096), 12, 0), ("b", (4096, 4096), 14, square // 256 * 144)]
    path.write_bytes(header(model("llama", keys), tensors))
    return path


def test_calc_of_a_gguf_file(kvviz, gguf_file):
    document = kvviz("calc", str(gguf_file), "--tokens", "5000", "--json").document
    cells = 5120 * 32 * 2 * 8 * 128
    assert (document["view"], document["dtype"], document["reserved_bytes"]) == ("llama.cpp", "float16", 2 * cells)
    assert document["weights_bytes"] == 4096 * 4096 // 256 * (144 + 210) and document["gguf"]["types"].keys() == {
        "Q4_K", "Q6_K"
    }  # fmt: skip
    mixed = kvviz("calc", str(gguf_file), "--tokens", "5000", "-ctk", "q8_0", "-ctv", "q4_0", "--json").document
    assert mixed["reserved_bytes"] == cells // 2 // 32 * (34 + 18)
    assert "Q4_K 9.0 MiB in 1 tensors" in kvviz("calc", str(gguf_file)).out


def test_what_gguf_files_are_not_for_is_said(refused, gguf_file):
    refused("belong to --view llama.cpp", "calc", "gpt2", "-ctv", "q8_0")
    refused("is a GGUF file, not a config.json", "run", "--model", str(gguf_file))
    refused("standard input ends inside its GGUF header", "calc", "-", stdin="GGUF")
