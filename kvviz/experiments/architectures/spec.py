"""Defines a decode of a tiny model whose layers keep something else than keys and values. Standard library only."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole
from kvviz.experiments.kind import Spec

TINY: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("tiny.toml").read_text(encoding="utf-8"))
SCENES = ("latent", "delta", "mamba", "indexer", "shared")
MOST_NEW = 12  # new tokens
MOST_PROMPT = 40  # tokens, which are bytes here: their rows and the new ones fit on a screen
PROMPT = "Once upon a time"


@dataclass(frozen=True)
class ArchitectureSpec(Spec):
    """A greedy decode of the tiny model of a scene."""

    kind: ClassVar[str] = "architecture"
    called: ClassVar[str] = "a walk through an architecture"

    scene: str
    prompt: str = PROMPT
    new_tokens: int = 6

    def __post_init__(self) -> None:
        if self.scene not in SCENES:
            raise KvvizError(f"no scene {self.scene!r}; they are {', '.join(SCENES)}")
        check_whole("new_tokens", self.new_tokens, 2, MOST_NEW)
        if not isinstance(self.prompt, str) or not self.prompt:
            raise KvvizError("the prompt is empty: a model needs at least one token to go on from")
        if (size := len(self.prompt.encode("utf-8", "replace"))) > MOST_PROMPT:
            raise KvvizError(f"the prompt has {size} bytes, each of which is a token here; a walk takes {MOST_PROMPT}")
