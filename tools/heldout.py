"""Write kvviz/models/catalog/heldout.json and recall.json: texts for measuring quality and recall.

They come from the grammar of `training/`, with names that never occur in the training text, so that a model has to
remember them. Run `python -m tools.heldout` after a change of the grammar or of the records.
"""

import json

from kvviz.models.catalog.rows import HERE
from training.lexicon import THING_ADJECTIVES, THINGS
from training.records import KINDS, possible
from training.stories import GENERATOR_VERSION, HELD_NAMES_SPLIT, build_grammar, sentences, write_story

SEED, NUMBER = 1, 10_003  # the model cards' stories count from 0
STORIES = 80  # from the number on, between whose sentences facts stand


def heldout() -> dict[str, str]:
    """Return the text and its origin."""
    source = f"training/stories.py, version {GENERATOR_VERSION}, {HELD_NAMES_SPLIT.label}, seed {SEED}, story {NUMBER}"
    return {"source": source, "text": write_story(build_grammar(), HELD_NAMES_SPLIT, SEED, NUMBER)}


def recall() -> dict[str, object]:
    """Return the parts of texts with facts to be recalled, and their origin."""
    grammar, last = build_grammar(), NUMBER + STORIES
    source = f"training/records.py, version {GENERATOR_VERSION}, {HELD_NAMES_SPLIT.label}, seed {SEED}, stories "
    return {
        "source": f"{source}{NUMBER + 1} to {last}",
        "kinds": [
            {"name": kind, "fact": words.fact, "question": words.question, "answers": possible(held=True)[kind]}
            for kind, words in KINDS.items()
        ],
        "adjectives": list(THING_ADJECTIVES),
        "things": list(THINGS),
        "stories": [
            sentences(write_story(grammar, HELD_NAMES_SPLIT, SEED, number)) for number in range(NUMBER + 1, last + 1)
        ],
    }


if __name__ == "__main__":
    for name, found in {"heldout": heldout(), "recall": recall()}.items():
        (HERE / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
