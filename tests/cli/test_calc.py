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


@pytest.mark.parametrize("kv_heads", [7, 64])
def test_kv_heads_that_query_heads_can_not_share_are_refused(refused, kv_heads):
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 4096, "num_attention_heads": 32}
    refused("query heads", "calc", "-", stdin="\ufeff" + json.dumps({**config, "num_key_value_heads": kv_heads}))


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
