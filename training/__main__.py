"""``python -m training``: tokenizer, all models, evaluation and model cards, from nothing but a seed."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel
from transformers.utils import logging

from training import recall
from training.architectures import SPECS, Spec, build
from training.evaluate import load, prepare_exam
from training.grammar import Grammar
from training.loop import Settings, State, train
from training.publish import publish
from training.stories import GENERATOR_VERSION, NEW_SEEDS, TRAIN, build_grammar
from training.tokens import cached_stream, stream, train_tokenizer

ROOT = Path(__file__).resolve().parents[1]
CURVE_TOKENS = 16_385


@dataclass(frozen=True)
class Lesson:
    """Data that all models share: grammar, tokenizer and training tokens."""

    grammar: Grammar
    tokenizer: Tokenizer
    tokens: np.ndarray
    seed: int


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("--only", choices=sorted(SPECS), help="train this model only")
    parser.add_argument("--steps", type=int, help="training steps (default: as in the model's specification)")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "kvviz" / "models" / "catalog" / "bundled",
        help="where the finished models go",
    )
    parser.add_argument("--work", type=Path, default=ROOT / "training" / "work", help="checkpoints and corpus")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def tokenizer_at(path: Path, grammar: Grammar, seed: int) -> Tokenizer:
    """Load the tokenizer from the work folder; train it on the first run."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        train_tokenizer(grammar, seed).save(str(path), pretty=False)
    return Tokenizer.from_file(str(path))


def prepare(work: Path, seed: int, tokens: int) -> Lesson:
    """Prepare the grammar, the tokenizer and ``tokens`` training tokens."""
    grammar = build_grammar()
    tokenizer = tokenizer_at(work / "tokenizer.json", grammar, seed)
    corpus = cached_stream(work / "train.npy", grammar, tokenizer, TRAIN, seed, tokens)
    return Lesson(grammar, tokenizer, corpus, seed)


def teach(spec: Spec, settings: Settings, lesson: Lesson, work: Path) -> tuple[PreTrainedModel, State]:
    """Train a model and return it with its loss curve; resumes from a checkpoint if one exists."""
    model = build(spec, lesson.tokenizer.get_vocab_size(), settings.seed)
    held = stream(lesson.grammar, lesson.tokenizer, NEW_SEEDS, lesson.seed, CURVE_TOKENS)
    checkpoint = work / f"{spec.name}-{settings.steps}.pt"
    return model, train(model, spec, settings, lesson.tokens, held, checkpoint)


def main() -> None:
    """Train, evaluate and publish the chosen models."""
    options = arguments()
    logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    work = options.work / f"generator-{GENERATOR_VERSION}-seed-{options.seed}"
    plans = [
        (spec, Settings(**{"steps": options.steps or spec.steps, "seed": options.seed} | spec.settings))
        for name, spec in SPECS.items()
        if options.only in (None, name)
    ]
    tell_stories([plan for plan in plans if not plan[0].begins_with], work, options.seed, options.out)
    for spec, settings in plans:
        if spec.begins_with:
            report(recall.teach(spec, settings, load(options.out / spec.begins_with), work, options.out))


def tell_stories(plans: Sequence[tuple[Spec, Settings]], work: Path, seed: int, out: Path) -> None:
    """Train, evaluate and publish the models of stories."""
    if not plans:
        return
    need = max(settings.steps * settings.batch_tokens for _, settings in plans) + 2 * 2048
    lesson = prepare(work, seed, need)
    trained = [(spec, settings, *teach(spec, settings, lesson, work)) for spec, settings in plans]
    for spec, settings, model, state in trained:
        seen = lesson.tokens[: settings.steps * settings.batch_tokens]
        exam = prepare_exam(lesson.grammar, lesson.tokenizer, seen, lesson.seed)
        report(publish(model, spec, settings, state, exam, seen, out))


def report(card: dict) -> None:
    """Print the main figures of a model card."""
    print(card["name"], card["weights"]["stored_as"], card["weights"]["bytes"], "bytes")
    for label, found in card.get("recall", {}).items():
        print(f"  {label}:", ", ".join(f"{key} tokens {right}/{asked}" for key, (asked, right) in found.items()))
    for label, found in (card.get("perplexity", {}) | card.get("quality", {})).items():
        print(f"  {label}:", ", ".join(f"{key} {value:.4g}" for key, value in found.items()))


if __name__ == "__main__":
    main()
