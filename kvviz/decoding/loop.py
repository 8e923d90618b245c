"""The decode loop: a generator of steps. It holds no clock, draws nothing and leaves nothing on the model."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling, Step
from kvviz.decoding.modes import mode_named
from kvviz.device.nvtx import ranged

Choose = Callable[[Any, int], Any]


def greedy(logits: torch.Tensor, index: int) -> torch.Tensor:
    """The most likely token of each row: (B, vocabulary) -> (B,)."""
    return logits.argmax(dim=-1)


def chooser(sampling: Sampling) -> Choose:
    """The function that picks tokens from logits. The draw of step n depends on the seed and n alone,

    so that every mode, given the same logits, picks the same token.
    """
    if sampling.temperature == 0:
        return greedy

    def choose(logits: torch.Tensor, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(sampling.seed * 1_000_003 + index)
        draw = torch.rand(logits.shape[0], 1, generator=generator, dtype=torch.float64).to(logits.device)
        share = _filtered(logits, sampling).cumsum(dim=-1)  # (B, vocabulary)
        return (share < draw * share[:, -1:]).sum(dim=-1)

    return choose


def _filtered(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Probabilities (float64) after temperature, top-k and top-p; not normalised again."""
    logits = logits.double() / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    probabilities = logits.softmax(dim=-1)
    if sampling.top_p is None:
        return probabilities
    ordered = probabilities.sort(dim=-1, descending=True).values
    before = ordered.cumsum(dim=-1) - ordered
    least = ordered.masked_fill(before >= sampling.top_p, 2.0).min(dim=-1, keepdim=True).values
    return probabilities.masked_fill(probabilities < least, 0.0)


def decode(
    model: Any,
    prompt_ids: torch.Tensor,
    *,
    mode: str,
    new_tokens: int,
    choose: Choose = greedy,
    room: int | None = None,
) -> Iterator[Step]:
    """Decode `new_tokens` tokens after `prompt_ids` (B, T), one Step each; step 0 is the prefill.

    `room`: tokens of each sequence that a mode which reserves memory makes room for; by default all of this decode.

    Who wants to end earlier, at an end token say, stops asking: looking at a token would make the device wait. The mode
    is opened at once, not at the first step, whose time is the prefill's.
    """
    forward = mode_named(mode).opened(model, room or prompt_ids.shape[1] + new_tokens)
    if hasattr(forward, "prepare"):
        forward.prepare(prompt_ids.shape[0])
    return ranged(_steps(forward, prompt_ids, mode, new_tokens, choose), mode)


def _steps(forward: Any, prompt_ids: torch.Tensor, mode: str, new_tokens: int, choose: Choose) -> Iterator[Step]:
    ids = new = prompt_ids
    for index in range(new_tokens):
        phase = "decode" if index else "prefill"
        try:
            with torch.inference_mode():
                logits, cache = forward(ids, new)
                token_ids = choose(logits, index)
                new = token_ids[:, None]
                ids = torch.cat([ids, new], dim=1)
        except Exception as error:
            error.add_note(f"decode step {index} of mode {mode}" if index else f"the prefill of mode {mode}")
            raise
        yield Step(index, phase, token_ids, logits, cache)


def check_context(context: int | None, prompt_tokens: int, new_tokens: int) -> None:
    """Refuse work that does not fit the model's positions, with a KvvizError that gives the figures."""
    if context is not None and prompt_tokens + new_tokens > context:
        raise KvvizError(
            f"{prompt_tokens:,} prompt tokens and {new_tokens:,} new ones are {prompt_tokens + new_tokens:,}; "
            f"this model has {context:,} positions: ask for at most {max(context - prompt_tokens, 0):,} new tokens "
            "or a shorter prompt"
        )
