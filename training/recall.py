"""Train a model on records, measure what it recalls, and write it with its card."""

import random
from collections import defaultdict
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from training import evaluate
from training.architectures import Spec
from training.loop import Settings, State, train
from training.publish import environment_of, settings_of, sizes_of, stored_as, weights_of, write_card, write_model
from training.records import FACT, QUESTION, STORIES, Stream, Writer, recalled, record_stream
from training.stories import GENERATOR_VERSION, HELD_NAMES_SPLIT, NEW_SEEDS, TRAIN, build_grammar

EXAM_STORIES, EXAM_RECORDS = 200, 60
EXAM_LENGTH, RANGE = 1280, 250  # tokens of a record; distances that a row of the card covers
CURVE_TOKENS = 16_384


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
    state = train(model, spec, settings, read.ids, held, checkpoint, answers=read.answers)
    return _publish(model.eval(), tokenizer, spec, settings, state, exams, read, held, out / spec.name)


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
            "fact": FACT.strip(),
            "question": QUESTION.strip(),
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
        "recall": {label: by_distance(model, writer) for label, writer in exams.items()},
        "samples": [_sample(exams[NEW_SEEDS.label], tokenizer)],
    }
    write_card(card, folder)
    return card


def by_distance(model: PreTrainedModel, writer: Writer, records: int = EXAM_RECORDS) -> dict[str, list[int]]:
    """Count the questions and the right answers for each range of distances, in records of EXAM_LENGTH tokens."""
    found: dict[int, list[bool]] = defaultdict(list)
    for _, (ids, asked) in zip(range(records), writer.records("exam", EXAM_LENGTH), strict=False):
        for question, right in zip(asked, recalled(model, ids, asked), strict=True):
            found[question.distance // RANGE].append(right)
    return {f"{k * RANGE}-{(k + 1) * RANGE - 1}": [len(found[k]), sum(found[k])] for k in sorted(found)}


def _sample(writer: Writer, tokenizer: Tokenizer) -> str:
    """Return the text of a short record."""
    ids, _ = writer.record(random.Random("sample"), 256, 4)
    return tokenizer.decode(ids[1:])
