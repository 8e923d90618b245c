"""The contract of the command line, as scripts see it: one JSON document, or one sentence and status 2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def kvviz(*arguments, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "kvviz", *arguments], cwd=ROOT, capture_output=True, text=True, input=stdin
    )


def test_models_lists_what_the_catalog_has():
    rows = {row["id"]: row for row in json.loads(kvviz("models", "--json").stdout)["models"]}
    assert {"gpt2", "llama-3.1-8b", "qwen3-4b", "tiny-gpt2", "tiny-gemma3"} <= set(rows)
    assert set(rows["gpt2"]) >= {"id", "family", "title", "layers", "params", "weights", "source"}
    assert (rows["gpt2"]["layers"], rows["gpt2"]["params"]) == (12, 124_439_808)


def test_run_prints_one_document():
    done = kvviz("run", "--model", "tiny-mistral", "--prompt-tokens", "40", "--new-tokens", "5", "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["identical"] is True
    assert [run["mode"] for run in document["runs"]] == ["uncached", "cached"]
    assert document["runs"][1]["speedup"] > 0
    assert document["verdict"]["sentence"].startswith("By estimate from")
    assert "4 steps are too few" in document["verdict"]["modes"][0]["untold"][0]


def test_calc_and_probe_print_the_same_document():
    by_formula = json.loads(kvviz("calc", "tiny-gemma3", "--tokens", "40", "--view", "hf-dynamic", "--json").stdout)
    by_model = json.loads(kvviz("probe", "tiny-gemma3", "--tokens", "40", "--json").stdout)
    assert set(by_formula) == set(by_model)
    assert set(by_formula["layers"][0]) == set(by_model["layers"][0])
    for name in ("total_bytes", "per_token_bytes", "fixed_bytes", "reserved_bytes", "weights_bytes", "tokens", "dtype"):
        assert by_formula[name] == by_model[name]


def test_calc_of_a_published_model():
    document = json.loads(kvviz("calc", "llama-3.1-8b", "--tokens", "131072", "--json").stdout)
    assert (document["total_bytes"], document["per_token_bytes"]) == (16 * 2**30, 131_072)
    assert document["weights_bytes"] == 8_030_261_248 * 2


def test_a_config_on_standard_input():
    config = '{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}'
    done = kvviz("run", "--model", "-", "--new-tokens", "3", "--repeats", "1", stdin=config)
    assert len(json.loads(done.stdout)["runs"][1]["layers"]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--model", "no-such-model"], "catalog id"),
        (["run", "--model", "tiny-gpt2", "--mode", "fast"], "uncached, cached, unpassed"),
        (["run", "--model", "tiny-gpt2", "--mode", "cached,cached"], "each named once"),
        (["run", "--model", "tiny-mistral", "--mode", "cached,scratch"], "sliding window of 16 tokens"),
        (["run", "--model", "tiny-gpt2", "--new-tokens", "many"], "--new-tokens"),
        (["run", "--model", "tiny-gpt2", "--new-tokens", "0"], "from 1 to"),
        (["run", "--model", "tiny-gpt2", "--prompt", "a", "--prompt-tokens", "3"], "one of --prompt"),
        (["run", "--model", "tiny-gpt2", "--prompt-file", "/nowhere"], "can't be read"),
        (["run", "--model", "tiny-gpt2", "--prompt", ""], "empty"),
        (["run", "--model", "tiny-gpt2", "--dtype", "int3"], "float32, bfloat16, float16"),
        (["run", "--model", "tiny-gpt2", "--device", "cuda:99"], "not on this machine"),
        (["run", "--model", "tiny-gpt2", "--top-p", "2"], "top_p"),
        (["run", "--model", "tiny-gpt2", "--prompt-tokens", "1000"], "1,024 positions"),
        (["run", "--model", "tiny-gpt2", "--batch", "65"], "1 to 64"),
        (["calc", "no-such-model"], "catalog id"),
        (["calc", "gpt2", "--tokens", "-5"], "tokens"),
        (["calc", "gpt2", "--dtype", "int3"], "dtype"),
        (["calc", "gpt2", "--view", "mine"], "view"),
        (["probe", "gpt2", "--tokens", "0"], "tokens"),
        (["frobnicate"], "No such command"),
        (["run"], "--model"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, says):
    done = kvviz(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_broken_config_on_standard_input():
    done = kvviz("run", "--model", "-", stdin="{nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "JSON" in done.stderr
