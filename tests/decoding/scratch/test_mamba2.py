"""Both forms of a Mamba-2 layer are the layer of transformers; its state stays as large as it is."""

import pytest
import torch

from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.mamba2 import Chunked, MambaDesign, Recurrent, State, mamba_twin
from kvviz.decoding.scratch.observe import watched
from tests.decoding.scratch.test_latent import in_numbers

SIZES = {"B": 2, "W": 24, "H": 4, "P": 12, "N": 6, "K": 4, "C": 4 * 12 + 2 * 2 * 6}
TOKENS = 21  # more than two of transformers' chunks


@pytest.fixture(scope="module")
def built():
    """A layer of transformers in chunks of 8, and its config: all weights random, two groups of heads."""
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Config, Mamba2Mixer

    names = {"W": "hidden_size", "H": "num_heads", "P": "head_dim", "N": "state_size", "K": "conv_kernel"}
    sizes = {name: SIZES[letter] for letter, name in names.items()}
    config = Mamba2Config(**sizes, n_groups=2, expand=2, chunk_size=8, num_hidden_layers=1)
    torch.manual_seed(0)
    layer = Mamba2Mixer(config, 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, float(parameter.dim() == 1), 0.3)
    layer.A_log.data.copy_(torch.tensor([0.02, 0.1, 0.5, 2.0]).log())
    return layer, config


@pytest.fixture(scope="module")
def expected(built):
    """A text, what transformers makes of it, and the state that it keeps at the end."""
    from transformers import DynamicCache

    theirs, config = built
    cache = DynamicCache(config=config)
    with torch.no_grad():
        x = torch.randn(SIZES["B"], TOKENS, SIZES["W"])
        return x, theirs(x, cache_params=cache), cache.layers[0]


@pytest.mark.parametrize(("form", "pieces"), [(Recurrent, [1] * TOKENS), (Chunked, [TOKENS]), (Chunked, [5, 9, 1, 6])])
@torch.no_grad()
def test_token_by_token_or_many_at_once_it_is_the_layer_of_transformers(built, expected, form, pieces):
    theirs, config = built
    x, out, kept = expected
    assert out.abs().max() > 1, "not equal because small"
    ours = mamba_twin(theirs, MambaDesign.of(config.to_dict()), form)
    state, source = State(ours.design, SIZES["B"]), listing(form.__name__, "mamba2.py")
    size = state.nbytes
    *parts, last = x.split(pieces, dim=1)
    made = [ours(part, state) for part in parts]
    with watched({0: ours}, form, source) as seen:
        made.append(ours(last, state))
    assert torch.allclose(torch.cat(made, dim=1), out, atol=1e-4)
    assert torch.allclose(state.matrix.mT, kept.recurrent_states[0], atol=1e-4)
    assert torch.allclose(state.window, kept.conv_states[0], atol=1e-4)
    assert state.nbytes == size == SIZES["B"] * (SIZES["H"] * SIZES["N"] * SIZES["P"] + SIZES["C"] * SIZES["K"]) * 4
    for stage in source.stages:
        shapes = {name: tuple(value.shape) for name, value in seen[0][stage.name].items()}
        assert shapes == {name: in_numbers(shape, {**SIZES, "T": pieces[-1]}) for name, shape in stage.makes.items()}


@torch.no_grad()
def test_in_chunks_the_state_joins_the_pieces(built, expected):
    theirs, config = built
    x, out, _ = expected
    ours = mamba_twin(theirs, MambaDesign.of(config.to_dict()), Chunked)
    state = State(ours.design, SIZES["B"])
    pieces = [ours(piece, state) for piece in x.split(4, dim=1)]
    assert torch.allclose(torch.cat(pieces, dim=1), out, atol=1e-4)
