"""The source of attention's forward as data: its lines, its stages, the shapes at the end of its lines.

Standard library only. A stage begins with a comment `# name: what happens`; the names of what its lines make, and
their shapes, stand at the end of those lines: `# q (B, H, T, D), k v (B, Hkv, T, D)`.
"""

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("attention.py")
_STAGE = re.compile(r"\s*# (\w+): (.+)")
_MADE = re.compile(r"((?:\w+ )+)\(([^()]*)\)")


@dataclass(frozen=True)
class Stage:
    """A step of the computation: its statements stand in the file's lines `first` to `last`, both included.

    `makes` names what they make, each with its shape in letters.
    """

    name: str
    words: str
    first: int
    last: int
    makes: dict[str, str]

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes in numbers, given what the letters are (`Design.sizes`)."""
        return {name: _in_numbers(shape, sizes) for name, shape in self.makes.items()}


@dataclass(frozen=True)
class Listing:
    """The lines of `Attention.forward`, the first of them at `start` in the file (counted from 1), and its stages."""

    lines: tuple[str, ...]
    start: int
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """A stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def at(self, line: int) -> Stage | None:
        """The stage that a line of the file is a statement of."""
        return next((stage for stage in self.stages if stage.first <= line <= stage.last), None)


@cache
def listing() -> Listing:
    """Read attention.py."""
    text = SOURCE.read_text(encoding="utf-8")
    forward = next(
        function
        for owner in ast.parse(text).body
        if isinstance(owner, ast.ClassDef) and owner.name == "Attention"
        for function in owner.body
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
    )
    lines = text.splitlines()
    return Listing(
        lines=tuple(lines[forward.lineno - 1 : forward.end_lineno]),
        start=forward.lineno,
        stages=tuple(_stages(forward, lines)),
    )


def _stages(forward: ast.FunctionDef, lines: list[str]) -> list[Stage]:
    """A stage for each heading, with the statements up to the next one."""
    numbers = range(forward.lineno, forward.end_lineno + 1)
    headings = [(number, match) for number in numbers if (match := _STAGE.fullmatch(lines[number - 1]))]
    ends = [number for number, _ in headings[1:]] + [forward.end_lineno + 1]
    stages = []
    for (number, match), end in zip(headings, ends, strict=True):
        body = [one for one in forward.body if number < one.lineno < end]
        stages.append(
            Stage(
                name=match[1],
                words=match[2],
                first=body[0].lineno,
                last=body[-1].end_lineno,
                makes={name: shape for one in body for name, shape in _made(lines[one.end_lineno - 1]).items()},
            )
        )
    return stages


def _made(line: str) -> dict[str, str]:
    """What the comment at a line's end says: `# q (B, T), k v (B)` is {"q": "B, T", "k": "B", "v": "B"}."""
    return {name: shape for names, shape in _MADE.findall(line.rpartition("# ")[2]) for name in names.split()}


def _in_numbers(shape: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[letter] for letter in part.strip().split("*")) for part in shape.split(","))
