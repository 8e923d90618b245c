"""Render a model card as Markdown from a dictionary of measured values."""

from collections.abc import Iterable, Sequence
from pathlib import Path

_QUALITY_HEAD = ("Run", "Continuations", "Sentences", "Parse", "Names stay", "Characters stay", "8-grams recited")


def table(head: Sequence[str], rows: Iterable[Sequence]) -> str:
    """Format a Markdown table; floats get three decimals."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * share:.1f}%"


def quote(text: str) -> str:
    """Indent the text as a Markdown code block without changing it."""
    return "\n".join("    " + line for line in text.split("\n"))


def readme(card: dict) -> str:
    """Render the model card as Markdown; a model that was trained to recall has a card of its own kind."""
    training, weights = card["training"], card["weights"]
    recall = "recall" in card
    text = Path(__file__).with_name("recall.md" if recall else "card.md").read_text(encoding="utf-8")
    return text.format(
        **{key: value for key, value in card.items() if isinstance(value, str | int)},
        **card["data"],
        **card["environment"],
        **weights["loss_change"],
        **{key: weights[key] for key in ("stored_as", "bytes", "sha256")},
        **_tables(card),
        **(_of_recall(card) if recall else _of_stories(card)),
        curve_length=training["curve_length"],
    )


def _tables(card: dict) -> dict[str, str]:
    batch = card["training"]["batch_tokens"]
    curve = [(step, step * batch, loss, held) for step, loss, held in card["curve"]]
    return {
        "sizes_table": table(("Size", "Value"), _texts(card["sizes"])),
        "settings_table": table(("Setting", "Value"), _texts(card["training"])),
        "curve_table": table(("Step", "Tokens", "Training loss", "Held-out loss"), curve),
    }


def _of_stories(card: dict) -> dict[str, str]:
    perplexity = [(label, found["model"], found["ngram"]) for label, found in card["perplexity"].items()]
    return {
        "perplexity_table": table(("Held-out text", "This model", "n-gram"), perplexity),
        "position_table": table(("Positions", "Perplexity"), card["perplexity_by_position"].items()),
        "quality_table": table(_QUALITY_HEAD, map(_quality_row, card["quality"].items())),
        "fresh": percent(card["fresh_text_recited"]),
        "known": percent(card["outside_known_words"]),
        "samples": "\n\n".join(map(_sample, card["samples"])),
    }


def _of_recall(card: dict) -> dict[str, object]:
    rows = [
        (label, distance, asked, percent(right / asked))
        for label, found in card["recall"].items()
        for distance, (asked, right) in found.items()
    ]
    said = [f"`{fact}` and `{question}`" for fact, question in card["data"]["facts"].values()]
    return {
        "said": "; ".join(said),
        "recall_table": table(("Answers", "Distance", "Questions", "Recalled"), rows),
        "emphasis": card["training"]["emphasis"],
        "samples": "\n\n".join(map(quote, card["samples"])),
    }


def _texts(values: dict) -> list[tuple[str, str]]:
    return [(key, str(value)) for key, value in values.items()]


def _quality_row(entry: tuple[str, dict]) -> tuple:
    label, found = entry
    shares = (percent(found[key]) for key in ("parsed", "named", "consistent", "recited"))
    return label, found["continuations"], found["sentences"], *shares


def _sample(sample: dict) -> str:
    flaw = f" ({'; '.join(sample['flaws'])})" if sample["flaws"] else ""
    return f"**{sample['run']}**{flaw}\n\n{quote(sample['prompt'] + ' >>>' + sample['continuation'])}"
