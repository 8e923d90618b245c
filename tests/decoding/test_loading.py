"""Loading: real Hugging Face folders that the test makes, and every way in which one can be unfit."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.decoding.loading import ONLY_EAGER, attention_of, count_params, load
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.sources import find_source
from kvviz.models.text import ByteCodec, Speller, TextStream, TokenizerCodec
from tests.tiny_configs import TINY as TINY_CONFIGS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as transformers saves it: config, safetensors, byte-level tokenizer."""
    from transformers import PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("model")
    load(find_source("tiny-llama"), dtype="float32", device="cpu", attn="sdpa").model.save_pretrained(path)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        ["hello"], trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False)
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path)
    return path


def loaded(path, **options):
    return load(find_source(str(path), **options), dtype="float32", device="cpu", attn="eager")


def test_a_local_folder_loads_its_own_weights_and_tokenizer(folder):
    model = loaded(folder)
    original = load(find_source("tiny-llama"), dtype="float32", device="cpu", attn="sdpa")
    ids = torch.tensor([[1, 2, 3]])
    assert torch.allclose(model.model(ids).logits, original.model(ids).logits, atol=1e-5)
    assert isinstance(model.codec, TokenizerCodec) and model.source.weights == "local"
    assert model.codec.decode(model.codec.encode("hello wörld")) == "hello wörld"
    assert model.source.params == model.params
    assert model.model.config._attn_implementation == "eager"


def test_random_weights_follow_the_seed():
    def weights(seed):
        options = dict(dtype="float32", device="cpu", attn="sdpa", seed=seed)
        return next(load(find_source("tiny-gpt2"), **options).model.parameters())

    assert torch.equal(weights(0), weights(0)) and not torch.equal(weights(0), weights(1))


def test_a_config_alone_gets_random_weights(folder):
    model = loaded(folder / "config.json")
    assert model.source.weights == "random" and isinstance(model.codec, ByteCodec)


def test_truncated_weights_get_one_sentence(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(KvvizError, match="is cut off"):
        loaded(tmp_path)


def test_a_folder_without_tokenizer_takes_bytes(folder, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert isinstance(loaded(tmp_path).codec, ByteCodec)


def test_a_broken_tokenizer_is_named(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer.json").write_text("{}")
    model = loaded(tmp_path)
    assert isinstance(model.codec, ByteCodec)
    assert "can't be read" in model.codec.note


def test_pickled_weights_are_never_loaded(tmp_path, folder):
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert find_source(str(tmp_path)).weights == "random"
    with pytest.raises(KvvizError, match="safetensors"):
        find_source(str(tmp_path), "local")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"n_layer": 2}, "model_type"),
        ({"model_type": "no-such-thing"}, "can't read this config"),
        ({"model_type": "vit"}, "can't build a decoder"),
        ({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 0}, "can't"),
    ],
)
def test_configs_that_are_no_decoder(config, says):
    with pytest.raises(ConfigError, match=says):
        count_params(config)


def test_remote_code_is_not_run(tmp_path, folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise SystemExit('remote code ran')")
    assert loaded(tmp_path).params == find_source(str(folder)).params


def test_the_hub_without_a_network_is_one_sentence(monkeypatch):
    from kvviz.decoding import loading as module

    monkeypatch.setattr(module, "_offline", lambda: True)
    with pytest.raises(KvvizError, match="can't be reached"):
        module.fetched(find_source("nobody/nothing", "hub"))


def test_bytes_as_tokens():
    codec = ByteCodec(128)
    assert codec.encode("ab\n") == [97, 98, 10] and codec.decode([97, 10, 7, 300]) == "a\n⟨7⟩⟨300⟩"
    with pytest.raises(KvvizError, match="knows 128 tokens"):
        codec.encode("ä")


def test_a_character_of_several_tokens_comes_whole(folder):
    codec = loaded(folder).codec
    text = "naïve 語 ok"
    stream = TextStream(codec)
    pieces = [stream.push(i) for i in codec.encode(text)]
    assert "".join(pieces) == text and "" in pieces and not any("�" in piece for piece in pieces)
    spell, plain = Speller(codec), codec.encode("ok then, ok")
    assert spell(codec.encode(text)) == pieces and "".join(spell(plain)) == "ok then, ok" and len(spell(plain)) > 1


def test_a_model_without_fused_attention_runs_eager_and_says_so(engine, tmp_path):
    """Every command and page loads by `LoadedModels`, and none of them offers a choice for such a model."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(TINY_CONFIGS["mamba"]))
    loaded = engine.get(ComparisonSpec(model=str(config), prompt="x", new_tokens=2))
    assert loaded.environment.attn_implementation == "eager" and ONLY_EAGER in loaded.note
    assert attention_of(TINY_CONFIGS["llama"], "sdpa") == "sdpa"
