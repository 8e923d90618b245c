"""The tokenizer and the token streams it produces."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.grammar import Grammar
from training.stories import TRAIN, Split, write_story

SEPARATOR = "<|endoftext|>"
VOCABULARY = 1792
TOKENIZER_STORIES = 6000
_BLOCK = 500


def train_tokenizer(
    grammar: Grammar, seed: int, stories: int = TOKENIZER_STORIES, vocabulary: int = VOCABULARY
) -> Tokenizer:
    """Train a byte-level BPE on the first stories of the training split."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[SEPARATOR],
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    texts = (write_story(grammar, TRAIN, seed, number) for number in range(stories))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Save the tokenizer in the format that ``AutoTokenizer.from_pretrained(folder)`` reads."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SEPARATOR,
        eos_token=SEPARATOR,
        pad_token=SEPARATOR,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    wrapped.save_pretrained(str(folder))


def stream(grammar: Grammar, tokenizer: Tokenizer, split: Split, seed: int, length: int, first: int = 0) -> np.ndarray:
    """``length`` token ids (uint16): the stories of a split from number ``first`` on, each after a separator."""
    parts: list[list[int]] = []
    have = 0
    for ids in _stories(grammar, tokenizer, split, seed, first):
        parts.append(ids)
        have += len(ids)
        if have >= length:
            break
    return np.concatenate([np.array(ids, dtype=np.uint16) for ids in parts])[:length]


def _stories(grammar: Grammar, tokenizer: Tokenizer, split: Split, seed: int, first: int) -> Iterator[list[int]]:
    for start in count(first, _BLOCK):
        texts = [SEPARATOR + write_story(grammar, split, seed, start + i) for i in range(_BLOCK)]
        yield from (encoding.ids for encoding in tokenizer.encode_batch(texts))


def cached_stream(
    path: Path, grammar: Grammar, tokenizer: Tokenizer, split: Split, seed: int, length: int
) -> np.ndarray:
    """Like ``stream``, cached in a file; a file that is too short is rebuilt."""
    if path.exists():
        found = np.load(path)
        if len(found) >= length:
            return found[:length]
    made = stream(grammar, tokenizer, split, seed, length)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, made)
    return made
