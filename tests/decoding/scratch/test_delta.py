"""The gated delta layer, token by token, is the layer of transformers in chunks; its state stays as large as it is."""

import pytest
import torch

from kvviz.decoding.scratch.delta import DeltaDesign, GatedDelta, State, delta_twin
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.observe import watched
from tests.decoding.scratch.test_latent import in_numbers

SIZES = {"B": 2, "W": 32, "H": 4, "Hk": 2, "Dk": 8, "Dv": 6, "K": 4, "C": 2 * 2 * 8 + 4 * 6}


@pytest.fixture(scope="module")
def built():
    """A layer of transformers and its config: the norm's weight is random too, its heads forget slowly and fast."""
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextConfig, Qwen3NextGatedDeltaNet

    names = {"W": "hidden_size", "H": "linear_num_value_heads", "Hk": "linear_num_key_heads"}
    names |= {"Dk": "linear_key_head_dim", "Dv": "linear_value_head_dim", "K": "linear_conv_kernel_dim"}
    config = Qwen3NextConfig(**{name: SIZES[letter] for letter, name in names.items()}, num_hidden_layers=1)
    torch.manual_seed(0)
    layer = Qwen3NextGatedDeltaNet(config, 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, float(parameter.dim() == 1), 0.3)
    layer.A_log.data.copy_(torch.tensor([0.02, 0.1, 0.5, 2.0]).log())
    return layer, config


@torch.no_grad()
def test_one_token_after_another_it_is_transformers_in_chunks_of_64(built):
    theirs, config = built
    tokens = 70  # more than a chunk
    x = torch.randn(SIZES["B"], tokens, SIZES["W"])
    ours = delta_twin(theirs, DeltaDesign.of(config.to_dict()))
    state = State(ours.design, SIZES["B"])
    before, made = state.nbytes, []
    for at in range(tokens - 1):
        made.append(ours(x[:, at], state))
    with watched({0: ours}, GatedDelta, listing("GatedDelta", "delta.py")) as seen:
        made.append(ours(x[:, -1], state))
    expected = theirs(x)
    assert torch.allclose(torch.stack(made, dim=1), expected, atol=1e-4)
    assert expected.abs().max() > 1, "not equal because small"
    assert state.nbytes == before == SIZES["B"] * (SIZES["H"] * SIZES["Dk"] * SIZES["Dv"] + SIZES["C"] * SIZES["K"]) * 4
    for stage in listing("GatedDelta", "delta.py").stages:
        shapes = {name: tuple(value.shape) for name, value in seen[0][stage.name].items()}
        assert shapes == {name: in_numbers(shape, SIZES) for name, shape in stage.makes.items()}


@torch.no_grad()
def test_asked_again_the_matrix_answers_nearer_to_the_value(built):
    theirs, config = built
    ours = delta_twin(theirs, DeltaDesign.of(config.to_dict()))
    state = State(ours.design, SIZES["B"])
    source = listing("GatedDelta", "delta.py")
    with watched({0: ours}, GatedDelta, source) as seen:
        for token in torch.randn(5, SIZES["B"], SIZES["W"]):
            ours(token, state)
    made = {name: value for stage in seen[0].values() for name, value in stage.items()}
    error = made["v"] - made["k"] @ made["written"]
    assert torch.allclose(error, (1 - made["strength"]) * (made["v"] - made["answer"]), atol=1e-4)
