"""The closed form of activations against what the allocator of a real forward counts."""

import pytest

from bench.activations import measured
from kvviz.base.errors import ConfigError
from kvviz.decoding.loading import load
from kvviz.deployment.activations import activations, read_widths
from kvviz.deployment.plan import _OVERHEADS
from kvviz.models.catalog.rows import model_row
from kvviz.models.sources import find_source
from tests.caches.conftest import one_thread  # noqa: F401  a kernel takes room for each thread, which no tensor is

LLAMA = read_widths(model_row("llama-3.1-8b").config)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("model", "dtype"), [("tiny-gpt2", "float32"), ("tiny-qwen3", "bfloat16")])
def test_a_prefills_bytes_are_the_allocators(model, dtype, attention):
    loaded = load(find_source(model, "random"), dtype=dtype, device="cpu", attn=attention)
    for batch, tokens in ((1, 200), (3, 70)):
        prefill, step = measured(loaded, tokens, batch, attention)
        assert prefill["formula_bytes"] == pytest.approx(prefill["measured_bytes"], rel=0.001), prefill
        # a kernel on the CPU takes up to 64 KiB, 65,536 bytes, which no tensor of the model is; 70,000 lets that pass
        assert step["formula_bytes"] == pytest.approx(step["measured_bytes"], rel=0.03, abs=70_000), step


def test_the_head_for_every_position_costs_its_logits():
    last, all_positions = (activations(LLAMA, 8192, whole_head=whole).moments["logits"] for whole in (False, True))
    assert all_positions - last == 8191 * 128_256 * 2


def test_eager_attention_grows_with_the_square_and_sdpa_with_the_tokens():
    eager, sdpa = ([activations(LLAMA, n, attention=kind).nbytes for n in (4096, 8192)] for kind in ("eager", "sdpa"))
    assert eager[1] / eager[0] > 3.9
    assert sdpa[1] == 2 * sdpa[0]
    assert activations(LLAMA, 8192).widest == "MLP"


def test_devices_share_heads_and_mlp_but_each_has_all_hidden_rows():
    whole, half = (activations(LLAMA, 1000, tensor_parallel=devices).moments["MLP"] for devices in (1, 2))
    assert whole - half == 1000 * 3 * 14_336 // 2 * 2


@pytest.mark.parametrize(
    ("words", "asked"),
    [("new is 0", {"new": 0}), ("attention is 'flash'", {"attention": "flash"}), ("dtype is 'f4'", {"dtype": "f4"})],
)
def test_refuses_what_can_not_be_in_a_sentence(words, asked):
    with pytest.raises(ConfigError, match=words):
        activations(LLAMA, **{"new": 8, **asked})


def test_the_figure_that_the_note_names_is_the_formulas():
    nbytes = activations(read_widths(model_row("llama-3-8b").config), 8192).nbytes
    assert f"{nbytes / 2**30:.2f} GiB" in " ".join(_OVERHEADS["activations"]["note"].split())
