"""Weights from safetensors, as the Hub has them, and the bundled models."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.generate import with_cache
from kvviz.decoding.scratch.load import from_folder
from kvviz.models.sources import BUNDLED
from tests.decoding.scratch.conftest import token_ids


@pytest.fixture
def folder(tmp_path, pair):
    pair("gpt2").theirs.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["mini-gpt2", "mini-qwen3"])
@torch.no_grad()
def test_the_bundled_models(name):
    ours = from_folder(BUNDLED / name)
    theirs = AutoModelForCausalLM.from_pretrained(BUNDLED / name, local_files_only=True).eval()
    ids = torch.randint(0, theirs.config.vocab_size, (2, 64), generator=torch.Generator().manual_seed(2))
    assert (ours(ids) - theirs(ids).logits).abs().max() < 1e-4
    settings = {"max_new_tokens": 40, "min_new_tokens": 40, "do_sample": False}
    expected = theirs.generate(ids[:1], attention_mask=torch.ones_like(ids[:1]), **settings)
    assert with_cache(ours, ids[:1], 40).equal(expected)


@torch.no_grad()
def test_a_folder_in_several_files_and_in_another_precision(folder, pair):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    save_file({name: tensors[name] for name in names[::2]}, folder / "model-00001-of-00002.safetensors")
    save_file({name: tensors[name] for name in names[1::2]}, folder / "model-00002-of-00002.safetensors")
    expected = pair("gpt2").theirs(token_ids()).logits
    assert (from_folder(folder)(token_ids()) - expected).abs().max() < 1e-4
    assert from_folder(folder, dtype="bfloat16")(token_ids()).dtype == torch.bfloat16


@torch.no_grad()
def test_names_without_their_first_part(folder, pair):
    """GPT-2's published file says h.0.ln_1.weight, not transformer.h.0.ln_1.weight."""
    tensors = load_file(folder / "model.safetensors")
    save_file({name.removeprefix("transformer."): one for name, one in tensors.items()}, folder / "model.safetensors")
    expected = pair("gpt2").theirs(token_ids()).logits
    assert (from_folder(folder)(token_ids()) - expected).abs().max() < 1e-4


def test_what_is_missing_or_does_not_fit_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    bias = tensors.pop("transformer.h.1.mlp.c_fc.bias")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(KvvizError, match=r"no transformer\.h\.1\.mlp\.c_fc\.bias"):
        from_folder(folder)
    save_file({**tensors, "transformer.h.1.mlp.c_fc.bias": bias[:-1].clone()}, folder / "model.safetensors")
    with pytest.raises(KvvizError, match=r"blocks\.1\.mlp\.up\.bias is \(255,\) and should be \(256,\)"):
        from_folder(folder)
    (folder / "model.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(KvvizError, match="can't be read"):
        from_folder(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(KvvizError, match=r"holds no \.safetensors"):
        from_folder(folder)


def test_a_folder_that_is_refused_is_refused_before_its_weights_are_read(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "scale_attn_by_inverse_layer_idx": True}))
    (folder / "model.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(KvvizError, match="scale_attn_by_inverse_layer_idx"):
        from_folder(folder)
