"""The source of a layer's forward as data: its lines, its stages, the shapes at the end of its lines.

Standard library only. A stage begins with a comment `# name: what happens`. The names and shapes of the tensors that
its lines make stand at the end of those lines: `# q (B, H, T, D), k v (B, Hkv, T, D)`.
"""

import ast
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("attention.py")
_STAGE = re.compile(r"\s*# (\w+): (.+)")
_MADE = re.compile(r"((?:\w+ )+)\(([^()]*)\)")


@dataclass(frozen=True)
class Stage:
    """A stage: the statements in the file's lines `first` to `last`, and the shapes, in letters, that each `makes`."""

    name: str
    words: str
    first: int
    last: int
    makes: dict[str, str]


@dataclass(frozen=True)
class Listing:
    """The lines of a layer's forward, the first of them at `start` in the file (counted from 1), and its stages."""

    lines: tuple[str, ...]
    start: int
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """Find a stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a page's script."""
        return {"lines": list(self.lines), "start": self.start, "stages": [asdict(stage) for stage in self.stages]}

    def at(self, line: int) -> Stage | None:
        """Find the stage of a line of the file; None for a line of none."""
        return next((stage for stage in self.stages if stage.first <= line <= stage.last), None)


@cache
def listing(layer: str = "Attention", file: str = SOURCE.name) -> Listing:
    """Read the forward of a class in a file of this folder."""
    text = SOURCE.with_name(file).read_text(encoding="utf-8")
    kind = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == layer)
    found = (node for node in kind.body if isinstance(node, ast.FunctionDef))
    forward, lines = next(node for node in found if node.name == "forward"), text.splitlines()
    return Listing(tuple(lines[forward.lineno - 1 : forward.end_lineno]), forward.lineno, _stages(forward, lines))


def _stages(forward: ast.FunctionDef, lines: list[str]) -> tuple[Stage, ...]:
    """Make a stage of each heading and the statements up to the next one."""
    after = _end(forward) + 1
    numbers = range(forward.lineno, after)
    headings = [(number, match) for number in numbers if (match := _STAGE.fullmatch(lines[number - 1]))]
    ends = [number for number, _ in headings[1:]] + [after]
    stages = []
    for (number, match), end in zip(headings, ends, strict=True):
        body = [one for one in forward.body if number < one.lineno < end]
        makes = {name: shape for one in body for name, shape in _made(lines[_end(one) - 1]).items()}
        stages.append(Stage(match[1], match[2], body[0].lineno, _end(body[-1]), makes))
    return tuple(stages)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _made(line: str) -> dict[str, str]:
    """Read the comment at a line's end: `# q (B, T), k v (B)` is {"q": "B, T", "k": "B", "v": "B"}."""
    return {name: shape for names, shape in _MADE.findall(line.rpartition("# ")[2]) for name in names.split()}
