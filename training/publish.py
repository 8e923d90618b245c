"""Save a trained model in the standard format, measure its files and write the model card."""

import hashlib
import json
import platform
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from training import evaluate
from training.architectures import Spec, parameters
from training.card import readme
from training.evaluate import Exam
from training.lexicon import GENDER, HELD_NAMES
from training.loop import Settings, State
from training.picture import curve_svg
from training.plots import PLOTS, TEMPLATES
from training.stories import GENERATOR_VERSION, NEW_SEEDS
from training.tokens import TOKENIZER_STORIES, save_tokenizer

ALLOWED_CHANGE = 0.001
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def stored_as(changes: dict[str, float]) -> str:
    """Choose the 16-bit format that changes the loss least, or fp32 if both change it too much."""
    best = min(changes, key=lambda label: abs(changes[label]))
    return best if abs(changes[best]) < ALLOWED_CHANGE else "fp32"


def write_model(model: PreTrainedModel, tokenizer: Tokenizer, spec: Spec, folder: Path, label: str) -> None:
    """Write weights, config and tokenizer; the config's dtype is fp32, so that loading without options gives fp32."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.generation_config.pad_token_id = 0
    model.to(_DTYPES[label]).save_pretrained(str(folder))
    model.float()
    (folder / "model.safetensors").chmod(0o644)
    save_tokenizer(tokenizer, folder, spec.context)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights_of(folder: Path, label: str, changes: dict[str, float]) -> dict:
    """The card's entries about the weight file."""
    path = folder / "model.safetensors"
    return {"sha256": sha256(path), "bytes": path.stat().st_size, "stored_as": label, "loss_change": changes}


def data_of(exam: Exam, tokens: np.ndarray) -> dict:
    """The card's entries about the training text."""
    held = sum(line.startswith("!") for lines in TEMPLATES.values() for line in lines)
    return {
        "generator_version": GENERATOR_VERSION,
        "seed": exam.seed,
        "plots": len(PLOTS),
        "templates": sum(map(len, TEMPLATES.values())),
        "held_templates": held,
        "names": len(GENDER),
        "held_names": len(HELD_NAMES),
        "training_tokens": len(tokens),
        "training_stories": int((tokens == 0).sum()),
        "vocabulary": exam.tokenizer.get_vocab_size(),
        "tokenizer_stories": TOKENIZER_STORIES,
    }


def sizes_of(model: PreTrainedModel, spec: Spec) -> dict:
    """The card's entries about the model's dimensions."""
    config = model.config
    heads = config.num_attention_heads
    return {
        "Parameters": f"{parameters(model):,}",
        "Layers": config.num_hidden_layers,
        "Hidden size": config.hidden_size,
        "Query heads": heads,
        "Key-value heads": getattr(config, "num_key_value_heads", heads),
        "Head size": getattr(config, "head_dim", config.hidden_size // heads),
        "Context": spec.context,
        "Vocabulary": config.vocab_size,
    }


def settings_of(settings: Settings, spec: Spec) -> dict:
    """The card's entries about the training run."""
    kept = {key: value for key, value in asdict(settings).items() if key != "save_seconds"}
    return kept | {
        "betas": list(settings.betas),
        "sequence lengths": ", ".join(f"{length} ({share:.0%} of the steps)" for share, length in spec.stages),
        "optimizer": "Muon for matrices (its rate: matrix_rate), AdamW for the rest",
    }


def samples_of(exam: Exam, written: dict, outside: list) -> list[dict]:
    """Choose the first samples of each run, then the first flawed ones, then the prompts from outside."""
    chosen = [("sampled", pair) for pair in written["sampled"][:3]]
    chosen += [(label, pair) for label in ("greedy", "sampled, held-out names") for pair in written[label][:2]]
    bad = [
        (label, pair)
        for label in ("sampled", "sampled, held-out names")
        for pair in written[label]
        if evaluate.flaws(exam.grammar, pair)
    ]
    fresh = [entry for entry in bad if entry not in chosen]
    chosen += fresh[:2] + [entry for entry in fresh[2:] if entry[0] != "sampled"][:2]
    shown = [(label, pair, evaluate.flaws(exam.grammar, pair)) for label, pair in chosen]
    shown += [("prompt from outside", pair, []) for pair in outside]
    return [{"run": label, "prompt": pair[0], "continuation": pair[1], "flaws": wrong} for label, pair, wrong in shown]


def environment_of(state: State) -> dict:
    """Describe the training machine as far as it affects the numbers."""
    return {
        "kind": f"{platform.machine()}, torch {torch.__version__}, transformers {transformers.__version__}",
        "threads": torch.get_num_threads(),
        "cpu_minutes": state.cpu_seconds / 60,
    }


def build_card(
    folder: Path, spec: Spec, settings: Settings, state: State, exam: Exam, tokens: np.ndarray, weights: dict
) -> dict:
    """Measure all values of the card on the files in ``folder``."""
    model = evaluate.load(folder)
    written = evaluate.write_all(model, exam)
    outside, known = evaluate.outside(model, exam)
    return {
        "name": spec.name,
        "title": spec.title,
        "license": "MIT",
        "weights": weights,
        "data": data_of(exam, tokens),
        "sizes": sizes_of(model, spec),
        "training": settings_of(settings, spec),
        "environment": environment_of(state),
        "curve": [list(row) for row in state.curve],
        "held_tokens": evaluate.HELD_TOKENS - 1,
        "ngram_order": evaluate.NGRAM_ORDER,
        "perplexity": evaluate.perplexities(model, exam, spec.context),
        "perplexity_by_position": evaluate.by_position(model, exam, spec.context),
        "continuation_tokens": evaluate.CONTINUATION,
        "quality": evaluate.qualities(written, exam),
        "fresh_text_recited": evaluate.fresh_text_recited(exam),
        "outside_known_words": known,
        "samples": samples_of(exam, written, outside),
    }


def write_card(card: dict, folder: Path) -> None:
    """Write a model card as JSON and as Markdown."""
    (folder / "card.json").write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(readme(card), encoding="utf-8")


def publish(
    model: PreTrainedModel,
    spec: Spec,
    settings: Settings,
    state: State,
    exam: Exam,
    tokens: np.ndarray,
    out: Path,
) -> dict:
    """Write ``out``/<name> with model, tokenizer, card.json, README.md and loss.svg; returns the card."""
    model.eval()
    folder = out / spec.name
    changes = evaluate.rounding(model, exam.held[NEW_SEEDS.label], spec.context)
    label = stored_as(changes)
    write_model(model, exam.tokenizer, spec, folder, label)
    card = build_card(folder, spec, settings, state, exam, tokens, weights_of(folder, label, changes))
    write_card(card, folder)
    picture = curve_svg(card["curve"], settings.batch_tokens, exam.ngram[NEW_SEEDS.label])
    (folder / "loss.svg").write_text(picture, encoding="utf-8")
    return card
