"""Choose prompts and continue them, sampled or greedy."""

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from training.grammar import Grammar
from training.stories import Split, sentences, write_story
from training.tokens import SEPARATOR

FIRST_PROMPT = 5_000_000
_ROWS = 25


def prompts(grammar: Grammar, split: Split, seed: int, number: int) -> list[str]:
    """First two sentences of ``number`` stories that no other measure uses."""
    stories = (write_story(grammar, split, seed, FIRST_PROMPT + i) for i in range(number))
    return [" ".join(sentences(story)[:2]) for story in stories]


def continue_all(
    model: PreTrainedModel, tokenizer: Tokenizer, texts: list[str], length: int, temperature: float, seed: int
) -> list[str]:
    """Generate ``length`` tokens after each text and decode them.

    Temperature 0 is greedy; otherwise tokens are sampled from the full distribution.
    """
    generator = torch.Generator().manual_seed(seed)
    found: list[str] = []
    for start in range(0, len(texts), _ROWS):
        ids = [tokenizer.encode(SEPARATOR + text).ids for text in texts[start : start + _ROWS]]
        rows = _continue(model, ids, length, temperature, generator)
        found += tokenizer.decode_batch(rows.tolist(), skip_special_tokens=False)
    return found


@torch.no_grad()
def _continue(
    model: PreTrainedModel,
    prompts: list[list[int]],
    length: int,
    temperature: float,
    generator: torch.Generator,
) -> np.ndarray:
    """Generate tokens (rows, length); prompts are padded on the left and the padding is masked."""
    inputs, mask = _pad(prompts)
    cache, made = None, []
    for _ in range(length):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -inputs.shape[1] :]
        out = model(
            input_ids=inputs,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
        cache, inputs = out.past_key_values, _next(out.logits[:, -1], temperature, generator)
        mask = torch.cat([mask, torch.ones_like(inputs)], 1)
        made.append(inputs)
    return torch.cat(made, 1).numpy()


def _pad(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, prompts))
    inputs = torch.tensor([[0] * (width - len(ids)) + ids for ids in prompts])
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
    return inputs, mask


def _next(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> torch.Tensor:
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits.float() / temperature).softmax(-1), 1, generator=generator)
