"""Tensors as plain numbers for a page: nested lists, shapes, the likeliest next tokens."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from kvviz.decoding.scratch.observe import Stages
from kvviz.models.text import Codec

LIKELIEST = 5  # next tokens that a step reports


def plain(tensor: Tensor) -> Any:
    """Convert a tensor to nested lists, rounded to four digits, as many as a colour or a label can show."""
    if tensor.dim() == 1:
        return [float(f"{value:.4g}") for value in tensor.tolist()]
    return [plain(row) for row in tensor]


def shapes_of(stages: Stages) -> dict[str, dict[str, list[int]]]:
    """The shape of every tensor made, by stage and name."""
    return {stage: {name: list(made.shape) for name, made in all_made.items()} for stage, all_made in stages.items()}


def lower(blocks: Sequence[Tensor], heads: Sequence[int]) -> list[list[list[float]]]:
    """Join the steps' scores or weights, each (H, T, T_total), as [head][row][column].

    Each row ends at its own token, since later columns are masked.
    """
    found: list[list[list[float]]] = [[] for _ in heads]
    for made in blocks:
        first = made.shape[2] - made.shape[1]
        for place, head in enumerate(heads):
            found[place] += [plain(row[: first + i + 1]) for i, row in enumerate(made[head])]
    return found


def likeliest(codec: Codec, logits: Tensor) -> list[list[object]]:
    """The likeliest next tokens by logits (1, vocabulary), each with its share."""
    shares = logits.float().softmax(dim=-1)[0]
    best = shares.topk(min(LIKELIEST, shares.shape[0]))
    return [
        [codec.decode([token]), float(f"{share:.4g}")]
        for token, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
