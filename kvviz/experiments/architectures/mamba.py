"""Records a Mamba-2 layer token by token, the same read at once, and the bytes beside those of attention."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kvviz.decoding.loading import Loaded
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.mamba2 import Chunked, Mamba2, MambaDesign, Recurrent, State, mamba_twin
from kvviz.decoding.scratch.observe import watched
from kvviz.experiments.architectures.ways import Counted, Way, far, stack, tiny_model, token_by_token
from kvviz.experiments.inside.numbers import lower, plain, shapes_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LAYER = 0  # whose numbers are recorded
RATES = (0.05, 0.2, 0.8, 3.2)  # at which the heads forget, and with
STEP = -0.5  # this bias of the step; as they are drawn, the heads write so little that nothing could be seen
SHOWN = {  # what is recorded of each head, by its stage
    "split": ("x", "b", "c"),
    "pace": ("step", "keep"),
    "write": ("added", "written"),
    "read": ("answer", "read"),
}


class _StandIn(Counted):
    """A Mamba-2 layer from scratch with a state of its own; it keeps what it was given in `read`."""

    def __init__(self, layer: Mamba2) -> None:
        super().__init__(layer)
        self.design = layer.design
        self.state = State(layer.design)
        self.read: list[Tensor] = []

    def call(self, hidden_states: Tensor, **others: object) -> Tensor:
        self.read.append(hidden_states)
        out: Tensor = self.layer(hidden_states, self.state)
        return out


def mamba_walk(loaded: Loaded, prompt: Tensor, new_tokens: int) -> dict[str, Any]:
    """Decode greedily, the prompt token by token too, and return what one layer's heads do with each token.

    `difference` is how far each step's logits are, and the layer's matrix is at the end, from those of transformers,
    which reads all tokens at once. `parallel` is the same layer that reads what `LAYER` was given in one go: its
    weights [head][token][token read], ending at the token itself, and how far its outputs and its matrix are.
    """
    _pace(loaded.model)
    design = MambaDesign.of(loaded.model.config.to_dict())
    layers: list[_StandIn] = []

    def in_place(theirs: nn.Module) -> Counted:
        layers.append(_StandIn(mamba_twin(theirs, design, Recurrent)))
        return layers[-1]

    mixers = [layer.mixer for layer in loaded.model.base_model.layers]
    ours, source = Way(loaded.model, {"mixer": in_place}), listing("Recurrent", "mamba2.py")
    here = layers[LAYER]
    outs = []

    def read(token: Tensor) -> tuple[Tensor, dict[str, Any]]:
        with watched({LAYER: here.layer}, Recurrent, source) as seen:
            logits = ours.step(token)
        made = seen[LAYER]
        outs.append(made["output"]["out"])
        return logits, {
            **{name: plain(made[stage][name][0]) for stage, names in SHOWN.items() for name in names},
            "window": plain(here.state.window[0].mT),
            "mixed": plain(made["convolve"]["mixed"][0]),
            "shapes": shapes_of(made),
            "multiply_adds": ours.multiply_adds(),
            "state_bytes": {"matrix": here.state.matrix.nbytes, "window": here.state.window.nbytes},
        }

    ids, steps, theirs = token_by_token(loaded, read, prompt, new_tokens)
    return {
        "design": {**asdict(design), "parts": design.parts, "layers": len(layers)},
        "layer": LAYER,
        "rates": RATES,
        "prompt_tokens": prompt.shape[1],
        "tokens": [loaded.codec.decode([token]) for token in ids[0].tolist()],
        "steps": steps,
        "difference": far(here.state.matrix.mT, theirs.cache.layers[LAYER].recurrent_states[0]),
        "parallel": _at_once(mixers[LAYER], here, torch.cat(outs, dim=1)),
        "stacks": [stack(loaded, ids), stack(tiny_model("llama"), ids)],
    }


def _at_once(theirs: nn.Module, here: _StandIn, outs: Tensor) -> dict[str, Any]:
    """Read in one go what a layer has read token by token, and hold the outputs (1, T, W) and the matrix against it."""
    layer = mamba_twin(theirs, here.design, Chunked)
    state = State(layer.design)
    with watched({LAYER: layer}, Chunked, listing("Chunked", "mamba2.py")) as seen:
        out = layer(torch.cat(here.read, dim=1), state)
    made = seen[LAYER]
    return {
        "weights": lower([made["weigh"]["weights"][0]], range(layer.design.heads)),
        "kept": lower([made["decay"]["kept"][0]], range(layer.design.heads)),
        "shapes": shapes_of(made),
        "difference": {"out": far(out, outs), "matrix": far(state.matrix, here.state.matrix)},
    }


def _pace(model: "PreTrainedModel") -> None:
    """Let the heads of every layer forget at RATES, in steps that can be seen."""
    for layer in model.base_model.layers:
        layer.mixer.A_log.copy_(torch.tensor(RATES).log())
        layer.mixer.dt_bias.fill_(STEP)
