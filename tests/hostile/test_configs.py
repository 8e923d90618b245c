"""Configs, links, log lines and files that cost too much to read, or say what no engine says."""

import base64
import contextlib
import json
import time
import zlib

import pytest

from kvviz.base.checks import Unfit
from kvviz.base.errors import KvvizError
from kvviz.decoding import meta_probe_process as probing
from kvviz.experiments.comparison.records import layer_groups
from kvviz.memory import calculator
from kvviz.memory.calculator import answers, from_params, pack, slim
from kvviz.memory.check_engine_log import judge
from kvviz.memory.engine_log import LARGEST_TEXT, parse
from kvviz.models.sources import parse_config, read_config
from kvviz.models.spec import ModelSpec
from kvviz.store.files import reading

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "num_hidden_layers": 2}
MANY = 300_000  # what fits a file of five million bytes


def timed(work):
    """Seconds of the processor that it takes: against what a plain config takes, never against the clock."""
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.fixture(scope="module")
def usual():
    """What the deepest model that kvviz reads at all takes."""
    deepest = LLAMA | {"num_hidden_layers": 1000, "layer_types": ["full_attention"] * 1000}
    return timed(lambda: ModelSpec.from_config(deepest))


def read(config):
    try:
        ModelSpec.from_config(config)
    except KvvizError as error:
        assert "\n" not in str(error) and len(str(error)) < 400


COSTLY = {
    "layers": LLAMA | {"num_hidden_layers": 10**9},
    "layers of a list": LLAMA | {"layer_types": ["full_attention"] * MANY, "num_hidden_layers": MANY},
    "layers of a pattern": {"model_type": "nemotron_h", "hybrid_override_pattern": "M" * 4_000_000},
    "cycles": LLAMA | {"H_cycles": 10**9, "L_cycles": 10**9},
    "one by one": LLAMA | {"num_hidden_layers": 1000, "per_layer_config": {str(i): {} for i in range(MANY)}},
    "a number with a million digits": LLAMA | {"per_layer_config": {"9" * 1_000_000: {}}},
    "indices": LLAMA | {"num_hidden_layers": 1000, "cross_attention_layers": [10**9] * MANY},
    "attending": {"model_type": "bamba", "num_hidden_layers": 1000, "attn_layer_indices": [10**9] * MANY},
    "indexers": LLAMA
    | {
        "num_hidden_layers": 1000,
        "layer_types": ["indexed_attention"] * 1000,
        "indexer_types": ["full"] * MANY,
        "index_head_dim": 8,
    },
    "types of types": {
        "model_type": "gpt_neo",
        "num_layers": 1000,
        "hidden_size": 64,
        "num_heads": 4,
        "attention_types": [[["global"], 10**9]] * MANY,
    },
    "types that are empty": {
        "model_type": "gpt_neo",
        "num_layers": 1000,
        "hidden_size": 64,
        "num_heads": 4,
        "attention_types": [[[], 10**9]] * MANY,
    },
    "types times a list": {
        "model_type": "gpt_neo",
        "num_layers": 1000,
        "hidden_size": 64,
        "num_heads": 4,
        "attention_types": [[["global"] * 9, ["x"] * MANY]],
    },
    "blocks": {"model_type": "recurrent_gemma", "num_hidden_layers": 1000, "block_types": ["recurrent"] * MANY},
    "sizes": LLAMA
    | dict.fromkeys(("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"), 2**39),
    "infinite": LLAMA | {"hidden_size": float("inf"), "num_hidden_layers": float("nan")},
    "negative": LLAMA | {"num_hidden_layers": -(10**9), "hidden_size": -1},
    "parts in parts": {"model_type": "llama", "text_config": {"text_config": {"text_config": {"text_config": {}}}}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTLY)
def test_a_config_that_would_cost_too_much_is_refused_soon(name, usual):
    """In less time than twenty of the deepest models that kvviz reads at all."""
    assert timed(lambda: read(COSTLY[name])) < 20 * usual + 0.5


@pytest.mark.parametrize("name", ["layers", "layers of a list", "indices", "attending", "one by one", "indexers"])
def test_and_the_sentence_names_the_field(name):
    with pytest.raises(KvvizError, match=r"(at most [12],000)|(has \d+ entries)"):
        ModelSpec.from_config(COSTLY[name])


def test_of_a_number_of_any_size_there_is_an_answer():
    asked = calculator.Asked(models=(pack(COSTLY["sizes"]),), tokens=2**30, batch=100_000, beams=64)
    (found,) = answers(asked)
    assert found.memory.total_bytes > 2**100
    assert calculator.as_json([found]) and calculator.as_csv([found])


def nested(depth, kind="{"):
    return '{"a":' * depth + "1" + "}" * depth if kind == "{" else '{"a":' + "[" * depth + "]" * depth + "}"


@pytest.mark.parametrize("kind", "{[")
@pytest.mark.parametrize("depth", [41, 300, 900, 100_000])
def test_deep_nesting_is_refused(depth, kind, tmp_path):
    with pytest.raises(KvvizError, match=r"nested more than 40 deep|can't be read as JSON"):
        slim(parse_config(nested(depth, kind)))
    file = tmp_path / "config.json"
    file.write_text(nested(depth, kind))
    with pytest.raises(KvvizError, match=r"nested more than 40 deep|can't be read as JSON"):
        read_config(file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "NaN",
        '{"a": 1e999',
        "\0",
        "9" * 5000,
        '{"a": ' + "9" * 5000 + "}",
        "\ufeff{}",
        "{'a': 1}",
        '{"a": "\\ud800"}',
    ],
)
def test_what_is_no_config_is_one_sentence(text):
    try:
        read(parse_config(text))
    except KvvizError as error:
        assert "\n" not in str(error)


