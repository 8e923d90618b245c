"""Writes kvviz/models/catalog/heldout.json: a story to measure quality with, which no bundled model was trained on.

It comes from the grammar of `training/`, with names that the training text never uses: a model has to remember them.
Run `python -m tools.heldout` after a change of the grammar.
"""

import json

from kvviz.models.catalog.rows import HERE
from training.stories import GENERATOR_VERSION, HELD_NAMES_SPLIT, build_grammar, write_story

SEED, NUMBER = 1, 10_003  # the model cards' stories count from 0


def heldout() -> dict[str, str]:
    """The text, and where it comes from."""
    source = f"training/stories.py, version {GENERATOR_VERSION}, {HELD_NAMES_SPLIT.label}, seed {SEED}, story {NUMBER}"
    return {"source": source, "text": write_story(build_grammar(), HELD_NAMES_SPLIT, SEED, NUMBER)}


if __name__ == "__main__":
    (HERE / "heldout.json").write_text(json.dumps(heldout(), indent=1) + "\n")
