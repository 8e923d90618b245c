"""Write kvviz/models/catalog/heldout.json: a story for measuring quality that no bundled model was trained on.

It comes from the grammar of `training/`, with names that never occur in the training text, so that a model has to
remember them. Run `python -m tools.heldout` after a change of the grammar.
"""

import json

from kvviz.models.catalog.rows import HERE
from training.stories import GENERATOR_VERSION, HELD_NAMES_SPLIT, build_grammar, write_story

SEED, NUMBER = 1, 10_003  # the model cards' stories count from 0


def heldout() -> dict[str, str]:
    """Return the text and its origin."""
    source = f"training/stories.py, version {GENERATOR_VERSION}, {HELD_NAMES_SPLIT.label}, seed {SEED}, story {NUMBER}"
    return {"source": source, "text": write_story(build_grammar(), HELD_NAMES_SPLIT, SEED, NUMBER)}


if __name__ == "__main__":
    (HERE / "heldout.json").write_text(json.dumps(heldout(), indent=1) + "\n")
