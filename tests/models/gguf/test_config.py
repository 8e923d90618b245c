"""From a header to a config: the rules that no key states, and the sentences for what can't be read."""

import io

import gguf
import pytest

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import families
from kvviz.models.gguf.config import FAMILIES, REFUSED, config_of, weights_in
from kvviz.models.gguf.header import read_header
from kvviz.models.spec import ModelSpec
from tests.models.gguf.writer import header, model

GATED = {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 8, "ssm.group_count": 2}
LATENT = {"attention.key_length_mla": 96, "attention.kv_lora_rank": 64}


def spec_of(metadata, tensors=()):
    return ModelSpec.from_config(config_of(read_header(io.BytesIO(header(metadata, tensors)))))


def test_every_architecture_has_a_family_that_kvviz_knows():
    assert set(FAMILIES.values()) <= families().keys()


def test_every_architecture_of_the_package_gguf_is_read_or_refused_with_a_reason():
    """A newer package names more; the names that stand here then are those to decide on."""
    assert set(gguf.MODEL_ARCH_NAMES.values()) - FAMILIES.keys() - REFUSED.keys() == set()
    assert not FAMILIES.keys() & REFUSED.keys()


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"general.name": "x"}, "no general.architecture"),
        ({"split.no": 1, "split.count": 3}, "part 2 of a GGUF file; the first part"),
        ({**model(), "general.type": "adapter"}, "general.type is 'adapter'"),
        (model("clip"), "vision part"),
        (model("t5"), "encoder-decoder"),
        (model("bert"), "reads a whole text at once"),
        (model("llada"), "writes its text by diffusion"),
        (model("from-tomorrow"), "'from-tomorrow', which kvviz does not know"),
        (model("rwkv7", {"attention.head_count": 0}), "no rwkv7.ssm.conv_kernel"),
        ({"general.architecture": "llama"}, "no llama.block_count"),
        (model("llama", {"block_count": 2_000}), "leaves 2,000 layers"),
        (model("llama", {"block_count": 3, "nextn_predict_layers": 3}), "leaves 0 layers"),
        (model("llama", {"attention.head_count": [4]}), "lists 1 layers and the model has 2"),
        (model("llama", {"attention.head_count": [float("nan")] * 2}), "llama.attention.head_count is nan"),
        (model("llama", {"attention.head_count": "many"}), "llama.attention.head_count is 'many'"),
        (model("gemma4", {"attention.sliding_window": 512}), "no gemma4.attention.sliding_window_pattern"),
        (model("mamba", {"attention.head_count": 0}), "no mamba.ssm.conv_kernel"),
        (model("qwen3next", GATED | {"ssm.time_step_rank": 0}), "qwen3next.ssm.time_step_rank is 0"),
        (model("deepseek2", LATENT | {"attention.key_length": 64}), "key_length - kv_lora_rank"),
    ],
)  # fmt: skip
def test_what_a_header_does_not_say_is_named(metadata, says):
    with pytest.raises(ConfigError, match=says):
        spec_of(metadata)


def test_heads_and_widths_of_each_layer():
    """Gemma 4: layers with a window have KV heads and a head dim of their own, and the last ones reuse theirs."""
    keys = {
        "block_count": 6, "attention.sliding_window": 512, "attention.head_count": 8,
        "attention.sliding_window_pattern": [True, True, False, True, True, False],
        "attention.head_count_kv": [4, 4, 2, 4, 4, 2], "attention.shared_kv_layers": 2,
        "attention.key_length": 64, "attention.value_length": 64,
        "attention.key_length_swa": 32, "attention.value_length_swa": 32,
    }  # fmt: skip
    layers = spec_of(model("gemma4", keys)).layers
    rows = [(layer.kind, layer.kv_heads, layer.key_dim, layer.window) for layer in layers]
    sliding = ("sliding", 4, 32, 512)
    assert rows == [sliding, sliding, ("full", 2, 64, None), sliding, *[("shared", 0, 0, None)] * 2]


def test_an_old_file_of_deepseek_keeps_every_head():
    """Files from before llama.cpp kept latent rows have no key_length_mla, and it expands their keys and values."""
    keys = {"attention.key_length": 192, "attention.value_length": 128, "attention.kv_lora_rank": 512}
    rows = [(row.kind, row.kv_heads, row.key_dim, row.value_dim) for row in spec_of(model("deepseek2", keys)).layers]
    assert rows == [("full", 4, 192, 128)] * 2


def test_the_weights_of_a_part_alone_are_unknown():
    tensors = [("w", (64,), 1, 0)]
    config = config_of(read_header(io.BytesIO(header({**model(), "split.count": 2, "split.no": 0}, tensors))))
    assert weights_in(config) is None
    assert "a part of several" in ModelSpec.from_config(config).notes[0]
    other = read_header(io.BytesIO(header({"split.no": 1}, tensors)))
    whole = config_of(read_header(io.BytesIO(header({**model(), "split.count": 2}, tensors))), "", [other])
    assert weights_in(whole).nbytes == 2 * 128


def test_an_architecture_without_a_family_says_so():
    assert "transformers has no exaone" in spec_of(model("exaone"), [("w", (64,), 1, 0)]).notes[0]
    assert not spec_of(model("llama"), [("w", (64,), 1, 0)]).notes
