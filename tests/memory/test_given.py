"""The calculator's one box: each kind of text is taken for what it is, and every other one is refused in a sentence."""

import json

import pytest

from kvviz.base.errors import KvvizError
from kvviz.memory import given
from kvviz.memory.given import read_given
from kvviz.models.catalog.rows import models
from tests.models.gguf.writer import header, model

LLAMA = {"model_type": "llama", "num_hidden_layers": 2}


@pytest.fixture
def hub(monkeypatch):
    """A Hub that has every model and every GGUF file; the names that it was asked for."""
    asked = []
    monkeypatch.setattr(given, "fetch_config", lambda repo: asked.append(repo) or dict(LLAMA))
    monkeypatch.setattr(given, "config_on_the_hub", lambda *file: asked.append(file) or dict(LLAMA))
    return asked


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("qwen3-4b", ["qwen3-4b"]),
        (" Qwen/Qwen3-4B\n", ["qwen3-4b"]),
        ("LLaMA 3.1-8B", ["llama-3.1-8b"]),
        ("https://huggingface.co/Qwen/Qwen3-4B/blob/main/config.json", ["qwen3-4b"]),
        ("hf.co/Qwen/Qwen3-4B?library=transformers", ["qwen3-4b"]),
        ("gpt2, deepseek-v3\nqwen3-4b", ["gpt2", "deepseek-v3", "qwen3-4b"]),
        ("gpt2 vs Qwen/Qwen3-4B and gpt2", ["gpt2", "qwen3-4b"]),
    ],
)
def test_a_model_of_the_catalog_by_any_of_its_names_needs_no_network(text, ids, hub):
    assert [each.model for each in read_given(text)] == ids and not hub


def test_every_title_and_every_hugging_face_id_of_the_catalog_names_its_model():
    for row in models().values():
        for name in (row.id, row.title, *([row.hub] if row.hub else [])):
            (found,) = read_given(name)
            assert models()[found.model].config == row.config, name


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("some/model", "some/model"),
        ("https://www.huggingface.co/some/model/tree/main?x=1#y", "some/model"),
        ("https://huggingface.co/bert-like", "bert-like"),
        ("hf:some/model/file.gguf", ("some/model", "main", "file.gguf")),
        ("https://huggingface.co/some/model/blob/v1/a/file.gguf", ("some/model", "v1", "a/file.gguf")),
    ],
)
def test_what_the_catalog_has_not_is_asked_of_the_hub(text, asked, hub):
    (found,) = read_given(text)
    assert hub == [asked] and found.config["model_type"] == "llama"
    assert "Hugging Face Hub" in found.what


@pytest.mark.parametrize("text", [json.dumps(LLAMA), "LlamaConfig " + json.dumps(LLAMA, indent=2)])
def test_a_config_as_it_is_or_as_transformers_prints_it(text):
    (found,) = read_given(text)
    assert (found.what, found.config) == ("the config of a model of type llama", LLAMA)


def test_paths_of_this_machine_if_they_may_be_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "my file.gguf").write_bytes(header(model("llama")))
    for path in (tmp_path, tmp_path / "config.json", tmp_path / "my file.gguf"):
        (found,) = read_given(str(path))
        assert found.config["model_type"] == "llama" and path.name in found.what
        for name in (str(path), f"{path}x"):  # whether it exists is not told
            with pytest.raises(KvvizError, match=r"near ones of the catalog|can't be read; give"):
                read_given(name, paths=False)


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("INFO 11-04 10:00:00 kv_cache_utils.py:1087] GPU KV cache size: 42,656 tokens", "vLLM"),
        ("llama_kv_cache_init: KV self size = 112.00 MiB, K (f16): 56.00 MiB, V (f16): 56.00 MiB", "llama.cpp"),
    ],
)
def test_a_line_of_a_log(text, engine):
    (found,) = read_given(text)
    assert (found.what, found.log) == (f"lines of the log of {engine}", text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing is given"),
        (", ,", "can't be read; give a model's id"),
        ("hello world", "can't be read; give a model's id"),
        ("qwen3-5b", "near ones of the catalog are qwen3-"),
        ("{", "a whole config.json goes from { to }"),
        ("[1]", "holds no JSON object"),
        ("KV cache", "no line about a KV cache's size"),
        ("https://huggingface.co/datasets/some/data", "the address of a data set"),
        ("https://example.org/some/model", "no model"),
        (json.dumps({"peft_type": "LORA", "base_model_name_or_path": "some/base"}), "the model under it, 'some/base'"),
        ("a/b " * 7, "can't be read"),
        ("\0", "no model"),
        ("x" * 1_000_000, "can't be read"),
        ('{"' + "a" * 1_000_000, "a whole config.json goes from { to }"),  # a quadratic search would take an hour
        ("~nobody-of-that-name/x", "no model"),
    ],
)
def test_anything_else_is_one_sentence(text, says, hub):
    with pytest.raises(KvvizError) as error:
        read_given(text)
    assert says in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 600
    assert not hub
