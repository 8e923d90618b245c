"""Write stories from the grammar (a cast, a plot, one template per beat) and split text into sentences again."""

import random
import re
from dataclasses import dataclass

from training.grammar import Grammar, Sequence, join
from training.lexicon import GENDER, HELD_NAMES, LEXICON, VARIABLES
from training.plots import PLOTS, TEMPLATES

GENERATOR_VERSION = "3"
_KEEP_OPTIONAL = 0.5


@dataclass(frozen=True)
class Split:
    """A source of stories: a label, which is part of the seed, and whether held-out names or templates are used."""

    label: str
    held_names: bool = False
    held_templates: bool = False


TRAIN = Split("train")
NEW_SEEDS = Split("new seeds")
HELD_TEMPLATES = Split("held-out templates", held_templates=True)
HELD_NAMES_SPLIT = Split("held-out names", held_names=True)
HELD_SPLITS = (NEW_SEEDS, HELD_TEMPLATES, HELD_NAMES_SPLIT)


def build_grammar() -> Grammar:
    """Build the grammar of the stories, including held-out templates and names."""
    return Grammar(LEXICON, VARIABLES, TEMPLATES)


def cast(grammar: Grammar, split: Split, rng: random.Random) -> dict[str, str]:
    """Choose two characters of different genders, kinds and initials, and two different places."""
    bound: dict[str, str] = {}
    names = [name for name in GENDER if (name in HELD_NAMES) == split.held_names]
    first = rng.choice(names)
    second = rng.choice([name for name in names if name[0] != first[0] and GENDER[name] != GENDER[first]])
    for variable, name in (("A", first), ("B", second)):
        bound |= {f"{variable}.name": name, f"{variable}.g": GENDER[name]}
        bound[f"{variable}.adj"] = _pick(grammar, f"{variable}.adj", rng)
        bound[f"{variable}.kind"] = _kind(grammar, variable, bound, rng)
    homes = rng.sample([dict(o.features)["H.name"] for o in grammar.options("H")], 2)
    return bound | {"H.name": homes[0], "P.name": homes[1]}


def _pick(grammar: Grammar, slot: str, rng: random.Random) -> str:
    return dict(rng.choice(grammar.options(slot)).features)[slot]


def _kind(grammar: Grammar, variable: str, bound: dict[str, str], rng: random.Random) -> str:
    """Choose a kind that matches the gender and differs from the other character's."""
    options = [dict(o.features) for o in grammar.options(f"{variable}.kind")]
    taken, gender = bound.get("A.kind"), bound[f"{variable}.g"]
    kinds = [o[f"{variable}.kind"] for o in options if o.get(f"{variable}.g", gender) == gender]
    return rng.choice([kind for kind in kinds if kind != taken])


def write_story(grammar: Grammar, split: Split, seed: int, number: int) -> str:
    """Write story ``number`` of a split, one paragraph per line; the same arguments give the same text."""
    rng = random.Random(f"{GENERATOR_VERSION}/{split.label}/{seed}/{number}")
    bound = cast(grammar, split, rng)
    paragraphs: list[list[str]] = [[]]
    used: set[Sequence] = set()
    for beat in rng.choice(PLOTS).split():
        if beat == "/":
            paragraphs.append([])
        elif not beat.endswith("?") or rng.random() < _KEEP_OPTIONAL:
            template = _template(grammar, beat.rstrip("?"), split, used, rng)
            paragraphs[-1].append(join(grammar.write(template, bound, rng)))
    return "\n".join(" ".join(sentences) for sentences in paragraphs if sentences)


def _template(grammar: Grammar, beat: str, split: Split, used: set[Sequence], rng: random.Random) -> Sequence:
    """Choose a template of the beat, preferring those the story has not used yet."""
    held = grammar.held[beat] if split.held_templates else ()
    fresh = [[template for template in pool if template not in used] for pool in (held, grammar.train[beat])]
    template = rng.choice(fresh[0] or fresh[1] or grammar.train[beat])
    used.add(template)
    return template


_END = re.compile(r"[.!?]")


def sentences(text: str) -> list[str]:
    """Complete sentences of a text, in order; an unfinished sentence at the end is dropped."""
    return [s for paragraph in text.split("\n") for s in _paragraph(paragraph.strip(" "))]


def _paragraph(text: str) -> list[str]:
    """Split one paragraph: a sentence ends with . ! or ? outside of quotation marks."""
    found, start, inside = [], 0, False
    for i, letter in enumerate(text):
        inside = inside != (letter == '"')
        if not inside and _END.match(letter):
            found.append(text[start : i + 1].strip(" "))
            start = i + 1
    return found
