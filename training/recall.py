"""Train a model on records, measure what it recalls, and write it with its card."""

import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from training import evaluate
from training.architectures import Spec
from training.loop import Settings, State, train
from training.publish import environment_of, settings_of, sizes_of, stored_as, weights_of, write_card, write_model
from training.records import KINDS, STORIES, Stream, Writer, recalled, record_stream
from training.stories import GENERATOR_VERSION, HELD_NAMES_SPLIT, NEW_SEEDS, TRAIN, build_grammar

EXAM_STORIES, EXAM_RECORDS = 200, 60
EXAM_LENGTH, RANGE = 1280, 250  # tokens of a record; distances that a row of the card covers
CURVE_TOKENS = 16_384
DIGIT_NORM = 1.6  # length of a digit's vector at first, which is that of the tokens with which names begin


def teach(spec: Spec, settings: Settings, model: PreTrainedModel, work: Path, out: Path) -> dict:
    """Train the model further on records and publish it; returns the card. Resumes from a checkpoint if one exists."""
    tokenizer = Tokenizer.from_file(str(out / spec.begins_with / "tokenizer.json"))
    exams = {
        split.label: Writer(build_grammar(), tokenizer, split, settings.seed, EXAM_STORIES)
        for split in (NEW_SEEDS, HELD_NAMES_SPLIT)
    }
    writer = Writer(build_grammar(), tokenizer, TRAIN, settings.seed)
    read = record_stream(writer, f"train/{settings.seed}", spec.stages, settings.steps * settings.batch_tokens)
    row = [(1.0, settings.curve_length)]
    held = record_stream(exams[NEW_SEEDS.label], "curve", row, CURVE_TOKENS).ids[: CURVE_TOKENS + 1]
    checkpoint = work / f"{spec.name}-{settings.steps}.pt"
    begin(model, tokenizer, settings.seed)
    state = train(model, spec, settings, read.ids, held, checkpoint, answers=read.answers)
    return _publish(model.eval(), tokenizer, spec, settings, state, exams, read, held, out / spec.name)


def begin(model: PreTrainedModel, tokenizer: Tokenizer, seed: int) -> None:
    """Give each digit a vector of its own: no story has one, so training on stories made them all alike."""
    table = model.get_input_embeddings().weight
    digits = [tokenizer.token_to_id(digit) for digit in "0123456789"]
    drawn = torch.randn(len(digits), table.shape[1], generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        table[digits] = drawn * (DIGIT_NORM / table.shape[1] ** 0.5)


def _publish(
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    spec: Spec,
    settings: Settings,
    state: State,
    exams: dict[str, Writer],
    read: Stream,
    held: np.ndarray,
    folder: Path,
) -> dict:
    changes = evaluate.rounding(model, held, settings.curve_length)
    label = stored_as(changes)
    write_model(model, tokenizer, spec, folder, label)
    model = evaluate.load(folder)
    card = {
        "name": spec.name,
        "title": spec.title,
        "begins_with": spec.begins_with,
        "license": "MIT",
        "weights": weights_of(folder, label, changes),
        "data": {
            "generator_version": GENERATOR_VERSION,
            "seed": settings.seed,
            "stories": STORIES,
            "facts": {kind: [words.fact.strip(), words.question.strip()] for kind, words in KINDS.items()},
            "training_tokens": len(read.ids),
            "training_answers": int((np.diff(read.answers.astype(np.int8)) == 1).sum()),
            "vocabulary": tokenizer.get_vocab_size(),
        },
        "sizes": sizes_of(model, spec),
        "training": settings_of(settings, spec),
        "environment": environment_of(state),
        "curve": [list(row) for row in state.curve],
        "exam_length": EXAM_LENGTH,
        "exam_records": EXAM_RECORDS,
        "recall": {
            f"{known} {kind}s": found
            for known, split in (("known", NEW_SEEDS), ("held-out", HELD_NAMES_SPLIT))
            for kind, found in by_distance(model, exams[split.label]).items()
        },
        "samples": [_sample(exams[NEW_SEEDS.label], tokenizer)],
    }
    write_card(card, folder)
    return card


def by_distance(model: PreTrainedModel, writer: Writer, records: int = EXAM_RECORDS) -> dict[str, dict[str, list[int]]]:
    """Count questions and right answers by kind and range of distances, in records of EXAM_LENGTH tokens."""
    found: dict[str, dict[int, list[bool]]] = {kind: defaultdict(list) for kind in KINDS}
    for _, (ids, asked) in zip(range(records), writer.records("exam", EXAM_LENGTH), strict=False):
        for question, right in zip(asked, recalled(model, ids, asked), strict=True):
            found[question.kind][question.distance // RANGE].append(right)
    return {kind: {_range(k): [len(at[k]), sum(at[k])] for k in sorted(at)} for kind, at in found.items()}


def _range(number: int) -> str:
    return f"{number * RANGE}-{(number + 1) * RANGE - 1}"


def _sample(writer: Writer, tokenizer: Tokenizer) -> str:
    """Return the text of a short record."""
    ids, _ = writer.record(random.Random("sample"), 256, 4)
    return tokenizer.decode(ids[1:])
