"""Measure everything a model card reports, on the model files that ship."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel

from training.grammar import Grammar
from training.ngram import KneserNey
from training.quality import consistent, grams, known_words, measure, parses, recited
from training.sampling import continue_all, prompts
from training.stories import HELD_NAMES_SPLIT, HELD_SPLITS, HELD_TEMPLATES, NEW_SEEDS, Split, write_story
from training.tokens import SEPARATOR, stream

HELD_TOKENS = 65_537
CONTINUATION = 100
NGRAM_ORDER = 5
SAMPLED, GREEDY = 200, 20
OUTSIDE_PROMPTS = (
    "The committee will vote on the new budget next",
    "def add(a, b):\n    return",
    "Guten Morgen, wie geht es",
    "1, 2, 3, 4,",
    "E = mc^2 is",
    "Dear Sir or Madam,",
    "LOUD SHOUTING IN CAPITALS",
    "It was 7:45 when the train",
    "\N{BALLOON}\N{PARTY POPPER}",
    "She was born in Reykjav\N{LATIN SMALL LETTER I WITH ACUTE}k in 1987 and",
)


@dataclass(frozen=True)
class Exam:
    """Test material: held-out token streams by split, n-gram losses, 8-word runs of the training text."""

    grammar: Grammar
    tokenizer: Tokenizer
    seed: int
    held: dict[str, np.ndarray]
    training_grams: np.ndarray
    ngram: dict[str, float]


def prepare_exam(grammar: Grammar, tokenizer: Tokenizer, tokens: np.ndarray, seed: int) -> Exam:
    """Build the held-out streams, the n-gram baseline's losses on them and the 8-word runs of the training text."""
    held = {split.label: stream(grammar, tokenizer, split, seed, HELD_TOKENS) for split in HELD_SPLITS}
    baseline = KneserNey(tokens, tokenizer.get_vocab_size(), NGRAM_ORDER)
    losses = {label: baseline.loss(found) for label, found in held.items()}
    return Exam(grammar, tokenizer, seed, held, np.unique(grams(_texts(tokenizer, tokens))), losses)


def _texts(tokenizer: Tokenizer, tokens: np.ndarray) -> list[str]:
    """Decode a token stream into its stories."""
    cuts = np.flatnonzero(tokens == 0)[1:]
    return tokenizer.decode_batch([part.tolist() for part in np.split(tokens, cuts)])


@torch.no_grad()
def position_losses(model: PreTrainedModel, tokens: np.ndarray, length: int) -> np.ndarray:
    """Mean cross-entropy (nats) at each position, over windows of ``length`` tokens."""
    rows = (len(tokens) - 1) // length
    inputs = torch.from_numpy(tokens[: rows * length].astype(np.int64)).view(rows, length)
    targets = torch.from_numpy(tokens[1 : rows * length + 1].astype(np.int64)).view(rows, length)
    losses = [
        functional.cross_entropy(model(input_ids=x[None], use_cache=False).logits[0].float(), y, reduction="none")
        for x, y in zip(inputs, targets, strict=True)
    ]
    return torch.stack(losses).mean(0).numpy()


def rounding(model: PreTrainedModel, tokens: np.ndarray, length: int) -> dict[str, float]:
    """Relative change of the held-out loss after rounding the weights to bf16 and to fp16."""
    exact = {name: weight.clone() for name, weight in model.state_dict().items()}
    whole = float(position_losses(model, tokens, length).mean())
    changes = {}
    for label, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        model.load_state_dict({name: weight.to(dtype).float() for name, weight in exact.items()})
        changes[label] = float(position_losses(model, tokens, length).mean()) / whole - 1
    model.load_state_dict(exact)
    return changes


def perplexities(model: PreTrainedModel, exam: Exam, context: int) -> dict[str, dict[str, float]]:
    """Perplexity of the model and of the n-gram baseline on each split."""
    return {
        label: {
            "model": float(np.exp(position_losses(model, held, context).mean())),
            "ngram": float(np.exp(exam.ngram[label])),
        }
        for label, held in exam.held.items()
    }


def by_position(model: PreTrainedModel, exam: Exam, context: int) -> dict[str, float]:
    """Perplexity on new stories in eight equal ranges of positions."""
    losses = position_losses(model, exam.held[NEW_SEEDS.label], context)
    stretch = context // 8
    return {
        f"{k * stretch}-{(k + 1) * stretch - 1}": float(np.exp(losses[k * stretch : (k + 1) * stretch].mean()))
        for k in range(8)
    }


RUNS: tuple[tuple[str, Split, int, float], ...] = (
    ("sampled", NEW_SEEDS, SAMPLED, 1.0),
    ("sampled, temperature 0.8", NEW_SEEDS, SAMPLED, 0.8),
    ("sampled, temperature 0.6", NEW_SEEDS, SAMPLED, 0.6),
    ("sampled, temperature 0.5", NEW_SEEDS, SAMPLED, 0.5),
    ("greedy", NEW_SEEDS, GREEDY, 0.0),
    ("sampled, held-out names", HELD_NAMES_SPLIT, SAMPLED, 1.0),
    ("sampled, held-out templates", HELD_TEMPLATES, SAMPLED, 1.0),
)


def write_all(model: PreTrainedModel, exam: Exam) -> dict[str, list[tuple[str, str]]]:
    """Generate continuations for every run; returns (prompt, continuation) pairs by run."""
    found = {}
    for label, split, number, temperature in RUNS:
        texts = prompts(exam.grammar, split, exam.seed, number)
        made = continue_all(model, exam.tokenizer, texts, CONTINUATION, temperature, exam.seed)
        found[label] = list(zip(texts, made, strict=True))
    return found


def qualities(written: dict[str, list[tuple[str, str]]], exam: Exam) -> dict[str, dict]:
    """Measure the quality of each run's continuations."""
    return {
        label: asdict(measure(exam.grammar, [p for p, _ in pairs], [c for _, c in pairs], exam.training_grams))
        for label, pairs in written.items()
    }


def fresh_text_recited(exam: Exam) -> float:
    """Share of 8-word runs in newly generated stories that also occur in the training text."""
    texts = (write_story(exam.grammar, NEW_SEEDS, exam.seed, number) for number in range(200))
    return recited(grams(texts), exam.training_grams)


def flaws(grammar: Grammar, pair: tuple[str, str]) -> list[str]:
    """Describe what is wrong with a continuation."""
    wrong = [] if all(parses(grammar, pair[1])) else ["a sentence does not parse"]
    return wrong + ([] if consistent(grammar, *pair) else ["a character changes"])


def outside(model: PreTrainedModel, exam: Exam) -> tuple[list[tuple[str, str]], float]:
    """Sample 40 tokens after prompts unlike the training text; also return the share of known words."""
    made = continue_all(model, exam.tokenizer, list(OUTSIDE_PROMPTS), 40, 1.0, exam.seed)
    return list(zip(OUTSIDE_PROMPTS, made, strict=True)), known_words(exam.grammar, SEPARATOR.join(made))


def load(folder: Path) -> PreTrainedModel:
    """Load the shipped model from its files only."""
    return AutoModelForCausalLM.from_pretrained(str(folder), local_files_only=True).eval()
