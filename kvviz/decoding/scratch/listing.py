"""The source of attention's forward as data: its lines, its stages, the shapes at the end of its lines.

Standard library only. A stage begins with a comment `# name: what happens`. The names and shapes of the tensors that
its lines make stand at the end of those lines: `# q (B, H, T, D), k v (B, Hkv, T, D)`.
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
    """A stage of the computation: the statements in the file's lines `first` to `last`, both included.

    `makes` has the shape, in letters, of each tensor that they make.
    """

    name: str
    words: str
    first: int
    last: int
    makes: dict[str, str]

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes in numbers, given the letters' sizes (`Design.sizes`)."""
        return {name: _in_numbers(shape, sizes) for name, shape in self.makes.items()}


@dataclass(frozen=True)
class Listing:
    """The lines of `Attention.forward`, the first of them at `start` in the file (counted from 1), and its stages."""

    lines: tuple[str, ...]
    start: int
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """Find a stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def at(self, line: int) -> Stage | None:
        """Find the stage of a line of the file; None for a line of none."""
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
    """Make a stage of each heading and the statements up to the next one."""
    end_of_forward = _end(forward)
    numbers = range(forward.lineno, end_of_forward + 1)
    headings = [(number, match) for number in numbers if (match := _STAGE.fullmatch(lines[number - 1]))]
    ends = [number for number, _ in headings[1:]] + [end_of_forward + 1]
    stages = []
    for (number, match), end in zip(headings, ends, strict=True):
        body = [one for one in forward.body if number < one.lineno < end]
        stages.append(
            Stage(
                name=match[1],
                words=match[2],
                first=body[0].lineno,
                last=_end(body[-1]),
                makes={name: shape for one in body for name, shape in _made(lines[_end(one) - 1]).items()},
            )
        )
    return stages


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _made(line: str) -> dict[str, str]:
    """Read the comment at a line's end: `# q (B, T), k v (B)` is {"q": "B, T", "k": "B", "v": "B"}."""
    return {name: shape for names, shape in _MADE.findall(line.rpartition("# ")[2]) for name in names.split()}


def _in_numbers(shape: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[letter] for letter in part.strip().split("*")) for part in shape.split(","))
