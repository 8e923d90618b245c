"""`kvviz calc` and `kvviz probe`: the same document, by formula and from a real forward."""

import pytest

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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["calc", "gpt2", "--tokens", "-5"], "tokens"),
        (["calc", "gpt2", "--dtype", "int3"], "dtype"),
        (["calc", "gpt2", "--view", "mine"], "view"),
        (["probe", "gpt2", "--tokens", "0"], "tokens"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(refused, arguments, says):
    refused(says, *arguments)