@pytest.mark.slow
def test_a_link_that_unpacks_to_a_bomb_is_refused():
    bomb = "z:" + base64.urlsafe_b64encode(zlib.compress(b" " * 10**8, 9)).decode().rstrip("=")
    asked, problems = from_params({"models": bomb})
    assert problems and "can't be unpacked" in problems[0]
    assert asked.models == calculator.Asked().models


@pytest.mark.parametrize(
    "models", ["/etc/passwd", "../../etc", "gpt2\0", "file:///etc/passwd", "z:", "z:!!!!", "z:" + "A" * 9999]
)
def test_a_link_names_models_of_the_catalog_or_brings_one(models):
    asked, problems = from_params({"models": models})
    assert len(problems) == 1 and asked.models == calculator.Asked().models


def test_a_key_that_no_list_offers_is_no_path(tmp_path):
    """A browser can send any value for a list's choice."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    for key in (str(tmp_path), str(tmp_path / "config.json")):
        (found,) = answers(calculator.Asked(models=(key,)))
        assert found.spec is None and "no model of the catalog" in found.problem


# --- the probe builds what a config says ---------------------------------------------------------------------------


@pytest.mark.parametrize("part", [{"num_hidden_layers": 10**9}, {"text_config": {"n_layer": 10**9}}])
def test_no_model_of_a_thousand_million_layers_is_built(part):
    from kvviz.decoding.loading import hf_config

    with pytest.raises(KvvizError, match="at most 1,000 layers"):
        hf_config(LLAMA | part)


@pytest.mark.slow
@pytest.mark.long
def test_the_probe_of_a_giant_ends(monkeypatch):
    """In a process of its own, with a limit of memory and of time: every label of a model gets a name."""
    monkeypatch.setattr(probing, "_BOUNDED", probing._BOUNDED.replace(str(probing.MEMORY), str(2**29)))
    with pytest.raises(KvvizError) as refused:
        probing.probe_apart(LLAMA | {"num_labels": 10**10}, tokens=16)
    assert "longer than" not in str(refused.value), "memory ended it, not patience"
    assert "\n" not in str(refused.value)


def test_the_probe_can_not_reach_the_network(monkeypatch):
    seen = {}
    monkeypatch.setattr(probing.subprocess, "run", lambda command, **options: seen.update(options) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        probing.probe_apart(LLAMA, tokens=4)
    assert seen["env"]["HF_HUB_OFFLINE"] == "1"


# --- log lines -----------------------------------------------------------------------------------------------------


PIECES = (
    "size = ",
    "size =" + " " * 5000,
    "size" + " " * 5000,
    "size = 1",
    "size = " + "1" * 5000,
    "size = 1.1.1.",
    "size = 1 MiB (",
    "size = 1 MiB ( 1 cells, 1 layers, 1/1 seqs ",
    "size = 1 MiB (1 cells,1 layers,1" + " " * 5000,
    "# a",
    "# " + "a" * 5000,
    "# GPU blocks:",
    "Available KV cache memory:",
    "Available KV cache memory: " + "1," * 5000,
    "GPU KV cache size: 1,",
    "Maximum concurrency for ",
    "Maximum concurrency for 1 tokens per request: 1,",
    "K (f16",
    "K (" + "f" * 5000,
    "c^KV (",
    "creating ",
    "creating" + " " * 5000,
    "KV self size = ",
    "KV self size = 1 MiB K (",
    "\n",
    " ",
    "\0",
    "９",
    "(",
    "1",
)


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: repr(piece[:16]))
def test_no_line_keeps_a_parser_busy(piece):
    """A text eight times as long takes eight times as long; a pattern that tries again from every place, sixty-four."""

    def parsed(text):
        with contextlib.suppress(KvvizError):
            parse(text)

    length = LARGEST_TEXT // 4
    text = (piece * (length // len(piece) + 1))[:length]
    assert timed(lambda: parsed(text)) < 24 * timed(lambda: parsed(text[: length // 8])) + 0.1


def test_thousands_of_caches_are_not_worked_out():
    lines = "\n".join(f"llama_kv_cache: size = {i}.00 MiB (4096 cells, 32 layers, 1 seqs)" for i in range(1, 10_000))
    with pytest.raises(KvvizError, match="9,999 caches"):
        parse(lines)


@pytest.mark.parametrize("figure", ["9" * 400, "9" * 4000, "0." + "9" * 4000, "1e999", "-1"])
def test_numbers_of_any_length_are_a_sentence(figure):
    spec = ModelSpec.from_config(LLAMA)
    for line in (
        f"Available KV cache memory: {figure} GiB\nGPU KV cache size: {figure} tokens",
        f"llama_kv_cache: size = {figure} MiB ({figure} cells, {figure} layers, {figure} seqs), K (f16): 1",
    ):
        try:
            verdict = judge(parse(line), spec, tokens=8, batch=1, dtype="float16")
            assert len(verdict.sentence) < 10_000
        except KvvizError as error:
            assert len(str(error)) < 1000


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"\xff\xfe",
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b"1e999",
        b"NaN",
        b"{}",
        b"[[]]",
        b'{"kvviz": "recording", "version": 1, "records": [' + b"[" * 100_000,
        b"PK\x03\x04",
        b"\x1f\x8b\x08" + b"\0" * 50,
    ],
)
def test_a_file_of_anything_is_one_sentence(data):
    with pytest.raises(KvvizError) as refused:
        reading.read(data)
    assert "\n" not in str(refused.value)


def test_a_recording_of_more_layers_than_a_page_can_draw_is_refused():
    group = [list(range(10_000)), "full", [1], [1], "float32", 1, 1, 1, 1]
    with pytest.raises(Unfit, match="at most 10,000 layers"):
        layer_groups([group] * 2, "layers")
    assert layer_groups([group], "layers")


def test_uploads_are_held_to_the_limit_of_the_settings(public):
    from kvviz.ui.shared.form import uploaded

    class File:
        size = 3_000

        def getvalue(self):
            return b"x" * self.size

    public(upload_bytes=3_000)
    assert len(uploaded(File())) == 3_000
    public(upload_bytes=2_999)
    with pytest.raises(KvvizError, match="at most 2,999"):
        uploaded(File())
