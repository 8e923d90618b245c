"""The decode loop: a generator of steps. It times nothing, draws nothing and leaves nothing on the model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.decoding.modes import Forward, Mode, mode_named
from kvviz.device.nvtx import ranged

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Choose = Callable[[torch.Tensor, int], torch.Tensor]


@dataclass(slots=True)
class Step:
    """One step of the decode loop: the chosen `token_ids` (B,) and the `logits` (B, vocabulary).

    Of a mode that a server decodes the `logits` are None. The class is not frozen: a step is made within the clocked
    time, and a frozen one takes three times as long to make.

    `index` 0 is the prefill. `cache` is the object that the run keeps for its next step; None if it keeps nothing.
    `proposed` are the tokens that a draft proposed in this step, for the first sequence; None if an earlier step
    verified the proposal that this one continues, so that no forward ran.
    """

    index: int
    token_ids: torch.Tensor
    logits: torch.Tensor | None
    cache: object
    proposed: tuple[int, ...] | None = ()


def greedy(logits: torch.Tensor, index: int) -> torch.Tensor:
    """Choose the most likely token of each row: (B, vocabulary) -> (B,)."""
    return logits.argmax(dim=-1)


def chooser(sampling: Sampling) -> Choose:
    """Return the function that chooses tokens from logits, in every mode the same from the same logits."""
    return Sampler(sampling) if sampling.temperature else greedy


@dataclass(frozen=True)
class Sampler:
    """Draws tokens from logits. The random numbers of step n depend only on the seed and n."""

    sampling: Sampling

    def __call__(self, logits: torch.Tensor, index: int) -> torch.Tensor:
        """Draw a token for each row: (B, vocabulary) -> (B,)."""
        return draw(self.shares(logits), self.numbers(index, logits.shape[0])).to(logits.device)

    def numbers(self, index: int, count: int) -> torch.Tensor:
        """Return the first random numbers (count,) of a step, from 0 to 1."""
        generator = torch.Generator().manual_seed(self.sampling.seed * 1_000_003 + index)
        return torch.rand(count, generator=generator, dtype=torch.float64)

    def shares(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the probabilities (B, vocabulary) after temperature, top-k and top-p, not renormalised."""
        return _filtered(logits.cpu() if logits.device.type == "mps" else logits, self.sampling)  # MPS has no float64


def draw(shares: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Draw a token for each row of shares (B, vocabulary), of whatever sum, by random numbers (B,)."""
    share = shares.cumsum(dim=-1)
    return (share < numbers.to(shares.device)[:, None] * share[:, -1:]).sum(dim=-1)


def _filtered(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    logits = logits.double()
    logits = (logits - logits.max(dim=-1, keepdim=True).values) / sampling.temperature  # finite at the largest
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
    model: "PreTrainedModel",
    prompt_ids: torch.Tensor,
    *,
    mode: str | Mode,
    new_tokens: int,
    choose: Choose = greedy,
    capacity: int | None = None,
    draft: "PreTrainedModel | None" = None,
) -> Iterator[Step]:
    """Decode `new_tokens` tokens after `prompt_ids` (B, T), one Step each; step 0 is the prefill.

    `capacity` is the number of tokens per sequence that a mode reserves memory for, by default those of this decode. To
    stop early, for example at an end token, the caller stops iterating; testing each token here would make the device
    wait. The mode is opened before the first step, so that the prefill's time contains only the prefill. `draft` is the
    model that proposes tokens in a mode that drafts.
    """
    mode = mode_named(mode) if isinstance(mode, str) else mode
    forward = opened(model, mode, capacity or prompt_ids.shape[1] + new_tokens, draft=draft)
    if hasattr(forward, "prepare"):
        forward.prepare(prompt_ids.shape[0])
    if hasattr(forward, "choosing"):
        choose = forward.choosing(choose)
    return ranged(steps(forward, prompt_ids, mode.name, new_tokens, choose), mode.name)


def opened(
    model: "PreTrainedModel", mode: str | Mode, capacity: int, *, draft: "PreTrainedModel | None" = None
) -> Forward:
    """Open a mode's forward for so many tokens of each sequence; only a mode that drafts gets the `draft`."""
    found = mode_named(mode) if isinstance(mode, str) else mode
    return found.open(model, capacity, draft=draft) if found.drafts else found.open(model, capacity)


def steps(forward: Forward, prompt_ids: torch.Tensor, mode: str, new_tokens: int, choose: Choose) -> Iterator[Step]:
    """Decode with a forward that is open already; `mode` names it in the note of an error."""
    ids = new = prompt_ids
    joins = getattr(forward, "reads_ids", True)
    inference = torch.inference_mode()  # made once: a small model's step is hardly longer than a few such calls
    for index in range(new_tokens):
        try:
            with inference:
                logits, cache = forward(ids, new)
                token_ids = choose(logits, index)
                new = token_ids.unsqueeze(1)
                if joins:
                    ids = torch.cat([ids, new], dim=1)
        except Exception as error:
            error.add_note(f"decode step {index} of mode {mode}" if index else f"the prefill of mode {mode}")
            raise
        yield Step(index, token_ids, logits, cache, getattr(forward, "proposed", ()))


def check_context(context: int | None, prompt_tokens: int, new_tokens: int) -> None:
    """Raise KvvizError with the figures if the prompt and the new tokens exceed the model's positions."""
    if context is not None and prompt_tokens + new_tokens > context:
        room = context - prompt_tokens
        fewer = f"ask for at most {room:,} new tokens or a shorter prompt" if room > 0 else "take a shorter prompt"
        raise KvvizError(
            f"{prompt_tokens:,} prompt tokens and {new_tokens:,} new ones are {prompt_tokens + new_tokens:,}; "
            f"this model has {context:,} positions: {fewer}"
        )
