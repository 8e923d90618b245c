"""The calculator's question as a link, and its answers."""

import csv
import io
import json

import pytest

from kvviz.base.errors import ConfigError
from kvviz.memory.calculator import (
    LONGEST_LINK,
    Asked,
    answer,
    answers,
    as_csv,
    as_json,
    from_params,
    in_link,
    pack,
    slim,
    to_params,
)
from kvviz.models.catalog.rows import examples, models
from kvviz.models.sources import parse_config

OWN = pack({"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4})


@pytest.mark.parametrize(
    "asked",
    [
        Asked(),
        Asked(("gpt2",), 1, 2, "q8_0", "int4", "llama.cpp", 3, 1, 77, "t4"),
        Asked((OWN, "qwen3-4b"), tokens=131_072, view="vllm", tensor_parallel=8),
        Asked(view="llama.cpp", values="q4_0", flash_attention=False, swa_full=True, unified=True),
    ],
)
def test_a_link_restores_what_was_asked(asked):
    assert from_params(to_params(asked)) == (asked, [])


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"models": "nope"}, "'nope' is no model"),
        ({"models": ",".join(list(models())[:7])}, "one to 6 models"),
        ({"models": "z:abc"}, "can't be unpacked"),
        ({"models": "../../etc/passwd"}, "no model of the catalog"),
        ({"tokens": "-3"}, "'-3' is no whole number"),
        ({"tokens": "1e5"}, "no whole number"),
        ({"tokens": "9" * 400}, "no whole number"),
        ({"batch": "٣"}, "no whole number"),
        ({"dtype": "float12"}, "not one of"),
        ({"view": "<script>"}, "not one of"),
    ],
)
def test_a_part_of_a_link_that_can_not_be_read_is_told_and_the_rest_stays(params, says):
    asked, problems = from_params({"beams": "2", **params})
    assert len(problems) == 1 and says in problems[0]
    assert asked == Asked(beams=2)


def test_a_config_too_long_for_a_link_is_left_out_of_it():
    noise = {f"field_{i}_{hash((i, 'x')) % 10**15}": str(i**9) for i in range(600)}
    long = pack({"model_type": "gpt2", **noise})
    assert len(long) > LONGEST_LINK
    assert in_link(Asked((long, "gpt2"))) == ("gpt2",)


def test_answers_stand_side_by_side_and_one_refusal_spoils_no_other():
    bad = pack({"model_type": "bert", "num_hidden_layers": 2})
    first, refused, last = answers(Asked((OWN, bad, "gpt2"), tokens=10, dtype="float32"))
    assert first.memory.total_bytes == 3 * 10 * 4 * 2 * 16 * 4
    assert refused.memory is None and "encoder" in refused.problem
    assert last.memory.weights_bytes == 2 * models()["gpt2"].params


def test_weights_shrink_and_the_cache_does_not():
    sizes = [answer(Asked(tokens=8192, weights=w), "llama-3.1-8b").memory for w in ("bfloat16", "int8", "int4")]
    params = models()["llama-3.1-8b"].params
    assert [memory.weights_bytes for memory in sizes] == [2 * params, params, params // 2]
    assert {memory.total_bytes for memory in sizes} == {2**30}


def test_csv_has_a_row_for_each_layer_and_json_the_documents():
    found = answers(Asked(("gpt2", "t5-small"), tokens=10))
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(rows) == 12 + 12
    assert sum(int(row["nbytes"]) for row in rows[:12]) == found[0].memory.total_bytes
    assert rows[0]["key_shape"] == "1x12x10x64"
    assert [doc["total_bytes"] for doc in json.loads(as_json(found))] == [f.memory.total_bytes for f in found]


@pytest.mark.parametrize("row", examples(), ids=lambda row: row.id)
def test_every_example_has_an_answer(row):
    for tokens in row.tokens:
        asked = Asked(row.models, tokens, row.batch, row.dtype, row.weights_dtype[0], row.view)
        assert all(found.memory and found.memory.total_bytes for found in answers(asked))


TABLE = {  # Chapter-12's table: bytes in float16
    ("gpt2", 512): 18_874_368,
    ("gpt2-large", 2048): 377_487_360,
    ("llama-7b", 8192): 4 * 2**30,
}


@pytest.mark.parametrize(("case", "expected"), TABLE.items())
def test_the_table_of_three_sizes(case, expected):
    model, tokens = case
    assert answer(Asked(tokens=tokens, dtype="float16"), model).memory.total_bytes == expected


def test_slim_keeps_what_decides_a_size():
    config = {**models()["gemma-3-27b"].config, "vision_config": {"x": 1}, "eos_token_id": [1, 106], "auto_map": {}}
    assert "vision_config" not in slim(config) and "eos_token_id" not in slim(config)
    assert slim(config)["sliding_window"] == models()["gemma-3-27b"].config["sliding_window"]


def test_a_pasted_config_is_read_with_its_line_of_error():
    with pytest.raises(ConfigError, match="line 2"):
        parse_config('{"a": 1,\n b}')
