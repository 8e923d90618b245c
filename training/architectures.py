"""The two models: their sizes, and how long the sequences are that they learn from."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM


@dataclass(frozen=True)
class Spec:
    """A model to train: ``context`` positions; ``stages`` are (share of the steps, sequence length)."""

    name: str
    title: str
    context: int
    build: Callable[[int], PreTrainedModel]
    learned_positions: bool
    stages: tuple[tuple[float, int], ...]
    steps: int


# Small models need larger first weights than the usual 0.02, or they are slow to learn to copy names.
_SPREAD = 0.06


def _gpt2(vocabulary: int) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(
            initializer_range=_SPREAD,
            vocab_size=vocabulary,
            n_positions=1024,
            n_embd=192,
            n_layer=6,
            n_head=6,
            activation_function="gelu_pytorch_tanh",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _qwen3(vocabulary: int) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(
            initializer_range=_SPREAD,
            vocab_size=vocabulary,
            hidden_size=192,
            intermediate_size=448,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


SPECS = {
    "mini-gpt2": Spec(
        "mini-gpt2",
        "GPT-2 architecture: learned positions, multi-head attention",
        1024,
        _gpt2,
        learned_positions=True,
        stages=((0.5, 128), (0.3, 256), (0.2, 1024)),
        steps=3200,
    ),
    "mini-qwen3": Spec(
        "mini-qwen3",
        "Qwen3 architecture: rotary positions, grouped-query attention",
        2048,
        _qwen3,
        learned_positions=False,
        stages=((0.5, 128), (0.38, 256), (0.12, 2048)),
        steps=3200,
    ),
}


def build(spec: Spec, vocabulary: int, seed: int) -> PreTrainedModel:
    """A fresh model; the same seed gives the same weights."""
    torch.manual_seed(seed)
    return spec.build(vocabulary)


def parameters(model: PreTrainedModel) -> int:
    """Number of weights, shared ones counted once."""
    return sum(weight.numel() for weight in model.parameters())
