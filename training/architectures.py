"""The architectures of the models and the sequence lengths they are trained on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM


@dataclass(frozen=True)
class Spec:
    """A model to train. ``context`` is in positions; ``stages`` holds pairs (share of the steps, sequence length).

    A model that ``begins_with`` another one starts with its weights and reads records in place of stories. ``settings``
    are those of its training that differ from the usual ones.
    """

    name: str
    title: str
    context: int
    build: Callable[[int], PreTrainedModel]
    learned_positions: bool
    stages: tuple[tuple[float, int], ...]
    steps: int
    begins_with: str = ""
    settings: Mapping[str, float] = field(default_factory=dict)


# Small models need a larger initial weight scale than the usual 0.02; with 0.02 they learn to copy names slowly.
_SPREAD = 0.08
_WAVES = 0.1
_SHARP = 3.0


def _gpt2(vocabulary: int) -> GPT2LMHeadModel:
    model = GPT2LMHeadModel(
        GPT2Config(
            initializer_range=_SPREAD,
            vocab_size=vocabulary,
            n_positions=1024,
            n_embd=128,
            n_layer=4,
            n_head=4,
            activation_function="gelu_pytorch_tanh",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    with torch.no_grad():
        weight = model.transformer.wpe.weight
        weight.copy_(_WAVES * waves(*weight.shape))
        for block in model.transformer.h:
            size = block.attn.c_proj.weight.shape[0]
            turn = turned(size)
            block.attn.c_attn.weight[:, 2 * size :] = turn
            block.attn.c_proj.weight.copy_(turn.T)
        _look_back(model)
    return model


def _look_back(model: GPT2LMHeadModel) -> None:
    """Initialise the first head of the first layer so that it attends to the previous token.

    Its keys are the fastest sine and cosine waves of the position; its queries are the same waves shifted back by one
    position. The token embeddings start at zero in those dimensions. Copying a name needs such a head, and a model with
    learned positions otherwise takes thousands of steps to grow one.
    """
    heart = model.transformer
    weight, size, head = heart.h[0].attn.c_attn.weight, heart.embed_dim, heart.h[0].attn.head_dim
    half = head // 2
    places = torch.cat([torch.arange(half), size // 2 + torch.arange(half)])
    step = _speeds(size)[:half]
    back = torch.cat(
        [
            torch.cat([step.cos().diag(), step.sin().diag()], dim=1),
            torch.cat([-step.sin().diag(), step.cos().diag()], dim=1),
        ]
    )
    heart.wte.weight[:, places] = 0
    weight[:, :head], weight[:, size : size + head] = 0, 0
    weight[places, :head] = _SHARP * back
    weight[places, size : size + head] = _SHARP * torch.eye(head)


def turned(size: int) -> torch.Tensor:
    """Return a random rotation (size, size) for the value projection; the output projection starts as its transpose.

    Attention then starts as a copy of the tokens it attends to. Without that a small model takes many times as long to
    learn to copy a name.
    """
    return torch.linalg.qr(torch.randn(size, size))[0]


def waves(positions: int, size: int) -> torch.Tensor:
    """Return sine and cosine waves (positions, size) of falling frequency, the initial position embeddings.

    Neighbouring positions get similar vectors, so a few training steps suffice to single out the previous token.
    """
    angles = torch.arange(positions)[:, None] * _speeds(size)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _speeds(size: int) -> torch.Tensor:
    """Radians per position of each wave (size / 2), falling from 1."""
    return 10_000.0 ** (-torch.arange(0, size, 2) / size)


def _qwen3(vocabulary: int) -> Qwen3ForCausalLM:
    model = Qwen3ForCausalLM(
        Qwen3Config(
            initializer_range=_SPREAD,
            vocab_size=vocabulary,
            hidden_size=128,
            intermediate_size=320,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    with torch.no_grad():
        for layer in model.model.layers:
            part = layer.self_attn
            turn = turned(part.v_proj.in_features)[: part.v_proj.out_features]
            part.v_proj.weight.copy_(turn)
            heads = turn.view(-1, part.head_dim, turn.shape[1]).repeat_interleave(part.num_key_value_groups, 0)
            part.o_proj.weight.copy_(heads.flatten(0, 1).T / part.num_key_value_groups)
    return model


SPECS = {
    "mini-gpt2": Spec(
        "mini-gpt2",
        "GPT-2 architecture: learned positions, multi-head attention",
        1024,
        _gpt2,
        learned_positions=True,
        stages=((0.5, 256), (0.4, 256), (0.1, 1024)),
        steps=16000,
    ),
    "mini-qwen3": Spec(
        "mini-qwen3",
        "Qwen3 architecture: rotary positions, grouped-query attention",
        2048,
        _qwen3,
        learned_positions=False,
        stages=((0.94, 256), (0.06, 2048)),
        steps=7100,
    ),
    "mini-recall": Spec(
        "mini-recall",
        "mini-qwen3, trained further to recall names and numbers that a text has stated",
        2048,
        _qwen3,
        learned_positions=False,
        stages=((0.32, 128), (0.2, 256), (0.16, 640), (0.32, 1280)),
        steps=1000,
        begins_with="mini-qwen3",
        settings={"batch_tokens": 1280, "rate": 2e-3, "matrix_rate": 4e-3, "noise": 0.0, "emphasis": 1.0},
    ),
}


def build(spec: Spec, vocabulary: int, seed: int) -> PreTrainedModel:
    """Build an untrained model; the same seed gives the same weights."""
    torch.manual_seed(seed)
    return spec.build(vocabulary)


def parameters(model: PreTrainedModel) -> int:
    """Count the weights; shared weights count once."""
    return sum(weight.numel() for weight in model.parameters())
