"""`kvviz sweep` as scripts see it: one JSON document, a table to read, a journal that survives a kill."""

import pytest


@pytest.mark.slow
def test_a_preset_is_a_table_with_the_published_one_beside_it(kvviz):
    grid = ("--model", "tiny-gpt2", "--prompt-tokens", "64,512", "--new-tokens", "2", "--repeats", "1")
    done = kvviz("sweep", "--preset", "lab-01", *grid)
    assert done.status == 0, done.err
    assert "tiny-gpt2 in float32" in done.out and "46.9×" in done.out
    assert "KV cache, from a prompt of 64 tokens to 512: time per token" in done.out


@pytest.mark.slow
def test_a_config_on_standard_input(kvviz):
    config = '{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}'
    arguments = ("--model", "-", "--prompt-tokens", "4", "--new-tokens", "2", "--repeats", "1", "--json")
    assert len(kvviz("sweep", *arguments, stdin=config).document["rows"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--model"),
        (["--preset", "lab-99"], "lab-01"),
        (["--model", "no-such-model"], "catalog id"),
        (["--model", "tiny-gpt2,"], "needs a model"),
        (["--model", "tiny-gpt2", "--mode", "fast"], "uncached, cached, unpassed"),
        (["--model", "tiny-mistral,tiny-gemma3", "--mode", "cached,scratch"], "sliding window of 16 tokens"),
        (["--model", "tiny-gpt2", "--prompt-tokens", "64,x"], "whole numbers"),
        (["--model", "tiny-gpt2", "--prompt-tokens", "64,64"], "twice"),
        (["--model", "tiny-gpt2", "--new-tokens", "0"], "from 1 to"),
        (["--model", "tiny-gpt2", "--batch", "65"], "1 to 64"),
        (["--model", "tiny-gpt2", "--dtype", "int3"], "float32, bfloat16, float16"),
        (["--model", "tiny-gpt2", "--repeats", "many"], "--repeats"),
        (["--model", "tiny-gpt2", "--budget", "0"], "budget"),
        (["--model", "tiny-gpt2", "--device", "cuda:99"], "not on this machine"),
        (["--model", "tiny-gpt2", "--device", "split"], "only a comparison"),
        (["--model", "tiny-gpt2", "--prompt-tokens", "1023"], "1,024 positions"),
        (["--model", "tiny-gpt2", "--resume", "README.md"], "not the journal"),
        (["--model", "tiny-gpt2", "--resume", "/nowhere/journal"], "can't be written"),
        (["--model", "tiny-gpt2", "--prompt-tokens", ",".join(map(str, range(1, 300)))], "at most 200"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(refused, arguments, says):
    refused(says, "sweep", *arguments)
