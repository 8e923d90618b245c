"""Records a gated delta layer token by token, and what each layer of two hybrid models holds after each token."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kvviz.decoding.loading import Loaded
from kvviz.decoding.scratch.delta import DeltaDesign, GatedDelta, State, delta_twin
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.observe import watched
from kvviz.experiments.architectures.ways import Counted, Way, far, stack, tiny_model, token_by_token
from kvviz.experiments.inside.numbers import plain, shapes_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LAYER = 0  # whose numbers are recorded
RATES = (0.02, 0.1, 0.4, 1.6)  # at which the heads forget; a random rate would forget everything at once
SHOWN = {  # what is recorded of each head, by its stage
    "split": ("q", "k", "v"),
    "pace": ("keep", "strength"),
    "recall": ("answer",),
    "write": ("delta", "written"),
    "read": ("read",),
}


class _StandIn(Counted):
    """A gated delta layer from scratch with a state of its own; it reads the tokens one by one."""

    def __init__(self, layer: GatedDelta) -> None:
        super().__init__(layer)
        self.state = State(layer.design)

    def call(self, hidden_states: Tensor, **others: object) -> Tensor:
        return torch.stack([self.layer(token, self.state) for token in hidden_states.unbind(1)], dim=1)


def delta_walk(loaded: Loaded, prompt: Tensor, new_tokens: int) -> dict[str, Any]:
    """Decode greedily, the prompt token by token too, and return what one layer's heads do with each token.

    `difference` is how far the layer's matrix is, and each step's logits are, from those of transformers, which reads
    all tokens at once, in chunks. `stacks` are the layers of two models, with their bytes after each token.
    """
    _slow(loaded.model)
    design = DeltaDesign.of(loaded.model.config.to_dict())
    states: list[State] = []

    def in_place(theirs: nn.Module) -> Counted:
        layer = _StandIn(delta_twin(theirs, design))
        states.append(layer.state)
        return layer

    ours = Way(loaded.model, {"linear_attn": in_place, "self_attn": Counted})
    source = listing("GatedDelta", "delta.py")

    def read(token: Tensor) -> tuple[Tensor, dict[str, Any]]:
        with watched({LAYER: ours.layers[LAYER].get_submodule("layer")}, GatedDelta, source) as seen:
            logits = ours.step(token)
        made, state = seen[LAYER], states[LAYER]
        return logits, {
            **{name: plain(made[stage][name][0]) for stage, names in SHOWN.items() for name in names},
            "shapes": shapes_of(made),
            "multiply_adds": ours.multiply_adds(),
            "state_bytes": {"matrix": state.matrix.nbytes, "window": state.window.nbytes},
        }

    ids, steps, theirs = token_by_token(loaded, read, prompt, new_tokens)
    return {
        "design": {**asdict(design), "layers": len(ours.layers)},
        "layer": LAYER,
        "rates": RATES,
        "prompt_tokens": prompt.shape[1],
        "tokens": [loaded.codec.decode([token]) for token in ids[0].tolist()],
        "steps": steps,
        "difference": far(states[LAYER].matrix, theirs.cache.layers[LAYER].recurrent_states[0]),
        "stacks": [stack(loaded, ids), stack(tiny_model("jamba"), ids)],
    }


def _slow(model: "PreTrainedModel") -> None:
    """Let the heads of every gated delta layer forget at RATES."""
    for layer in model.model.layers:
        if hasattr(layer, "linear_attn"):
            layer.linear_attn.A_log.copy_(torch.tensor(RATES).log())
